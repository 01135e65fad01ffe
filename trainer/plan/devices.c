/* The kind of device is chosen first: by the config, by an engine that computes on one kind only, or automatically. The
 * automatic choice takes the CPU, and keeps the reason, if ranks would have to share GPUs, since this is rarely what a
 * user wants; a config that lists a GPU twice asks for it. Then GPUs are listed: those of the config, or all that
 * ctrain can use. A GPU that cannot be used is skipped with its reason, if it was not listed. Nothing here opens a
 * device, because that would occupy memory of a GPU in the launcher. A failure to look for GPUs is not reported here;
 * the function that opens the device does it. */
#include "trainer/plan/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu/features.h"
#include "base/mem.h"
#include "base/thread.h"

static bool is_on_host(const char *kind)
{
	return strcmp(kind, "cuda") != 0;
}

/* Returns the smallest number of ranks per node for which launch.pipeline divides the number of ranks on all nodes. */
static int least_ranks(const struct ct_config *c)
{
	int n = 1;

	while (n * c->launch.nodes % c->launch.pipeline != 0)
		n++;
	return n;
}

/* Returns how many of n GPUs a run can use with one rank on each. 0: it needs more GPUs, for the stages of its
 * pipeline. */
static int usable(const struct ct_config *c, int n)
{
	return n - n % least_ranks(c);
}

/* Returns the number of ranks on this host that the config requests, at least; 0: another launcher determines it. */
static int ranks_here(const struct ct_config *c)
{
	const char *p = c->launch.procs_list;
	int64_t node = c->launch.node_rank;

	if (!p[0] && c->launch.procs > 0)
		return (int)c->launch.procs;
	if (!p[0])
		return c->ranks_are_started ? 0 : least_ranks(c);
	for (; node > 0 && *p; node--)
		p += strcspn(p, ",") + (strchr(p, ',') != NULL);
	return (int)strtol(p, NULL, 10);
}

static enum ct_status add(struct ct_plan_devices *out, int index)
{
	if (out->n == CT_PLAN_DEVICES_MAX)
		return CT_FAIL(CT_CONFIG, "launch.devices lists more than %d devices", CT_PLAN_DEVICES_MAX);
	for (int i = 0; i < out->n; i++)
		out->shared = out->shared || out->index[i] == index;
	out->index[out->n++] = index;
	return CT_OK;
}

/* Notes that a GPU is skipped for the current error, which is cleared. */
static void skip(struct ct_plan_devices *out, int index)
{
	const size_t len = strlen(out->skipped);

	snprintf(out->skipped + len, sizeof(out->skipped) - len, "%scuda:%d: %s (%s)", len > 0 ? "; " : "", index,
		 ct_error_message(), ct_error_hint_text());
	ct_error_clear();
}

/* Adds the GPUs that ctrain can use. */
static enum ct_status add_all(struct ct_plan_devices *out)
{
	int count;

	CT_TRY(ct_device_count("cuda", &count));
	for (int i = 0; i < count && out->n < CT_PLAN_DEVICES_MAX; i++) {
		const enum ct_status st = ct_device_check("cuda", i);

		if (st == CT_NO_DEVICE) {
			skip(out, i);
			continue;
		}
		CT_TRY(st);
		CT_TRY(add(out, i));
	}
	return CT_OK;
}

/* Chooses the kind of device for `device: auto`. An engine that computes on the CPU decides. */
static const char *choose_automatically(const struct ct_config *c, struct ct_plan_devices *out)
{
	const char *engine = c->train.engine, *kind;
	struct ct_plan_devices all = {0};
	char instead[64];

	if (strcmp(engine, "cuda") == 0)
		return "cuda";
	if (strcmp(engine, "auto") != 0) {
		snprintf(out->why, sizeof(out->why), "train.engine is %s", engine);
		return "cpu";
	}
	kind = ct_device_choose(&out->has_driver, out->why, sizeof(out->why));
	if (is_on_host(kind) || c->launch.devices[0] || ranks_here(c) <= 1)
		return kind;
	if (add_all(&all) < 0) {
		ct_error_clear(); /* the function that opens the device reports it */
		return kind;
	}
	if (ranks_here(c) <= all.n)
		return kind;
	if (usable(c, all.n) > 0)
		snprintf(instead, sizeof(instead), "launch.procs=%d uses the GPU%s", usable(c, all.n),
			 ct_plural(all.n));
	else
		snprintf(instead, sizeof(instead), "launch.pipeline=%lld needs %d on each node",
			 (long long)c->launch.pipeline, least_ranks(c));
	snprintf(out->why, sizeof(out->why), "%d ranks would have to share %d GPU%s (%s)", ranks_here(c), all.n,
		 ct_plural(all.n), instead);
	return "cpu";
}

