/* Asks cuDNN, without a GPU, which plans it has on an H100 and on an H200 for each operation graph that the CUDA engine
 * builds: for the models in configs/ and for the runs of the gate, for training and evaluation, in every precision.
 * Writes a table with one line for each graph and precision.
 *
 *   build/release/bench/cudnn_plans                     writes bench/results/cudnn_plans.tsv
 *   build/release/bench/cudnn_plans --check             compares the table with the answers of the installed cuDNN
 *   build/release/bench/cudnn_plans --check --all       also its second part, which takes longer
 *   --devices DIR --configs DIR --runs FILE --table FILE
 *                 other paths [tests/nn/cuda/devices, configs, bench/gpu/runs.tsv, bench/results/cudnn_plans.tsv]
 *   SOFT_CUDNN_REAL=PATH                                another libcudnn.so.9 than that of the build (environment)
 *
 * The batch sizes are those of the configs on 1, 2, 4 and 8 ranks, and those of the gate (bench/gpu/runs.py). The
 * smaller last steps of an epoch have graphs of their own. Their sizes follow from the numbers of samples in MNIST,
 * Fashion-MNIST, CIFAR-10 and ImageNet, or in the config. The last steps on several ranks, and those of ImageNet, are
 * the second part of the table, with which --check alone does not deal.
 *
 * --check fails if a graph has no deterministic plan on one of the cards, if a plan breaks the promise of its filter
 * or, if the table was made with the same version of cuDNN, if the table would be different now.
 *
 * Columns: plans = plans that cuDNN proposes; allowed = those that have the arithmetic of the precision and need no
 * more workspace than the engine allows (train.deterministic=false); deterministic = those of them that cuDNN also
 * calls deterministic, which are the only ones that the engine uses by default, or of the fallbacks if the heuristics
 * propose none; engine and KiB = the first deterministic plan in the order of the heuristics and its workspace; least
 * KiB = the smallest workspace of a deterministic plan. The two cards are in one column if their answers are equal, and
 * otherwise separated by a slash. Engines that cuDNN compiles at run time cannot be finalized without a GPU, so all
 * plans in the table are precompiled. */
#include "bench/cudnn_plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

const char *const plans_devices[PLANS_DEVICES] = {"h100", "h200"};

static enum ct_status open_targets(struct plans_table *t)
{
	for (int i = 0; i < PLANS_DEVICES; i++) {
		char path[512], *json;
		size_t n;
		enum ct_status st;

		snprintf(path, sizeof(path), "%s/%s.json", t->devices_dir, plans_devices[i]);
		CT_TRY(ct_file_read(path, 1 << 16, &json, &n));
		st = ct__cudnn_target_from_json(json, &t->targets[i]);
		ct_free(json);
		if (st < 0)
			return ct_error_wrap("%s", path);
	}
	return ct_device_open("cpu", 0, &t->device);
}

static void release(struct plans_table *t)
{
	for (size_t i = 0; i < t->n_rows; i++)
		ct_free(t->rows[i].graph);
	ct_free(t->rows);
	for (int i = 0; i < PLANS_DEVICES; i++)
		ct__cudnn_target_destroy(t->targets[i]);
	ct_device_close(t->device);
}

static enum ct_status parse(int argc, char **argv, struct plans_table *t)
{
	const struct {
		const char *name, **to;
	} paths[] = {{"--devices", &t->devices_dir},
		     {"--configs", &t->configs_dir},
		     {"--runs", &t->runs_path},
		     {"--table", &t->path}};

	for (int i = 1; i < argc; i++) {
		bool known = !strcmp(argv[i], "--check") || !strcmp(argv[i], "--all");

		t->check |= !strcmp(argv[i], "--check");
		t->all |= !strcmp(argv[i], "--all");
		for (size_t k = 0; !known && k < CT_ARRAY_LEN(paths) && i + 1 < argc; k++) {
			known = !strcmp(argv[i], paths[k].name);
			if (known)
				*paths[k].to = argv[++i];
		}
		if (!known)
			return CT_FAIL(CT_USAGE, "%s: no such option, or it wants a value", argv[i]);
	}
	return CT_OK;
}

int main(int argc, char **argv)
{
	struct plans_table t = {.devices_dir = "tests/nn/cuda/devices",
				.configs_dir = "configs",
				.runs_path = "bench/gpu/runs.tsv",
				.path = "bench/results/cudnn_plans.tsv"};
	enum ct_status st = parse(argc, argv, &t);

	/* The stand-in reads both at its first call; each question names its device. */
	setenv("SOFT_CUDNN_REAL", CT_CUDNN_LIBRARY, 0);
	setenv("SOFT_CUDNN_DEVICE", "{}", 0);
	if (st == CT_OK)
		st = open_targets(&t);
	if (st == CT_OK)
		st = plans_add_graphs(&t);
	if (st == CT_OK)
		st = plans_finish(&t);
	release(&t);
	if (st == CT_OK)
		return 0;
	fprintf(stderr, "cudnn_plans: %s\n", ct_error_message());
	if (ct_error_hint_text()[0])
		fprintf(stderr, "hint: %s\n", ct_error_hint_text());
	return ct_status_exit_code(st);
}
