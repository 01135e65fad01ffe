/* The global batch is fixed, so with fewer nodes each rank has more samples in a step, which may not fit into memory.
 * More micro-batches keep each of them at most as large as with all nodes; their number must divide the samples of a
 * rank evenly. It is searched upward from train.accumulate and ends at the latest with one sample in a micro-batch. A
 * run is refused before it starts only if no possible number of nodes divides the global batch; which numbers do is
 * looked at again whenever nodes are selected. */
#include "trainer/plan/elastic.h"

#include "trainer/plan/run_plan.h"

bool ct_plan_is_elastic(const struct ct_config *c)
{
	return c->launch.min_nodes > 0 && c->launch.min_nodes < c->launch.nodes;
}

bool ct_plan_divides(const struct ct_config *c, uint32_t world)
{
	return c->batch.global % world == 0;
}

enum ct_status ct_plan_accumulate(const struct ct_config *c, uint32_t world, uint64_t *out)
{
	struct ct_ranks most;
	uint64_t global = (uint64_t)c->batch.global, n = (uint64_t)c->train.accumulate;

	*out = n;
	if (!ct_plan_is_elastic(c) || !ct_plan_divides(c, world))
		return CT_OK;
	CT_TRY(ct_plan_ranks(c, &most));
	uint64_t rows = global / ((uint64_t)most.world * n);
	rows = rows > 0 ? rows : 1;
	while (n * world < global && (global % (n * world) != 0 || global / (n * world) > rows))
		n++;
	*out = n;
	return CT_OK;
}

enum ct_status ct_plan_check_elastic(const struct ct_config *c)
{
	struct ct_ranks most;
	int *first = NULL, n = (int)c->launch.min_nodes;

	CT_TRY(ct_plan_ranks(c, &most));
	CT_TRY_ALLOC(first = ct_plan_first_ranks(c, &most));
	while (n <= most.n_nodes && !ct_plan_divides(c, (uint32_t)first[n]))
		n++;
	ct_free(first);
	if (n <= most.n_nodes)
		return CT_OK;
	CT_FAIL(CT_CONFIG, "batch.global %lld cannot be divided among the ranks of %lld to %d nodes",
		(long long)c->batch.global, (long long)c->launch.min_nodes, most.n_nodes);
	return ct_error_hint("use a multiple of every number of ranks that may occur");
}
