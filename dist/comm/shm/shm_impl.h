/* The shared-memory communicator: the contents of the segment, and what each rank keeps to itself.
 *
 * Rank 0 creates one memfd per communicator; the others open it through /proc/PID/fd/FD. All ranks compute the same
 * layout, so no pointer is ever stored in the file. Counters only increase. Each counter has one writer, except the
 * tickets of shm_share. A rank publishes a counter with release order; the others read it with acquire order.
 *
 * Collectives are numbered per communicator, alike on all ranks. Each rank describes collective s in its slot
 * s % SHM_RING. When all ranks have posted it, the descriptions are compared, and all ranks take the same of three paths:
 *
 * - inline: the data is at most SHM_INLINE bytes. It was published with the description, and each rank computes its own
 *   result from all descriptions.
 *
 * - direct: an allreduce, reduce or broadcast whose buffers are all in shared memory. The vector is cut into tiles; ranks
 *   draw tickets for tiles, reduce a tile over all buffers in rank order, and write the result into all buffers.
 *
 * - staged: everything else, in rounds of SHM_CHUNK bytes through two staging buffers per rank. Only one staged
 *   collective runs at a time.
 *
 * A slot is used again only when all ranks have completed the collective that was in it. */
#ifndef CT_DIST_COMM_SHM_SHM_IMPL_H
#define CT_DIST_COMM_SHM_SHM_IMPL_H

#include <sched.h>

#include "dist/comm/comm_impl.h"

#define SHM_MAGIC 0x6d68736e72617274
#define SHM_RING 64
#define SHM_INLINE 2048
#define SHM_CHUNK ((size_t)512 << 10)
#define SHM_MAX_RANKS 256
#define SHM_MAX_REGIONS 64
#define SHM_P2P_CHUNK ((size_t)32 << 10)
#define SHM_P2P_RING 16
#define SHM_LINE 64

enum shm_state { SHM_OPEN, SHM_CLOSED, SHM_DEAD };

struct shm_rank {
	/* written by its owner */
	_Alignas(SHM_LINE) _Atomic uint64_t posted; /* collectives described */
	_Atomic uint64_t done;                      /* collectives completed */
	_Atomic uint64_t staged_in, staged_out;     /* staged rounds published, read */
	_Atomic uint64_t busy;                      /* 1 + collective on which it holds a ticket, 0: none */
	_Atomic uint32_t state;
	/* sleeping: 1 set by the owner before it sleeps, 2 if it waits for `done` too, 0 set by the waker, who then
	 * counts up bell */
	_Alignas(SHM_LINE) _Atomic uint32_t bell;
	_Atomic uint32_t sleeping;
	_Alignas(SHM_LINE) cpu_set_t cpus; /* where it may run */
	int cpu_limit;
	char reason[512]; /* of SHM_DEAD */
};

struct shm_slot {
	_Alignas(SHM_LINE) uint64_t n;
	uint64_t off;   /* of the buffer in its region */
	int32_t region; /* -1: the buffer is private */
	int32_t root;
	uint8_t kind, dtype, op;
	_Alignas(SHM_LINE) unsigned char data[SHM_INLINE];
};

/* Work that any rank may do: tickets drawn (from either end) and tickets finished. Reset by rank 0 before it publishes
 * the next use. */
struct shm_share {
	_Alignas(SHM_LINE) _Atomic uint64_t next;
	_Alignas(SHM_LINE) _Atomic uint64_t finished;
};

enum shm_msg_state { SHM_MSG_FREE, SHM_MSG_ANNOUNCED, SHM_MSG_ACCEPTED, SHM_MSG_REFUSED };

struct shm_msg {
	_Atomic uint32_t state;
	uint32_t dtype, want_dtype; /* want_*: what a receiver that refused it expected */
	int32_t tag;
	uint64_t id, n, want_n;
};

/* From one rank to another. The sender announces messages; the receiver accepts them in the order of its matching
 * receives; accepted messages flow through two chunks in the order of acceptance. */
struct shm_channel {
	_Alignas(SHM_LINE) _Atomic uint64_t announced; /* sender */
	_Atomic uint64_t written;                      /* sender: chunks */
	_Alignas(SHM_LINE) _Atomic uint64_t accepted;  /* receiver */
	_Atomic uint64_t read;                         /* receiver: chunks */
	uint64_t order[SHM_P2P_RING];                  /* receiver: ids in order of acceptance */
	_Alignas(SHM_LINE) struct shm_msg msgs[SHM_P2P_RING];
	_Alignas(4096) unsigned char data[2][SHM_P2P_CHUNK];
};

