/* What a resumed run does to metrics.jsonl before it appends. */
#ifndef CT_TRAINER_REPORT_METRICS_CUT_IMPL_H
#define CT_TRAINER_REPORT_METRICS_CUT_IMPL_H

#include <stdint.h>

#include "base/status.h"

/* Drops lines of steps after `step` (a `run` line counts as its resumed_step), and what a crash left torn: a last line
 * without its newline, a line that is not a JSON object. Other lines stay as they are, to the byte. Replaces the file
 * atomically, or leaves it alone when nothing is to be dropped; a missing file is created empty. n_dropped (may be NULL). Lines
 * may have up to 16 MiB. */
enum ct_status ct__metrics_cut(const char *path, uint64_t step, uint64_t *n_dropped) CT_MUST_CHECK;

#endif
