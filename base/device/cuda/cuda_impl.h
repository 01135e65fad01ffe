/* The CUDA device: the struct ct_device_ops that uses the CUDA runtime. It is compiled into the module
 * libctrain_cuda.so.
 *
 * Streams do not synchronize with the legacy default stream. A wait polls, because the host must notice when a deadline
 * passes. It first spins for a short time, since a step of a small model takes microseconds, and then sleeps between
 * polls. A recording is a CUDA graph that was captured in thread-local mode. */
#ifndef CT_BASE_DEVICE_CUDA_CUDA_IMPL_H
#define CT_BASE_DEVICE_CUDA_CUDA_IMPL_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/device/cuda_check.h"
#include "base/device/device.h"
#include "base/mem.h"

extern const struct ct_device_ops ct__device_cuda_ops;

enum { CT__CUDA_NOTES = 256, CT__CUDA_NOTE_BYTES = 64 };

/* Names of the kernels that were posted to a stream: that of kernel i is in names[i % CT__CUDA_NOTES]. */
struct cuda_notes {
	uint64_t posted, done; /* numbers of kernels; those before `done` have ended without an error */
	char names[CT__CUDA_NOTES][CT__CUDA_NOTE_BYTES];
};

struct cuda_stream {
	ct_stream base;
	struct cuda_stream *next;
	cudaStream_t stream;
	struct cuda_notes notes;
};

struct cuda_event {
	ct_event base;
	cudaEvent_t event;
	/* Of the latest ct_event_record, unless it was recorded: the kernels that come before the event. */
	const struct cuda_stream *stream;
	uint64_t posted;
};

struct cuda_recording {
	ct_recording base;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
};

struct cuda_allocation {
	struct cuda_allocation *next;
	void *at;
	size_t bytes;
	const char *purpose; /* ct_device_purpose */
};

struct cuda_device {
	ct_device base;
	int index;
	pthread_mutex_t mutex; /* of the list, because any thread may allocate, and of the error */
	struct cuda_allocation *allocations;
	/* host_function.c */
	struct cuda_call *calls;
	_Atomic bool failed;   /* a host function has failed */
	struct ct_error error; /* its error, which does not change after `failed` is set */
	bool recording;
	struct cuda_stream *streams;
};

/* Kernels are compiled for sm_80 and later (CMakeLists.txt). */
#define CT__CUDA_MIN_MAJOR 8
#define CT__CUDA_NEEDS "ctrain needs a GPU of compute capability 8.0 (A100, RTX 30) or newer"

/* Makes d the current device of the calling thread, on which allocations are made. */
enum ct_status ct__cuda_use(const struct cuda_device *d) CT_MUST_CHECK;
/* Fails with CT_BUG while the device has a recording in progress, because the host must neither wait for recorded work,
 * which does not run, nor change the memory that this work uses. */
enum ct_status ct__cuda_not_recording(const struct cuda_device *d, const char *what) CT_MUST_CHECK;
/* Logs a warning if a call that releases something has failed, unless this is the consequence of an earlier error. */
void ct__cuda_released(cudaError_t e, const char *what);
/* Returns whether e is an error of work that ran: from then on, every call returns it. */
bool ct__cuda_is_permanent(cudaError_t e);
/* Fails with an error of posted work that `function` has returned. The message names the work that may have failed. */
enum ct_status ct__cuda_work_failed(const struct cuda_device *d, cudaError_t e, const char *function);
/* Calls poll(object) until it returns something other than cudaErrorNotReady. Fails with CT_TIMEOUT after the deadline.
 * function is the name of the CUDA function that poll calls. If a host function has failed, waits for at most 1 s
 * longer and returns its error. */
enum ct_status ct__cuda_wait(struct cuda_device *d, cudaError_t (*poll)(void *object), void *object,
			     const char *function, int64_t deadline_ns) CT_MUST_CHECK;

/* notes.c */
/* Notes a kernel that was posted: "WORK: what", where WORK is that of ct_stream_note. Costs nothing while the device
 * records. what: NULL if WORK says it all. */
void ct__cuda_note(ct_stream *s, const char *what);
/* Notes that the kernels of the stream before number `posted` have ended. The stream may no longer exist. */
void ct__cuda_note_done(struct cuda_device *d, const struct cuda_stream *stream, uint64_t posted);
/* Appends " reports that work has failed, probably one of" and the kernels that may have failed, or nothing if there
 * are none. */
void ct__cuda_suspects(const struct cuda_device *d, struct ct_str *out);
/* Like ct_cuda_check, for a function that posts work to s: the error may be that of work that was posted before. */
enum ct_status ct__cuda_posted(const ct_stream *s, cudaError_t e, const char *function) CT_MUST_CHECK;

/* host_function.c */
enum ct_status ct__cuda_stream_run(ct_stream *base, ct_stream_fn fn, const void *args, size_t bytes);
/* Returns the error of a host function that has failed, or CT_OK. */
enum ct_status ct__cuda_failure(struct cuda_device *d) CT_MUST_CHECK;
void ct__cuda_calls_release(struct cuda_device *d);

/* memory.c */
enum ct_status ct__cuda_mem_alloc(ct_device *base, size_t bytes, bool zeroed, void **out);
void ct__cuda_mem_free(ct_device *base, void *p);
enum ct_status ct__cuda_host_alloc(ct_device *base, size_t bytes, void **out);
void ct__cuda_host_free(ct_device *base, void *p);
enum ct_status ct__cuda_copy(ct_device *base, void *dst, const void *src, size_t bytes, ct_stream *s);
enum ct_status ct__cuda_fill(ct_device *base, void *dst, int byte, size_t bytes, ct_stream *s);

/* stream.c */
enum ct_status ct__cuda_stream_create(ct_device *base, bool high_priority, ct_stream **out);
void ct__cuda_stream_destroy(ct_stream *base);
enum ct_status ct__cuda_stream_sync(ct_stream *base, int64_t deadline_ns);
enum ct_status ct__cuda_stream_wait_event(ct_stream *base, ct_event *event);
enum ct_status ct__cuda_event_create(ct_device *base, bool timed, ct_event **out);
void ct__cuda_event_destroy(ct_event *base);
enum ct_status ct__cuda_event_record(ct_event *base, ct_stream *s);
enum ct_status ct__cuda_event_wait(ct_event *base, int64_t deadline_ns);
enum ct_status ct__cuda_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns);

/* recording.c */
enum ct_status ct__cuda_recording_begin(ct_stream *base);
enum ct_status ct__cuda_recording_end(ct_stream *base, ct_recording **out);
enum ct_status ct__cuda_recording_post(ct_recording *base, ct_stream *s);
void ct__cuda_recording_destroy(ct_recording *base);

#endif
