/* The run directory: created, checked for writing and locked against a second run before training, and checked again
 * while the run uses it. */
#ifndef CT_TRAINER_LAUNCH_RUN_DIR_H
#define CT_TRAINER_LAUNCH_RUN_DIR_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_run_lock ct_run_lock;

/* Creates RUN, RUN/log and RUN/checkpoints and writes a probe file. resume "never": an earlier run with checkpoints is
 * moved to RUN.old-N first (nothing is deleted). */
enum ct_status ct_run_dir_prepare(const char *run_dir, const char *resume) CT_MUST_CHECK;
/* Room for n more checkpoints of `bytes` each, or CT_IO that reports how much is missing. */
enum ct_status ct_run_dir_check_space(const char *run_dir, uint64_t bytes, int n) CT_MUST_CHECK;
/* Locks the run directory for this process (until ct_run_dir_unlock or the process's end, however it ends): RUN/lock,
 * which holds the pid, and the directory itself, so that removing RUN/lock lets no second run in. Held by another live
 * run: CT_IO naming its pid. Returns owned. */
enum ct_status ct_run_dir_lock(const char *run_dir, ct_run_lock **out) CT_MUST_CHECK;
/* CT_IO when RUN/lock was removed, renamed or replaced meanwhile, alone or with the directory: another run may be in
 * RUN, or what this one writes would be lost. */
enum ct_status ct_run_lock_check(const ct_run_lock *lock) CT_MUST_CHECK;
void ct_run_dir_unlock(ct_run_lock *lock);

#endif
