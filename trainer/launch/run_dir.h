/* The run directory. Before training it is created, probed for writing and locked against a second run; during the run
 * it is checked again. */
#ifndef CT_TRAINER_LAUNCH_RUN_DIR_H
#define CT_TRAINER_LAUNCH_RUN_DIR_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_run_lock ct_run_lock;

/* Creates RUN, RUN/log and RUN/checkpoints and probes that they are writable. resume "never": first moves an earlier
 * run with checkpoints to RUN.old-N (nothing is deleted). */
enum ct_status ct_run_dir_prepare(const char *run_dir, const char *resume) CT_MUST_CHECK;
/* CT_IO if there is no space for n more checkpoints of `bytes` each; the message has the free and the needed space. */
enum ct_status ct_run_dir_check_space(const char *run_dir, uint64_t bytes, int n) CT_MUST_CHECK;
/* Locks the run directory until ct_run_dir_unlock or until this process ends in any way. Locks RUN/lock, which contains
 * the pid, and the directory itself, so that a second run cannot start after RUN/lock was removed. CT_IO if another
 * live run holds the lock; the message has its pid. Returns owned. */
enum ct_status ct_run_dir_lock(const char *run_dir, ct_run_lock **out) CT_MUST_CHECK;
/* CT_IO if RUN/lock was removed, renamed or replaced in the meantime, alone or with the directory: another run may use
 * RUN, or what this run writes would be lost. */
enum ct_status ct_run_lock_check(const ct_run_lock *lock) CT_MUST_CHECK;
void ct_run_dir_unlock(ct_run_lock *lock);

#endif
