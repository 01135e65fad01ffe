/* The run folder: made, checked for writing and locked against a second run before training. */
#ifndef CT_TRAINER_LAUNCH_RUN_DIR_H
#define CT_TRAINER_LAUNCH_RUN_DIR_H

#include <stdint.h>

#include "base/status.h"

/* Makes RUN, RUN/log and RUN/checkpoints and writes a probe file. resume "never": an earlier run with checkpoints is
 * moved to RUN.old-N first (nothing is deleted). */
enum ct_status ct_run_dir_prepare(const char *run_dir, const char *resume) CT_MUST_CHECK;
/* Room for n more checkpoints of `bytes` each, or CT_IO that says how much is missing. */
enum ct_status ct_run_dir_check_space(const char *run_dir, uint64_t bytes, int n) CT_MUST_CHECK;
/* Takes RUN/lock for this process (released by ct_run_dir_unlock or the process's end, however it ends). Held by
 * another live run: CT_IO naming its pid. */
enum ct_status ct_run_dir_lock(const char *run_dir, int *fd) CT_MUST_CHECK;
void ct_run_dir_unlock(int fd);

#endif
