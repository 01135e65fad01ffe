/* Prepares metrics.jsonl for a resumed run, which appends to it. */
#ifndef CT_TRAINER_RUN_METRICS_METRICS_CUT_IMPL_H
#define CT_TRAINER_RUN_METRICS_METRICS_CUT_IMPL_H

#include <stdint.h>

#include "base/status.h"

/* Drops the lines of steps after `step` (for a `run` line, resumed_step is compared with `step`), and lines that a
 * crash left incomplete: a last line without a newline, or a line that is not a JSON object. Other lines are copied
 * byte for byte. Replaces the file atomically, or does not change it if there is nothing to drop. Creates an empty file
 * if it is missing. *n_dropped is the number of dropped lines; n_dropped may be NULL. A line may be up to 16 MiB
 * long. */
enum ct_status ct__metrics_cut(const char *path, uint64_t step, uint64_t *n_dropped) CT_MUST_CHECK;

#endif
