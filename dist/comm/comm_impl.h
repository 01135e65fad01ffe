/* The interface that communicator back ends implement. comm.c opens and ends communicators, and post.c checks
 * arguments, posts operations and waits for them with a deadline. registry.c contains the list of back ends. */
#ifndef CT_DIST_COMM_COMM_IMPL_H
#define CT_DIST_COMM_COMM_IMPL_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "dist/comm/flight_impl.h"

#define CT_COMM_DEFAULT_SCOPE "comm" /* if struct ct_comm_opts has none */

/* An operation that a caller requests. struct ct_work has the same members, and the state of the posted operation. */
struct ct_request {
	enum ct_comm_kind kind;
	const void *src;
	void *dst; /* in place: src == dst */
	size_t n;
	enum ct_dtype dtype;
	enum ct_redop op;
	int root; /* send and recv: the peer */
	int tag;
	int bucket; /* 1 + the bucket of the reducer; 0: none */
};

struct ct_work {
	ct_comm *comm;
	enum ct_comm_kind kind;
	const void *src;
	void *dst;
	size_t n;
	enum ct_dtype dtype;
	enum ct_redop op;
	int root;
	int tag;
	int bucket;
	int64_t number; /* as in struct ct_flight_record */
	int64_t seq;
	int64_t posted_ns;
	_Atomic int status; /* CT_INPROGRESS until done */
	ct_work *next;      /* next and scratch belong to the back end */
	uint64_t scratch[6];
};

struct ct_comm_ops {
	const char *name;
	/* Returns CT_UNSUPPORTED, with the reason, if the back end cannot serve this world. */
	enum ct_status (*supports)(const struct ct_world *w);
	/* The back end's struct must begin with a struct ct_comm, for which `open` calls ct__comm_init. */
	enum ct_status (*open)(struct ct_world *w, const struct ct_comm_opts *opts, ct_comm **out);
	void (*close)(ct_comm *c);                                         /* calls ct__comm_release */
	enum ct_status (*mem_alloc)(ct_comm *c, size_t bytes, void **out); /* optional; default: aligned heap */
	/* Never blocks. If the operation is done immediately, sets its status. */
	enum ct_status (*post)(ct_comm *c, ct_work *w);
	/* Never blocks. Callers may call test repeatedly instead of wait, so it must also detect that a peer has
	 * ended. */
	enum ct_status (*test)(ct_comm *c, ct_work *w);
	enum ct_status (*wait)(ct_comm *c, ct_work *w,
			       int64_t deadline_ns); /* blocks; returns early if the communicator dies */
	enum ct_status (*progress)(ct_comm *c);      /* optional; default: nothing */
	/* Posts *w, an allreduce or a broadcast, to the stream. The collective runs in stream order, and there is no
	 * ct_work to wait for. Optional; default: the collective runs in a host function of the stream. */
	enum ct_status (*post_to)(ct_comm *c, const ct_work *w, ct_stream *s);
	/* Returns whether what post_to posts may be recorded, or writes the reason to `why`. Optional; default: true.
	 */
	bool (*is_recordable)(const ct_comm *c, char *why, size_t len);
	enum ct_status (*poll)(
		ct_comm *c);       /* optional; any thread: returns an error that has been detected meanwhile */
	bool mem_on_device;        /* mem_alloc returns device memory */
	bool records;              /* post calls ct__comm_record, at the latest before it returns */
	bool cooperative;          /* only test, wait and progress access buffers, never a thread of the back end */
	void (*abort)(ct_comm *c); /* called once, by any thread, when the communicator has died */
};

/* The collective that was posted to a stream and is running (dist/comm/stream.c). There is at most one. */
struct ct_in_stream {
	/* Arguments of its function, which is called repeatedly; NULL: no collective is running. Another thread calls
	 * the functions of a GPU. */
	const void *_Atomic args;
	ct_work *work;
	int64_t deadline_ns;
};

/* Pinned memory for collectives of a device whose memory the host cannot access. All collectives use the same memory,
 * because they are ordered. */
struct ct_stage {
	ct_device *device; /* NULL: none */
	void *memory;
	size_t bytes;
};

