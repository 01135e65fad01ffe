/* Whether the ranks of a host have a CPU each. */
#include "base/thread.h"
#include "dist/comm/comm_impl.h"

void ct__comm_get_cpus(struct ct_rank_cpus *out)
{
	if (sched_getaffinity(0, sizeof(out->cpus), &out->cpus) != 0)
		CPU_ZERO(&out->cpus);
	out->limit = ct_cpu_count();
}

/* If the CPU quota of a rank is smaller than its affinity mask, the ranks share the quota. The limit of `all` is the
 * smallest quota, or 0. */
void ct__comm_add_cpus(struct ct_rank_cpus *all, const struct ct_rank_cpus *of_rank)
{
	CPU_OR(&all->cpus, &all->cpus, &of_rank->cpus);
	if (of_rank->limit < CPU_COUNT(&of_rank->cpus) && (all->limit == 0 || of_rank->limit < all->limit))
		all->limit = of_rank->limit;
}

bool ct__comm_has_cpus(const struct ct_rank_cpus *all, int n)
{
	return n <= CPU_COUNT(&all->cpus) && (all->limit == 0 || n <= all->limit);
}
