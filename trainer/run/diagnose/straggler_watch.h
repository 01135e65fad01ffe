/* Watches for stragglers during training: several times per second, the ranks exchange how long each phase of a step
 * takes and when they reach the buckets, and rank 0 reports a rank that is late for three seconds, in the log, on the
 * console and in metrics.jsonl. Only on devices that are not asynchronous, and without a pipeline. */
#ifndef CT_TRAINER_RUN_DIAGNOSE_STRAGGLER_WATCH_H
#define CT_TRAINER_RUN_DIAGNOSE_STRAGGLER_WATCH_H

#include "trainer/run/metrics/metrics.h"
#include "trainer/run/session/session.h"
#include "trainer/run/session/step_clock.h"

typedef struct ct_straggler_watch ct_straggler_watch;

/* Borrows the session. *out is NULL if there is nothing to watch. */
enum ct_status ct_straggler_watch_create(struct ct_session *s, ct_straggler_watch **out) CT_MUST_CHECK;
void ct_straggler_watch_destroy(ct_straggler_watch *w); /* NULL is allowed */
/* Call it after each step, with the times of the step. Collective. w may be NULL; m is NULL except on rank 0. */
enum ct_status ct_straggler_watch_step(ct_straggler_watch *w, const struct ct_step_times *t,
				       ct_metrics_log *m) CT_MUST_CHECK;

#endif
