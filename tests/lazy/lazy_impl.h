/* The lazy device, a device for tests. It computes on the CPU, but behaves like a GPU in those respects in which a GPU
 * is easily misused.
 *
 * - Work does not run when it is posted, but waits in the queue of its stream. It runs on the calling thread when the
 *   host waits (ct_stream_sync, ct_event_wait, ct_device_sync), frees memory or destroys a stream. The streams take
 *   turns in a random order, which depends on the seed CTRAIN_LAZY_SEED (default 1) and the index of the device. A
 *   stream that the host does not wait for may run any amount of its queued work, or none. Therefore a missing
 *   ct_stream_wait_event gives wrong results with some seeds.
 * - The host cannot access device memory (PROT_NONE) except while posted work runs. A forbidden access raises SIGSEGV
 *   at the line of the access. The device does not install a signal handler.
 * - New and freed device memory is filled with 0xFF bytes, which represent a NaN in every floating-point type. Each
 *   block is followed by a guard region, which is checked after work has run. With AddressSanitizer, guard regions and
 *   freed blocks are poisoned.
 * - Between the post of a copy and its execution, only other posted work may change the source in host memory. Any
 *   other change causes the error "host memory changed while a posted copy was waiting".
 * - A copy or fill is rejected if it extends beyond a block, or if it uses host memory that was not allocated with
 *   ct_device_host_alloc.
 * - A recording is a list of operations, each with its stream. Posting the recording copies the operations to the
 *   queues. The operations of a stream that joined the recording are copied to a separate stream, its lane, because
 *   they are not ordered relative to other work of the stream that joined.
 * - Posted functions must not use the device. Only one thread may use the device.
 *
 * Freeing memory or destroying a stream first runs posted work, for at most 10 seconds. If the work has not finished
 * by then, the device fails. */
#ifndef CT_TESTS_LAZY_IMPL_H
#define CT_TESTS_LAZY_IMPL_H

#include <pthread.h>

#include "base/device/device.h"
#include "base/rng.h"

struct lazy_block { /* a block of device memory; blocks are sorted by offset */
	struct lazy_block *next;
	size_t at, bytes, span; /* offset in the reservation; size; size including the guard */
};

struct lazy_host { /* a block of host memory */
	struct lazy_host *next;
	char *memory;
	size_t bytes;
};

/* Represents one call of ct_event_record. The struct is shared by the event, the operation that marks the moment as
 * reached, and the operations that wait for the moment. */
struct lazy_moment {
	struct lazy_moment *next; /* in the list of unused moments */
	struct lazy_stream *stream;
	int n_refs;
	bool reached;
	int64_t at_ns;
	/* For a moment in a recording: */
	uint64_t recording;        /* id of the recording; 0: not in one */
	bool awaited;              /* the stream on which the recording began waits for this moment */
	struct lazy_moment *again; /* the copy of this moment in the post that is in progress */
};

enum lazy_kind { LAZY_RUN, LAZY_COPY, LAZY_FILL, LAZY_RECORD, LAZY_WAIT };

struct lazy_op {
	struct lazy_op *next;        /* next in its stream, its recording or the list of unused operations */
	struct lazy_op *next_source; /* next in the list of waiting copies from host memory */
	uint64_t source_sum;
	/* For an operation in a recording: */
	struct lazy_stream *lane; /* where its copies are posted; NULL: the stream that the recording is posted to */
	struct lazy_event *event; /* for LAZY_RECORD of a timed event: the event; the operation then has no moment */
	enum lazy_kind kind;
	union {
		struct {
			_Alignas(16) unsigned char args[CT_STREAM_ARGS_MAX];
			ct_stream_fn fn;
		} run;
		struct {
			void *dst;
			const void *src; /* NULL for a fill */
			size_t bytes;
			int byte;
		} move;
		struct lazy_moment *moment;
	};
};

struct lazy_stream {
	ct_stream base;
	struct lazy_stream *next;
	struct lazy_op *first, **end;
	bool held;                    /* during the current wait, the stream runs only when its work is needed */
	bool unfinished;              /* its first operation ran without finishing; no stream has progressed since */
	bool recorded;                /* belongs to the recording in progress */
	struct lazy_stream *lane;     /* if recorded: its lane for posts; NULL: the recording began on this stream */
	struct lazy_recording *owner; /* if this is a lane: the recording to which it belongs */
	bool joined;                  /* for lanes, used while the end of the recording is checked */
};

struct lazy_event {
	ct_event base;
	struct lazy_moment *moment; /* NULL: never recorded */
	int n_recorded;             /* number of operations in recordings that record this event */
};

struct lazy_recording {
	ct_recording base;
	uint64_t id;
	struct lazy_stream *origin;   /* the stream on which the recording began */
	struct lazy_op *first, **end; /* in the order of posting */
	struct lazy_moment *last;     /* marks the end of its last post; NULL: never posted */
	struct ct_error spoiled;      /* the error caused by a call that is not allowed during a recording */
};

struct lazy_device {
	ct_device base;
	int index;
	struct ct_rng rng;
	pthread_t thread; /* the only thread that may use the device */
	bool running;     /* posted work is running */
	bool failed, reported;
	struct ct_error error;
	/* memory.c */
	char *reserve;
	size_t touched_bytes; /* length of the part of the reservation that has been in use so far */
	size_t used_bytes;
	struct lazy_block *blocks;
	struct lazy_host *hosts;
	/* queue.c */
	struct lazy_stream *streams;
	size_t n_events;
	struct lazy_op *unused_ops, *sources;
	struct lazy_moment *unused_moments;
	/* recording.c */
	struct lazy_recording *recording; /* in progress, or NULL */
	uint64_t recording_id;            /* id of the last recording */
	size_t n_recordings;              /* recordings that have not been destroyed */
};

