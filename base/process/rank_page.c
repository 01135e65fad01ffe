/* A page has one writer for each member, and any number of readers in other processes, so its members are atomic and no
 * lock is needed; a lock could be held by a process that was killed. Phase and step are stored in one word, so a reader
 * never combines the phase of one step with the number of another. The error is larger: it is written once, before
 * `has_error` is set.
 *
 * The pages of a node are one piece of shared memory behind a header with the number of pages and a version, which a
 * rank compares before it uses them: launcher and ranks execute the same file, unless it was replaced in between.
 * Clearing the pages returns their memory to the kernel, which gives zeroed memory at the next access. The header
 * is kept, because its clock continues. */
#include "base/process/rank_page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shared_memory.h"

#define NAME "ctrain-rank-pages"
#define VERSION 1
#define PHASE_BITS 8

static struct ct_rank_page private_page;
/* Set before threads are started. */
static struct ct_rank_page *own = &private_page;
static _Atomic bool frozen;
static _Thread_local struct ct_page_thread *mine;

static void put(_Atomic int64_t *at, int64_t v)
{
	atomic_store_explicit(at, v, memory_order_relaxed);
}

static int64_t get(const _Atomic int64_t *at)
{
	return atomic_load_explicit(at, memory_order_relaxed);
}

/* ---- the pages of a node */

static size_t size_of(size_t n)
{
	return sizeof(struct ct_rank_pages) + n * sizeof(struct ct_rank_page);
}

enum ct_status ct_rank_pages_create(int n, struct ct_rank_pages **out, int *fd)
{
	*out = ct_shared_memory_create(NAME, size_of((size_t)n), fd);
	if (!*out)
		return ct_shared_memory_failed(size_of((size_t)n), errno);
	(*out)->version = VERSION;
	(*out)->n = (uint32_t)n;
	ct_clock_attach(&(*out)->clock);
	return CT_OK;
}

void ct_rank_pages_clear(struct ct_rank_pages *p, int fd)
{
	const size_t bytes = p->n * sizeof(struct ct_rank_page);

	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)sizeof(*p), (off_t)bytes) != 0)
		memset(p->page, 0, bytes);
}

void ct_rank_pages_destroy(struct ct_rank_pages *p, int fd)
{
	if (p) {
		ct_clock_attach(NULL);
		munmap(p, size_of(p->n));
	}
	if (fd >= 0)
		close(fd);
}

enum ct_status ct_rank_page_join(int fd, int i, int n)
{
	struct ct_rank_pages *p;

	if (i < 0 || i >= n)
		return CT_FAIL(CT_BUG, "local rank %d of %d has no page", i, n);
	p = ct_shared_memory_map(fd, size_of((size_t)n));
	if (!p)
		return CT_FAIL(CT_IO, "cannot map the page of local rank %d: %s", i, strerror(errno));
	if (p->version != VERSION || p->n != (uint32_t)n) {
		munmap(p, size_of((size_t)n));
		return CT_FAIL(CT_BUG, "local rank %d of %d does not fit the pages of its launcher", i, n);
	}
	ct_clock_attach(&p->clock);
	own = &p->page[i];
	atomic_store(&own->pid, (int64_t)getpid());
	return CT_OK;
}

bool ct_rank_page_is_shared(void)
{
	return own != &private_page;
}

struct ct_rank_page *ct_rank_page_own(void)
{
	return own;
}

/* ---- the page of another process */

/* Returns the parent of a process, or 0. */
static int parent_of(int pid)
{
	char path[48], text[512];
	const char *end;
	int parent = 0;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	(void)fclose(f);
	text[n] = '\0';
	end = strrchr(text, ')'); /* of the program's name */
	return end && sscanf(end, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* Maps a descriptor of a process if it is that of rank pages. */
static struct ct_rank_pages *map_pages(int pid, const char *fd_name)
{
	char path[64], target[64] = "";
	struct ct_rank_pages *p = MAP_FAILED;
	struct stat s;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", pid, fd_name);
	if (readlink(path, target, sizeof(target) - 1) < 0 ||
	    strncmp(target, "/memfd:" NAME, strlen("/memfd:" NAME)) != 0)
		return NULL;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &s) == 0 && s.st_size >= (off_t)sizeof(*p))
		p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return NULL;
	if (p->version == VERSION && size_of(p->n) == (size_t)s.st_size)
		return p;
	munmap(p, (size_t)s.st_size);
	return NULL;
}

const struct ct_rank_page *ct_rank_page_open(int pid, struct ct_rank_pages **map)
{
	const struct ct_rank_page *found = NULL;
	const int launcher = parent_of(pid);
	char path[48];
	DIR *d;

	*map = NULL;
	snprintf(path, sizeof(path), "/proc/%d/fd", launcher);
	d = launcher > 0 ? opendir(path) : NULL;
	for (struct dirent *e; d && !found && (e = readdir(d));) {
		struct ct_rank_pages *p = map_pages(launcher, e->d_name);

		for (uint32_t i = 0; p && i < p->n && !found; i++) {
			if (get(&p->page[i].pid) == pid)
				found = &p->page[i];
		}
		if (found)
			*map = p;
		else
			ct_rank_page_close(p);
	}
	if (d)
		(void)closedir(d);
	return found;
}

