/* Who used the CPUs since the last look: this process, others on the host, and how long the calling thread was ready to
 * run without getting one. From getrusage, /proc/stat and /proc/self/schedstat; what a system does not provide stays 0. */
#ifndef CT_TRAINER_REPORT_CPU_USE_H
#define CT_TRAINER_REPORT_CPU_USE_H

#include <stdint.h>

#include "trainer/report/bottleneck.h"

/* Counters at one moment, in seconds. */
struct ct_cpu_use {
	double wall_s;
	double queued_s; /* main thread, ready to run and waiting for a CPU */
	double own_s;    /* CPU time of all threads of this process */
	double host_s;   /* CPU time of everything on the host, time stolen from it included */
};

void ct_cpu_use_now(struct ct_cpu_use *out);
/* Fills wall_s, queued_s, own_s and host_s of r with what was added since *last, and moves *last on. */
void ct_cpu_use_since(struct ct_cpu_use *last, struct ct_rank_times *r);

#endif