/* memory.c */
extern const size_t ct__lazy_total_bytes;
enum ct_status ct__lazy_memory_reserve(struct lazy_device *d) CT_MUST_CHECK;
void ct__lazy_memory_release(struct lazy_device *d);
/* Make device memory accessible and inaccessible to this process. */
enum ct_status ct__lazy_memory_open(struct lazy_device *d) CT_MUST_CHECK;
void ct__lazy_memory_close(struct lazy_device *d);
/* Fails with CT_BUG if a guard region was overwritten. Device memory must be accessible. */
enum ct_status ct__lazy_guards_check(const struct lazy_device *d) CT_MUST_CHECK;
/* Fails with CT_BUG unless [p, p + bytes) is entirely within one block of device or host memory. `what` names the range
 * in the message. */
enum ct_status ct__lazy_range_check(const struct lazy_device *d, const char *what, const void *p,
				    size_t bytes) CT_MUST_CHECK;
bool ct__lazy_is_device_memory(const struct lazy_device *d, const void *p);
enum ct_status ct__lazy_mem_alloc(ct_device *base, size_t bytes, bool zeroed, void **out);
void ct__lazy_mem_free(ct_device *base, void *p);
enum ct_status ct__lazy_host_alloc(ct_device *base, size_t bytes, void **out);
void ct__lazy_host_free(ct_device *base, void *p);

/* queue.c: adds work to the queues and removes it. */
/* Every call from the host begins with this check. Fails with the device's error if the device has failed, and with
 * CT_BUG if another thread or posted work makes the call. */
enum ct_status ct__lazy_enter(struct lazy_device *d) CT_MUST_CHECK;
/* Does the same for calls that are not allowed during a recording. Such a call makes the recording fail. `what`
 * describes the call, for example "the host waited". */
enum ct_status ct__lazy_enter_unrecorded(struct lazy_device *d, const char *what) CT_MUST_CHECK;
enum ct_status ct__lazy_copy(ct_device *base, void *dst, const void *src, size_t bytes, ct_stream *s);
enum ct_status ct__lazy_fill(ct_device *base, void *dst, int byte, size_t bytes, ct_stream *s);
enum ct_status ct__lazy_stream_create(ct_device *base, bool high_priority, ct_stream **out);
void ct__lazy_stream_destroy(ct_stream *base);
enum ct_status ct__lazy_stream_run(ct_stream *base, ct_stream_fn fn, const void *args, size_t bytes);
enum ct_status ct__lazy_stream_wait_event(ct_stream *base, ct_event *event);
enum ct_status ct__lazy_event_create(ct_device *base, bool timed, ct_event **out);
void ct__lazy_event_destroy(ct_event *base);
enum ct_status ct__lazy_event_record(ct_event *base, ct_stream *s);
enum ct_status ct__lazy_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns);
/* Removes the first operation, which must be done, from the queue of s. */
void ct__lazy_op_drop(struct lazy_device *d, struct lazy_stream *s);
void ct__lazy_queues_release(struct lazy_device *d);
uint64_t ct__lazy_source_sum(const struct lazy_op *op);
enum ct_status ct__lazy_op_take(struct lazy_device *d, enum lazy_kind kind, struct lazy_op **out) CT_MUST_CHECK;
void ct__lazy_op_free(struct lazy_device *d, struct lazy_op *op); /* op must not be in a queue */
/* Appends op to the queue of s. If op is a copy, its source must not change from now on. */
void ct__lazy_op_append(struct lazy_device *d, struct lazy_stream *s, struct lazy_op *op);
enum ct_status ct__lazy_moment_take(struct lazy_device *d, struct lazy_stream *s,
				    struct lazy_moment **out) CT_MUST_CHECK;
void ct__lazy_moment_drop(struct lazy_device *d, struct lazy_moment *m); /* NULL is allowed */
/* Makes m the moment of e and adds a reference to m. */
void ct__lazy_event_set(struct lazy_device *d, struct lazy_event *e, struct lazy_moment *m);

/* recording.c */
enum ct_status ct__lazy_recording_begin(ct_stream *s);
enum ct_status ct__lazy_recording_end(ct_stream *s, ct_recording **out);
enum ct_status ct__lazy_recording_post(ct_recording *r, ct_stream *s);
void ct__lazy_recording_destroy(ct_recording *r);
/* Marks the recording in progress as failed because of `what`, so that ct_recording_end fails. Returns CT_BUG. */
enum ct_status ct__lazy_recording_spoil(struct lazy_device *d, const char *what);
/* Adds an operation that was posted to s to the recording. s must belong to the recording. */
void ct__lazy_recording_add(struct lazy_device *d, struct lazy_stream *s, struct lazy_op *op);
/* Called before s is made to wait for m if s is recorded or m is in a recording. Checks that both belong to the same
 * recording, and makes s join this recording if necessary. */
enum ct_status ct__lazy_recording_join(struct lazy_device *d, struct lazy_stream *s,
				       const struct lazy_moment *m) CT_MUST_CHECK;

/* schedule.c: chooses the stream that runs next. */
/* Runs work until m is reached. If m is NULL, runs work until the queue of s is empty. If both are NULL, runs work
 * until all queues are empty. */
enum ct_status ct__lazy_wait(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment *m,
			     int64_t deadline_ns) CT_MUST_CHECK;
/* Does the same before memory is freed, or before a stream or recording is destroyed. Keeps the caller's error chain.
 * If the work cannot be completed, the device fails. */
void ct__lazy_drain(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment *m);

#endif
