/* The run directory. It is created, tested for write access, and locked against a second run before training starts.
 * The lock is checked again during the run. */
#ifndef CT_TRAINER_JOB_RUN_DIR_H
#define CT_TRAINER_JOB_RUN_DIR_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_run_lock ct_run_lock;

/* Creates RUN, RUN/log and RUN/checkpoints, and checks that they are writable. If resume is "never" and RUN contains
 * checkpoints of an earlier run, first renames RUN to RUN.old-N; nothing is deleted. An earlier start of the same Slurm
 * job is not an earlier run. */
enum ct_status ct_run_dir_prepare(const char *run_dir, const char *resume) CT_MUST_CHECK;
/* Fails with CT_IO if there is not enough space for n more checkpoints of `bytes` each. The message states the free and
 * the required space. */
enum ct_status ct_run_dir_check_space(const char *run_dir, uint64_t bytes, int n) CT_MUST_CHECK;
/* Locks the run directory until ct_run_dir_unlock is called or this process ends in any way. Locks RUN/lock, which
 * contains the pid and the Slurm job of this process, and the directory itself, so that a second run cannot start even
 * if RUN/lock is removed. Fails with CT_IO if another live run holds the lock; the message contains its pid.
 *
 * When Slurm restarts a job, processes of the previous start may still be alive on a node that Slurm cannot reach. If
 * RUN/lock belongs to an earlier start of the same job, this start takes over, even if the lock is still held: it
 * replaces RUN/lock and RUN/metrics.jsonl and removes unfinished checkpoints. From then on, ct_run_lock_check fails in
 * the processes of the earlier start, and what they still write to open files is lost. If RUN/lock belongs to a later
 * start of the same job, this function fails with CT_IO. *out is owned by the caller. */
enum ct_status ct_run_dir_lock(const char *run_dir, ct_run_lock **out) CT_MUST_CHECK;
/* The same, but if the file system has no locks, logs a warning and returns a lock that keeps no other run away. */
enum ct_status ct_run_dir_try_lock(const char *run_dir, ct_run_lock **out) CT_MUST_CHECK;
/* If an earlier start of the same Slurm job has locked the directory: the newest save (ct_checkpoint_newest_save)
 * before the job did so for the first time. Otherwise -1. */
int64_t ct_run_lock_saves_before(const ct_run_lock *lock);
/* Fails with CT_IO if RUN/lock, or the directory that contains it, has been removed, renamed or replaced since it was
 * locked. Another run may then be using RUN, or the output of this run would be lost. */
enum ct_status ct_run_lock_check(const ct_run_lock *lock) CT_MUST_CHECK;
void ct_run_dir_unlock(ct_run_lock *lock);
/* Returns the pid of rank 0 of the run that has locked the directory, on its host, or 0 if it is not known. */
int ct_run_dir_pid(const char *run_dir);
/* Returns true if a run uses the directory now, as far as locks of other hosts are visible. */
bool ct_run_dir_in_use(const char *run_dir);

#endif
