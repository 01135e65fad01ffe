/* The ranks and pipeline stages of a run, and the threads of a rank. */
#include <stdlib.h>
#include <string.h>

#include "dist/comm/kind.h"
#include "trainer/plan/cpus.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/run_plan.h"

enum ct_status ct_plan_ranks(const struct ct_config *c, struct ct_ranks *out)
{
	struct ct_ranks r = {
		.local = ct_plan_local_procs(c), .node = (int)c->launch.node_rank, .n_nodes = (int)c->launch.nodes};
	const char *list = c->launch.procs_list;

	if (r.node >= r.n_nodes)
		return CT_FAIL(CT_USAGE, "--node-rank %d, but --nodes is %d (node ranks count from 0)", r.node,
			       r.n_nodes);
	r.first = r.node * r.local;
	r.world = r.n_nodes * r.local;
	if (list[0])
		r.first = r.world = 0;
	int node = 0;
	for (const char *p = list; *p; node++) {
		char *end;
		long k = strtol(p, &end, 10);

		if (end == p || k < 1 || k > 4096 || (*end && *end != ',') || (*end && !end[1]))
			return CT_FAIL(CT_USAGE, "--procs %s: expected positive numbers separated by commas", list);
		if (node < r.node)
			r.first += (int)k;
		if (node == r.node)
			r.local = (int)k;
		r.world += (int)k;
		p = *end ? end + 1 : end;
	}
	if (list[0] && node != r.n_nodes)
		return CT_FAIL(CT_USAGE, "--procs %s is for %d nodes, but --nodes is %d", list, node, r.n_nodes);
	*out = r;
	return CT_OK;
}

int *ct_plan_first_ranks(const struct ct_config *c, const struct ct_ranks *r)
{
	const char *list = c->launch.procs_list;
	int *first = CT_NEW_ARRAY(int, (size_t)r->n_nodes + 1);

	for (int k = 0; first && k < r->n_nodes; k++) {
		char *end = NULL;

		first[k + 1] = first[k] + (list[0] ? (int)strtol(list, &end, 10) : r->local);
		if (end)
			list = end + (*end == ',');
	}
	return first;
}

enum ct_status ct_plan_stages(const struct ct_config *c, int world, int rank, struct ct_stages *out)
{
	const int n = (int)c->launch.pipeline;

	if (world % n != 0) {
		CT_FAIL(CT_CONFIG, "launch.pipeline=%d does not divide the %d rank%s of this run", n, world,
			ct_plural(world));
		return ct_error_hint("use a multiple, for example --procs with the number of stages");
	}
	if (n > 1 && n < world && ct_comm_has(c->dist.backend, CT_COMM_ALL_RANKS)) {
		CT_FAIL(CT_CONFIG,
			"launch.pipeline=%d with %d ranks and dist.backend=%s: the ranks of a stage need a separate "
			"communicator, but communicator \"%s\" always contains all ranks",
			n, world, c->dist.backend, c->dist.backend);
		return ct_error_hint("use another dist.backend, or as many stages as ranks");
	}
	*out = (struct ct_stages){.n = n, .stage = rank % n, .replica = rank / n, .n_replicas = world / n};
	return CT_OK;
}

/* Returns the number of loader threads for this number of CPUs. One thread augments 28x28 images about as fast as seven
 * threads train an MLP on them. */
static int loader_share(int cpus)
{
	return (cpus + 7) / 8;
}

/* Returns true if loading takes enough time for a separate thread. */
static bool loads_slowly(const struct ct_config *c)
{
	struct ct_augment augment;

	ct_plan_augment(c, &augment);
	return ct_plan_is_encoded(c) || ct_augment_is_costly(&augment);
}

int ct_plan_threads(const struct ct_config *c, int local_world)
{
	if (c->launch.threads > 0)
		return (int)c->launch.threads;
	/* This does not depend on data.workers, because the last bits of the weights depend on the number of compute
	 * threads, and must not depend on data.workers. With fewer than 4 CPUs, none is reserved for a thread that is
	 * idle most of the time. */
	int n = ct_plan_cpus(local_world);
	return n >= 4 && loads_slowly(c) ? n - loader_share(n) : n;
}

int ct_plan_loader_threads(const struct ct_config *c, const struct ct_dataset_info *info, int local_world)
{
	if (c->data.workers >= 0)
		return (int)c->data.workers;
	if (info->in_memory && !loads_slowly(c))
		return 0;
	/* If a GPU computes, the loader uses all CPUs except one, which controls the GPU. */
	int cpus = ct_plan_cpus(local_world);
	if (ct_plan_is_encoded(c) && !ct_plan_on_cpu(c))
		return cpus > 1 ? cpus - 1 : 1;
	return loader_share(cpus);
}