struct shm_ctl {
	uint64_t magic, nonce, bytes;
	int32_t size;
	struct shm_share direct[SHM_RING], staged[2];
};

struct shm_region {
	char *base; /* [size][stride] */
	size_t bytes, stride;
};

/* A rank's own view of its two channels with one peer: messages announced, fully written, fully read, first not
 * accepted. */
struct shm_p2p {
	uint64_t announced, written, read, scan;
	/* One pass over the works uses the same state of the peer to its end, so that a later work cannot overtake
	 * an earlier one. */
	uint64_t pass, end;
	bool full;
};

struct shm {
	struct ct_comm base;
	int fd;
	char *map;
	size_t map_bytes, file_end;
	struct shm_ctl *ctl;
	struct shm_rank *ranks;       /* [size] */
	struct shm_slot *slots;       /* [size][SHM_RING] */
	char *staging;                /* [size][2][SHM_CHUNK] */
	struct shm_channel *channels; /* [from][to] */
	struct shm_region regions[SHM_MAX_REGIONS];
	int n_regions;
	int *pidfd;          /* [size], -1: not watched */
	struct shm_p2p *p2p; /* [size] */
	char **in, **out;    /* [size], scratch */

	ct_work *head, *tail; /* collectives not complete */
	ct_work *unpublished; /* first of them without a slot */
	ct_work *p2p_head, **p2p_tail;
	uint64_t p2p_pass;
	uint64_t n_posted, n_published, n_done;
	uint64_t seen_posted, seen_done; /* all ranks are known to have reached this collective */
	uint64_t staged_rounds;          /* of the staged collectives completed */
	bool spins, moved;               /* moved: the last advance changed something */
	int64_t spin_ns, checked_ns;
};

static inline struct shm_rank *shm_me(const struct shm *s)
{
	return &s->ranks[s->base.rank];
}

static inline struct shm_slot *shm_slot(const struct shm *s, int q, uint64_t seq)
{
	return &s->slots[(size_t)q * SHM_RING + seq % SHM_RING];
}

static inline char *shm_staging(const struct shm *s, int q, uint64_t round)
{
	return s->staging + ((size_t)q * 2 + (round & 1)) * SHM_CHUNK;
}

static inline struct shm_channel *shm_channel(const struct shm *s, int from, int to)
{
	return &s->channels[(size_t)from * (size_t)s->base.size + (size_t)to];
}

/* segment.c */
enum ct_status ct__shm_segment_open(struct shm *s) CT_MUST_CHECK;
void ct__shm_segment_close(struct shm *s);
enum ct_status ct__shm_mem_alloc(ct_comm *c, size_t bytes, void **out) CT_MUST_CHECK;
/* Region and offset of a buffer; region -1 when it is not all in shared memory. */
void ct__shm_locate(const struct shm *s, const void *p, size_t bytes, int32_t *region, uint64_t *off);

/* coll.c: publishes queued collectives while there is room, does the work that is possible now, and completes them
 * in order. greedy: also takes tickets of the other ranks' share. */
void ct__shm_coll_post(struct shm *s, ct_work *w);
enum ct_status ct__shm_coll_advance(struct shm *s, bool greedy) CT_MUST_CHECK;
/* CT_MISMATCH when ranks that have reached this collective describe it differently. */
enum ct_status ct__shm_coll_compare(struct shm *s, uint64_t seq) CT_MUST_CHECK;

/* p2p.c */
void ct__shm_p2p_post(struct shm *s, ct_work *w);
enum ct_status ct__shm_p2p_advance(struct shm *s) CT_MUST_CHECK;

/* wait.c */
void ct__shm_wake(struct shm *s, int q); /* after publishing: wakes q if it sleeps */
void ct__shm_wake_all(struct shm *s);
void ct__shm_wake_for_done(struct shm *s);
enum ct_status ct__shm_advance(struct shm *s, bool greedy) CT_MUST_CHECK;
enum ct_status ct__shm_wait(ct_comm *c, ct_work *w, int64_t deadline_ns) CT_MUST_CHECK;
/* pidfds and whether to spin; after all ranks are there. */
enum ct_status ct__shm_watch_open(struct shm *s) CT_MUST_CHECK;
void ct__shm_watch_close(struct shm *s);

#endif
