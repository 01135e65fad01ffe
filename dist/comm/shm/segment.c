/* The shared memory of the shared-memory communicator. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "dist/comm/shm/shm_impl.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static size_t page_up(size_t n)
{
	return (n + 4095) & ~(size_t)4095;
}

/* Computes the pointers into the map, relative to s->map, which may still be NULL. Returns the length of the map. The
 * channels are last. */
static size_t lay_out(struct shm *s)
{
	size_t n = (size_t)s->base.size;
	uintptr_t start = (uintptr_t)s->map, at = start;

	s->ctl = (struct shm_ctl *)at;
	at += page_up(sizeof(struct shm_ctl));
	s->ranks = (struct shm_rank *)at;
	at += page_up(n * sizeof(struct shm_rank));
	s->slots = (struct shm_slot *)at;
	at += page_up(n * SHM_RING * sizeof(struct shm_slot));
	s->staging = (char *)at;
	at += n * 2 * SHM_CHUNK;
	s->channels = (struct shm_channel *)at;
	at += n * n * sizeof(struct shm_channel);
	return at - start;
}

static enum ct_status map_file(struct shm *s, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, 0);

	if (p == MAP_FAILED)
		return CT_FAIL(CT_NOMEM, "cannot map %zu MiB of shared memory: %s", bytes >> 20, strerror(errno));
	s->map = p;
	s->map_bytes = bytes;
	s->file_end = bytes;
	(void)lay_out(s);
	return CT_OK;
}

static enum ct_status no_memory(size_t bytes, int err)
{
	(void)CT_FAIL(CT_NOMEM, "cannot allocate %zu MiB of shared memory: %s", (bytes >> 20) + 1, strerror(err));
	if (err == EFBIG)
		ct_error_hint("the limit on file sizes (ulimit -f) also applies to shared memory: raise it");
	else if (err == EMFILE || err == ENFILE)
		ct_error_hint("raise the limit on open files (ulimit -n)");
	else
		ct_error_hint("free memory, or raise this container's memory limit");
	return CT_NOMEM;
}

/* Allocates all pages now, because running out of memory later would raise SIGBUS in the middle of a step. The pages of
 * the channels, which few programs use, are allocated at first use. */
static enum ct_status reserve_base(struct shm *s)
{
	size_t bytes = (size_t)((char *)s->channels - s->map);

	return fallocate(s->fd, 0, 0, (off_t)bytes) == 0 ? CT_OK : no_memory(bytes, errno);
}

static enum ct_status create_segment(struct shm *s, const char *key)
{
	struct shm_ctl *ctl;
	char text[96];
	uint64_t nonce;
	size_t bytes = lay_out(s);

	/* Some kernels require MFD_NOEXEC_SEAL, because they refuse executable memfds. Older kernels do not know the
	 * flag. */
	s->fd = memfd_create("ctrain", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (s->fd < 0 && errno == EINVAL)
		s->fd = memfd_create("ctrain", MFD_CLOEXEC);
	if (s->fd < 0 || ftruncate(s->fd, (off_t)bytes) != 0)
		return no_memory(bytes, errno);
	if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
		return CT_FAIL(CT_IO, "cannot get random bytes: %s", strerror(errno));
	CT_TRY(map_file(s, bytes));
	CT_TRY(reserve_base(s));
	ctl = s->ctl;
	ctl->magic = SHM_MAGIC;
	ctl->nonce = nonce;
	ctl->bytes = bytes;
	ctl->size = s->base.size;
	snprintf(text, sizeof(text), "%d %d %" PRIu64 " %zu", (int)getpid(), s->fd, nonce, bytes);
	CT_TRY(ct_store_set(s->base.world->store, key, text, strlen(text)));
	return CT_OK;
}

static enum ct_status open_failed(struct shm *s, int pid, int err)
{
	char owner[128];

	ct__comm_peer_text(&s->base, 0, owner, sizeof(owner));
	if (err == ENOENT)
		return CT_FAIL(CT_PEER_LOST, "%s ended before its shared memory could be opened", owner);
	(void)CT_FAIL(CT_UNSUPPORTED, "cannot open the shared memory of %s: /proc/%d/fd: %s", owner, pid,
		      strerror(err));
	ct_error_hint(
		"the ranks of a host must run as the same user and share /proc; otherwise, set dist.backend=gloo");
	return CT_UNSUPPORTED;
}

static enum ct_status attach_segment(struct shm *s, const char *key)
{
	int64_t deadline = ct_deadline_in(s->base.opts.timeout_ns);
	char path[64], owner[128], *text = NULL;
	enum ct_status st;
	uint64_t nonce;
	struct stat sb;
	size_t len, bytes;
	int pid, fd, n;

