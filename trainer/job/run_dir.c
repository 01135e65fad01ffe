/* An earlier run is never deleted; it is renamed, under its lock, so that a run in progress is not moved. Write access
 * is tested by writing, since permissions alone do not tell it on network file systems. Both happen before any rank
 * starts to work, so that a mistake costs seconds and not an epoch. */
#define CT_LOG_COMPONENT "run"
#include "trainer/job/run_dir.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/job/checkpoints/checkpoint_files.h"

static enum ct_status move_aside(const char *run_dir)
{
	for (int k = 1; k < 100000; k++) {
		char *aside = NULL;
		enum ct_status st = CT_OK;

		CT_TRY_ALLOC(aside = ct_strfmt("%s.old-%d", run_dir, k));
		bool taken = ct_file_exists(aside);
		if (!taken && rename(run_dir, aside) != 0)
			st = CT_FAIL(CT_IO, "cannot move the earlier run %s to %s: %s", run_dir, aside,
				     strerror(errno));
		else if (!taken)
			CT_WARN("train.resume=never: the earlier run in %s was moved to %s", run_dir, aside);
		ct_free(aside);
		if (!taken)
			return st;
	}
	return CT_FAIL(CT_IO, "%s.old-1 to -99999 all exist; remove some of them", run_dir);
}

static enum ct_status make_sub(const char *run_dir, const char *name)
{
	char *dir = NULL;

	CT_TRY_ALLOC(dir = ct_path_join(run_dir, name));
	enum ct_status st = ct_dir_make(dir);
	if (st == CT_OK)
		st = ct_dir_probe(dir);
	ct_free(dir);
	return st;
}

enum ct_status ct_run_dir_prepare(const char *run_dir, const char *resume)
{
	if (strcmp(resume, "never") == 0 && ct_checkpoint_count(run_dir) > 0) {
		ct_run_lock *lock = NULL;

		CT_TRY(ct_run_dir_lock(run_dir, &lock)); /* a run that is in progress must not be moved */
		enum ct_status moved = ct_run_lock_saves_before(lock) < 0 ? move_aside(run_dir) : CT_OK;
		ct_run_dir_unlock(lock);
		CT_TRY(moved);
	}
	enum ct_status st = ct_dir_make(run_dir);
	if (st == CT_OK)
		st = make_sub(run_dir, "log");
	if (st == CT_OK)
		st = make_sub(run_dir, "checkpoints");
	if (st == CT_NOT_FOUND) /* the directory is about to be created, so this is not missing data */
		st = CT_FAIL(CT_IO, "%s", ct_error_message());
	if (st < 0) {
		ct_error_wrap("cannot use the run directory %s", run_dir);
		ct_error_hint("set run.dir=PATH to a directory that you can write to");
	}
	return st;
}

enum ct_status ct_run_dir_check_space(const char *run_dir, uint64_t bytes, int n)
{
	uint64_t have = 0, want = bytes * (uint64_t)n;

	CT_TRY(ct_dir_free_bytes(run_dir, &have));
	if (have >= want)
		return CT_OK;
	CT_FAIL(CT_IO, "run directory %s has %.1f MiB of free space, but %d more checkpoint%s need%s %.1f MiB", run_dir,
		(double)have / (1 << 20), n, ct_plural(n), n == 1 ? "s" : "", (double)want / (1 << 20));
	return ct_error_hint("delete files to free space, lower checkpoint.keep_last, or use another run.dir");
}
