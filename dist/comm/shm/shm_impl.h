/* The shared-memory communicator: the contents of the shared segment, and the private state of each rank.
 *
 * Rank 0 creates a segment for each communicator (segment_impl.h). All ranks compute the same layout, so no pointers
 * are stored in the segment. The counters in the segment only increase. Each counter has one writer, except for the
 * tickets of shm_share. A rank publishes a counter with release ordering; the others read it with acquire ordering.
 *
 * The collectives of a communicator have the same numbers on all ranks. Each rank describes collective s in its slot s
 * % SHM_RING. When all ranks have posted the collective, their descriptions are compared, and all ranks use the same
 * one of three algorithms:
 *
 * - inline: for at most SHM_INLINE bytes of data. The data is published with the description, and each rank computes
 *   its own result from all descriptions.
 *
 * - direct: for an allreduce, reduce or broadcast whose buffers are all in shared memory. The vector is divided into
 *   tiles. Ranks draw tickets for tiles; for each ticket, a rank reduces the tile over all buffers in rank order and
 *   writes the result to all buffers.
 *
 * - staged: for all other collectives. The data passes through two staging buffers per rank, in rounds of SHM_CHUNK
 *   bytes. Only one staged collective runs at a time.
 *
 * A slot is reused only when all ranks have completed the collective that it describes. */
#ifndef CT_DIST_COMM_SHM_SHM_IMPL_H
#define CT_DIST_COMM_SHM_SHM_IMPL_H

#include "dist/comm/comm_impl.h"
#include "dist/comm/segment_impl.h"

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
	_Alignas(SHM_LINE) _Atomic uint64_t posted; /* collectives published */
	_Atomic uint64_t done;                      /* collectives completed */
	_Atomic uint64_t staged_in, staged_out;     /* staged rounds published, read */
	_Atomic uint64_t busy;                      /* 1 + the collective for which the rank holds a ticket; 0: none */
	_Atomic uint32_t state;
	/* The owner sets `sleeping` to 1 before it sleeps, or to 2 if it also waits for `done`. The rank that wakes the
	 * owner sets `sleeping` to 0 and increments bell. */
	_Alignas(SHM_LINE) _Atomic uint32_t bell;
	_Atomic uint32_t sleeping;
	_Alignas(SHM_LINE) struct ct_rank_cpus cpus;
	/* Why its state is SHM_DEAD. */
	int32_t status;
	char reason[512];
};

struct shm_slot {
	/* The operation, for comparison: of hier, not that part of it which shm does. */
	_Alignas(SHM_LINE) uint64_t n;
	int64_t number;
	uint64_t off;   /* offset of the buffer in its region */
	int32_t region; /* -1: the buffer is private */
	int32_t root, bucket;
	uint8_t kind, dtype, op;
	_Alignas(SHM_LINE) unsigned char data[SHM_INLINE];
};

/* Work that any rank may do. The halves of `next` count the tickets drawn from the front and from the back; `finished`
 * counts the tickets that are done. Rank 0 resets both members before it publishes the next use. */
struct shm_share {
	_Alignas(SHM_LINE) _Atomic uint64_t next;
	_Alignas(SHM_LINE) _Atomic uint64_t finished;
};

enum shm_msg_state { SHM_MSG_FREE, SHM_MSG_ANNOUNCED, SHM_MSG_ACCEPTED, SHM_MSG_REFUSED };

struct shm_msg {
	_Atomic uint32_t state;
	uint32_t dtype, want_dtype; /* want_*: what the receiver expected, if it refused the message */
	int32_t tag;
	uint64_t id, n, want_n;
};

/* A channel from one rank to another. The sender announces messages. The receiver accepts them in the order of its
 * matching receives. The data of accepted messages is transferred through two chunks, in the order of acceptance. */
