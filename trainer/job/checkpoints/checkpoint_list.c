/* The directory RUN/checkpoints: names, links, and temporary directories of processes that have ended. */
#define CT_LOG_COMPONENT "ckpt"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/job/checkpoints/checkpoint_files.h"

#define STALE_LINK_SECONDS 60

void ct_ckpt_name(uint64_t step, char out[40])
{
	snprintf(out, 40, "step-%012llu", (unsigned long long)step);
}

static bool parse_name(const char *name, uint64_t *step)
{
	char again[40];
	int64_t v;

	if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") != strlen(name + 5))
		return false;
	if (ct_parse_i64(name + 5, &v) < 0) {
		ct_error_clear();
		return false;
	}
	*step = (uint64_t)v;
	ct_ckpt_name(*step, again);
	return strcmp(name, again) == 0;
}

static int by_age(const void *a, const void *b)
{
	const struct ct_ckpt_entry *x = a, *y = b;

	if (x->save_index != y->save_index)
		return x->save_index < y->save_index ? -1 : 1;
	return (x->step > y->step) - (x->step < y->step);
}

static enum ct_status read_index(const char *directory, struct ct_ckpt_entry *e)
{
	struct ct_ckpt_state s;
	char *path;

	CT_TRY_ALLOC(path = ct_path_join(directory, e->name));
	if (ct_ckpt_state_read(path, &s) == CT_OK) {
		e->save_index = s.save_index;
		ct_ckpt_state_release(&s);
	} else {
		ct_error_clear();
	}
	ct_free(path);
	return CT_OK;
}

enum ct_status ct_ckpt_list(const char *directory, struct ct_ckpt_entry **out, size_t *n)
{
	struct ct_ckpt_entry *list;
	size_t n_names = 0, count = 0;
	enum ct_status st = CT_OK;
	char **names = NULL;

	if (ct_file_exists(directory))
		CT_TRY(ct_dir_list(directory, &names, &n_names));
	list = CT_NEW_ARRAY(struct ct_ckpt_entry, n_names);
	if (!list) {
		st = CT_NOMEM;
		goto out;
	}
	for (size_t i = 0; i < n_names; i++) {
		struct ct_ckpt_entry *e = &list[count];

		if (!parse_name(names[i], &e->step))
			continue;
		ct_ckpt_name(e->step, e->name);
		CT_TRY_GOTO(read_index(directory, e), st, out);
		count++;
	}
	if (count > 0)
		qsort(list, count, sizeof(*list), by_age);
	*out = list;
	*n = count;
	list = NULL;
out:
	ct_free(list);
	ct_dir_list_free(names, n_names);
	return st;
}

void ct_ckpt_link_target(const char *directory, const char *link, char *out, size_t size)
{
	char *path = ct_path_join(directory, link);
	ssize_t len = path ? readlink(path, out, size - 1) : -1;

	out[len > 0 && (size_t)len < size ? len : 0] = '\0';
	ct_free(path);
}

int ct_ckpt_lock(const char *directory)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* The temporary name of a link exists for microseconds and cannot be locked. If it is old, no process uses it. */
static bool is_stale_link(const char *path)
{
	struct stat sb;

	return lstat(path, &sb) == 0 && S_ISLNK(sb.st_mode) && time(NULL) - sb.st_mtime > STALE_LINK_SECONDS;
}

static void remove_if_stale(const char *directory, const char *name)
{
	char *path = ct_path_join(directory, name);
	int fd;

	if (!path)
		return;
	if (strncmp(name, CT_CKPT_TEMP, strlen(CT_CKPT_TEMP)) == 0) {
		/* When a process ends for any reason, the kernel releases its locks. */
		fd = ct_ckpt_lock(path);
		if (fd >= 0) {
			if (ct_dir_remove(path) == CT_OK)
				CT_DEBUG("removed %s, which a killed process had left", path);
			close(fd);
		}
	} else if (strstr(name, ".tmp-") && is_stale_link(path)) {
		unlink(path);
	}
	ct_free(path);
}

void ct_ckpt_remove_stale(const char *directory)
{
	char **names;
	size_t n;

	if (!ct_file_exists(directory) || ct_dir_list(directory, &names, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++)
		remove_if_stale(directory, names[i]);
	ct_dir_list_free(names, n);
}

/* Lists the checkpoints of a run directory; the list is empty if that fails. The result is owned by the caller. */
static struct ct_ckpt_entry *list_or_none(const char *run_dir, size_t *n)
{
	struct ct_ckpt_entry *list = NULL;
	char *directory = ct_path_join(run_dir, CT_CKPT_FOLDER);

	*n = 0;
	if (!directory || ct_ckpt_list(directory, &list, n) < 0)
		ct_error_clear();
	ct_free(directory);
	return list;
}

int ct_checkpoint_count(const char *run_dir)
{
	size_t n;

	ct_free(list_or_none(run_dir, &n));
	return (int)n;
}

uint64_t ct_checkpoint_newest_save(const char *run_dir)
{
	size_t n;
	struct ct_ckpt_entry *list = list_or_none(run_dir, &n);
	uint64_t newest = n > 0 ? list[n - 1].save_index : 0;

	ct_free(list);
	return newest;
}