/* The messages posted so far of one kind with the same peer and tag, which are matched in this order. */
struct ct_message_count {
	enum ct_comm_kind kind;
	int peer, tag;
	int64_t n;
};

struct ct_comm {
	const struct ct_comm_ops *ops;
	struct ct_world *world;
	int rank, size;
	struct ct_comm_opts opts; /* its strings point to the next two members */
	char iface[256];
	char scope[96]; /* prefix of this communicator's keys in the store; "" for a world of one */
	_Atomic int64_t seq;
	_Atomic int64_t n_collectives;
	bool on_page; /* the communicator of all ranks, whose collectives are counted in the page of the rank */
	struct ct_message_count *counts; /* of the thread that posts */
	size_t n_counts, max_counts;
	uint64_t history; /* digest of the collectives posted so far (diagnose_impl.h) */
	int bucket;       /* of the operations posted next, as in ct_work */
	const ct_work
		*whole; /* the operation of opts.outer of which the operations posted next are parts; NULL: none */
	struct ct_flight *flight;
	_Atomic int64_t published; /* number of operations when the latest ones were last written to the store */
	_Atomic bool dead;
	struct ct_error error; /* why it is dead: written once, under lock, before `dead` is set */
	pthread_mutex_t lock;
	pthread_cond_t died;
	ct_work *free_works;
	struct ct_in_stream in_stream;
	struct ct_stage stage;
	struct ct_work_block *blocks;
	void **mem; /* heap blocks of the default mem_alloc */
	size_t n_mem;
};

/* The CPUs on which a rank may run. It writes them to shared memory for the other ranks of its host. */
struct ct_rank_cpus {
	cpu_set_t cpus;
	int quota; /* of CPU time, in CPUs; 0: none */
};
void ct__comm_get_cpus(struct ct_rank_cpus *out);
/* Adds the CPUs of another rank. */
void ct__comm_add_cpus(struct ct_rank_cpus *all, const struct ct_rank_cpus *of_rank);
/* Returns whether there are at least n CPUs for n ranks. If not, a rank that waits must let the others run. */
bool ct__comm_has_cpus(const struct ct_rank_cpus *all, int n);

static inline bool ct__comm_on_this_host(const ct_comm *c, int q)
{
	return c->world->peers[q].node == c->world->peers[c->rank].node;
}
/* Allocates operations for c->free_works, which ct__comm_free_works frees. */
enum ct_status ct__comm_add_works(ct_comm *c) CT_MUST_CHECK;
void ct__comm_free_works(ct_comm *c);
enum ct_status ct__comm_post(ct_comm *c, const struct ct_request *want, ct_work **out) CT_MUST_CHECK;
/* Sets *w to an operation that has not been posted. */
void ct__work_init(ct_work *w, ct_comm *c, const struct ct_request *want);
/* Returns an all-reduce in place. */
struct ct_request ct__comm_allreduce_of(const ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op);
/* Numbers the operation, unless it is a message, and adds it to the flight record. For back ends with post_to, whose
 * operations ct__comm_post does not see, and for those with `records`. */
void ct__comm_record(ct_comm *c, ct_work *w);
/* Sets how many collectives have been posted. Only the thread that posts calls it, so it needs no atomic addition,
 * which is slower. */
void ct__comm_count_collectives(ct_comm *c, int64_t n);
/* Returns the operation that messages describe and that ranks compare: w, or the one of which w is a part. */
static inline const ct_work *ct__work_whole(const ct_work *w)
{
	return w->comm->whole ? w->comm->whole : w;
}
/* Does the same as ct_work_wait, with another deadline. */
enum ct_status ct__work_wait_until(ct_work *w, int64_t deadline_ns) CT_MUST_CHECK;

void ct__comm_stage_release(ct_comm *c);

/* Opens the back end `ops` without the registry, for tests and for the parts of hier. */
enum ct_status ct__comm_open_with(const struct ct_comm_ops *ops, struct ct_world *world,
				  const struct ct_comm_opts *opts, ct_comm **out) CT_MUST_CHECK;
