/* The binding on this host. A rank derives the same job as the other ranks, because it looks at what they have in
 * common: the config, the machine, and the affinity mask that the launcher has given to all of them. */
#include "trainer/plan/host_binding.h"

#include <stdio.h>

#include "base/parallel.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/run_plan.h"

enum { MANY = 16 };

/* The NUMA nodes of the GPUs; out->near remains NULL if the ranks compute on CPUs. */
static enum ct_status find_gpus(const struct ct_config *c, int ranks, struct ct_host_binding *out)
{
	struct ct_device_info info;
	struct ct_plan_devices d;

	CT_TRY(ct_plan_devices(c, &d));
	if (d.n == 0)
		return CT_OK;
	CT_TRY_ALLOC(out->near = CT_NEW_ARRAY(int, (size_t)ranks));
	for (int i = 0; i < ranks; i++) {
		const enum ct_status st = ct_device_describe(d.kind, d.index[i % d.n], &info);

		out->near[i] = st == CT_OK ? ct_topology_node_near(&out->cpus, info.bus) : -1;
		ct_error_clear(); /* the function that opens the device reports it */
	}
	return CT_OK;
}

static enum ct_status find_cpus(const struct ct_config *c, int ranks, struct ct_host_binding *out)
{
	const struct ct_cpu_set mask = ct_cpu_mask();

	CT_TRY(ct_topology_open(!ct_plan_on_cpu(c), &out->cpus));
	out->job.n_machine = out->cpus.n;
	if (!out->cpus.foreign)
		ct_topology_restrict(&out->cpus, &mask);
	return find_gpus(c, ranks, out);
}

enum ct_status ct_host_binding_check(const struct ct_config *c)
{
	if (ct_topology_library() || c->launch.bind == CT_CFG_BIND_AUTO || c->launch.bind == CT_CFG_BIND_OFF)
		return CT_OK;
	CT_FAIL(CT_UNSUPPORTED, "launch.bind=%s needs hwloc, but ctrain was built without it",
		ct_config_choice(c, "launch.bind"));
	return ct_error_hint("install libhwloc-dev and configure with -DCTRAIN_HWLOC=ON, or use launch.bind=auto");
}

enum ct_status ct_host_binding_open(const struct ct_config *c, int ranks, bool other_launcher,
				    struct ct_host_binding *out)
{
	CT_TRY(ct_host_binding_check(c));
	*out = (struct ct_host_binding){.job = {.mode = c->launch.bind,
						.ranks = ranks,
						.threads = ct_plan_threads(c, ranks),
						.other_launcher = other_launcher}};
	out->job.cpus = &out->cpus;
	if (ct_binding_is_off(&out->job))
		return CT_OK;
	/* Reading the topology would delay the start of every run on usual machines. */
	if (c->launch.bind == CT_CFG_BIND_AUTO && !ct_topology_is_numa()) {
		snprintf(out->job.unknown, sizeof(out->job.unknown), "this machine has only one NUMA node");
		return CT_OK;
	}
	if (find_cpus(c, ranks, out) < 0) {
		snprintf(out->job.unknown, sizeof(out->job.unknown), "%s", ct_error_message());
		ct_error_clear();
	}
	out->job.near = out->near;
	return CT_OK;
}

void ct_host_binding_close(struct ct_host_binding *h)
{
	ct_topology_close(&h->cpus);
	ct_free(h->near);
	*h = (struct ct_host_binding){0};
}

void ct_host_binding_lines(const struct ct_host_binding *h, int first_rank, struct ct_str *out)
{
	struct ct_binding b;
	char text[256];

	ct_binding_why_none(&h->job, text, sizeof(text));
	ct_str_addf(out, "binding      %s%s\n", text[0] ? "none: " : "of ranks to CPUs", text);
	const int n = text[0] ? 0 : h->job.ranks;
	for (int i = 0; i < n; i++) {
		if (i == MANY - 2 && n > MANY) {
			ct_str_add(out, "  ...\n");
			i = n - 1;
		}
		ct_binding_make(&h->job, i, &b);
		ct_binding_text(&b, text, sizeof(text));
		ct_str_addf(out, "  rank %-4d  %s\n", first_rank + i, text);
	}
}

void ct_host_binding_apply(const struct ct_host_binding *h, struct ct_binding *b)
{
	if (b->why_not[0])
		return;
	if (h->cpus.foreign)
		snprintf(b->why_not, sizeof(b->why_not), "the topology is that of another machine");
	else if (ct_cpu_bind(&b->cpus) < 0)
		snprintf(b->why_not, sizeof(b->why_not), "%s", ct_error_message());
	else if (b->node >= 0)
		ct_topology_prefer_memory(&h->cpus, b->node);
	ct_error_clear();
}

enum ct_status ct_host_binding_pin(const struct ct_host_binding *h, const struct ct_binding *b)
{
	struct ct_cpu_set *cpus;

	if (b->why_not[0] || b->n_threads == 0)
		return CT_OK;
	CT_TRY_ALLOC(cpus = CT_NEW_ARRAY(struct ct_cpu_set, (size_t)b->n_threads));
	for (int i = 0; i < b->n_threads; i++)
		cpus[i] = ct_binding_of_thread(&h->job, b, i);
	ct_parallel_pin(b->n_threads, cpus);
	ct_free(cpus);
	return CT_OK;
}
