/* Slurm may give a task its CPUs without binding it to them, so the affinity of the process can be larger than its
 * share: the smaller of both counts. A task may be one rank, or may start all ranks of its node. The CPUs of a task are
 * divided by the number of ranks only in the second case. Variables that are not positive numbers are ignored. */
#include "trainer/plan/cpus.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/thread.h"

static int at_least_one(int n)
{
	return n > 0 ? n : 1;
}

/* Returns 0 if the variable is not set or not a positive number. */
static int number(ct_getenv_fn get, void *user, const char *name)
{
	const char *text = get(name, user);
	int64_t v;

	if (!text)
		return 0;
	if (ct_parse_i64(text, &v) < 0) {
		ct_error_clear();
		return 0;
	}
	return v > 0 && v < INT32_MAX ? (int)v : 0;
}

int ct_plan_cpus_in(ct_getenv_fn get, void *user, int cpu_count, int local_world)
{
	int tasks = ct_identity_slurm_tasks(get, user), on_node = number(get, user, "SLURM_CPUS_ON_NODE");
	int cpus = tasks > 0 ? number(get, user, "SLURM_CPUS_PER_TASK") : 0;

	if (cpus == 0 && on_node > 0)
		cpus = at_least_one(on_node / at_least_one(tasks));
	/* Either each task is a rank, or a task starts all ranks of this node. */
	bool of_one_rank = cpus > 0 && tasks > 1 && tasks == local_world;
	if (cpus == 0 || cpus > cpu_count)
		cpus = cpu_count;
	return at_least_one(of_one_rank ? cpus : cpus / local_world);
}

static const char *process_env(const char *name, void *user)
{
	(void)user;
	return getenv(name);
}

int ct_plan_cpus(int local_world)
{
	return ct_plan_cpus_in(process_env, NULL, ct_cpu_count(), local_world);
}
