/* The lazy device, a device for tests. It computes on the CPU, but behaves like a GPU in those respects in which a GPU
 * is easily misused. It is a thin layer over the core that it shares with the software GPU (tests/fake_device).
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
 * - A recording is a graph of operations. When it is posted, its operations run in a random order that respects only
 *   the order of the streams during the recording, and events.
 * - Posted functions must not use the device. Only one thread may use the device.
 *
 * Freeing memory or destroying a stream first runs posted work, for at most 10 seconds. If the work has not finished
 * by then, the device fails. */
#ifndef CT_TESTS_LAZY_IMPL_H
#define CT_TESTS_LAZY_IMPL_H

#include <pthread.h>

#include "base/device/device.h"
#include "tests/fake_device/fake_device.h"

enum lazy_kind { LAZY_CALL, LAZY_COPY, LAZY_FILL, LAZY_EVENT };

struct lazy_work {
	struct fake_work base;
	struct lazy_device *device;
	enum lazy_kind kind;
	/* In the list of copies from host memory that are waiting, or of unused structs. */
	struct lazy_work *next;
	int n_waiting; /* how often the work waits in queues, if it is a copy from host memory */
	uint64_t source_sum;
	union {
		struct {
			_Alignas(16) unsigned char args[CT_STREAM_ARGS_MAX];
			ct_stream_fn fn;
		} call;
		struct {
			void *dst;
			const void *src; /* NULL for a fill */
			size_t bytes;
			int byte;
		} move;
		struct lazy_event *event;
	};
};

struct lazy_stream {
	ct_stream base;
	struct fake_stream queue;
};

struct lazy_event {
	ct_event base;
	struct fake_event last;
	int n_recorded; /* number of operations in recordings that record this event */
};

struct lazy_recording {
	ct_recording base;
	struct fake_capture capture;
	struct fake_moment *last; /* the end of its last post; NULL: never posted */
	struct ct_error spoiled;  /* the error caused by a call that is not allowed during a recording */
};

struct lazy_device {
	ct_device base;
	int index;
	pthread_t thread; /* the only thread that may use the device */
	bool running;     /* posted work is running */
	bool failed, reported;
	struct ct_error error;
	struct fake_machine machine;
	struct fake_memory memory;
	struct fake_block *hosts; /* host memory */
	struct lazy_work *sources, *unused;
	size_t n_events;
	struct lazy_recording *recording; /* in progress, or NULL */
	size_t n_recordings;              /* recordings that have not been destroyed */
};

/* lazy.c */
/* Every call from the host begins with this check. Fails with the device's error if the device has failed, and with
 * CT_BUG if another thread or posted work makes the call. */
enum ct_status ct__lazy_enter(struct lazy_device *d) CT_MUST_CHECK;
/* Does the same for calls that are not allowed during a recording. Such a call makes the recording fail. `what`
 * describes the call, for example "the host waited". */
enum ct_status ct__lazy_enter_unrecorded(struct lazy_device *d, const char *what) CT_MUST_CHECK;
/* Makes room for posting this many operations and creating this many moments. */
enum ct_status ct__lazy_reserve(struct lazy_device *d, int n_ops, int n_moments) CT_MUST_CHECK;
/* Runs the work that t describes before memory is freed, or before a stream or recording is destroyed. Keeps the
 * caller's error chain. If the work cannot be completed, the device fails. */
void ct__lazy_drain(struct lazy_device *d, const struct fake_target *t);

/* lazy_post.c */
/* Fails with CT_BUG unless [p, p + bytes) is entirely within one block of device or host memory. `what` names the range
 * in the message. */
enum ct_status ct__lazy_range_check(const struct lazy_device *d, const char *what, const void *p,
				    size_t bytes) CT_MUST_CHECK;
/* Called when w is posted to a queue. If it copies host memory, the source must not change from now on. */
void ct__lazy_source_waits(struct lazy_work *w);
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

/* lazy_recording.c */
enum ct_status ct__lazy_recording_begin(ct_stream *s);
enum ct_status ct__lazy_recording_end(ct_stream *s, ct_recording **out);
enum ct_status ct__lazy_recording_post(ct_recording *r, ct_stream *s);
void ct__lazy_recording_destroy(ct_recording *r);
/* Marks the recording in progress as failed because of `what`, so that ct_recording_end fails. Returns CT_BUG. */
enum ct_status ct__lazy_recording_spoil(struct lazy_device *d, const char *what);
/* Called before s is made to wait for e if s is recorded or e was recorded in a recording. Checks that both belong to
 * the same recording, and makes s join it if necessary. */
enum ct_status ct__lazy_recording_join(struct lazy_device *d, struct lazy_stream *s,
				       const struct lazy_event *e) CT_MUST_CHECK;

#endif
