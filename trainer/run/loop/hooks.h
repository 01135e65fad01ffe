/* Commands of the user that rank 0 runs at certain events (on.*). A command is run by /bin/sh -c, with the facts in the
 * environment, and training waits for it, at most on.timeout, and with several ranks at most half of dist.timeout. Its
 * output is in the log of rank 0. A command that fails is a warning. */
#ifndef CT_TRAINER_RUN_LOOP_HOOKS_H
#define CT_TRAINER_RUN_LOOP_HOOKS_H

#include "trainer/run/metrics/metrics.h"
#include "trainer/run/session/session.h"

/* Run the command of the event if there is one. metrics is NULL on ranks other than 0, where they do nothing. Keep the
 * error chain. */
void ct_hook_epoch_end(const struct ct_session *s, ct_metrics_log *metrics);
void ct_hook_checkpoint(const struct ct_session *s, ct_metrics_log *metrics, const char *path);
void ct_hook_end(const struct ct_session *s, ct_metrics_log *metrics, enum ct_run_end end);
/* The message is that of the error chain. */
void ct_hook_failure(const struct ct_session *s, ct_metrics_log *metrics);

#endif
