/* Pages are read by other processes while their rank writes them, and no lock is needed; a process that was killed
 * could hold one. Numbers are therefore atomic. Phase and step are stored in one word, so a reader never combines the
 * phase of one step with the number of another. The error is larger: it is written once, and then `has_error` is set.
 * Areas belong to whoever takes them; what is in them says itself what is valid (dist/comm/flight.c).
 *
 * The pages of a node are one piece of shared memory. It begins with a header, which contains the clock, the number of
 * pages and a version, because the program file may be replaced before a rank starts. Each page begins at a multiple of
 * the system's page size, so that a rank maps the header, which it cannot write, and its own page. Clearing the pages
 * returns their memory to the kernel, which gives zeroed memory at the next access. */
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
static _Thread_local struct ct_rank_thread *mine;

static void put(_Atomic int64_t *at, int64_t v)
{
	atomic_store_explicit(at, v, memory_order_relaxed);
}

static int64_t get(const _Atomic int64_t *at)
{
	return atomic_load_explicit(at, memory_order_relaxed);
}

/* ---- the pages of a node */

struct header {
	uint32_t version, n;
	int64_t clock; /* for ct_clock_attach */
};

static size_t place_of(size_t i)
{
	return ct_shared_memory_round_up(sizeof(struct header)) +
	       i * ct_shared_memory_round_up(sizeof(struct ct_rank_page));
}

enum ct_status ct_rank_pages_create(int n, struct ct_rank_pages *out)
{
	struct header *h;

	*out = (struct ct_rank_pages){.bytes = place_of((size_t)n), .n = n};
	out->map = ct_shared_memory_create(NAME, out->bytes, &out->fd);
	if (!out->map)
		return ct_shared_memory_failed(out->bytes, errno);
	h = out->map;
	*h = (struct header){.version = VERSION, .n = (uint32_t)n};
	ct_clock_move(&h->clock);
	return CT_OK;
}

static struct ct_rank_page *page_at(void *map, size_t i)
{
	return (void *)((char *)map + place_of(i));
}

struct ct_rank_page *ct_rank_pages_at(const struct ct_rank_pages *p, int i)
{
	return page_at(p->map, (size_t)i);
}

void ct_rank_pages_clear(const struct ct_rank_pages *p)
{
	const size_t first = place_of(0), bytes = p->bytes - first;

	if (fallocate(p->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first, (off_t)bytes) != 0)
		memset((char *)p->map + first, 0, bytes);
}

