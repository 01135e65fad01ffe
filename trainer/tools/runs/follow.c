/* The position counts bytes that were read, and an incomplete line waits in `pending` for its rest, so each line is
 * used once. A run that is continued replaces the file, so a change of the inode, or a file that is shorter than the
 * position, means that reading has to start again. Lines that are not valid are skipped, since another process is
 * writing the file. */
#include "trainer/tools/runs/follow.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define CHUNK 65536

enum ct_status ct_follow_open(struct ct_follow *f, const char *path)
{
	*f = (struct ct_follow){.fd = -1};
	CT_TRY_ALLOC(f->path = ct_strdup(path));
	return CT_OK;
}

static bool is_replaced(const struct ct_follow *f)
{
	struct stat ours, now;

	return fstat(f->fd, &ours) != 0 || stat(f->path, &now) != 0 || ours.st_ino != now.st_ino ||
	       ours.st_dev != now.st_dev || (uint64_t)now.st_size < f->at;
}

static enum ct_status use_lines(struct ct_follow *f, ct_follow_fn use, void *user)
{
	size_t done = 0;
	enum ct_status st = ct_str_status(&f->pending);

	for (char *end; st == CT_OK && f->pending.len > done &&
			(end = memchr(f->pending.s + done, '\n', f->pending.len - done));) {
		const char *line = f->pending.s + done;
		ct_json *j = NULL;

		done = (size_t)(end - f->pending.s) + 1;
		if (ct_json_parse(line, (size_t)(end - line), f->path, &j) < 0)
			ct_error_clear();
		else if (ct_json_is_object(j))
			st = use(user, j);
		ct_json_destroy(j);
	}
	if (done > 0) {
		memmove(f->pending.s, f->pending.s + done, f->pending.len - done + 1);
		f->pending.len -= done;
	}
	return st;
}

enum ct_status ct_follow_poll(struct ct_follow *f, ct_follow_fn use, void *user, bool *again)
{
	char chunk[CHUNK];
	ssize_t n;

	*again = f->fd >= 0 && is_replaced(f);
	if (*again) {
		close(f->fd);
		f->fd = -1;
		f->at = 0;
		ct_str_clear(&f->pending);
		return CT_OK;
	}
	if (f->fd < 0 && !ct_file_exists(f->path))
		return CT_OK;
	if (f->fd < 0)
		CT_TRY(ct_file_open(f->path, CT_FILE_READ, &f->fd));
	while ((n = pread(f->fd, chunk, sizeof(chunk), (off_t)f->at)) > 0) {
		f->at += (uint64_t)n;
		ct_str_add_bytes(&f->pending, chunk, (size_t)n);
		CT_TRY(use_lines(f, use, user));
	}
	return n < 0 ? CT_FAIL(CT_IO, "cannot read %s: %m", f->path) : CT_OK;
}

void ct_follow_close(struct ct_follow *f)
{
	if (f->fd >= 0)
		close(f->fd);
	ct_str_release(&f->pending);
	ct_free(f->path);
	*f = (struct ct_follow){.fd = -1};
}
