/* The run directory and the data. The directory of the run may not exist yet, so its nearest existing parent is
 * examined and written to. Speeds are measured with at most 8 MiB and about half a second of transfers: writing
 * includes the sync, and reading begins with a hint to drop the file from the page cache. A speed of 0 means not
 * measured, never slow. The space that is needed follows from the graph of the model: parameters and states of the
 * optimizer in fp32, for each checkpoint that is kept and one more, because a new one is written before an old one is
 * removed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/tools/doctor/collect_impl.h"

#define LEAST_BYTES ((int64_t)64 << 20)
#define SPEED_BYTES ((size_t)8 << 20)
#define SPEED_CHUNK ((size_t)1 << 20)
#define SPEED_NS (CT_SEC / 2)

/* Copies what the current error says, and clears it. */
static void take_error(char *out, size_t len)
{
	snprintf(out, len, "%s", ct_error_message());
	ct_error_clear();
}

/* The nearest directory above (or at) path that exists. The result is owned by the caller. */
static char *existing(const char *path)
{
	char *dir = ct_strdup(path);

	while (dir && !ct_file_exists(dir) && strcmp(dir, "/") != 0 && strcmp(dir, ".") != 0) {
		char *up = ct_path_dir(dir);

		ct_free(dir);
		dir = up;
	}
	return dir;
}

static enum ct_status write_for_a_while(int fd, const char *path, double *mib_per_s)
{
	const int64_t start = ct_now_ns();
	char *chunk;
	size_t done = 0;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(chunk = ct_calloc(SPEED_CHUNK, 1));
	while (st == CT_OK && done < SPEED_BYTES && ct_now_ns() - start < SPEED_NS) {
		st = ct_fd_write_all(fd, chunk, SPEED_CHUNK, path);
		done += SPEED_CHUNK;
	}
	if (st == CT_OK)
		st = ct_fd_sync(fd, path);
	if (st == CT_OK)
		*mib_per_s = (double)done / (1 << 20) / ct_seconds_since(start);
	ct_free(chunk);
	return st;
}

static void measure_speed(const char *dir, struct ct_facts *f)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), ".doctor-speed-%d", (int)getpid());
	char *path = ct_path_join(dir, name);
	if (path && ct_file_open(path, CT_FILE_NEW, &fd) == CT_OK) {
		if (write_for_a_while(fd, path, &f->run_mib_per_s) < 0 && !f->run_error[0])
			take_error(f->run_error, sizeof(f->run_error));
		close(fd);
		(void)unlink(path);
	}
	ct_error_clear();
	ct_free(path);
}

/* Opens the first file of a directory that is large enough to measure, or returns -1. */
static int open_large_file(const char *dir)
{
	char **names = NULL;
	size_t n = 0;
	int fd = -1;

	if (ct_dir_list(dir, &names, &n) < 0)
		n = 0;
	for (size_t i = 0; i < n && fd < 0; i++) {
		char *path = ct_path_join(dir, names[i]);
		uint64_t bytes;

		if (path && ct_file_size(path, &bytes) == CT_OK && bytes >= SPEED_BYTES)
			fd = ct_file_open(path, CT_FILE_READ, &fd) == CT_OK ? fd : -1;
		ct_free(path);
	}
	ct_dir_list_free(names, n);
	ct_error_clear();
	return fd;
}

/* Reads from the storage, not from the page cache, where the file system permits this. */
static void measure_data(const char *dir, struct ct_facts *f)
{
	const int fd = dir[0] ? open_large_file(dir) : -1;
	char *chunk = ct_calloc(SPEED_CHUNK, 1);
	size_t done = 0;

	if (fd >= 0)
		(void)posix_fadvise(fd, 0, (off_t)SPEED_BYTES, POSIX_FADV_DONTNEED);
	const int64_t start = ct_now_ns();
	while (fd >= 0 && chunk && done < SPEED_BYTES && ct_now_ns() - start < SPEED_NS) {
		const ssize_t n = read(fd, chunk, SPEED_CHUNK);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	if (done > 0)
		f->data_mib_per_s = (double)done / (1 << 20) / ct_seconds_since(start);
	if (fd >= 0)
		close(fd);
	ct_free(chunk);
}

/* What the checkpoints of the run need: parameters, optimizer states and EMA, once more than are kept. */
static int64_t needed_bytes(const struct ct_config *c)
{
	struct ct_dataset_info info = {0};
	int64_t bytes = LEAST_BYTES;
	ct_graph *g = NULL;

	if (ct_plan_foresee_data(c, &info) == CT_OK && info.h > 0 &&
	    ct_plan_graph(c, &info, (struct ct_shape){info.c, info.h, info.w}, &g) == CT_OK)
		bytes += (int64_t)ct_graph_n_elems(g) * 4 * (c->train.ema > 0 ? 4 : 3) * (c->checkpoint.keep_last + 1);
	ct_graph_destroy(g);
	ct_error_clear();
	return bytes;
}

static void collect_run_dir(const struct ct_collect_opts *o, struct ct_facts *f)
{
	char *run = ct_plan_run_dir(o->cfg), *dir = run ? existing(run) : NULL;
	uint64_t bytes;

	if (run)
		snprintf(f->run_dir, sizeof(f->run_dir), "%s", run);
	if (dir && ct_dir_probe(dir) < 0)
		take_error(f->run_error, sizeof(f->run_error));
	if (dir && ct_dir_free_bytes(dir, &bytes) == CT_OK)
		f->run_free_bytes = (int64_t)(bytes < INT64_MAX ? bytes : INT64_MAX);
	f->run_needed_bytes = needed_bytes(o->cfg);
	if (dir && !o->quick && !f->run_error[0] && f->run_free_bytes > (int64_t)(4 * SPEED_BYTES))
		measure_speed(dir, f);
	ct_free(dir);
	ct_free(run);
	ct_error_clear();
}

void ct__collect_storage(const struct ct_collect_opts *o, struct ct_facts *f)
{
	f->run_free_bytes = -1;
	if (!o->cfg)
		return;
	collect_run_dir(o, f);
	const enum ct_status st = ct_plan_check_data(o->cfg);
	if (st < 0) {
		take_error(f->data_error, sizeof(f->data_error));
		f->data_status = st;
	} else if (!o->quick) {
		measure_data(o->cfg->data.dir, f);
	}
}
