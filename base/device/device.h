/* Devices and their memory, streams and events. The functions of this interface perform no computations. Each kind of
 * device is implemented by a table of functions, and the registry in device.c lists the tables.
 *
 * Work is posted to a stream, and the work of a stream runs in the order of posting. On the CPU device, the call that
 * posts work also executes it and returns when the work is done. On an asynchronous device (caps.async), the work
 * runs later. To be sure that the work is done, the host must wait with ct_stream_sync, ct_event_wait or
 * ct_device_sync. Events order two streams: record an event on one stream (ct_event_record) and make the other one wait
 * for it (ct_stream_wait_event).
 *
 * ct_device_mem_alloc returns device memory. Unless caps.host_visible is set, the host must not read or write it
 * directly, but must use ct_device_copy, ct_device_fill or the functions of base/device/arena.h. ct_device_host_alloc
 * returns pinned host memory, which the device can also read and write. The host must not access this memory while
 * posted work uses it.
 *
 * A device with caps.recordable can record a sequence of work and post all of it later with one call (on a GPU, the
 * recording is a CUDA graph):
 *
 *     ct_recording_begin(s);      post work to s, and to streams that wait for work of this recording;
 *     ct_recording_end(s, &r);    ct_recording_post(r, s), any number of times;    ct_recording_destroy(r)
 *
 * Recorded work does not run until the recording is posted. Every post repeats the work with the same arguments.
 * Values that change from post to post must be in memory that the work reads. Another stream joins the recording when
 * it is made to wait for an event that was recorded in the recording, and belongs to the recording until the recording
 * ends. Work that is posted to other streams is not recorded. The rules are those of CUDA's stream capture in
 * thread-local mode:
 *   - While a device records, the host must not wait, and must not allocate or free memory (CT_BUG).
 *   - A recorded stream must not wait for an event from outside the recording. Outside the recording, no stream may
 *     wait for an event that was recorded in it.
 *   - Before ct_recording_end is called, s must have been made to wait for the work of all streams that joined.
 *   - If a rule is violated, ct_recording_end fails, and the streams return to their state before the recording.
 *
 * If posted work fails, the next wait on the device returns the error, and so does every later wait or post, because a
 * device does not recover. Only one thread may post work and wait. */
#ifndef CT_BASE_DEVICE_DEVICE_H
#define CT_BASE_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/process/module.h"
#include "base/status.h"

typedef struct ct_device ct_device;
typedef struct ct_stream ct_stream;
typedef struct ct_event ct_event;
typedef struct ct_recording ct_recording;

struct ct_device_info {
	char kind[16]; /* "cpu", "cuda", "lazy" */
	char name[96]; /* model name of the processor: "NVIDIA H200", "AMD EPYC, family 25, model 17" */
	char arch[16]; /* "sm_90"; "" for other devices than GPUs, like the next two */
	char uuid[48]; /* "GPU-8f1c..."; the same for every process that uses this GPU */
	char bus[24];  /* PCI address */
	int index;
	int n_cpus; /* number of CPUs that this process may use (CPU device) */
	uint64_t total_bytes, free_bytes;
};

struct ct_device_caps {
	bool host_visible; /* the host may read and write device memory whenever no posted work uses it */
	bool async;        /* posted work runs after the call has returned */
	bool host_code;    /* functions that are posted with ct_stream_run can read and write device memory */
	bool recordable;   /* posted work can be recorded: ct_recording_begin */
};

/* Work in the form of a C function. args points to a copy of the arguments that were posted. The function returns
 * CT_INPROGRESS if the work is not finished, for example because another rank is late. It is then called again, with
 * args at the same address, after other streams have had a turn. Any error that the function returns becomes the
 * device's error permanently. On a GPU, the function is called on another thread, which it may block while other
 * streams go on, but not those with posted functions; it must not use the device, and can access only host memory. */
typedef enum ct_status (*ct_stream_fn)(const void *args);
enum { CT_STREAM_ARGS_MAX = 192 }; /* bytes */

