/* The communicator "nccl", in the module libctrain_cuda.so.
 *
 * Operations that are posted without a stream run on a stream of the communicator, in the order of posting. The caller
 * may pass device memory, or host memory, which is copied through pinned memory (stage.c). Collectives that are posted
 * to a stream run there directly, and can be captured.
 *
 * NCCL's communicator is nonblocking: no call waits for other ranks. Every wait polls, with a deadline, the event of
 * the operation, the errors of NCCL, and what the store knows about the other ranks (health.c). ncclCommAbort, which
 * may take long, is called by a separate thread. It makes NCCL's kernels end, so a wait of the host must fail although
 * the work of the stream is done: the communicator registers a check with the device (ct_device_add_check). */
#ifndef CT_DIST_COMM_NCCL_NCCL_IMPL_H
#define CT_DIST_COMM_NCCL_NCCL_IMPL_H

#include "base/clock.h"
#include "base/device/device.h"
#include "base/thread.h"
#include "dist/comm/comm_impl.h"
#include "dist/comm/diagnose_impl.h"
#include "dist/comm/nccl/api.h"

extern const struct ct_comm_ops ct__comm_ops_nccl;

/* Indexes of ct_work.scratch. */
enum { NCCL_FLIGHT };

/* What an operation needs while it is under way: an event, and memory through which host buffers are copied. Flights
 * are used again. */
struct nccl_flight {
	struct nccl_flight *next;
	bool used;
	cudaEvent_t event;
	char *device, *pinned; /* [bytes] */
	size_t bytes;
	const void *src; /* the buffers that NCCL uses */
	void *dst;
	size_t n_back,
		back_at; /* bytes, from an offset in pinned, that are copied to the destination when all is done */
};

/* Memory of the caller: plain device memory, or memory from ncclMemAlloc that is registered. */
struct nccl_memory {
	struct nccl_memory *next;
	void *plain, *registered;
	void *handle;
	ncclWindow_t window;
};

struct comm_nccl {
	struct ct_comm base;
	struct nccl_api api;
	ct_device *device;
	ct_stream *stream;
	char *word;           /* device memory [256] for barriers */
	pthread_mutex_t lock; /* held during calls that use nccl */
	ncclComm_t nccl;      /* NULL: not open, or aborted */
	struct nccl_flight *flights;
	struct nccl_memory *memory;
	ct_work *messages;        /* sends and receives that have not been passed to NCCL */
	int64_t n_posted, n_done; /* operations */
	bool open;
	/* health.c */
	struct ct_thread aborter;
	pthread_mutex_t abort_lock; /* guards the next members; never held during a call of NCCL */
	pthread_cond_t wake;
	bool abort_now, stop, aborted;
	int64_t look_ns; /* the next time to ask the store */
	struct ct_backoff pause;
	int64_t diagnose_ns; /* how long the host waits for a stream before it compares the ranks */
};

static inline cudaStream_t ct__nccl_stream(const ct_stream *s)
{
	return s->handle;
}

/* Begins a call of NCCL: locks, and fails if the communicator has ended. ct__nccl_end unlocks, waits until NCCL has
 * accepted the call, and returns its error. */
enum ct_status ct__nccl_begin(struct comm_nccl *n) CT_MUST_CHECK;
enum ct_status ct__nccl_end(struct comm_nccl *n, ncclResult_t r, const char *function) CT_MUST_CHECK;

/* open.c: exchanges the unique id and creates NCCL's communicator. */
enum ct_status ct__nccl_connect(struct comm_nccl *n) CT_MUST_CHECK;

/* issue.c: passes an operation to NCCL. src and dst are device memory. */
enum ct_status ct__nccl_issue(struct comm_nccl *n, const ct_work *w, const void *src, void *dst,
			      ct_stream *s) CT_MUST_CHECK;
/* Passes all sends and receives that have been posted to NCCL, as one group. */
enum ct_status ct__nccl_issue_messages(struct comm_nccl *n) CT_MUST_CHECK;

/* stage.c: takes a flight for w, and copies its input to device memory if it is in host memory. */
enum ct_status ct__nccl_stage(struct comm_nccl *n, ct_work *w) CT_MUST_CHECK;
/* Call after the operation of w has been posted: posts the copy of its result to pinned memory, and the event. */
enum ct_status ct__nccl_stage_back(struct comm_nccl *n, ct_work *w) CT_MUST_CHECK;
/* Call when the event has been reached: copies the result to the destination, and releases the flight. */
void ct__nccl_land(struct comm_nccl *n, ct_work *w);
void ct__nccl_flights_release(struct comm_nccl *n);
static inline struct nccl_flight *ct__nccl_flight(const ct_work *w)
{
	return (struct nccl_flight *)(uintptr_t)w->scratch[NCCL_FLIGHT];
}

/* health.c */
enum ct_status ct__nccl_health_start(struct comm_nccl *n) CT_MUST_CHECK;
/* Waits until ncclCommAbort has returned, if it was requested. Returns false if it does not return. */
bool ct__nccl_health_stop(struct comm_nccl *n);
/* ct_comm_ops.abort and ct_comm_ops.poll */
void ct__nccl_abort(ct_comm *c);
enum ct_status ct__nccl_poll(ct_comm *c);
/* Call when a wait begins: makes the next look at the store come soon. */
void ct__nccl_look_soon(struct comm_nccl *n);
/* Fails if the communicator has ended, NCCL reports an error, or another rank has failed. */
enum ct_status ct__nccl_healthy(struct comm_nccl *n) CT_MUST_CHECK;
/* The same, as a check of the device. Fails with CT_TIMEOUT if the host has waited longer than the timeout. */
enum ct_status ct__nccl_check_wait(void *comm, int64_t waited_ns);
/* Fails with CT_TIMEOUT. The message contains what the store knows about the rank for which all others wait. number is
 * that of ct_work, of the operation that this rank waits for. */
enum ct_status ct__nccl_timed_out(struct comm_nccl *n, int64_t number, const char *what) CT_MUST_CHECK;
/* Fails with CT_PEER_LOST if another rank has closed the communicator while this one waits for w. */
enum ct_status ct__nccl_others_stay(struct comm_nccl *n, const ct_work *w) CT_MUST_CHECK;
/* Informs the other ranks that this one has closed the communicator. */
void ct__nccl_announce_close(struct comm_nccl *n);
/* Sleeps for a moment: a short one if little time has passed since start_ns. */
void ct__nccl_pause(int64_t start_ns);

#endif
