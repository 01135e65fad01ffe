/* The CPUs that a rank may use. */
#ifndef CT_TRAINER_PLAN_CPUS_H
#define CT_TRAINER_PLAN_CPUS_H

#include "dist/rendezvous/rendezvous.h"

/* Returns the number of CPUs for each of local_world ranks on this host, at least 1: the CPUs that this process may use
 * (ct_cpu_count), divided by the number of ranks. A Slurm task has SLURM_CPUS_PER_TASK CPUs, or its share of
 * SLURM_CPUS_ON_NODE. Slurm may or may not bind a task to its CPUs. If it does, they are not shared with other tasks,
 * and are not divided by their number. */
int ct_plan_cpus(int local_world);
/* Does the same for other environment variables and another number of CPUs. */
int ct_plan_cpus_in(ct_getenv_fn get, void *user, int cpu_count, int local_world);

#endif
