/* Communicators: collective operations over the ranks of a run, with a post / test / wait interface like that of UCC
 * and MPI.
 *
 * Every rank must issue the same operations in the same order. Buffers may be anywhere in memory; memory from
 * ct_comm_mem_alloc permits zero copy if the back end supports it. Buffers of pending operations must not overlap.
 * Reductions are elementwise and give bitwise identical results on all ranks and in every run; shm reduces in rank
 * order. shm and mpi compute sums of bf16 and f16 numbers in fp32 and round once; gloo, hier and nccl also round
 * partial sums, up to once per rank (hier: per host). The collectives of a communicator complete in order. There is no
 * all-to-all, because training does not need one. If the ranks issue different operations (kind, count, type,
 * reduction, root or bucket), the result is CT_MISMATCH with both descriptions; NCCL only notices differences that make
 * it wait. After an error the communicator is dead, and every later call returns that error. Only one thread may post
 * and wait; any thread may call ct_comm_abort.
 *
 * back end   where                        notes
 *   self     world of one                 operations complete when posted
 *   shm      ranks of one host            shared memory (memfd of the host's first rank), cooperative: post publishes;
 *                                         test, progress and wait reduce; no thread; waits on a futex
 *   gloo     any hosts                    one worker thread and one gloo context
 *   hier     several hosts, some with     shm inside a host, gloo among the hosts' first ranks, one worker thread
 *            several ranks
 *   mpi      ranks of mpirun or srun      messages of MPI, and of shared memory inside a host, cooperative: post starts
 *                                         messages; test, progress and wait poll and reduce; no thread; reduces in rank
 *                                         order
 *   nccl     one GPU per rank, any hosts  a stream of the GPU; no thread waits. Buffers are in device memory, or in
 *                                         host memory, which is copied (dist/comm/nccl/nccl_impl.h)
 */
#ifndef CT_DIST_COMM_COMM_H
#define CT_DIST_COMM_COMM_H

#include "base/clock.h"
#include "base/dtype.h"
#include "base/json.h"
#include "dist/rendezvous/rendezvous.h"

enum ct_redop { CT_SUM, CT_PROD, CT_MIN, CT_MAX, CT_AVG };

typedef struct ct_device ct_device; /* base/device/device.h */
typedef struct ct_stream ct_stream;
typedef struct ct_comm ct_comm;
typedef struct ct_work ct_work; /* a posted operation; ct_work_wait frees it */

struct ct_comm_opts {
	int64_t timeout_ns; /* a collective that waits longer than this for a peer fails with CT_TIMEOUT; 0: no limit */
	int64_t connect_ns; /* how long gloo and hier try to connect to all ranks; 0: timeout_ns */
	/* Selection of network interfaces (dist/net/net.h) for gloo and nccl; NULL: use the address of the store
	 * connection. */
	const char *iface;
	struct ct_port_range ports; /* on which gloo listens for ranks of other hosts; the other back ends refuse one */
	const char *scope;          /* prefix of the keys in the store; NULL: "comm" */
	ct_device *device;          /* the GPU of this rank, borrowed, for nccl; NULL: none */
	/* For nccl. nccl_windows: ct_comm_mem_alloc returns registered windows. deterministic: sums do not change from
	 * call to call. shares_device: this process opens another communicator for the device. */
	bool nccl_windows, deterministic, shares_device;
	const ct_comm *outer; /* this one is a part of that communicator and is used by its thread, so it never spins or
				 attributes failures; NULL: none */
};

/* Opens a communicator. backend is "auto" or a name in CT_COMMS (dist/comm/kind.h). A world of one gets "self", or
 * "nccl" if that is requested and the environment variable CTRAIN_NCCL_ALONE is set. Fails with CT_UNSUPPORTED if the
 * back end cannot be used here; the message states the reason (for example, shm on two hosts, or a build without gloo).
 * Fails with CT_CONFIG if there is no such back end, or if opts->iface selects no interface of this host. Borrows the
 * world; copies the strings in opts. Collective: all ranks must call it. */
enum ct_status ct_comm_open(const char *backend, struct ct_world *world, const struct ct_comm_opts *opts,
			    ct_comm **out) CT_MUST_CHECK;
/* Closes a communicator and releases operations that have not been waited for. NULL is allowed. */
void ct_comm_close(ct_comm *c);
const char *ct_comm_name(const ct_comm *c);
int ct_comm_rank(const ct_comm *c);
int ct_comm_size(const ct_comm *c);
/* Gets the i-th back end, for `ctrain info`. Returns false if i is past the end. `why` receives the reason if it is not
 * available; otherwise the version of its library, or "". */
