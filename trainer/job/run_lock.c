/* Two locks keep a second run away: one on RUN/lock, which has the contents, and one on the directory itself, which
 * still holds if a user deletes RUN/lock. Both are locks of the kernel and end with the process, so nothing is left
 * over after a crash; the file stays and only its contents are replaced. Who holds the lock checks from time to time
 * that RUN/lock is still its file.
 *
 * On a file system without locks, training goes on with a warning: only a second run in the same directory could do
 * harm, and most users start none. Whoever needs the lock as proof that no run is active must fail: launchers of
 * several nodes that elect a leader, and commands that move or remove files of a run.
 *
 * A later start of the same Slurm job must not wait for processes of an earlier one, which may live on an unreachable
 * node. It replaces RUN/lock by a file that is locked already, by rename, and then makes the work of the earlier start
 * harmless: unfinished checkpoints are removed, and metrics.jsonl is replaced by a copy, so what the old process writes
 * goes to a file without a name. The number of saves before the job goes from each start to the next through the
 * file. */
#define CT_LOG_COMPONENT "run"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/job/checkpoints/checkpoint_files.h"
#include "trainer/job/run_dir.h"
#include "trainer/job/slurm/job.h"

#define MAX_LOCK_BYTES 512
#define REMOVE_TRIES 100

struct ct_run_lock {
	char *path; /* RUN/lock */
	int fd, dir_fd;
	bool must; /* fail if the file system has no locks */
	struct ct_slurm_job job;
	int64_t saves_before;
};

/* The contents of RUN/lock: "PID\nRESTARTS SAVES JOB\n". Without a job, only the first line. */
struct holder {
	char pid[32], job[160];
	int64_t restart, saves;
};

static void read_holder(int fd, struct holder *h)
{
	char text[MAX_LOCK_BYTES];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	*h = (struct holder){.restart = -1};
	text[n > 0 ? n : 0] = 0;
	if (sscanf(text, "%31[^\n]\n%" SCNd64 " %" SCNd64 " %159[^\n]", h->pid, &h->restart, &h->saves, h->job) != 4)
		h->job[0] = 0;
}

/* Only messages and later starts of the same job need the contents. */
static void write_holder(const ct_run_lock *l, int64_t saves)
{
	char text[MAX_LOCK_BYTES];
	int len = snprintf(text, sizeof(text), "%d\n", (int)getpid());

	if (l->job.id > 0)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "%d %" PRId64 " %s\n", l->job.restart, saves,
				l->job.key);
	if (ftruncate(l->fd, 0) != 0 || pwrite(l->fd, text, (size_t)len, 0) != len)
		CT_DEBUG("cannot write to %s: %s", l->path, strerror(errno));
}

static enum ct_status fail_in_use(const ct_run_lock *l, const char *run_dir)
{
	struct holder h;

	read_holder(l->fd, &h);
	CT_FAIL(CT_IO, "run directory %s is in use by another ctrain (pid %s)", run_dir, h.pid[0] ? h.pid : "unknown");
	return ct_error_hint("wait until it has ended, or use another run.dir");
}

static enum ct_status fail_late(const ct_run_lock *l, const char *run_dir, const struct holder *h)
{
	CT_FAIL(CT_IO,
		"this process belongs to start %d of Slurm job %s, but start %" PRId64
		" of the same job has already used the run directory %s",
		l->job.restart, l->job.key, h->restart, run_dir);
	return ct_error_hint("if this is not a process that was left over when the job was requeued, delete %s/lock",
			     run_dir);
}

/* Locks l->fd. */
static enum ct_status take(const ct_run_lock *l, int64_t deadline, bool *taken)
{
	if (ct_fd_lock(l->fd, deadline, taken) == CT_OK)
		return CT_OK;
	if (l->must || ct_error_reason() != CT_REASON_NO_LOCKS)
		return ct_error_wrap("cannot lock %s", l->path);
	CT_WARN("cannot lock %s: %s; do not start a second run in the same directory, because ctrain would not notice it; "
		"hint: %s",
		l->path, ct_error_message(), ct_error_hint_text());
	ct_error_clear();
	*taken = true;
	return CT_OK;
}

/* Replaces RUN/lock by a new file that is already locked. Who has locked the old file notices it when it checks. */
static enum ct_status replace_lock(ct_run_lock *l, int64_t saves)
{
	char *temp = NULL;
	bool taken;

	CT_TRY_ALLOC(temp = ct_strfmt("%s.tmp", l->path));
	close(l->fd);
	l->fd = -1;
	(void)unlink(temp);
	enum ct_status st = ct_file_open(temp, CT_FILE_NEW, &l->fd);
	if (st == CT_OK)
		st = take(l, 0, &taken);
	if (st == CT_OK) {
		write_holder(l, saves);
		st = ct_fd_sync(l->fd, temp);
	}
	if (st == CT_OK && rename(temp, l->path) != 0)
		st = CT_FAIL(CT_IO, "cannot replace %s: %s", l->path, strerror(errno));
	ct_free(temp);
	return st;
}

/* A process of the earlier start may be about to publish a checkpoint: it has checked the lock, but not yet renamed the
 * directory. Without the directory, this fails. */
