/* Settings that depend on several options: number of nodes, address, batch size. */
#include <stdio.h>
#include <string.h>

#include "trainer/config/import/import_impl.h"

static int64_t number_or(const char *text, int64_t fallback)
{
	int64_t v = fallback;

	if (text && ct_parse_i64(text, &v) < 0) {
		ct_error_clear();
		v = fallback;
	}
	return v;
}

static void set_number(struct ct_import *im, const char *key, int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	ct__import_set(im, key, text);
}

static int64_t n_nodes(const struct ct_import *im)
{
	return number_or(ct__import_get(im, "launch.nodes"), 1);
}

/* --world-size and --rank count nodes if the script starts one process for each GPU, else processes. */
static void settle_world(struct ct_import *im)
{
	const char *world = ct__import_get(im, "?world"), *rank = ct__import_get(im, "?rank");

	if (world && !im->per_process && number_or(world, 2) > 1) {
		ct__import_set(im, "launch.nodes", world);
		if (!ct__import_get(im, "?spawns"))
			ct__import_set(im, "launch.procs", "1");
	}
	if (rank && ct__import_get(im, "launch.nodes") && !ct__import_get(im, "launch.node_rank"))
		ct__import_set(im, "launch.node_rank", rank);
}

/* tcp://HOST:PORT, file:///PATH or env:// */
static void settle_url(struct ct_import *im)
{
	static const char tcp[] = "tcp://";
	const char *url = ct__import_get(im, "?url");

	if (!url || strncmp(url, "env:", 4) == 0)
		return;
	if (strncmp(url, tcp, strlen(tcp)) != 0)
		ct__import_set(im, "launch.init", url);
	else if (ct__import_get(im, "launch.nodes"))
		ct__import_set_endpoint(im, url + strlen(tcp));
}

/* accelerate counts the processes of all machines. */
static void settle_processes(struct ct_import *im)
{
	const char *all = ct__import_get(im, "?all");
	const int64_t n = number_or(all, 0), nodes = n_nodes(im);

	if (!all)
		return;
	if (n > 0 && nodes > 0 && n % nodes == 0)
		set_number(im, "launch.procs", n / nodes);
	else
		ct__import_note(im,
				"num_processes %s is the number on all machines; pass that of this machine to --procs",
				all);
}

/* The ImageNet example divides its batch size, 256 if there is no option, among the GPUs of a node. The config has the
 * batch size for one node. */
static void settle_batch(struct ct_import *im)
{
	const int64_t nodes = n_nodes(im);
	const char *batch = ct__import_get(im, "?batch");

	if (!batch && im->imagenet && (im->per_process || nodes > 1))
		batch = "256";
	const int64_t b = number_or(batch, 0);
	if (!batch)
		return;
	if (im->per_process || !im->imagenet || b <= 0) {
		ct__import_set(im, "batch.per_rank", batch);
		ct__import_note(
			im,
			"batch.per_rank is the batch size of each rank: the global batch size grows with the number of ranks");
		return;
	}
	set_number(im, "batch.global", b * nodes);
	ct__import_note(im, "batch.global is the batch size of all ranks together: %lld on each of %lld node%s",
			(long long)b, (long long)nodes, ct_plural(nodes));
}

/* It also divides its loader processes. */
static void settle_workers(struct ct_import *im)
{
	const char *workers = ct__import_get(im, "?workers");
	const int64_t n = number_or(workers, 0), procs = number_or(ct__import_get(im, "launch.procs"), 0);

	if (!workers)
		return;
	if (im->imagenet && !im->per_process && n > 0 && procs > 0)
		set_number(im, "data.workers", (n + procs - 1) / procs);
	else
		ct__import_set(im, "data.workers", workers);
}

/* A checkpoint of PyTorch is the model of an evaluation; training continues by itself. */
static void settle_resume(struct ct_import *im)
{
	const char *path = ct__import_get(im, "?resume");

	if (path && ct__import_get(im, "?eval")) {
		const bool readable = ct_ends_with(path, ".safetensors");

		ct__import_set(im, "?checkpoint", readable ? path : "model.safetensors");
		if (!readable)
			ct__import_note(im,
					"ctrain reads .safetensors files: convert %s once in Python with "
					"safetensors.torch.save_file({k.removeprefix(\"module.\"): v for k, v in "
					"torch.load(FILE)[\"state_dict\"].items()}, \"model.safetensors\")",
					path);
	} else if (path) {
		ct__import_note(im,
				"--resume: ctrain continues from the newest checkpoint of the run directory by itself; "
				"`train.resume=DIR` uses another one");
	}
}

/* Settings that the config would refuse together. */
static void settle_conflicts(struct ct_import *im)
{
	const char *device = ct__import_get(im, "device"), *data = ct__import_get(im, "data.name");

	if (device && strcmp(device, "cpu") == 0 && ct__import_get(im, "launch.devices")) {
		ct__import_note(im, "the GPU %s is not used, because the script computes on the CPU",
				ct__import_get(im, "launch.devices"));
		ct__import_drop(im, "launch.devices");
	}
	if (data && strcmp(data, "synthetic") == 0 && ct__import_get(im, "data.dir")) {
		ct__import_note(im, "%s is not read, because the data is random", ct__import_get(im, "data.dir"));
		ct__import_drop(im, "data.dir");
	}
}

void ct__import_settle(struct ct_import *im)
{
	const char *nodes;

	settle_world(im);
	settle_url(im);
	settle_processes(im);
	settle_batch(im);
	settle_workers(im);
	settle_resume(im);
	settle_conflicts(im);
	if (im->imagenet)
		ct__import_note(
			im, "the config has main.py's recipe, but another order of the samples, and precision=auto; "
			    "precision=tf32 computes like main.py on GPUs");
	nodes = ct__import_get(im, "launch.nodes");
	if (!nodes || strcmp(nodes, "1") == 0 || im->under_launcher)
		return;
	if (!ct__import_get(im, "launch.node_rank")) {
		ct__import_set(im, "launch.node_rank", "0");
		ct__import_note(im, "run this on the first node, and with --node-rank 1, 2 ... on the others");
	}
	if (!ct__import_get(im, "launch.master_addr") && !ct__import_get(im, "launch.init")) {
		ct__import_set(im, "launch.master_addr", "ADDRESS");
		ct__import_note(
			im, "replace ADDRESS by the address of the first node, which the script has in MASTER_ADDR");
	}
}
