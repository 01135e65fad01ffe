/* The shared memory of the shared-memory communicator. The segment has the control data, the slots, the staging buffers
 * and the channels, in a layout that every rank computes from the number of ranks. Each ct_comm_mem_alloc appends a
 * region to the same file, with one part for each rank, and every rank maps all parts: this is what lets a rank reduce
 * the buffers of others directly. The ranks do not exchange offsets. They must allocate the same sizes in the same
 * order; an all-gather of the sizes checks this, and also ensures that all ranks have mapped the region before it is
 * used.
 *
 * Each rank allocates the pages of its own part. The file only grows: a rank that is late must never shorten it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "base/shared_memory.h"
#include "dist/comm/shm/shm_impl.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Computes the pointers into the segment, whose address may still be NULL, and returns its length, after which the
 * first region can be mapped. The channels are last. */
static size_t lay_out(struct shm *s)
{
	size_t n = (size_t)s->base.size;
	uintptr_t start = (uintptr_t)s->segment.map, at = start;

	s->ctl = (struct shm_ctl *)at;
	at += ct_shared_memory_round_up(sizeof(struct shm_ctl));
	s->ranks = (struct shm_rank *)at;
	at += ct_shared_memory_round_up(n * sizeof(struct shm_rank));
	s->slots = (struct shm_slot *)at;
	at += ct_shared_memory_round_up(n * SHM_RING * sizeof(struct shm_slot));
	s->staging = (char *)at;
	at += n * 2 * SHM_CHUNK;
	s->channels = (struct shm_channel *)at;
	at += n * n * sizeof(struct shm_channel);
	return ct_shared_memory_round_up(at - start);
}

enum ct_status ct__shm_segment_open(struct shm *s)
{
	const size_t bytes = lay_out(s);
	char key[128];

	snprintf(key, sizeof(key), "%s/shm", s->base.scope);
	/* Few programs use the channels. */
	if (s->base.rank == 0)
		CT_TRY(ct__segment_create(&s->base, key, bytes, (size_t)s->channels, &s->segment));
	else
		CT_TRY(ct__segment_attach(&s->base, key, 0, bytes, s->base.opts.timeout_ns, &s->segment));
	s->file_end = bytes;
	(void)lay_out(s);
	return CT_OK;
}

void ct__shm_segment_close(struct shm *s)
{
	for (int i = 0; i < s->n_regions; i++)
		munmap(s->regions[i].base, s->regions[i].stride * (size_t)s->base.size);
	ct__segment_close(&s->segment);
}

/* Allocates the pages of this rank's part of a region now, because running out of memory later would raise SIGBUS in
 * the middle of a step. */
static enum ct_status reserve(struct shm *s, char *base, size_t stride)
{
	off_t at = (off_t)(s->file_end + (size_t)s->base.rank * stride);
	int err = 0;

	/* Allocate the last page first: this extends the file if necessary, but unlike ftruncate it never shortens
	 * it. */
	if (fallocate(s->segment.fd, 0, at + (off_t)stride - 1, 1) != 0)
		err = errno;
	else if (madvise(base + (size_t)s->base.rank * stride, stride, MADV_POPULATE_WRITE) != 0)
		err = errno == EINVAL && fallocate(s->segment.fd, 0, at, (off_t)stride) == 0 ? 0 : errno;
	if (err)
		return ct_shared_memory_failed(stride, err);
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
	size_t stride = ct_shared_memory_round_up(bytes ? bytes : 1), all;
	enum ct_status st;
	void *p;

	if (s->n_regions == SHM_MAX_REGIONS)
		return CT_FAIL(CT_BUG, "more than %d shared buffers", SHM_MAX_REGIONS);
	if (stride < bytes || __builtin_mul_overflow(stride, (size_t)c->size, &all) || all > (size_t)INT64_MAX / 2)
		return CT_FAIL(CT_NOMEM, "a shared buffer of %zu bytes is too large", bytes);
	p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s->segment.fd, (off_t)s->file_end);
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
