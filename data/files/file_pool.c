/* Open files form a list by last use; those with users are skipped when one has to be closed. Files are opened without
 * the lock, because a network file system may be slow, so two threads may open the same file; the second one then
 * closes its descriptor. If the process has no free descriptor, a thread closes an idle file or waits for one. n_busy
 * counts threads that may return a file; the last one does not wait but fails, so the threads cannot all wait for each
 * other. The limit max_open may be exceeded for a moment by threads that open at the same time; ct_file_pool_put
 * corrects this. */
#include "data/files/file_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"

#define MAX_OPEN 1024
#define OTHERS 64 /* descriptors reserved for the rest of the program */
#define NONE UINT32_MAX

/* prev and next form a list of the open files, ordered by last use. */
struct entry {
	int fd; /* -1: closed */
	uint32_t users;
	uint32_t prev, next;
};

struct ct_file_pool {
	pthread_mutex_t lock;
	pthread_cond_t freed; /* n_busy has decreased */
	char *const *paths;
	struct entry *entries;
	uint32_t n, n_open, max_open;
	uint32_t n_busy; /* threads that hold or open a file, except those that wait for a free descriptor */
	uint32_t oldest, newest;
};

static uint32_t usable_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY || r.rlim_cur > 2 * MAX_OPEN + OTHERS)
		return MAX_OPEN;
	return r.rlim_cur > OTHERS + 8 ? (uint32_t)(r.rlim_cur - OTHERS) / 2 : 4;
}

enum ct_status ct_file_pool_create(char *const *paths, uint32_t n, uint32_t max_open, ct_file_pool **out)
{
	ct_file_pool *p;

	CT_TRY_ALLOC(p = CT_NEW(ct_file_pool));
	p->entries = CT_NEW_ARRAY(struct entry, n);
	if (!p->entries) {
		ct_free(p);
		return CT_NOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		p->entries[i] = (struct entry){.fd = -1, .prev = NONE, .next = NONE};
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->freed, NULL);
	p->paths = paths;
	p->n = n;
	p->max_open = max_open ? max_open : usable_descriptors();
	p->oldest = p->newest = NONE;
	*out = p;
	return CT_OK;
}

void ct_file_pool_destroy(ct_file_pool *p)
{
	if (!p)
		return;
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->entries[i].fd >= 0)
			close(p->entries[i].fd);
	}
	pthread_cond_destroy(&p->freed);
	pthread_mutex_destroy(&p->lock);
	ct_free(p->entries);
	ct_free(p);
}

static void unlink_entry(ct_file_pool *p, uint32_t i)
{
	struct entry *e = &p->entries[i];

	*(e->prev == NONE ? &p->oldest : &p->entries[e->prev].next) = e->next;
	*(e->next == NONE ? &p->newest : &p->entries[e->next].prev) = e->prev;
	e->prev = e->next = NONE;
}

static void append_entry(ct_file_pool *p, uint32_t i)
{
	struct entry *e = &p->entries[i];

	e->prev = p->newest;
	*(p->newest == NONE ? &p->oldest : &p->entries[p->newest].next) = i;
	p->newest = i;
}

/* Removes the least recently used idle file from the list. Returns its descriptor, or -1. */
static int evict(ct_file_pool *p)
{
	for (uint32_t i = p->oldest; i != NONE; i = p->entries[i].next) {
		struct entry *e = &p->entries[i];
		int fd = e->fd;

		if (e->users)
			continue;
		unlink_entry(p, i);
		e->fd = -1;
		p->n_open--;
		return fd;
	}
	return -1;
}

static int open_file(const char *path)
{
	int fd;

	do
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	while (fd < 0 && errno == EINTR);
	return fd;
}

static void close_if(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Closes an idle file, or waits until another thread returns one. Returns false if there is nothing to close or to wait
 * for. The last busy thread never waits, so that at least one thread makes progress. */
static bool make_room(ct_file_pool *p)
{
	bool waited = false;
	int old;

	pthread_mutex_lock(&p->lock);
	p->n_busy--;
	old = evict(p);
	if (old < 0 && p->n_busy) {
		pthread_cond_wait(&p->freed, &p->lock);
		waited = true;
		old = evict(p);
	}
	p->n_busy++;
	pthread_mutex_unlock(&p->lock);
	close_if(old);
	return waited || old >= 0;
}

/* Opens file i. If the process has no free descriptor, closes idle files. */
static enum ct_status open_with_room(ct_file_pool *p, uint32_t i, int *fd)
{
	bool last = false;

	for (;;) {
		int err;

		*fd = open_file(p->paths[i]);
		if (*fd >= 0)
			return CT_OK;
		err = errno;
		if ((err == EMFILE || err == ENFILE) && !last) {
			/* There is no idle file, but another thread may just have closed one. */
			last = !make_room(p);
			continue;
		}
		return CT_FAIL(err == ENOENT || err == ENOTDIR || err == ESTALE ? CT_DATA : CT_IO, "cannot open %s: %s",
			       p->paths[i], strerror(err));
	}
}

static void done(ct_file_pool *p)
{
	p->n_busy--;
	pthread_cond_broadcast(&p->freed);
}

/* Another thread may have opened the file in the meantime. In that case *spare is the redundant descriptor. */
static int keep(ct_file_pool *p, uint32_t i, int fd, int *spare)
{
	struct entry *e = &p->entries[i];

	if (e->fd >= 0) {
		*spare = fd;
		unlink_entry(p, i);
	} else {
		e->fd = fd;
		p->n_open++;
	}
	e->users++;
	append_entry(p, i);
	return e->fd;
}

enum ct_status ct_file_pool_get(ct_file_pool *p, uint32_t i, int *fd)
{
	struct entry *e = &p->entries[i];
	int mine = -1, spare = -1;
	enum ct_status st;

	pthread_mutex_lock(&p->lock);
	p->n_busy++;
	if (e->fd >= 0) {
		e->users++;
		unlink_entry(p, i);
		append_entry(p, i);
		*fd = e->fd;
		pthread_mutex_unlock(&p->lock);
		return CT_OK;
	}
	if (p->n_open >= p->max_open)
		spare = evict(p);
	pthread_mutex_unlock(&p->lock);
	close_if(spare);
	spare = -1;
	/* Call open without the lock, because a network file system may be slow. */
	st = open_with_room(p, i, &mine);
	pthread_mutex_lock(&p->lock);
	if (st == CT_OK)
		*fd = keep(p, i, mine, &spare);
	else
		done(p);
	pthread_mutex_unlock(&p->lock);
	close_if(spare);
	return st;
}

void ct_file_pool_put(ct_file_pool *p, uint32_t i)
{
	int fd = -1;

	pthread_mutex_lock(&p->lock);
	p->entries[i].users--;
	/* Several threads that opened files at the same time may have exceeded the limit. */
	if (p->n_open > p->max_open)
		fd = evict(p);
	if (fd >= 0) {
		/* Threads that wait for a descriptor must not retry before it is closed. */
		pthread_mutex_unlock(&p->lock);
		close(fd);
		pthread_mutex_lock(&p->lock);
	}
	done(p);
	pthread_mutex_unlock(&p->lock);
}
