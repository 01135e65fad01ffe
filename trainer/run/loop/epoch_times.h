/* Measures where the ranks spend the time of an epoch, and reports the bottleneck. */
#ifndef CT_TRAINER_RUN_LOOP_EPOCH_TIMES_H
#define CT_TRAINER_RUN_LOOP_EPOCH_TIMES_H

#include "trainer/run/loop/meter.h"
#include "trainer/run/metrics/cpu_use.h"

struct ct_epoch_times {
	struct ct_session *s;         /* borrowed */
	ct_stepper *stepper;          /* borrowed */
	struct ct_loader_stats stats; /* at the start of the epoch */
	struct ct_cpu_use cpu;        /* at the start of the epoch */
	struct ct_rank_times *ranks;  /* [world] times of all ranks in the last epoch that was reported */
	uint64_t damaged;             /* damaged images of all ranks in that epoch */
};

/* Starts to measure the first epoch. */
enum ct_status ct_epoch_times_init(struct ct_epoch_times *t, struct ct_session *s, ct_stepper *stepper) CT_MUST_CHECK;
void ct_epoch_times_release(struct ct_epoch_times *t);
/* Collective. Exchanges the times of all ranks, appends the bottleneck report to *out, and starts to measure the next
 * epoch. *bound is the name of the bottleneck, a string literal. The caller restarts m->epoch. */
enum ct_status ct_epoch_times_report(struct ct_epoch_times *t, const struct ct_meter *m, const char **bound,
				     struct ct_str *out) CT_MUST_CHECK;

#endif
