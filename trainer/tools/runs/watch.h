/* `ctrain watch`: shows a run that was started elsewhere as its own console does, from what it writes to metrics.jsonl.
 */
#ifndef CT_TRAINER_TOOLS_RUNS_WATCH_H
#define CT_TRAINER_TOOLS_RUNS_WATCH_H

#include "base/status.h"
#include "trainer/config/choices.h"

/* Follows the run until it ends, or until a signal is read from `signals` (trainer/job/signals.h); *sig is then its
 * number, and otherwise 0. Begins with the last epochs of a run that has already trained. Returns CT_OK if the run has
 * reached its end, and otherwise the status of the run: CT_INTERRUPTED if it was stopped, the status of a failure, or
 * CT_PEER_LOST if it has ended without a message. */
enum ct_status ct_watch(const char *run_dir, enum ct_cfg_console mode, int signals, int *sig) CT_MUST_CHECK;

#endif
