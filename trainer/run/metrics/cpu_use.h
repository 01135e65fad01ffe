/* Measures, over an interval, the CPU time used by this process, the CPU time used by all processes on the host, and
 * the time in which the main thread was ready to run but had to wait for a CPU. Sources: getrusage, /proc/stat and
 * /proc/self/schedstat. Values that the system does not provide are 0. */
#ifndef CT_TRAINER_RUN_METRICS_CPU_USE_H
#define CT_TRAINER_RUN_METRICS_CPU_USE_H

#include <stdint.h>

#include "trainer/run/metrics/bottleneck.h"

/* Counters at one moment, in seconds. */
struct ct_cpu_use {
	double wall_s;
	double queued_s; /* time in which the main thread was ready to run, but waited for a CPU */
	double own_s;    /* CPU time of all threads of this process */
	double host_s;   /* CPU time used by all processes on the host, and time stolen by the hypervisor */
};

void ct_cpu_use_now(struct ct_cpu_use *out);
/* Sets wall_s, queued_s, own_s and host_s of r to the increase since *last, then sets *last to the current counters. */
void ct_cpu_use_since(struct ct_cpu_use *last, struct ct_rank_times *r);

/* Returns the bytes of memory that this process uses now (resident set), or 0 if it is unknown. */
uint64_t ct_memory_use_now(void);

#endif