void ct_rank_pages_close(struct ct_rank_pages *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

/* Maps the header for reading if it is that of n pages (-1: of any number). */
static const struct header *map_header(int fd, int64_t n)
{
	const struct header *h;
	struct stat s;

	if (fstat(fd, &s) != 0 || s.st_size < (off_t)place_of(0))
		return NULL;
	h = mmap(NULL, place_of(0), PROT_READ, MAP_SHARED, fd, 0);
	if (h == MAP_FAILED)
		return NULL;
	if (h->version == VERSION && (n < 0 || h->n == n) && s.st_size == (off_t)place_of(h->n))
		return h;
	munmap((void *)(uintptr_t)h, place_of(0));
	return NULL;
}

enum ct_status ct_rank_page_join(int fd, int64_t i, int64_t n)
{
	const struct header *h = i >= 0 && i < n ? map_header(fd, n) : NULL;
	struct ct_rank_page *page;

	if (!h) {
		CT_FAIL(CT_USAGE,
			"the environment of this process is that of a rank, but descriptor %d is not that of its launcher",
			fd);
		return ct_error_hint("unset CTRAIN_PAGES_FD");
	}
	page = mmap(NULL, ct_shared_memory_round_up(sizeof(*page)), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		    (off_t)place_of((size_t)i));
	if (page == MAP_FAILED)
		return ct_shared_memory_failed(sizeof(*page), errno);
	ct_clock_attach(&h->clock);
	own = page;
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

/* Maps a descriptor of a process if it is that of rank pages. Returns the number of pages, or 0. */
static size_t map_pages(int pid, const char *fd_name, struct ct_rank_view *out)
{
	char path[64], target[64] = "";
	const struct header *h;
	size_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", pid, fd_name);
	if (readlink(path, target, sizeof(target) - 1) < 0 ||
	    strncmp(target, "/memfd:" NAME, strlen("/memfd:" NAME)) != 0)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	h = fd >= 0 ? map_header(fd, -1) : NULL;
	if (h) {
		*out = (struct ct_rank_view){.bytes = place_of(h->n)};
		out->map = mmap(NULL, out->bytes, PROT_READ, MAP_SHARED, fd, 0);
		n = out->map == MAP_FAILED ? 0 : h->n;
		munmap((void *)(uintptr_t)h, place_of(0));
	}
	if (fd >= 0)
		close(fd);
	if (n == 0)
		*out = (struct ct_rank_view){0};
	return n;
}

void ct_rank_view_open(int pid, struct ct_rank_view *out)
{
	const int launcher = parent_of(pid);
	char path[48];
	DIR *d;

	*out = (struct ct_rank_view){0};
	snprintf(path, sizeof(path), "/proc/%d/fd", launcher);
	d = launcher > 0 ? opendir(path) : NULL;
	for (struct dirent *e; d && !out->page && (e = readdir(d));) {
		const size_t n = map_pages(launcher, e->d_name, out);

		for (size_t i = 0; i < n && !out->page; i++) {
			if (get(&page_at(out->map, i)->pid) == pid)
				out->page = page_at(out->map, i);
		}
		if (!out->page)
			ct_rank_view_close(out);
	}
	if (d)
		(void)closedir(d);
}

void ct_rank_view_close(struct ct_rank_view *v)
{
	if (v->map)
		munmap(v->map, v->bytes);
	*v = (struct ct_rank_view){0};
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

void ct_rank_thread_enter(void)
{
	for (int i = 0; !mine && !is_frozen() && i < CT_RANK_THREADS; i++) {
		int64_t unused = 0;

		if (atomic_compare_exchange_strong(&own->threads[i].tid, &unused, (int64_t)syscall(SYS_gettid)))
			mine = &own->threads[i];
	}
	ct_rank_thread_doing(CT_DOING_WAIT, 0);
}

void ct_rank_thread_leave(void)
{
	if (mine && !is_frozen())
		atomic_store(&mine->tid, 0);
	mine = NULL;
}

void ct_rank_thread_doing(enum ct_doing doing, int64_t number)
{
	if (!mine || is_frozen())
		return;
	put(&mine->doing, doing);
	put(&mine->number, number);
	put(&mine->since_ns, ct_now_ns());
}

void ct_rank_thread_number(int64_t number)
{
	if (mine && !is_frozen())
		put(&mine->number, number);
}

const char *ct_doing_text(int64_t doing)
{
	static const char *const texts[] = {CT_DOINGS(CT_CHOICE_NAME) NULL};
	const char *text = ct_choice_name(texts, (int)doing);

	return text[0] ? text : "?";
}

/* ---- memory for records */

void *ct_rank_area_take(size_t bytes)
{
	/* Prefers areas that have never been used, to keep the contents of the others. */
	for (int64_t was = 0; bytes <= CT_RANK_AREA_BYTES && was <= 2; was += 2) {
		for (int i = 0; i < CT_RANK_AREAS; i++) {
			int64_t expected = was;

			if (!atomic_compare_exchange_strong(&own->areas[i].used, &expected, 1))
				continue;
			if (was != 0)
				memset(own->areas[i].data, 0, CT_RANK_AREA_BYTES);
			return own->areas[i].data;
		}
	}
	return NULL;
}

bool ct_rank_area_return(void *p)
{
	for (int i = 0; p && i < CT_RANK_AREAS; i++) {
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

bool ct_rank_page_fail(struct ct_rank_page *p, enum ct_status st)
{
	int64_t none = 0;
	struct ct_error e;

	ct_error_save(&e);
	e.status = st;
	/* -1: it is being written. Several threads of a rank may fail. */
	if (!atomic_compare_exchange_strong(&p->has_error, &none, -1))
		return false;
	p->error = e;
	atomic_store_explicit(&p->has_error, 1, memory_order_release);
	return true;
}

const struct ct_error *ct_rank_page_error(const struct ct_rank_page *p)
{
	return atomic_load_explicit(&p->has_error, memory_order_acquire) == 1 ? &p->error : NULL;
}
