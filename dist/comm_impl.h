/* What a communicator back end implements; comm.c holds the registry, argument checks, the work pool, abort and the wait
 * with its deadline. For files of dist/ only. */
#ifndef CT_DIST_COMM_IMPL_H
#define CT_DIST_COMM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "dist/comm.h"

enum ct_comm_kind {
	CT_COMM_ALLREDUCE, CT_COMM_REDUCE, CT_COMM_BROADCAST, CT_COMM_ALLGATHER, CT_COMM_GATHER, CT_COMM_SCATTER,
	CT_COMM_REDUCE_SCATTER, CT_COMM_BARRIER, CT_COMM_SEND, CT_COMM_RECV
};
const char *ct_comm_kind_name(enum ct_comm_kind k);

struct ct_work {
	ct_comm *comm;
	enum ct_comm_kind kind;
	const void *src;
	void *dst; /* in place: src == dst */
	size_t n;
	enum ct_dtype dtype;
	enum ct_redop op;
	int root;  /* or the peer */
	int tag;
	int64_t seq;
	_Atomic int status; /* CT_INPROGRESS until done */
	struct ct_error error;
	ct_work *next;
	uint64_t scratch[4]; /* back end's own */
};

struct ct_comm_ops {
	const char *name;
	bool (*available)(char *why, size_t why_len);
	/* Can it serve this world? CT_UNSUPPORTED with the reason. */
	enum ct_status (*supports)(const struct ct_world *w);
	enum ct_status (*open)(struct ct_world *w, const struct ct_comm_opts *opts, ct_comm **out);
	void (*close)(ct_comm *c);
	enum ct_status (*mem_alloc)(ct_comm *c, size_t bytes, void **out); /* (optional) [aligned heap] */
	enum ct_status (*post)(ct_comm *c, ct_work *w);    /* never blocks */
	enum ct_status (*test)(ct_comm *c, ct_work *w);    /* never blocks */
	enum ct_status (*wait)(ct_comm *c, ct_work *w, int64_t deadline_ns); /* blocks; returns early on abort */
	enum ct_status (*progress)(ct_comm *c); /* (optional) [nothing] */
	void (*abort)(ct_comm *c);              /* wakes waiters; any thread */
};

struct ct_comm {
	const struct ct_comm_ops *ops;
	struct ct_world *world;
	int rank, size;
	struct ct_comm_opts opts;
	_Atomic int64_t seq;
	_Atomic bool aborted;
	struct ct_error abort_error; /* written once before aborted */
	pthread_mutex_t abort_lock;
	ct_work *free_works;         /* pool */
	void **mem;                  /* heap blocks of the default mem_alloc */
	size_t n_mem;
};

/* dst[i] = dst[i] op src[i]; CT_AVG sums. Vectorised for f32. */
void ct_reduce_into(void *dst, const void *src, size_t n, enum ct_dtype t, enum ct_redop op);
/* dst[i] *= 1/k as CT_AVG needs; integers divide rounding toward zero. */
void ct_reduce_scale(void *dst, size_t n, enum ct_dtype t, int k);

extern const struct ct_comm_ops ct_comm_ops_self;
extern const struct ct_comm_ops ct_comm_ops_shm;
extern const struct ct_comm_ops ct_comm_ops_gloo;
extern const struct ct_comm_ops ct_comm_ops_hier;

#endif
