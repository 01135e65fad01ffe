/* Which CPUs, and the memory of which NUMA node, each rank of a host uses (launch.bind). */
#ifndef CT_TRAINER_PLAN_BINDING_H
#define CT_TRAINER_PLAN_BINDING_H

#include "trainer/config/config.h"
#include "trainer/plan/topology.h"

/* What decides on the binding of all ranks of this host. */
struct ct_binding_job {
	const struct ct_topology *cpus; /* those that the ranks share */
	int n_machine;                  /* number of CPUs before this process was restricted to some of them */
	enum ct_cfg_bind mode;
	int ranks, threads;  /* on this host, and compute threads of each of them */
	bool other_launcher; /* the ranks were not started by ctrain's launcher, which itself binds nothing */
	const int *near;     /* [ranks] NUMA node of the GPU of each rank, or -1; NULL: the ranks compute on CPUs */
	char unknown[160];   /* why cpus are not known; "": they are */
};

/* The binding of one rank. */
struct ct_binding {
	char why_not[192]; /* why the rank is not bound; "": it is bound */
	struct ct_cpu_set cpus;
	int node;                /* the NUMA node of all these CPUs, or -1 */
	int n_threads;           /* compute threads that are bound to one core each; 0: they use all of `cpus` */
	int first_core, n_cores; /* the cores of these threads */
};

/* Returns true if the CPUs do not matter, because the mode and the number of ranks suffice to decide against binding.
 */
bool ct_binding_is_off(const struct ct_binding_job *job);
/* Writes why no rank of the job is bound; "" if some are. */
void ct_binding_why_none(const struct ct_binding_job *job, char *why, size_t len);
/* Derives the binding of a rank from *job and nothing else, so all ranks of a host come to the same result. */
void ct_binding_make(const struct ct_binding_job *job, int local_rank, struct ct_binding *out);
/* Returns the CPUs of compute thread `thread` of b->n_threads, which are those of one core. */
struct ct_cpu_set ct_binding_of_thread(const struct ct_binding_job *job, const struct ct_binding *b, int thread);
/* Writes a description such as "CPUs 0-7, NUMA node 0" or "none: ..." to buf. */
void ct_binding_text(const struct ct_binding *b, char *buf, size_t len);

#endif