bool ct_comm_backend_at(size_t i, const char **name, bool *available, char *why, size_t why_len);
/* Gets the version of the library of a back end: 23007 for NCCL 2.30.7. Fails with CT_UNSUPPORTED if the back end is
 * not available here, or if it has no such number; only nccl has one. */
enum ct_status ct_comm_library_version(const char *backend, int *out) CT_MUST_CHECK;

/* Allocates zeroed memory with an alignment of 4,096 bytes; ct_comm_close frees it. For shm and hier this is a
 * collective: all ranks must request the same sizes in the same order; otherwise, the result is CT_MISMATCH. */
enum ct_status ct_comm_mem_alloc(ct_comm *c, size_t bytes, void **out) CT_MUST_CHECK;
/* Returns true if ct_comm_mem_alloc returns memory of the GPU, which the host cannot access. */
bool ct_comm_mem_is_on_device(const ct_comm *c);

/* An operation with one buffer works in place; src and dst must not overlap. n is a number of elements; root is a
 * rank. */
enum ct_status ct_comm_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op,
				 ct_work **out) CT_MUST_CHECK;
/* The result is in buf at root. On other ranks the contents of buf are unspecified afterwards. */
enum ct_status ct_comm_reduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op, int root,
			      ct_work **out) CT_MUST_CHECK;
enum ct_status ct_comm_broadcast(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int root,
				 ct_work **out) CT_MUST_CHECK;
/* dst [world,n] */
enum ct_status ct_comm_allgather(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t,
				 ct_work **out) CT_MUST_CHECK;
/* dst [world,n] at root; may be NULL elsewhere */
enum ct_status ct_comm_gather(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, int root,
			      ct_work **out) CT_MUST_CHECK;
/* src [world,n] at root; may be NULL elsewhere */
enum ct_status ct_comm_scatter(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, int root,
			       ct_work **out) CT_MUST_CHECK;
/* src [world,n] */
enum ct_status ct_comm_reduce_scatter(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t,
				      enum ct_redop op, ct_work **out) CT_MUST_CHECK;
enum ct_status ct_comm_barrier(ct_comm *c, ct_work **out) CT_MUST_CHECK;
/* Messages with the same peer and tag are matched in the order of posting. A send may wait for the matching receive, so
 * each of two ranks that exchange messages must post both its send and its receive before it waits. It may also be done
 * before the receive is posted; if the ranks disagree on the message, the sender then gets CT_MISMATCH from a later
 * operation that waits. A rank must not wait for a message while more than 15 earlier messages from the same rank have
 * not been received. Messages need not be in the same order as collectives on all ranks, but on gloo, waiting for a
 * message also waits for all operations that were posted before it. On nccl, messages must be in the same order as
 * collectives, and messages with different tags are matched only within those that both ranks post before they wait. */
enum ct_status ct_comm_send(ct_comm *c, const void *buf, size_t n, enum ct_dtype t, int peer, int tag,
			    ct_work **out) CT_MUST_CHECK;
enum ct_status ct_comm_recv(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int peer, int tag,
			    ct_work **out) CT_MUST_CHECK;

/* Post a collective to a stream. The collective runs in stream order, and there is no ct_work to wait for. A failure
 * becomes an error of the stream (base/device/device.h) and ends the communicator. buf must be memory of the stream's
 * device. If the host cannot access it, ct_comm_stage must have been called. On a device that is not asynchronous, the
 * call returns when the collective is done. If collectives of one communicator are posted to several streams, events
 * must put them in the same order on all ranks: if a collective begins while another one is running, the result is
 * CT_BUG. If a peer ends while a collective is running, the error is the same as that of ct_work_wait. */
enum ct_status ct_comm_post_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op,
				      ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_comm_post_broadcast(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int root,
				      ct_stream *s) CT_MUST_CHECK;

/* The collectives of a recording (base/device/device.h). A back end that passes collectives to streams (nccl) sees them
 * only while they are recorded. So that they are numbered when they are posted, as all others, they are not counted
 * while they are recorded, and ct_comm_recorded_count counts them each time the recording is posted. Other back ends
 * count a recorded collective each time it runs. */
typedef struct ct_comm_recorded ct_comm_recorded;
/* Returns whether collectives of c may be recorded and posted again, with other collectives in between. If not, writes
 * the reason to `why`. The answer may differ between ranks. */