enum ct_status ct__comm_init(ct_comm *c, const struct ct_comm_ops *ops, struct ct_world *world,
			     const struct ct_comm_opts *opts) CT_MUST_CHECK;
void ct__comm_release(ct_comm *c); /* undoes ct__comm_init; a zeroed struct is allowed */
/* Ends the communicator with this thread's error chain, unless it has already ended. The error with which the
 * communicator has ended becomes this thread's error chain, and its status is returned. The caller must not hold locks
 * of the back end. */
enum ct_status ct__comm_die(ct_comm *c);
void ct__comm_die_of(ct_comm *c, const struct ct_error *e); /* the same with the error e; any thread */
/* When a peer dies, the notification that the watchdog receives from the store has more detail than a broken
 * connection. This function waits a short time for that notification. Call it before ct__comm_die. */
void ct__comm_await_final_error(ct_comm *c);
/* Adds to a CT_TIMEOUT error chain what the store knows about the rank for which all others wait. */
void ct__comm_attribute_failure(ct_comm *c, const ct_work *w);

/* The hint of CT_MISMATCH. */
#define CT_COMM_MISMATCH_HINT "all ranks must run the same program with the same config"

/* Writes "rank 1 (pid 4711 on node7)". q is the rank in this communicator; the string contains the rank in the
 * world. */
void ct__comm_peer_text(const ct_comm *c, int q, char *buf, size_t len);
/* Records that the error was caused by rank q of this communicator, and returns st (ct_error_caused_by). */
enum ct_status ct__comm_caused_by(const ct_comm *c, int q, enum ct_status st);
int ct__comm_world_rank(const ct_comm *c, int q);
/* Writes a description such as "allreduce sum f32[1024]" or "send u8[3] to rank 1 tag 7". */
void ct__comm_op_text(const ct_comm *c, enum ct_comm_kind kind, enum ct_dtype t, enum ct_redop op, uint64_t n, int root,
		      int tag, char *buf, size_t len);
/* Does the same, with the bucket and the step: "allreduce sum f32[1024] (bucket 2 of step 118)". */
void ct__work_text(const ct_work *w, char *buf, size_t len);

extern const struct ct_comm_ops ct__comm_ops_self;
extern const struct ct_comm_ops ct__comm_ops_shm;
extern const struct ct_comm_ops ct__comm_ops_gloo;
extern const struct ct_comm_ops ct__comm_ops_hier;
extern const struct ct_comm_ops ct__comm_ops_mpi;

/* Returns CT_UNSUPPORTED, with the reason, if the shared object with gloo is missing or cannot be loaded. */
enum ct_status ct__gloo_available(char *note, size_t len) CT_MUST_CHECK;
/* Returns CT_UNSUPPORTED, with the reason, if there is no usable shared object with MPI; otherwise writes the names and
 * versions of the libraries. */
enum ct_status ct__mpi_available(char *note, size_t len) CT_MUST_CHECK;
/* Opens the module for GPUs and libnccl. Returns CT_UNSUPPORTED, with the reason, if one of them cannot be loaded. */
enum ct_status ct__nccl_load(const struct ct_comm_ops **out) CT_MUST_CHECK;
/* These also check that there is a GPU. */
enum ct_status ct__nccl_available(char *note, size_t len) CT_MUST_CHECK;
enum ct_status ct__nccl_version(int *out) CT_MUST_CHECK;
/* Sets *can_use to whether all ranks can use nccl, and writes the reason if they cannot: the result is the same on all
 * ranks. own_why is the reason why this rank cannot, or NULL if it can. They cannot if two ranks share a GPU.
 * opts->device is a GPU. Collective: ranks without a GPU call ct__comm_decline_nccl instead. */
enum ct_status ct__comm_agree_on_nccl(struct ct_world *w, const struct ct_comm_opts *opts, const char *own_why,
				      bool *can_use, char *why, size_t len) CT_MUST_CHECK;
enum ct_status ct__comm_decline_nccl(struct ct_world *w, const struct ct_comm_opts *opts) CT_MUST_CHECK;

#endif