struct shm_channel {
	_Alignas(SHM_LINE) _Atomic uint64_t announced; /* sender */
	_Atomic uint64_t written;                      /* sender: chunks */
	_Alignas(SHM_LINE) _Atomic uint64_t accepted;  /* receiver */
	_Atomic uint64_t read;                         /* receiver: chunks */
	uint64_t order[SHM_P2P_RING];                  /* receiver: ids in the order of acceptance */
	_Alignas(SHM_LINE) struct shm_msg msgs[SHM_P2P_RING];
	_Alignas(4096) unsigned char data[2][SHM_P2P_CHUNK];
};

struct shm_ctl {
	struct ct_segment_head head;
	struct shm_share direct[SHM_RING], staged[2];
};

struct shm_region {
	char *base; /* [size][stride] */
	size_t bytes, stride;
};

/* A rank's private state of its two channels with one peer. announced, written and read count messages; scan is the
 * first message that has not been accepted yet. */
struct shm_p2p {
	uint64_t announced, written, read, scan;
	/* A complete pass over the operations uses the same snapshot of the peer's state, so that a later operation
	 * cannot overtake an earlier one. */
	uint64_t pass, end;
	bool full;
};

struct shm {
	struct ct_comm base;
	struct ct_segment segment;
	size_t file_end; /* of the segment and the regions */
	struct shm_ctl *ctl;
	struct shm_rank *ranks;       /* [size] */
	struct shm_slot *slots;       /* [size][SHM_RING] */
	char *staging;                /* [size][2][SHM_CHUNK] */
	struct shm_channel *channels; /* [from][to] */
	struct shm_region regions[SHM_MAX_REGIONS];
	int n_regions;
	int *pidfd;          /* [size]; -1: not watched */
	struct shm_p2p *p2p; /* [size] */
	char **in, **out;    /* [size], scratch */

	ct_work *head, *tail; /* collectives that are not complete */
	ct_work *unpublished; /* the first of these collectives that has no slot yet */
	ct_work *p2p_head, **p2p_tail;
	uint64_t p2p_pass;
	uint64_t n_posted, n_published, n_done;
	uint64_t seen_posted, seen_done; /* all ranks are known to have reached these counts */
	uint64_t staged_rounds;          /* rounds of all completed staged collectives */
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

/* memory.c */
enum ct_status ct__shm_segment_open(struct shm *s) CT_MUST_CHECK;
void ct__shm_segment_close(struct shm *s);
enum ct_status ct__shm_mem_alloc(ct_comm *c, size_t bytes, void **out) CT_MUST_CHECK;
/* Finds the region and the offset of a buffer; region is -1 if the buffer is not entirely in shared memory. */
void ct__shm_locate(const struct shm *s, const void *p, size_t bytes, int32_t *region, uint64_t *off);

/* coll.c. Advancing publishes queued collectives while there are free slots, does the work that is possible now, and
 * completes collectives in order. If greedy is true, this rank also takes the tickets of other ranks. */
void ct__shm_coll_post(struct shm *s, ct_work *w);
enum ct_status ct__shm_coll_advance(struct shm *s, bool greedy) CT_MUST_CHECK;
/* Returns CT_MISMATCH if ranks that have reached this collective describe it differently. */
enum ct_status ct__shm_coll_compare(struct shm *s, uint64_t seq) CT_MUST_CHECK;

/* p2p.c */
void ct__shm_p2p_post(struct shm *s, ct_work *w);
enum ct_status ct__shm_p2p_advance(struct shm *s) CT_MUST_CHECK;

/* wait.c */
void ct__shm_wake(struct shm *s, int q); /* call after publishing; wakes q if it sleeps */
void ct__shm_wake_all(struct shm *s);
void ct__shm_wake_for_done(struct shm *s);
enum ct_status ct__shm_advance(struct shm *s, bool greedy) CT_MUST_CHECK;
enum ct_status ct__shm_test(ct_comm *c, ct_work *w) CT_MUST_CHECK;
enum ct_status ct__shm_wait(ct_comm *c, ct_work *w, int64_t deadline_ns) CT_MUST_CHECK;
/* Opens the pidfds and decides whether to spin. Call it when all ranks have mapped the segment. */
enum ct_status ct__shm_watch_open(struct shm *s) CT_MUST_CHECK;
void ct__shm_watch_close(struct shm *s);

#endif