struct ct_device_ops {
	const char *kind;
	bool for_tests; /* "auto" does not choose this kind */
	/* Returns the number of devices. If no device can be used, returns 0 and writes the reason to `why`. */
	int (*count)(char *why, size_t why_len);
	enum ct_status (*open)(int index, ct_device **out); /* sets caps */
	void (*close)(ct_device *d);
	enum ct_status (*info)(ct_device *d, struct ct_device_info *out);
	/* (optional) [default: CT_OK] Fails with CT_NO_DEVICE if the device cannot be used; does not open it. */
	enum ct_status (*check)(int index);
	/* (optional) [default: not available] Everything but free_bytes, for a device that has not been opened. */
	enum ct_status (*describe)(int index, struct ct_device_info *out);
	/* The memory is 256-byte aligned. If zeroed is false, its contents are undefined. */
	enum ct_status (*mem_alloc)(ct_device *d, size_t bytes, bool zeroed, void **out);
	void (*mem_free)(ct_device *d, void *p);
	/* (optional) [default: mem_alloc and mem_free of the CPU device] */
	enum ct_status (*host_alloc)(ct_device *d, size_t bytes, void **out);
	void (*host_free)(ct_device *d, void *p);
	enum ct_status (*copy)(ct_device *d, void *dst, const void *src, size_t bytes, ct_stream *s);
	enum ct_status (*fill)(ct_device *d, void *dst, int byte, size_t bytes, ct_stream *s);
	enum ct_status (*sync)(ct_device *d, int64_t deadline_ns);
	enum ct_status (*stream_create)(ct_device *d, bool high_priority, ct_stream **out);
	void (*stream_destroy)(ct_stream *s);
	enum ct_status (*stream_sync)(ct_stream *s, int64_t deadline_ns);
	enum ct_status (*stream_wait_event)(ct_stream *s, ct_event *e);
	enum ct_status (*stream_run)(ct_stream *s, ct_stream_fn fn, const void *args,
				     size_t bytes); /* (optional) [default: not supported] */
	enum ct_status (*event_create)(ct_device *d, bool timed, ct_event **out);
	void (*event_destroy)(ct_event *e);
	enum ct_status (*event_record)(ct_event *e, ct_stream *s);
	enum ct_status (*event_wait)(ct_event *e, int64_t deadline_ns);
	enum ct_status (*event_elapsed)(const ct_event *from, const ct_event *to, int64_t *ns);
	/* (optional) [default: caps.recordable is false] */
	enum ct_status (*recording_begin)(ct_stream *s);
	enum ct_status (*recording_end)(ct_stream *s, ct_recording **out);
	enum ct_status (*recording_post)(ct_recording *r, ct_stream *s);
	void (*recording_destroy)(ct_recording *r);
};

/* Opens a device. kind is "cpu", "cuda" or "lazy". Fails with CT_NO_DEVICE if the kind or the index is not available;
 * the message gives the reason, and the hint lists the available devices. Fails with CT_CONFIG if the kind is unknown.
 * A GPU is bound to the calling thread, and to every other thread when it first allocates memory. */
enum ct_status ct_device_open(const char *kind, int index, ct_device **out) CT_MUST_CHECK;
/* Returns the number of devices of a kind, which is at least 1, without opening one. At least one of them can be used.
 * Fails like ct_device_open. */
enum ct_status ct_device_count(const char *kind, int *n) CT_MUST_CHECK;
/* Returns whether an existing device can be used, without opening it: a GPU may be too old for the kernels. Otherwise
 * fails with CT_NO_DEVICE. */
enum ct_status ct_device_check(const char *kind, int index) CT_MUST_CHECK;
/* Returns the kind of device to use if the user does not choose one: "cuda" if there is a GPU that ctrain can use, else
 * "cpu". In the second case, writes the reason to `why`, and sets *has_driver if the machine has an NVIDIA driver, or
 * CTRAIN_CUDA_LIBS is set, so that the reason is probably an incomplete installation. Otherwise, loads no library. */
