/* Whether the ranks of a host have a CPU each. */
#include "base/thread.h"
#include "dist/comm/comm_impl.h"

void ct__comm_get_cpus(struct ct_rank_cpus *out)
{
	const double quota = ct_cpu_quota("/proc/self/cgroup", "/sys/fs/cgroup");

	if (sched_getaffinity(0, sizeof(out->cpus), &out->cpus) != 0)
		CPU_ZERO(&out->cpus);
	out->quota = quota > 0 && quota < 1 ? 1 : (int)(quota + 0.5);
}

/* Ranks that have a quota share it: usually they are in the same container. */
void ct__comm_add_cpus(struct ct_rank_cpus *all, const struct ct_rank_cpus *of_rank)
{
	CPU_OR(&all->cpus, &all->cpus, &of_rank->cpus);
	if (of_rank->quota > 0 && (all->quota == 0 || of_rank->quota < all->quota))
		all->quota = of_rank->quota;
}

bool ct__comm_has_cpus(const struct ct_rank_cpus *all, int n)
{
	return n <= CPU_COUNT(&all->cpus) && (all->quota == 0 || n <= all->quota);
}