static void choose_kind(const struct ct_config *c, struct ct_plan_devices *out)
{
	*out = (struct ct_plan_devices){.kind = c->device};
	if (strncmp(c->device, "cuda:", 5) == 0)
		out->kind = "cuda";
	else if (strcmp(c->device, "auto") == 0)
		out->kind = choose_automatically(c, out);
}

/* "0,2"; the config has checked the syntax. */
static enum ct_status add_listed(struct ct_plan_devices *out, const char *list)
{
	for (const char *p = list; *p; p += *p == ',') {
		const size_t len = strcspn(p, ",");
		char number[24];
		int64_t index;

		snprintf(number, sizeof(number), "%.*s", (int)(len < sizeof(number) ? len : sizeof(number) - 1), p);
		CT_TRY(ct_parse_i64(number, &index));
		CT_TRY(add(out, (int)index));
		p += len;
	}
	return CT_OK;
}

/* Fails if an index is too large. */
static enum ct_status check_indexes(const struct ct_plan_devices *d, int count)
{
	for (int i = 0; i < d->n; i++) {
		if (d->index[i] < count)
			continue;
		CT_FAIL(CT_NO_DEVICE, "no cuda device %d (valid indexes: 0 to %d)", d->index[i], count - 1);
		return ct_error_hint("`ctrain info` lists the devices; CUDA_VISIBLE_DEVICES hides and renumbers them");
	}
	return CT_OK;
}

static enum ct_status choose_gpus(const struct ct_config *c, struct ct_plan_devices *out)
{
	const char *one = strchr(c->device, ':');
	int count;

	if (!one && !c->launch.devices[0])
		return add_all(out);
	CT_TRY(ct_device_count("cuda", &count));
	CT_TRY(add_listed(out, one ? one + 1 : c->launch.devices));
	return check_indexes(out, count);
}

enum ct_status ct_plan_devices(const struct ct_config *c, struct ct_plan_devices *out)
{
	int count;

	choose_kind(c, out);
	if (!is_on_host(out->kind))
		return choose_gpus(c, out);
	if (c->launch.devices[0]) {
		CT_FAIL(CT_CONFIG, "launch.devices=%s selects GPUs, but this run would compute on the CPU%s%s",
			c->launch.devices, out->why[0] ? ": " : "", out->why);
		return ct_error_hint("remove launch.devices (--devices)");
	}
	return ct_device_count(out->kind, &count);
}

enum ct_status ct_plan_check_devices(const struct ct_config *c, int local)
{
	struct ct_plan_devices d;
	char instead[96];

	CT_TRY(ct_plan_devices(c, &d));
	if (is_on_host(d.kind) || local <= d.n || d.shared)
		return CT_OK;
	if (d.n >= least_ranks(c))
		snprintf(instead, sizeof(instead), "use launch.procs=%d", usable(c, d.n));
	else
		snprintf(instead, sizeof(instead),
			 "use fewer stages, because launch.pipeline=%lld needs %d GPUs on each node",
			 (long long)c->launch.pipeline, least_ranks(c));
	CT_FAIL(CT_NO_DEVICE, "%d ranks would have to share %d GPU%s", local, d.n, ct_plural(d.n));
	return ct_error_hint("%s; to share GPUs on purpose, list them repeatedly: launch.devices=0,0", instead);
}

int ct_plan_local_procs(const struct ct_config *c)
{
	struct ct_plan_devices d;

	if (c->launch.procs > 0)
		return (int)c->launch.procs;
	if (ct_plan_devices(c, &d) < 0)
		ct_error_clear(); /* the function that opens the device reports it */
	if (!is_on_host(d.kind))
		return d.n >= least_ranks(c) ? usable(c, d.n) : least_ranks(c);
	if (c->launch.pipeline > 1)
		return (int)c->launch.pipeline;
	return ct_cpu_count() >= 2 ? 2 : 1;
}

bool ct_plan_on_cpu(const struct ct_config *c)
{
	struct ct_plan_devices d;

	choose_kind(c, &d);
	return is_on_host(d.kind);
}

enum ct_status ct_plan_limit_cpu(const struct ct_config *c)
{
	if (ct_cpu_set_limit(c->train.isa) == CT_OK)
		return CT_OK;
	ct_error_wrap("train.isa=%s", ct_isa_name(c->train.isa));
	return ct_error_hint("remove train.isa, or set it to a set that every processor of the run has");
}

enum ct_status ct_plan_device_open(const struct ct_config *c, int local_rank, ct_device **out)
{
	struct ct_plan_devices d;

	CT_TRY(ct_plan_limit_cpu(c));
	CT_TRY(ct_plan_devices(c, &d));
	if (!is_on_host(d.kind))
		return ct_device_open("cuda", d.index[local_rank % d.n], out);
	/* The CPUs of a host are one device, which its ranks share. */
	return ct_device_open(d.kind, strcmp(d.kind, "cpu") == 0 ? 0 : local_rank, out);
}