const char *ct_device_choose(bool *has_driver, char *why, size_t why_len);
/* Describes a device without opening it. Fails with CT_UNSUPPORTED if devices of this kind do not support this. */
enum ct_status ct_device_describe(const char *kind, int index, struct ct_device_info *out) CT_MUST_CHECK;
/* Closes a device. All its memory, streams and events must have been freed or destroyed. NULL is allowed. */
void ct_device_close(ct_device *d);
enum ct_status ct_device_info(ct_device *d, struct ct_device_info *out) CT_MUST_CHECK;

/* A function that waits of a GPU call repeatedly, and once more before they return CT_OK. If it fails, the wait fails
 * with its error. A communicator uses it, because work that waits for another rank may never finish, and finishes with
 * wrong results if the communicator is aborted. waited_ns is 0 in the first call of each wait. */
typedef enum ct_status (*ct_device_check_fn)(void *arg, int64_t waited_ns);
enum { CT_DEVICE_CHECKS = 4 }; /* at most this many at a time */
void ct_device_add_check(ct_device *d, ct_device_check_fn check, void *arg);
/* Removes the check with this argument, if there is one. */
void ct_device_remove_check(ct_device *d, const void *arg);
const struct ct_device_caps *ct_device_caps(const ct_device *d);
const char *ct_device_kind(const ct_device *d);

/* The memory is 256-byte aligned and owned by the caller until it is freed. The contents of device memory are undefined
 * unless `zeroed` is set. Host memory is always zeroed. If the device requires it, freeing waits for posted work that
 * uses the memory. */
enum ct_status ct_device_mem_alloc(ct_device *d, size_t bytes, bool zeroed, void **out) CT_MUST_CHECK;
void ct_device_mem_free(ct_device *d, void *p);
enum ct_status ct_device_host_alloc(ct_device *d, size_t bytes, void **out) CT_MUST_CHECK;
void ct_device_host_free(ct_device *d, void *p);

/* Sets what memory is allocated for from now on, for example "gradients" (a string literal; NULL: other). If the memory
 * of a GPU is exhausted, the message lists how much is used for what. An allocation that fails resets it to NULL, so
 * that callers can return at once. */
void ct_device_purpose(ct_device *d, const char *what);

/* Post a copy or a fill to s. dst and src are device memory or memory from ct_device_host_alloc, in any combination,
 * and must not overlap. */
