/* The file is read twice if something must be dropped. The first pass only counts; most files need no change, and then
 * nothing is written. The second pass copies the lines that stay to a temporary file, which is synced and renamed over
 * the original, and the directory is synced after that: a crash leaves either the old or the new file. Memory is
 * bounded by the longest line and one chunk, because the metrics of a long run may be large. A line without a step
 * stays. A line over 16 MiB is an error, so a file that is something else is not rewritten. */
#define CT_LOG_COMPONENT "metrics"
#include "trainer/run/metrics/metrics_cut_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

#define CHUNK_BYTES ((size_t)256 << 10)
#define MAX_LINE ((size_t)16 << 20)

/* Reads `in` line by line and copies the lines that are kept to `out`. */
struct cutter {
	const char *path, *temp;
	int in, out; /* if out < 0, dropped lines are only counted */
	uint64_t step, n_dropped;
	char *chunk;
	struct ct_str kept; /* lines that are not yet written */
};

static bool stays(const struct cutter *c, const char *line, size_t len)
{
	int64_t step = 0;
	const ct_json *at;
	ct_json *j;
	bool ok;

	if (ct_json_parse(line, len, c->path, &j) < 0) {
		ct_error_clear();
		return false;
	}
	at = ct_json_get(j, "step");
	if (!at)
		at = ct_json_get(j, "resumed_step");
	ok = ct_json_is_object(j) && (!at || (ct_json_as_i64(at, &step) && (step < 0 || (uint64_t)step <= c->step)));
	ct_json_destroy(j);
	return ok;
}

static enum ct_status pass_on(struct cutter *c, const char *line, size_t len)
{
	if (!stays(c, line, len - 1)) {
		c->n_dropped++;
		return CT_OK;
	}
	if (c->out < 0)
		return CT_OK;
	ct_str_add_bytes(&c->kept, line, len);
	CT_TRY(ct_str_status(&c->kept));
	if (c->kept.len < CHUNK_BYTES)
		return CT_OK;
	CT_TRY(ct_fd_write_all(c->out, c->kept.s, c->kept.len, c->temp));
	ct_str_clear(&c->kept);
	return CT_OK;
}

/* Processes the complete lines of `text`. *used is the number of bytes in these lines. */
static enum ct_status pass_lines(struct cutter *c, const char *text, size_t len, size_t *used)
{
	const char *end;

	*used = 0;
	while ((end = memchr(text + *used, '\n', len - *used))) {
		size_t n = (size_t)(end - text) - *used + 1;

		CT_TRY(pass_on(c, text + *used, n));
		*used += n;
	}
	return CT_OK;
}

static enum ct_status read_some(struct cutter *c, size_t *got)
{
	ssize_t n;

	do
		n = read(c->in, c->chunk, CHUNK_BYTES);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return CT_FAIL(CT_IO, "cannot read %s: %m", c->path);
	*got = (size_t)n;
	return CT_OK;
}

static enum ct_status run(struct cutter *c)
{
	struct ct_str pending = {0};
	enum ct_status st;
	size_t got = 0, used;

	c->n_dropped = 0;
	if (lseek(c->in, 0, SEEK_SET) != 0)
		return CT_FAIL(CT_IO, "cannot rewind %s: %m", c->path);
	do {
		CT_TRY_GOTO(read_some(c, &got), st, out);
		ct_str_add_bytes(&pending, c->chunk, got);
		CT_TRY_GOTO(ct_str_status(&pending), st, out);
		CT_TRY_GOTO(pass_lines(c, ct_str_text(&pending), pending.len, &used), st, out);
		if (used > 0)
			memmove(pending.s, pending.s + used, pending.len - used);
		pending.len -= used;
		if (pending.len > MAX_LINE) {
			st = CT_FAIL(CT_DATA, "%s contains a line of more than %zu bytes, so it is not a metrics file",
				     c->path, MAX_LINE);
			goto out;
		}
	} while (got > 0);
	/* The last line is incomplete. */
	c->n_dropped += pending.len > 0;
	if (c->out >= 0)
		st = ct_fd_write_all(c->out, ct_str_text(&c->kept), c->kept.len, c->temp);
out:
	ct_str_release(&pending);
	return st;
}

static enum ct_status rewrite(struct cutter *c)
{
	enum ct_status st;

	/* Removes the file that a killed run left, or a symbolic link, which must not be followed. */
	if (unlink(c->temp) != 0 && errno != ENOENT)
		return CT_FAIL(CT_IO, "cannot remove %s: %m", c->temp);
	CT_TRY(ct_file_open(c->temp, CT_FILE_NEW, &c->out));
	st = run(c);
	if (st == CT_OK)
		st = ct_fd_sync(c->out, c->temp);
	if (st < 0)
		close(c->out);
	else
		st = ct_fd_close(c->out, c->temp);
	if (st == CT_OK && rename(c->temp, c->path) != 0)
		st = CT_FAIL(CT_IO, "cannot replace %s: %m", c->path);
	if (st < 0)
		unlink(c->temp);
	return st;
}

static enum ct_status cut(struct cutter *c)
{
	enum ct_status st = CT_NOMEM;
	char *temp = NULL, *dir = NULL;

	c->chunk = ct_realloc(NULL, CHUNK_BYTES, 1);
	temp = ct_strfmt("%s.tmp", c->path);
	dir = ct_path_dir(c->path);
	if (!c->chunk || !temp || !dir)
		goto out;
	c->temp = temp;
	CT_TRY_GOTO(run(c), st, out);
	if (c->n_dropped > 0) {
		CT_TRY_GOTO(rewrite(c), st, out);
		CT_TRY_GOTO(ct_dir_sync(dir), st, out);
	}
out:
	ct_str_release(&c->kept);
	ct_free(c->chunk);
	ct_free(dir);
	ct_free(temp);
	return st;
}

enum ct_status ct__metrics_cut(const char *path, uint64_t step, uint64_t *n_dropped)
{
	struct cutter c = {.path = path, .out = -1, .step = step};
	enum ct_status st;

	/* Opened in the same way as for writing, which refuses a link to another file. */
	CT_TRY(ct_file_open(path, CT_FILE_UPDATE, &c.in));
	st = cut(&c);
	close(c.in);
	if (st == CT_OK && n_dropped)
		*n_dropped = c.n_dropped;
	if (st == CT_OK && c.n_dropped > 0)
		CT_INFO("%s: removed %llu lines that were incomplete or belonged to steps after %llu", path,
			(unsigned long long)c.n_dropped, (unsigned long long)step);
	return st;
}
