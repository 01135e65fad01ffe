/* Measures the training step, for `ctrain bench step` and `ctrain plan`. */
#ifndef CT_TRAINER_TOOLS_BENCH_STEP_BENCH_H
#define CT_TRAINER_TOOLS_BENCH_STEP_BENCH_H

#include "trainer/tools/bench/step_trace.h"

struct ct_step_bench {
	int64_t steps;                                                 /* number of measured steps */
	double step_ms, step_min_ms;                                   /* median and minimum of the complete step */
	double data_ms, forward_ms, backward_ms, exposed_ms, optim_ms; /* medians of its phases */
	uint64_t allocations, loader_allocations; /* on the heap, in full steps: of the steps; of loader threads */
	int64_t profiled; /* number of steps whose nodes were measured: see ct_program_times of s->model.full */
};

/* Runs at least `steps` steps after a warm-up, and up to 20 more in which the nodes are measured. The first of these
 * are added to the trace, unless it is NULL. */
enum ct_status ct_step_bench(struct ct_session *s, int64_t steps, struct ct__step_trace *trace,
			     struct ct_step_bench *out) CT_MUST_CHECK;
/* Measures for about this time: at least one step, and at most 20, after a single one as warm-up. Measures no nodes. */
enum ct_status ct_step_bench_for(struct ct_session *s, double seconds, struct ct_step_bench *out) CT_MUST_CHECK;

#endif