enum ct_status ct_device_copy(ct_device *d, void *dst, const void *src, size_t bytes, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_device_fill(ct_device *d, void *dst, int byte, size_t bytes, ct_stream *s) CT_MUST_CHECK;
/* Waits until the posted work of all streams is done. deadline_ns is a time on the ct_now_ns clock, or CT_FOREVER.
 * Fails with CT_TIMEOUT if the deadline passes. The same applies to the deadlines of the other waits below. */
enum ct_status ct_device_sync(ct_device *d, int64_t deadline_ns) CT_MUST_CHECK;
/* Waits up to 1 s until posted work no longer uses memory that is about to be freed. If this fails, logs a warning,
 * unless there is an error chain; the chain is kept. NULL is allowed. */
void ct_device_drain(ct_device *d);

enum ct_status ct_stream_create(ct_device *d, bool high_priority, ct_stream **out) CT_MUST_CHECK;
void ct_stream_destroy(ct_stream *s);
ct_device *ct_stream_device(const ct_stream *s);
/* Stores the name of the work that is being posted to s. A GPU reports only at a later call that some work has failed,
 * and then the message lists the names of the work that was posted after the last wait. The string is borrowed until
 * the next call; NULL: none. */
void ct_stream_note(ct_stream *s, const char *work);
enum ct_status ct_stream_sync(ct_stream *s, int64_t deadline_ns) CT_MUST_CHECK;
/* Work that is posted to s after this call runs only after the work that preceded the latest ct_event_record of e is
 * done. The host does not wait. e must not be timed. */
enum ct_status ct_stream_wait_event(ct_stream *s, ct_event *e) CT_MUST_CHECK;
/* Posts a call of fn with a copy of args. bytes is at most CT_STREAM_ARGS_MAX; on a GPU, equal bytes mean the same
 * call, so padding must be zero. Fails with CT_UNSUPPORTED if the device cannot run functions. On the CPU device, fn is
 * called until it has finished, and its status is returned. */
enum ct_status ct_stream_run(ct_stream *s, ct_stream_fn fn, const void *args, size_t bytes) CT_MUST_CHECK;

/* An event has one of two purposes, and any other use fails with CT_BUG. If timed is false, the event orders streams
 * (ct_stream_wait_event). If timed is true, the host can wait for the event and use it to measure time. An untimed
 * event that is recorded in a recording can be used only within that recording. A timed event that is recorded in a
 * recording is recorded again each time the recording is posted, and must outlive the recording. */
enum ct_status ct_event_create(ct_device *d, bool timed, ct_event **out) CT_MUST_CHECK;
void ct_event_destroy(ct_event *e);
/* Records e on s: e is reached when the work posted to s so far is done. The call replaces the previous ct_event_record
 * of e. An event that has never been recorded counts as reached. */
enum ct_status ct_event_record(ct_event *e, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_event_wait(ct_event *e, int64_t deadline_ns) CT_MUST_CHECK;
/* Returns the nanoseconds between the moments at which the two events were reached. The host must have waited for
 * both. */
enum ct_status ct_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns) CT_MUST_CHECK;

/* Begins a recording: from now on, work that is posted to s is recorded and does not run. Fails with CT_UNSUPPORTED on
 * a device without caps.recordable, and with CT_BUG if another recording is in progress on the device. */
enum ct_status ct_recording_begin(ct_stream *s) CT_MUST_CHECK;
/* Ends the recording. Must be called even if a call during the recording has failed. In every case, the streams return
 * to their state before ct_recording_begin. The caller owns *out. */
enum ct_status ct_recording_end(ct_stream *s, ct_recording **out) CT_MUST_CHECK;
/* Posts all recorded work. The recorded work runs after the work that was posted to s earlier, and before the work that
 * is posted to s later. Posts of the same recording run one after the other. The memory that the recorded work uses
 * must still be valid. */
enum ct_status ct_recording_post(ct_recording *r, ct_stream *s) CT_MUST_CHECK;
/* Destroys the recording. Posts that are not done continue, and still use the memory and the events. A GPU does not
 * make the host wait for them. NULL is allowed. */
void ct_recording_destroy(ct_recording *r);

/* Gets the i-th kind of device, for `ctrain info`: first the registered kinds, then the kinds that only other builds
 * have. Returns false if i is past the end. */
bool ct_device_kind_at(size_t i, const char **kind, int *count, char *why, size_t why_len);

/* The table that the module of a back end exports. */
struct ct_device_module {
	struct ct_module_head head;
	const struct ct_device_ops *ops;
};

/* The back end that is not in a module, for the registry in device.c. */
extern const struct ct_device_ops ct_device_cpu_ops;

/* Each of the structs below is the first member of a back end's own struct. device.c sets `timed`. */
struct ct_device {
	const struct ct_device_ops *ops;
	struct ct_device_caps caps;
	const char *purpose; /* ct_device_purpose */
	struct {
		ct_device_check_fn check;
		void *arg;
	} checks[CT_DEVICE_CHECKS];
	int n_checks;
};
struct ct_stream {
	ct_device *device;
	void *handle; /* native stream (cudaStream_t), for engines and communicators of the same library; or NULL */
	const char *posted; /* ct_stream_note */
};
struct ct_event {
	ct_device *device;
	bool timed;
};
struct ct_recording {
	ct_device *device;
};

#endif