bool ct_comm_is_recordable(const ct_comm *c, char *why, size_t len);
/* Makes a list of the collectives that were posted since ct_comm_seq returned `first`, and takes them out of the count.
 * Call it after the recording has ended or failed; nothing else may have been posted meanwhile. *out is NULL if nothing
 * needs to be counted. */
enum ct_status ct_comm_recorded_create(ct_comm *c, int64_t first, ct_comm_recorded **out) CT_MUST_CHECK;
void ct_comm_recorded_destroy(ct_comm_recorded *r); /* NULL is allowed */
/* Counts the collectives, and adds them to the flight record. NULL is allowed. */
void ct_comm_recorded_count(const ct_comm_recorded *r);

/* Returns true if collectives that are posted to streams of d are staged: copied to pinned host memory, on which the
 * communicator works in a host function of the stream, and back. */
bool ct_comm_is_staged(const ct_comm *c, const ct_device *d);
/* Allocates `bytes` of pinned memory for staged collectives. Larger collectives are done in parts. Has no effect if
 * collectives on d are not staged. All ranks must pass the same size, once. ct_comm_close frees the memory, so it must
 * be called before d is closed. */
enum ct_status ct_comm_stage(ct_comm *c, ct_device *d, size_t bytes) CT_MUST_CHECK;
/* Returns true if other streams of the device continue while a posted collective waits for peers. */
bool ct_comm_is_cooperative(const ct_comm *c);

/* Makes as much progress as possible without blocking. Returns CT_OK if the operation is done; ct_work_wait must still
 * be called. Returns CT_INPROGRESS if the operation is not done. Fails soon after a peer has ended. */
enum ct_status ct_work_test(ct_work *w) CT_MUST_CHECK;
/* Waits until the operation is done, up to the timeout of the communicator, and frees it even if it has failed. Returns
 * CT_OK if w is NULL. */
enum ct_status ct_work_wait(ct_work *w) CT_MUST_CHECK;
/* Makes progress on posted operations without waiting; cooperative back ends do their reductions here. Cheap if there
 * is nothing to do. */
enum ct_status ct_comm_progress(ct_comm *c) CT_MUST_CHECK;

/* Ends the communicator: pending and later operations return the status of the failure `why` (CT_PEER_LOST if it has no
 * status) and its message, or CT_CANCELLED if `why` is NULL. Has no effect on a communicator that has already ended.
 * May be called from any thread. */
void ct_comm_abort(ct_comm *c, const struct ct_failure *why);
/* Ends the communicator if its back end has detected an error since the last wait. May be called from any thread. */
void ct_comm_poll(ct_comm *c);
/* Returns the number of collectives posted so far, for error messages and heartbeats ("collective 1234"). May be called
 * from any thread. */
int64_t ct_comm_seq(const ct_comm *c);

/* Every communicator keeps a flight record: its latest operations, with the times at which they were posted, begun and
 * done. Messages and the record name the step (ct_rank_page_post_step), and for all-reduces also the bucket, that were
 * set last. -1: none. Only the thread that posts may call this function. */
void ct_comm_set_bucket(ct_comm *c, int bucket);
/* An operation of the flight record. */
struct ct_comm_op {
	const char *name; /* "allreduce" */
	uint64_t bytes;
	int64_t step;
	int bucket;                 /* -1: none */
	const char *parameters;     /* of the bucket; "": unknown */
	int64_t posted_ns, done_ns; /* ct_now_ns; done_ns is when this rank noticed that it was complete, 0: not yet */
};
/* Passes the recorded operations of step `step` and later ones to fn, the oldest first. */
void ct_comm_ops_since(const ct_comm *c, int64_t step, void (*fn)(void *user, const struct ct_comm_op *op), void *user);
/* Returns the flight record as a JSON object (docs/FORMATS.md), which the caller owns. May be called from any thread.
 */
ct_json *ct_comm_flight(const ct_comm *c);
/* Sets the names of the first and the last parameter whose gradients are in this bucket of the reducer. Messages and
 * the record contain them. */
void ct_comm_name_bucket(ct_comm *c, int bucket, const char *first, const char *last);
/* Returns the flight records in the page of a rank that has ended, as an array, which the caller owns. Each has
 * at most `last` operations. */
struct ct_rank_page; /* base/process/rank_page.h */
ct_json *ct_flights_of_page(const struct ct_rank_page *p, int last);

#endif
