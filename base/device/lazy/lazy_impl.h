/* The lazy device: a device for tests that behaves like a GPU where a GPU is most easily misused. It computes on the CPU.
 *
 * - Nothing runs when it is posted. Work waits in the queue of its stream and runs, on the calling thread, when the host waits
 *   (ct_stream_sync, ct_event_wait, ct_device_sync), frees memory or destroys a stream. The streams take turns in an order
 *   that is drawn from the seed CTRAIN_LAZY_SEED (default 1) and the index of the device. A stream that is not waited for may
 *   run ahead by any distance, or not at all, so a missing ct_stream_wait_event gives wrong results with some seeds.
 * - Device memory is closed to the host (PROT_NONE) except while posted work runs: the host that reads or writes it gets SIGSEGV at
 *   the line of the access. No signal handler is installed.
 * - New and freed device memory is filled with 0xFF bytes, which are a NaN in every floating-point type. After each block is a guard
 *   that is checked when work has run; under AddressSanitizer, guards and freed blocks are poisoned.
 * - A copy that waits must find its source in host memory as it was when the copy was posted. Changes by other posted work are fine;
 *   any other change is the error "host memory changed while a posted copy was waiting".
 * - Copies and fills are refused when they leave a block, or touch host memory that is not of ct_device_host_alloc.
 * - A recording is a list of operations, each with the stream that it belongs to. Streams that joined the recording have streams of
 *   their own in its posts, because a post is not ordered with what was posted to them. A post copies the operations into the queues.
 * - Posted functions must not use the device, and only one thread may.
 *
 * Freeing memory or destroying a stream first runs posted work, for at most 10 seconds. If the work is not finished then,
 * the device fails. */
#ifndef CT_BASE_DEVICE_LAZY_IMPL_H
#define CT_BASE_DEVICE_LAZY_IMPL_H

#include <pthread.h>

#include "base/device/device.h"
#include "base/rng.h"

struct lazy_block { /* a block of device memory; blocks are sorted by offset */
	struct lazy_block *next;
	size_t at, bytes, span; /* offset in the reservation; size; size with the guard */
};

struct lazy_host { /* a block of host memory */
	struct lazy_host *next;
	char *memory;
	size_t bytes;
};

/* One call of ct_event_record. The event, the operation that reaches it and the operations that wait for it share it. */
struct lazy_moment {
	struct lazy_moment *next; /* while it is unused */
	struct lazy_stream *stream;
	int n_refs;
	bool reached;
	int64_t at_ns;
	/* Of a moment in a recording. */
	uint64_t recording;        /* id of the recording; 0: not in one */
	bool awaited;              /* by the stream on which the recording was begun */
	struct lazy_moment *again; /* the same moment in the post that is being made */
};

enum lazy_kind { LAZY_RUN, LAZY_COPY, LAZY_FILL, LAZY_RECORD, LAZY_WAIT };

struct lazy_op {
	struct lazy_op *next;        /* in its stream or recording, or of the unused ones */
	struct lazy_op *next_source; /* copies from host memory that wait */
	uint64_t source_sum;
	/* In a recording. */
	struct lazy_stream *lane; /* where its copies are posted; NULL: the stream that the recording is posted to */
	struct lazy_event *event; /* LAZY_RECORD of a timed event, which has no moment of its own */
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
	bool held;                /* in this wait: has a turn only when it is needed */
	bool unfinished;          /* its first operation was called since the last progress of any stream */
	bool recorded;            /* is part of the recording that is under way */
	struct lazy_stream *lane; /* then: its stream in posts of the recording; NULL: the recording was begun on it */
	struct lazy_recording *owner; /* this is the lane of a stream that joined this recording */
	bool joined;                  /* of a lane, while the end of its recording is checked */
};

struct lazy_event {
	ct_event base;
	struct lazy_moment *moment; /* NULL: never recorded */
	int n_recorded;             /* operations of recordings that record it */
};

struct lazy_recording {
	ct_recording base;
	uint64_t id;
	struct lazy_stream *origin;   /* on which it was begun */
	struct lazy_op *first, **end; /* in the order of their posts */
	struct lazy_moment *last;     /* the end of its last post; NULL: never posted */
	struct ct_error spoiled;      /* by a call that is not allowed during a recording */
};

