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

struct ct_run_lock {
	char *path; /* RUN/lock */
	int fd, dir_fd;
};

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
		enum ct_status moved = move_aside(run_dir);
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
	ct_error_set(CT_IO, __FILE__, __LINE__,
		     "run directory %s has %.1f MiB of free space, but %d more checkpoint%s need%s %.1f MiB", run_dir,
		     (double)have / (1 << 20), n, ct_plural(n), n == 1 ? "s" : "", (double)want / (1 << 20));
	ct_error_hint("delete files to free space, lower checkpoint.keep_last, or use another run.dir");
	return CT_IO;
}

static enum ct_status fail_in_use(const ct_run_lock *l, const char *run_dir)
{
	char pid[32];
	ssize_t n = pread(l->fd, pid, sizeof(pid) - 1, 0);
	pid[n > 0 ? n : 0] = 0;
	ct_error_set(CT_IO, __FILE__, __LINE__, "run directory %s is in use by another ctrain (pid %s)", run_dir,
		     pid[0] ? pid : "unknown");
	ct_error_hint("wait until it has ended, or use another run.dir");
	return CT_IO;
}

/* Waits until the deadline, because a run that was just killed may not have ended yet. */
static enum ct_status take(int fd, int64_t deadline, bool *taken)
{
	int rc;
	while ((rc = flock(fd, LOCK_EX | LOCK_NB)) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
	       ct_now_ns() < deadline)
		(void)poll(NULL, 0, 20);
	*taken = rc == 0;
	return rc == 0 || errno == EWOULDBLOCK ? CT_OK : CT_FAIL(CT_IO, "flock: %s", strerror(errno));
}

static enum ct_status take_both(ct_run_lock *l, const char *run_dir)
{
	int64_t deadline = ct_deadline_in(2 * CT_SEC);
	bool taken;
	CT_TRY(ct_file_open(l->path, CT_FILE_UPDATE, &l->fd));
	if (take(l->fd, deadline, &taken) < 0)
		return ct_error_wrap("can't lock %s", l->path);
	if (!taken)
		return fail_in_use(l, run_dir);
	/* Some network file systems cannot lock a directory. RUN/lock is sufficient as long as no one removes it. */
	l->dir_fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->dir_fd < 0 || take(l->dir_fd, deadline, &taken) < 0) {
		CT_DEBUG("cannot lock the directory %s itself: %s", run_dir, strerror(errno));
		ct_error_clear();
		return CT_OK;
	}
	return taken ? CT_OK : fail_in_use(l, run_dir);
}

enum ct_status ct_run_dir_lock(const char *run_dir, ct_run_lock **out)
{
	ct_run_lock *l = NULL;
	CT_TRY_ALLOC(l = CT_NEW(ct_run_lock));
	l->fd = l->dir_fd = -1;
	enum ct_status st = (l->path = ct_path_join(run_dir, "lock")) ? take_both(l, run_dir) : CT_NOMEM;
	if (st < 0) {
		ct_run_dir_unlock(l);
		return st;
	}
	char pid[32];
	int len = snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (ftruncate(l->fd, 0) != 0 || pwrite(l->fd, pid, (size_t)len, 0) != len)
		CT_DEBUG("cannot write the pid to %s: %s", l->path, strerror(errno)); /* only fail_in_use needs it */
	*out = l;
	return CT_OK;
}

enum ct_status ct_run_lock_check(const ct_run_lock *l)
{
	return ct_file_still_at(l->fd, l->path);
}

void ct_run_dir_unlock(ct_run_lock *l)
{
	if (!l)
		return;
	if (l->dir_fd >= 0)
		close(l->dir_fd);
	if (l->fd >= 0)
		close(l->fd);
	ct_free(l->path);
	ct_free(l);
}