	st = ct_store_get(s->base.world->store, key, deadline, &text, &len);
	if (st == CT_TIMEOUT) {
		ct__comm_peer_text(&s->base, 0, owner, sizeof(owner));
		return CT_FAIL(CT_TIMEOUT,
			       "%s has not made its shared memory available within %.1f s; it may be stopped", owner,
			       (double)s->base.opts.timeout_ns / 1e9);
	}
	CT_TRY(st);
	n = sscanf(text, "%d %d %" SCNu64 " %zu", &pid, &fd, &nonce, &bytes);
	ct_free(text);
	if (n != 4 || bytes != lay_out(s))
		return CT_FAIL(CT_MISMATCH,
			       "ranks disagree on the layout of shared memory: they must run the same build of ctrain");
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	s->fd = open(path, O_RDWR | O_CLOEXEC);
	if (s->fd < 0)
		return open_failed(s, pid, errno);
	if (fstat(s->fd, &sb) != 0 || sb.st_size < (off_t)bytes)
		return open_failed(s, pid, ENOENT);
	CT_TRY(map_file(s, bytes));
	/* In this case the pid or the descriptor now belongs to another process or file. */
	if (s->ctl->magic != SHM_MAGIC || s->ctl->nonce != nonce || s->ctl->size != s->base.size)
		return open_failed(s, pid, ENOENT);
	return CT_OK;
}

enum ct_status ct__shm_segment_open(struct shm *s)
{
	char key[128];

	snprintf(key, sizeof(key), "%s/shm", s->base.scope);
	if (s->base.rank == 0)
		CT_TRY(create_segment(s, key));
	else
		CT_TRY(attach_segment(s, key));
	return CT_OK;
}

void ct__shm_segment_close(struct shm *s)
{
	for (int i = 0; i < s->n_regions; i++)
		munmap(s->regions[i].base, s->regions[i].stride * (size_t)s->base.size);
	if (s->map_bytes)
		munmap(s->map, s->map_bytes);
	if (s->fd >= 0)
		close(s->fd);
}

/* Allocates the pages of this rank's part of a region now, because running out of memory later would raise SIGBUS in
 * the middle of a step. */
static enum ct_status reserve(struct shm *s, char *base, size_t stride)
{
	off_t at = (off_t)(s->file_end + (size_t)s->base.rank * stride);
	int err = 0;

	/* Allocate the last page first: this extends the file if necessary, but unlike ftruncate it never shortens
	 * it. */
	if (fallocate(s->fd, 0, at + (off_t)stride - 4096, 4096) != 0)
		err = errno;
	else if (madvise(base + (size_t)s->base.rank * stride, stride, MADV_POPULATE_WRITE) != 0)
		err = errno == EINVAL && fallocate(s->fd, 0, at, (off_t)stride) == 0 ? 0 : errno;
	if (err)
		return no_memory(stride, err);
	return CT_OK;
}

/* Waits until all ranks have mapped the region, and checks that its size is the same everywhere. */
static enum ct_status same_everywhere(struct shm *s, size_t bytes)
{
	int64_t mine = (int64_t)bytes, *all;
	char who[128];
	enum ct_status st;
	ct_work *w;

	CT_TRY_ALLOC(all = CT_NEW_ARRAY(int64_t, (size_t)s->base.size));
	CT_TRY_GOTO(ct_comm_allgather(&s->base, &mine, all, 1, CT_I64, &w), st, done);
	CT_TRY_GOTO(ct_work_wait(w), st, done);
	for (int q = 0; q < s->base.size && st == CT_OK; q++) {
		if (all[q] == all[0])
			continue;
		ct__comm_peer_text(&s->base, q, who, sizeof(who));
		st = CT_FAIL(CT_MISMATCH, "ranks disagree on a shared buffer: rank %d asks for %lld bytes, %s for %lld",
			     ct__comm_world_rank(&s->base, 0), (long long)all[0], who, (long long)all[q]);
	}
done:
	ct_free(all);
	return st;
}

enum ct_status ct__shm_mem_alloc(ct_comm *c, size_t bytes, void **out)
{
	struct shm *s = (struct shm *)c;
	size_t stride = page_up(bytes ? bytes : 1), all;
	enum ct_status st;
	void *p;

	if (s->n_regions == SHM_MAX_REGIONS)
		return CT_FAIL(CT_BUG, "more than %d shared buffers", SHM_MAX_REGIONS);
	if (stride < bytes || __builtin_mul_overflow(stride, (size_t)c->size, &all) || all > (size_t)INT64_MAX / 2)
		return CT_FAIL(CT_NOMEM, "a shared buffer of %zu bytes is too large", bytes);
	p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->fd, (off_t)s->file_end);
	if (p == MAP_FAILED)
		return CT_FAIL(CT_NOMEM, "cannot map %zu MiB of shared memory: %s", all >> 20, strerror(errno));
	(void)madvise(p, all, MADV_HUGEPAGE); /* most systems refuse it for shared memory, which is harmless */
	CT_TRY_GOTO(reserve(s, p, stride), st, unmap);
	CT_TRY_GOTO(same_everywhere(s, bytes), st, unmap);
	(void)madvise(p, all, MADV_POPULATE_WRITE); /* avoids page faults in the first step */
	s->regions[s->n_regions++] = (struct shm_region){.base = p, .bytes = bytes, .stride = stride};
	s->file_end += all;
	*out = (char *)p + (size_t)c->rank * stride;
	return CT_OK;

unmap:
	munmap(p, all);
	return st;
}

void ct__shm_locate(const struct shm *s, const void *p, size_t bytes, int32_t *region, uint64_t *off)
{
	const char *at = p;

	*region = -1;
	*off = 0;
	for (int i = 0; i < s->n_regions; i++) {
		const struct shm_region *r = &s->regions[i];
		const char *mine = r->base + (size_t)s->base.rank * r->stride;

		if (at >= mine && at < mine + r->stride && bytes <= (size_t)(mine + r->stride - at)) {
			*region = i;
			*off = (uint64_t)(at - mine);
			return;
		}
	}
}
