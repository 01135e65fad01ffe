/* The launchers of several nodes write the same two files, one after the other under a lock of the directory: each
 * reads what is there, adds its ranks and replaces both files as a whole. A new entry of a rank replaces an older one.
 * The first known failure stays, unless it does not name a rank. A report that is older than the start of this attempt
 * is not merged, but overwritten; as the clocks of hosts differ, this is decided with the clock of the file system. If
 * the lock cannot be taken within two seconds, the report is written without it: an incomplete report is better than
 * none. */
#define CT_LOG_COMPONENT "report"
#include "trainer/job/postmortem/postmortem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "trainer/job/postmortem/entry.h"

#define MAX_BYTES (64 << 20)
#define LOCK_NS (2 * CT_SEC)

static int64_t rank_of(const ct_json *entry)
{
	int64_t rank = -1;

	if (ct_json_get_i64(entry, "rank", &rank) < 0)
		ct_error_clear();
	return rank;
}

static ct_json *copy_of(const ct_json *j)
{
	struct ct_str text = {0};
	ct_json *out = NULL;

	if (ct_json_dump(j, false, &text) < 0 || ct_json_parse(ct_str_text(&text), text.len, "a report", &out) < 0)
		ct_error_clear();
	ct_str_release(&text);
	return out;
}

/* Returns the entry of a rank, or NULL. */
static const ct_json *find(const ct_json *list, int64_t rank)
{
	for (size_t i = 0; list && i < ct_json_len(list); i++) {
		if (rank_of(ct_json_at(list, i)) == rank)
			return ct_json_at(list, i);
	}
	return NULL;
}

static enum ct_status read_json(const char *run_dir, ct_json **out)
{
	char *path = ct_path_join(run_dir, "log/postmortem.json"), *data = NULL;
	enum ct_status st = path ? CT_OK : CT_NOMEM;
	size_t len;

	if (st == CT_OK)
		st = ct_file_read(path, MAX_BYTES, &data, &len);
	if (st == CT_OK)
		st = ct_json_parse(data, len, path, out);
	ct_free(data);
	ct_free(path);
	return st;
}

static double modified(const struct stat *s)
{
	return (double)s->st_mtim.tv_sec + (double)s->st_mtim.tv_nsec * 1e-9;
}

/* Returns true if the report was written after this process had started. Another host may have written it, and the
 * clocks of hosts differ, so both times are those of the file system. */
static bool is_of_this_run(int log_fd, const struct ct_postmortem_job *job)
{
	struct stat report, now;
	double ahead = 0; /* the clock of the file system, compared with that of this host */

	if (fstatat(log_fd, "postmortem.json", &report, 0) != 0)
		return false;
	if (futimens(log_fd, NULL) == 0 && fstat(log_fd, &now) == 0)
		ahead = modified(&now) - ct_wall_seconds();
	return modified(&report) >= job->started + ahead;
}

/* Reads what other launchers of this run have written. */
static ct_json *read_earlier(const char *run_dir, int log_fd, const struct ct_postmortem_job *job)
{
	ct_json *j = NULL;

	if (is_of_this_run(log_fd, job) && read_json(run_dir, &j) < 0)
		ct_error_clear();
	return j;
}

static ct_json *failure_json(const struct ct_failure *f)
{
	ct_json *o = ct_json_object();
	char doing[CT_POSITION_TEXT];

	ct_position_text(doing, sizeof(doing), &f->at);
	ct_json_set_i64(o, "rank", f->rank);
	ct_json_set_i64(o, "pid", f->pid);
	ct_json_set_str(o, "host", f->host);
	ct_json_set_str(o, "status", ct_status_name((enum ct_status)f->status));
	if (doing[0])
		ct_json_set_str(o, "phase", doing);
	ct_json_set_str(o, "message", f->message);
	return o;
}

/* The first report counts, unless it does not name a rank. */
static void set_failure(ct_json *j, const ct_json *earlier, const struct ct_failure *f)
{
	const ct_json *known = earlier ? ct_json_get(earlier, "failure") : NULL;

	if (known && (rank_of(known) >= 0 || !f || f->rank < 0))
		ct_json_set(j, "failure", copy_of(known));
	else if (f)
		ct_json_set(j, "failure", failure_json(f));
}

static ct_json *merge(const ct_json *earlier, const struct ct_postmortem_job *job, const ct_json *entries)
{
	ct_json *j = ct_json_object(), *ranks = ct_json_array();
	const ct_json *old = earlier ? ct_json_get(earlier, "ranks") : NULL;

	ct_json_set_i64(j, "v", 1);
	ct_json_set_f64(j, "time", ct_wall_seconds());
	ct_json_set_i64(j, "world_size", job->world);
	set_failure(j, earlier, job->failure);
	for (int r = 0; r < job->world; r++) {
		const ct_json *e = find(entries, r) ? find(entries, r) : find(old, r);

		if (e)
			ct_json_push(ranks, copy_of(e));
	}
	ct_json_set(j, "ranks", ranks);
	return j;
}

