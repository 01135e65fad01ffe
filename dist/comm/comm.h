/* Communicators: collectives over the ranks of a run, in the post / test / wait style of UCC and MPI.
 *
 * Every rank issues the same operations in the same order. Buffers may be in memory of ct_comm_mem_alloc (zero copy
 * where the back end can) or anywhere; buffers of operations under way must not overlap. Reductions are elementwise
 * and give the same bits on all ranks and from run to run; shm reduces in rank order. Collectives of one
 * communicator complete in order. If a rank issues another operation than the others (kind, count, type, operation,
 * root), the result is CT_MISMATCH with both descriptions. After an error the communicator is dead: every later call
 * returns that error. One thread posts and waits; ct_comm_abort may come from any thread.
 *
 * back end   where                        notes
 *   self     world of one                 completes when posted
 *   shm      ranks of one host            shared memory (memfd of the host's first rank), cooperative: post publishes;
 *                                         test, progress and wait reduce; no thread, futex waits
 *   gloo     any hosts                    one worker thread and one gloo context
 *   hier     several hosts with several   shm inside a host, gloo among the hosts' first ranks, one worker thread
 *            ranks on some
 */
#ifndef CT_DIST_COMM_COMM_H
#define CT_DIST_COMM_COMM_H

#include "base/clock.h"
#include "base/dtype.h"
#include "dist/rendezvous/rendezvous.h"

enum ct_redop { CT_SUM, CT_PROD, CT_MIN, CT_MAX, CT_AVG };

typedef struct ct_stream ct_stream; /* base/device/device.h */
typedef struct ct_comm ct_comm;
typedef struct ct_work ct_work; /* a posted operation; freed by wait */

struct ct_comm_opts {
	int64_t timeout_ns; /* a collective that waits longer for a peer fails with CT_TIMEOUT; 0: no limit */
	const char *iface;  /* network interface for gloo, NULL: the address of the store connection */
	const char *scope;  /* prefix of the keys in the store, NULL: "comm" */
	bool nested; /* part of another communicator, for its helper thread: never spins, attributes no failures */
};

/* backend: "auto", "self", "shm", "gloo", "hier". CT_UNSUPPORTED: the back end cannot be used here, with the reason
 * (shm over two hosts, gloo not built ...). CT_CONFIG: the name, or opts->iface on this host, is unknown. A world of
 * one always gets self. Borrows the world; the strings of opts are copied. Collective: all ranks call it. */
enum ct_status ct_comm_open(const char *backend, struct ct_world *world, const struct ct_comm_opts *opts,
			    ct_comm **out) CT_MUST_CHECK;
/* NULL is allowed. Works that were not waited for are released. */
void ct_comm_close(ct_comm *c);
const char *ct_comm_name(const ct_comm *c);
int ct_comm_rank(const ct_comm *c);
int ct_comm_size(const ct_comm *c);
/* Registry walk for `ctrain info`: false past the end. */
bool ct_comm_backend_at(size_t i, const char **name, bool *available, char *why, size_t why_len);

/* Zeroed, 4,096-byte aligned. Collective for shm and hier: same size and order on all ranks, else CT_MISMATCH. Freed by
 * ct_comm_close. */
enum ct_status ct_comm_mem_alloc(ct_comm *c, size_t bytes, void **out) CT_MUST_CHECK;

/* All in place on buf unless src/dst are given (which must not overlap); n counts elements. root: rank. */
enum ct_status ct_comm_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op,
				 ct_work **out) CT_MUST_CHECK;
/* On other ranks the contents of buf are unspecified afterwards. */
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
/* Matched by (peer, tag), in order. A send may wait for its receive, so two ranks that exchange post both before
 * they wait. They are not part of the common order of collectives, but on gloo a wait also waits for operations that
 * were posted before. */
enum ct_status ct_comm_send(ct_comm *c, const void *buf, size_t n, enum ct_dtype t, int peer, int tag,
			    ct_work **out) CT_MUST_CHECK;
enum ct_status ct_comm_recv(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int peer, int tag,
			    ct_work **out) CT_MUST_CHECK;

/* Collectives posted to a stream: they happen in the stream's order and there is nothing to wait for; a failure is an error of the
 * stream (base/device/device.h) and ends the communicator. buf is device memory of the stream's device. On a device that is not
 * asynchronous the call returns when the collective is done. Collectives of one communicator that are posted to several streams must
 * be ordered by events, the same on all ranks. CT_UNSUPPORTED: neither the back end nor the device (caps.host_code) can do it. */
enum ct_status ct_comm_post_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op,
				      ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_comm_post_broadcast(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int root,
				      ct_stream *s) CT_MUST_CHECK;

/* Whether a posted collective lets other streams of the device go on while it waits for peers. */
bool ct_comm_is_cooperative(const ct_comm *c);

/* Makes as much progress as possible without blocking. CT_OK: done; the work must still be waited for.
 * CT_INPROGRESS: not done. */
enum ct_status ct_work_test(ct_work *w) CT_MUST_CHECK;
/* Waits (collective timeout of the communicator) and frees the work in every case. NULL counts as done. */
enum ct_status ct_work_wait(ct_work *w) CT_MUST_CHECK;
/* Makes progress on posted operations without waiting (cooperative back ends do their reducing here). Cheap when
 * idle. */
enum ct_status ct_comm_progress(ct_comm *c) CT_MUST_CHECK;

/* Pending and later operations end with the failure's status (CT_PEER_LOST where it has none) and this message. why
 * NULL: CT_CANCELLED. Only the first end of a communicator counts. Any thread. */
void ct_comm_abort(ct_comm *c, const struct ct_failure *why);
/* Number of operations posted so far: in error messages and heartbeats ("collective 1234"). Any thread. */
int64_t ct_comm_seq(const ct_comm *c);

#endif
