#define CT_LOG_COMPONENT "run"
#include "trainer/launch/run_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/checkpoint/checkpoint.h"

static enum ct_status move_aside(const char *run_dir)
{
	for (int k = 1; k < 100000; k++) {
		char *aside = NULL;
		enum ct_status st = CT_OK;
		CT_TRY_ALLOC(aside = ct_strfmt("%s.old-%d", run_dir, k));
		bool taken = ct_file_exists(aside);
		if (!taken && rename(run_dir, aside) != 0)
			st = CT_FAIL(CT_IO, "can't move the earlier run %s to %s: %s", run_dir, aside, strerror(errno));
		else if (!taken)
			CT_WARN("train.resume=never: the earlier run in %s is now in %s", run_dir, aside);
		ct_free(aside);
		if (!taken)
			return st;
	}
	return CT_FAIL(CT_IO, "%s.old-1 to -99999 all exist: remove some", run_dir);
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
		int lock = -1;
		CT_TRY(ct_run_dir_lock(run_dir, &lock)); /* not from under a run that goes on */
		enum ct_status moved = move_aside(run_dir);
		ct_run_dir_unlock(lock);
		CT_TRY(moved);
	}
	enum ct_status st = ct_dir_make(run_dir);
	if (st == CT_OK)
		st = make_sub(run_dir, "log");
	if (st == CT_OK)
		st = make_sub(run_dir, "checkpoints");
	if (st == CT_NOT_FOUND) /* of a folder that is to be made: no missing data */
		st = CT_FAIL(CT_IO, "%s", ct_error_message());
	if (st < 0) {
		ct_error_wrap("run folder %s can't be used", run_dir);
		ct_error_hint("give a folder that you may write to: run.dir=PATH");
	}
	return st;
}

enum ct_status ct_run_dir_check_space(const char *run_dir, uint64_t bytes, int n)
{
	uint64_t have = 0, want = bytes * (uint64_t)n;
	CT_TRY(ct_dir_free_bytes(run_dir, &have));
	if (have >= want)
		return CT_OK;
	ct_error_set(CT_IO, __FILE__, __LINE__, "run folder %s has %.1f MiB free, %d more checkpoint%s need%s %.1f MiB",
		     run_dir, (double)have / (1 << 20), n, n == 1 ? "" : "s", n == 1 ? "s" : "",
		     (double)want / (1 << 20));
	ct_error_hint("free space, lower checkpoint.keep_last, or use another run.dir");
	return CT_IO;
}

enum ct_status ct_run_dir_lock(const char *run_dir, int *out)
{
	char *path = NULL, pid[32];
	CT_TRY_ALLOC(path = ct_path_join(run_dir, "lock"));
	int fd;
	enum ct_status st = ct_file_open(path, CT_FILE_UPDATE, &fd);
	if (st < 0) {
		ct_free(path);
		return st;
	}
	/* A run that was killed a moment ago may still be on its way out. */
	int64_t deadline = ct_deadline_in(2 * CT_SEC);
	int rc;
	while ((rc = flock(fd, LOCK_EX | LOCK_NB)) != 0 && errno == EWOULDBLOCK && ct_now_ns() < deadline)
		(void)poll(NULL, 0, 20);
	if (rc != 0) {
		ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
		pid[n > 0 ? n : 0] = 0;
		ct_error_set(CT_IO, __FILE__, __LINE__, "run folder %s is in use by another ctrain (pid %s)", run_dir,
			     pid);
		ct_error_hint("wait for it to end, or use another run.dir");
		close(fd);
		ct_free(path);
		return CT_IO;
	}
	int len = snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)len, 0) != len)
		CT_DEBUG("%s: can't note the pid: %s", path, strerror(errno)); /* only makes the message above poorer */
	ct_free(path);
	*out = fd;
	return CT_OK;
}

void ct_run_dir_unlock(int fd)
{
	if (fd >= 0)
		close(fd);
}