void ct_rank_page_close(struct ct_rank_pages *map)
{
	if (map)
		munmap(map, size_of(map->n));
}

/* ---- what the rank states */

void ct_rank_page_freeze(void)
{
	atomic_store(&frozen, true);
}

static bool is_frozen(void)
{
	return atomic_load_explicit(&frozen, memory_order_relaxed);
}

static enum ct_rank_phase phase_of(int64_t where)
{
	return (enum ct_rank_phase)(where & ((1 << PHASE_BITS) - 1));
}

bool ct_rank_page_enter(enum ct_rank_phase phase, int64_t step)
{
	const int64_t was = get(&own->where);

	if (is_frozen())
		return false;
	put(&own->where, (step + 1) << PHASE_BITS | (int64_t)phase);
	return phase_of(was) != phase;
}

void ct_rank_page_count_steps(int64_t step)
{
	(void)ct_rank_page_enter(phase_of(get(&own->where)), step);
}

void ct_rank_page_post_step(int64_t step)
{
	if (!is_frozen())
		put(&own->posting, step + 1);
}

int64_t ct_rank_page_posted_step(void)
{
	return get(&own->posting) - 1;
}

void ct_rank_page_count_collectives(int64_t n)
{
	if (!is_frozen())
		put(&own->collectives, n + 1);
}

void ct_page_thread_enter(void)
{
	for (int i = 0; !mine && !is_frozen() && i < CT_PAGE_THREADS; i++) {
		int64_t unused = 0;

		if (atomic_compare_exchange_strong(&own->threads[i].tid, &unused, (int64_t)syscall(SYS_gettid)))
			mine = &own->threads[i];
	}
	ct_page_thread_doing(CT_DOING_WAIT, 0);
}

void ct_page_thread_leave(void)
{
	if (mine && !is_frozen())
		atomic_store(&mine->tid, 0);
	mine = NULL;
}

void ct_page_thread_doing(enum ct_doing doing, int64_t number)
{
	if (!mine || is_frozen())
		return;
	put(&mine->doing, doing);
	put(&mine->number, number);
	put(&mine->since_ns, ct_now_ns());
}

void ct_page_thread_number(int64_t number)
{
	if (mine && !is_frozen())
		put(&mine->number, number);
}

const char *ct_doing_text(int64_t doing)
{
	static const char *const texts[] = {CT_DOINGS(CT_CHOICE_NAME) NULL};

	return doing >= 0 && doing < (int64_t)CT_ARRAY_LEN(texts) - 1 ? texts[doing] : "?";
}

/* ---- memory for records */

void *ct_page_area_take(size_t bytes)
{
	/* Prefers areas that have never been used, to keep the contents of the others. */
	for (int64_t was = 0; bytes <= CT_PAGE_AREA_BYTES && was <= 2; was += 2) {
		for (int i = 0; i < CT_PAGE_AREAS; i++) {
			int64_t expected = was;

			if (!atomic_compare_exchange_strong(&own->areas[i].used, &expected, 1))
				continue;
			if (was != 0)
				memset(own->areas[i].data, 0, CT_PAGE_AREA_BYTES);
			return own->areas[i].data;
		}
	}
	return NULL;
}

bool ct_page_area_return(void *p)
{
	for (int i = 0; p && i < CT_PAGE_AREAS; i++) {
		if (p == own->areas[i].data) {
			atomic_store(&own->areas[i].used, 2);
			return true;
		}
	}
	return false;
}

/* ---- any page */

struct ct_position ct_rank_page_position(const struct ct_rank_page *p)
{
	const int64_t where = get(&p->where);

	return (struct ct_position){
		.phase = phase_of(where), .step = (where >> PHASE_BITS) - 1, .collective = get(&p->collectives) - 1};
}

bool ct_rank_page_has_trained(const struct ct_rank_page *p)
{
	return phase_of(get(&p->where)) >= CT_RANK_TRAINING;
}

bool ct_rank_page_request(struct ct_rank_page *p, enum ct_rank_request r)
{
	return !(atomic_fetch_or(&p->requests, (int64_t)r) & (int64_t)r);
}

bool ct_rank_page_is_requested(const struct ct_rank_page *p, enum ct_rank_request r)
{
	return get(&p->requests) & (int64_t)r;
}

void ct_rank_page_fulfill(struct ct_rank_page *p, enum ct_rank_request r)
{
	atomic_fetch_or(&p->fulfilled, (int64_t)r);
}

bool ct_rank_page_is_fulfilled(const struct ct_rank_page *p, enum ct_rank_request r)
{
	return get(&p->fulfilled) & (int64_t)r;
}

void ct_rank_page_fail(struct ct_rank_page *p, enum ct_status st)
{
	int64_t none = 0;
	struct ct_error e;

	ct_error_save(&e);
	e.status = st;
	/* -1: it is being written. Several threads of a rank may fail. */
	if (!atomic_compare_exchange_strong(&p->has_error, &none, -1))
		return;
	p->error = e;
	atomic_store_explicit(&p->has_error, 1, memory_order_release);
}

const struct ct_error *ct_rank_page_error(const struct ct_rank_page *p)
{
	return atomic_load_explicit(&p->has_error, memory_order_acquire) == 1 ? &p->error : NULL;
}