struct lazy_device {
	ct_device base;
	int index;
	struct ct_rng rng;
	pthread_t thread; /* the only one that may use the device */
	bool running;     /* posted work is being called */
	bool failed, reported;
	struct ct_error error;
	/* memory.c */
	char *reserve;
	size_t touched_bytes; /* from the start of the reservation: pages that were ever in use */
	size_t used_bytes;
	struct lazy_block *blocks;
	struct lazy_host *hosts;
	/* queue.c */
	struct lazy_stream *streams;
	size_t n_events;
	struct lazy_op *unused_ops, *sources;
	struct lazy_moment *unused_moments;
	/* recording.c */
	struct lazy_recording *recording; /* under way */
	uint64_t recording_id;            /* of the last one */
	size_t n_recordings;              /* not destroyed */
};

/* memory.c */
extern const size_t ct__lazy_total_bytes;
enum ct_status ct__lazy_memory_reserve(struct lazy_device *d) CT_MUST_CHECK;
void ct__lazy_memory_release(struct lazy_device *d);
/* Open and close device memory for this process. */
enum ct_status ct__lazy_memory_open(struct lazy_device *d) CT_MUST_CHECK;
void ct__lazy_memory_close(struct lazy_device *d);
/* CT_BUG when a guard was overwritten. The memory is open. */
enum ct_status ct__lazy_guards_check(const struct lazy_device *d) CT_MUST_CHECK;
/* CT_BUG unless [p, p + bytes) is in one block of device or host memory. `what` names the range in the message. */
enum ct_status ct__lazy_range_check(const struct lazy_device *d, const char *what, const void *p,
				    size_t bytes) CT_MUST_CHECK;
bool ct__lazy_is_device_memory(const struct lazy_device *d, const void *p);
enum ct_status ct__lazy_mem_alloc(ct_device *base, size_t bytes, bool zeroed, void **out);
void ct__lazy_mem_free(ct_device *base, void *p);
enum ct_status ct__lazy_host_alloc(ct_device *base, size_t bytes, void **out);
void ct__lazy_host_free(ct_device *base, void *p);

/* queue.c: the ends of the queues. */
/* Every call by the host begins so: the device's error when it has failed, CT_BUG on a second thread or in posted work. */
enum ct_status ct__lazy_enter(struct lazy_device *d) CT_MUST_CHECK;
/* The same for calls that are not allowed during a recording, which they spoil. `what`: "the host waited". */
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
/* The first operation of s is done: takes it from the queue. */
void ct__lazy_op_drop(struct lazy_device *d, struct lazy_stream *s);
void ct__lazy_queues_release(struct lazy_device *d);
uint64_t ct__lazy_source_sum(const struct lazy_op *op);
enum ct_status ct__lazy_op_take(struct lazy_device *d, enum lazy_kind kind, struct lazy_op **out) CT_MUST_CHECK;
void ct__lazy_op_free(struct lazy_device *d, struct lazy_op *op); /* one that is in no queue */
/* Appends op to the queue of s; from now on the source of a copy must not change. */
void ct__lazy_op_append(struct lazy_device *d, struct lazy_stream *s, struct lazy_op *op);
enum ct_status ct__lazy_moment_take(struct lazy_device *d, struct lazy_stream *s,
				    struct lazy_moment **out) CT_MUST_CHECK;
void ct__lazy_moment_drop(struct lazy_device *d, struct lazy_moment *m); /* NULL is allowed */
/* e was recorded at m: takes a reference. */
void ct__lazy_event_set(struct lazy_device *d, struct lazy_event *e, struct lazy_moment *m);

/* recording.c */
enum ct_status ct__lazy_recording_begin(ct_stream *s);
enum ct_status ct__lazy_recording_end(ct_stream *s, ct_recording **out);
enum ct_status ct__lazy_recording_post(ct_recording *r, ct_stream *s);
void ct__lazy_recording_destroy(ct_recording *r);
/* The recording under way will fail at its end, because of `what`. Returns CT_BUG. */
enum ct_status ct__lazy_recording_spoil(struct lazy_device *d, const char *what);
/* Adds an operation that was posted to s, which is recorded. */
void ct__lazy_recording_add(struct lazy_device *d, struct lazy_stream *s, struct lazy_op *op);
/* Before s waits for m, when s is recorded or m is in a recording: checks that they belong together; s joins. */
enum ct_status ct__lazy_recording_join(struct lazy_device *d, struct lazy_stream *s,
				       const struct lazy_moment *m) CT_MUST_CHECK;

/* schedule.c: turns. */
/* Runs work until m is reached (NULL: until s is empty; both NULL: until all streams are). */
enum ct_status ct__lazy_wait(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment *m,
			     int64_t deadline_ns) CT_MUST_CHECK;
/* The same before memory is freed, or a stream or recording destroyed. Keeps the error chain of the caller; a failure
 * fails the device. */
void ct__lazy_drain(struct lazy_device *d, struct lazy_stream *s, struct lazy_moment *m);

#endif