static enum ct_status write_file(const char *run_dir, const char *name, const struct ct_str *text)
{
	char *path;
	enum ct_status st;

	CT_TRY(ct_str_status(text));
	CT_TRY_ALLOC(path = ct_path_join(run_dir, name));
	st = ct_file_replace(path, ct_str_text(text), text->len);
	ct_free(path);
	return st;
}

static enum ct_status write_both(const char *run_dir, const ct_json *j)
{
	struct ct_str json = {0}, text = {0};
	enum ct_status st = ct_json_dump(j, true, &json);

	ct_str_add(&json, "\n");
	ct_postmortem_text(j, &text);
	if (st == CT_OK)
		st = write_file(run_dir, "log/postmortem.json", &json);
	if (st == CT_OK)
		st = write_file(run_dir, "log/postmortem.txt", &text);
	ct_str_release(&json);
	ct_str_release(&text);
	return st;
}

/* Opens RUN/log, and locks it, because the launchers of several nodes may write at the same time. Continues without the
 * lock if another process does not release it, or if the file system cannot lock a directory. */
static enum ct_status lock_log(const char *run_dir, int *fd)
{
	char *dir;
	bool taken = false;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(dir = ct_path_join(run_dir, "log"));
	*fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0)
		st = CT_FAIL(CT_IO, "cannot open %s: %s", dir, strerror(errno));
	else if (ct_fd_lock(*fd, ct_deadline_in(LOCK_NS), &taken) < 0)
		ct_error_clear();
	if (st == CT_OK && !taken)
		CT_DEBUG("cannot lock %s; entries that other launchers add now may be lost", dir);
	ct_free(dir);
	return st;
}

enum ct_status ct_postmortem_add(const char *run_dir, const struct ct_postmortem_job *job, ct_json *entries)
{
	ct_json *earlier, *j;
	enum ct_status st;
	int fd;

	st = lock_log(run_dir, &fd);
	if (st == CT_OK) {
		earlier = read_earlier(run_dir, fd, job);
		j = merge(earlier, job, entries);
		st = write_both(run_dir, j);
		ct_json_destroy(j);
		ct_json_destroy(earlier);
		close(fd);
	}
	ct_json_destroy(entries);
	return st;
}

/* Makes an entry for each file of backtraces whose rank has none. */
static enum ct_status adopt_stacks(const char *run_dir, ct_json *ranks)
{
	int *with_stacks;
	size_t n;

	CT_TRY(ct_postmortem_stacks_ranks(run_dir, &with_stacks, &n));
	for (size_t i = 0; i < n; i++) {
		const struct ct_rank_end end = {.rank = with_stacks[i], .host = "", .wait_status = -1};

		if (!find(ranks, end.rank))
			ct_json_push(ranks, ct_postmortem_entry(run_dir, &end, NULL));
	}
	ct_free(with_stacks);
	return CT_OK;
}

enum ct_status ct_postmortem_read(const char *run_dir, ct_json **out)
{
	ct_json *j = NULL, *ranks = ct_json_array(), *report = ct_json_object();
	const ct_json *old = NULL;
	int64_t world = 0;
	double time = 0;
	enum ct_status st = read_json(run_dir, &j);

	if (st == CT_OK) {
		old = ct_json_get(j, "ranks");
		if (ct_json_get_i64(j, "world_size", &world) < 0 || ct_json_get_f64(j, "time", &time) < 0)
			ct_error_clear();
	}
	for (size_t i = 0; old && i < ct_json_len(old); i++)
		ct_json_push(ranks, copy_of(ct_json_at(old, i)));
	if (st == CT_OK || st == CT_NOT_FOUND)
		st = adopt_stacks(run_dir, ranks);
	if (st == CT_OK && !j && ct_json_len(ranks) == 0) {
		CT_FAIL(CT_NOT_FOUND, "%s/log has neither postmortem.json nor backtraces", run_dir);
		st = ct_error_hint("a run that ends without a failure has no report");
	}
	ct_json_set_i64(report, "v", 1);
	ct_json_set_f64(report, "time", time);
	ct_json_set_i64(report, "world_size", world);
	if (j && ct_json_get(j, "failure"))
		ct_json_set(report, "failure", copy_of(ct_json_get(j, "failure")));
	ct_json_set(report, "ranks", ranks);
	ct_json_destroy(j);
	if (st == CT_OK)
		*out = report;
	else
		ct_json_destroy(report);
	return st;
}