static enum ct_status remove_unfinished(const char *run_dir)
{
	char *dir = NULL, **names = NULL;
	size_t n = 0;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(dir = ct_path_join(run_dir, "checkpoints"));
	if (ct_file_exists(dir))
		st = ct_dir_list(dir, &names, &n);
	for (size_t i = 0; i < n && st == CT_OK; i++) {
		char *path = strncmp(names[i], ".tmp-", 5) == 0 ? ct_path_join(dir, names[i]) : NULL;

		/* It may create files while they are being removed. */
		for (int k = 0; path && k < REMOVE_TRIES; k++) {
			st = ct_dir_remove(path);
			if (st == CT_OK)
				break;
		}
		if (st == CT_OK)
			ct_error_clear();
		ct_free(path);
	}
	ct_dir_list_free(names, n);
	ct_free(dir);
	return st;
}

/* What processes of an earlier start write to the file is lost. */
static enum ct_status detach(const char *run_dir, const char *name)
{
	char *path = NULL;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(path = ct_path_join(run_dir, name));
	if (ct_file_exists(path))
		st = ct_file_replace_by_copy(path);
	ct_free(path);
	return st;
}

static enum ct_status take_over(ct_run_lock *l, const char *run_dir, const struct holder *h)
{
	CT_TRY(replace_lock(l, h->saves));
	CT_TRY(remove_unfinished(run_dir));
	CT_TRY(detach(run_dir, "metrics.jsonl"));
	CT_INFO("start %d of Slurm job %s takes over the run directory from start %" PRId64 " (pid %s)", l->job.restart,
		l->job.key, h->restart, h->pid);
	return CT_OK;
}

static enum ct_status lock_file(ct_run_lock *l, const char *run_dir, int64_t deadline)
{
	struct holder h;
	bool taken;

	CT_TRY(ct_file_open(l->path, CT_FILE_UPDATE, &l->fd));
	read_holder(l->fd, &h);
	const bool same_job = l->job.id > 0 && strcmp(l->job.key, h.job) == 0;
	if (same_job && h.restart > l->job.restart)
		return fail_late(l, run_dir, &h);
	if (same_job && l->job.restart > 0)
		l->saves_before = h.saves;
	if (same_job && h.restart < l->job.restart)
		return take_over(l, run_dir, &h);
	CT_TRY(take(l, deadline, &taken));
	if (!taken)
		return fail_in_use(l, run_dir);
	write_holder(l, l->saves_before >= 0 ? l->saves_before : (int64_t)ct_checkpoint_newest_save(run_dir));
	return CT_OK;
}

static enum ct_status lock_both(ct_run_lock *l, const char *run_dir)
{
	int64_t deadline = ct_deadline_in(2 * CT_SEC); /* a run that was just killed may not have ended yet */
	bool taken;

	CT_TRY(lock_file(l, run_dir, deadline));
	/* An earlier start of the job may never release the directory. */
	const bool shared = l->saves_before >= 0;
	/* Some network file systems cannot lock a directory. RUN/lock is sufficient as long as no one removes it. */
	l->dir_fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->dir_fd < 0 || ct_fd_lock(l->dir_fd, shared ? 0 : deadline, &taken) < 0) {
		CT_DEBUG("cannot lock the directory %s itself: %s", run_dir, strerror(errno));
		ct_error_clear();
		return CT_OK;
	}
	return taken || shared ? CT_OK : fail_in_use(l, run_dir);
}

static enum ct_status lock_run_dir(const char *run_dir, bool must, ct_run_lock **out)
{
	ct_run_lock *l = NULL;

	CT_TRY_ALLOC(l = CT_NEW(ct_run_lock));
	l->must = must;
	l->fd = l->dir_fd = -1;
	l->saves_before = -1;
	ct_slurm_job_from_env(&l->job);
	enum ct_status st = (l->path = ct_path_join(run_dir, "lock")) ? lock_both(l, run_dir) : CT_NOMEM;
	if (st < 0) {
		ct_run_dir_unlock(l);
		return st;
	}
	*out = l;
	return CT_OK;
}

enum ct_status ct_run_dir_lock(const char *run_dir, ct_run_lock **out)
{
	return lock_run_dir(run_dir, true, out);
}

enum ct_status ct_run_dir_try_lock(const char *run_dir, ct_run_lock **out)
{
	return lock_run_dir(run_dir, false, out);
}

int64_t ct_run_lock_saves_before(const ct_run_lock *l)
{
	return l->saves_before;
}

enum ct_status ct_run_lock_check(const ct_run_lock *l)
{
	return ct_file_still_at(l->fd, l->path);
}

static int open_lock(const char *run_dir)
{
	char *path = ct_path_join(run_dir, "lock");
	const int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;

	ct_free(path);
	return fd;
}

bool ct_run_dir_in_use(const char *run_dir)
{
	const int fd = open_lock(run_dir);
	const bool used = fd >= 0 && ct_fd_is_locked(fd);

	if (fd >= 0)
		close(fd);
	return used;
}

int ct_run_dir_pid(const char *run_dir)
{
	const int fd = open_lock(run_dir);
	struct holder h;
	int64_t pid = 0;

	if (fd < 0)
		return 0;
	read_holder(fd, &h);
	close(fd);
	if (ct_parse_i64(h.pid, &pid) < 0 || pid < 1 || pid > INT_MAX)
		return 0;
	return (int)pid;
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
