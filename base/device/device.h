/* Devices, their memory, streams and events. There is no computation here. One table per kind of device; the registry
 * is the array in device.c.
 *
 * Work is posted to a stream and runs in the order of the stream. On the CPU device the post executes the work and
 * returns when it is done. On an asynchronous device (caps.async) it runs later, and the host must wait to know that it
 * is done: ct_stream_sync, ct_event_wait, ct_device_sync. Two streams are ordered by an event: ct_event_record on one,
 * ct_stream_wait_event on the other.
 *
 * Memory of ct_device_mem_alloc is device memory. The host must not read or write it unless caps.host_visible is set;
 * it goes through ct_device_copy, ct_device_fill, or base/device/arena.h. Memory of ct_device_host_alloc is host memory
 * that the device can read and write (pinned): the host must not touch it while posted work uses it.
 *
 * A device with caps.recordable can record posted work and post it again at once (on a GPU: a CUDA graph):
 *
 *     ct_recording_begin(s);  post to s, and to streams that are made to wait for what was posted;
 *     ct_recording_end(s, &r);  ct_recording_post(r, s), any number of times;  ct_recording_destroy(r)
 *
 * Work that is recorded does not run before it is posted again; it is repeated with the same arguments. What changes
 * from one time to the next is in memory that the work reads. A stream joins the recording when it is made to wait for
 * an event that was recorded in it, and belongs to it until its end. Work of other streams is not recorded. The rules
 * are those of CUDA's stream capture in thread-local mode:
 *   - While a device records, the host does not wait and does not allocate or free memory: CT_BUG.
 *   - A recorded stream does not wait for events that were recorded elsewhere, and nothing else waits for its events.
 *   - Before the end, s must have been made to wait for the work of all streams that joined.
 *   - A violation spoils the recording: its end fails, and the streams are as they were before it.
 *
 * The next wait on the device returns the error of posted work, and so does every later wait and post: a device does
 * not recover. Only one thread may post and wait. */
#ifndef CT_BASE_DEVICE_DEVICE_H
#define CT_BASE_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/module.h"
#include "base/status.h"

typedef struct ct_device ct_device;
typedef struct ct_stream ct_stream;
typedef struct ct_event ct_event;
typedef struct ct_recording ct_recording;

struct ct_device_info {
	char kind[16]; /* "cpu", "cuda", "lazy" */
	char name[96]; /* model name of the processor */
	int index;
	int n_cpus; /* CPUs this process may use (CPU device) */
	uint64_t total_bytes, free_bytes;
};

struct ct_device_caps {
	bool host_visible; /* the host may read and write device memory whenever no posted work uses it */
	bool async;        /* posted work runs after the call has returned */
	bool host_code;    /* work can be posted as a C function: ct_stream_run */
	bool recordable;   /* posted work can be recorded: ct_recording_begin */
};

/* Work as a C function; args is a copy of what was posted. CT_INPROGRESS: not finished, for example because another
 * rank is late; it is called again, with args at the same address, after other streams had a turn. Any error is the device's error from then on. */
typedef enum ct_status (*ct_stream_fn)(const void *args);
enum { CT_STREAM_ARGS_MAX = 192 }; /* bytes */

struct ct_device_ops {
	const char *kind;
	bool for_tests; /* "auto" does not choose it */
	/* Number of devices; 0, with the reason in why, if none can be used. */
	int (*count)(char *why, size_t why_len);
	enum ct_status (*open)(int index, ct_device **out); /* sets caps */
	void (*close)(ct_device *d);
	enum ct_status (*info)(ct_device *d, struct ct_device_info *out);
	/* 256-byte aligned. Not zeroed: the contents are undefined. */
	enum ct_status (*mem_alloc)(ct_device *d, size_t bytes, bool zeroed, void **out);
	void (*mem_free)(ct_device *d, void *p);
	/* (optional) [the CPU's mem_alloc and mem_free] */
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
				     size_t bytes); /* (optional) [no host_code] */
	enum ct_status (*event_create)(ct_device *d, bool timed, ct_event **out);
	void (*event_destroy)(ct_event *e);
	enum ct_status (*event_record)(ct_event *e, ct_stream *s);
	enum ct_status (*event_wait)(ct_event *e, int64_t deadline_ns);
	enum ct_status (*event_elapsed)(const ct_event *from, const ct_event *to, int64_t *ns);
	/* (optional) [not caps.recordable] */
	enum ct_status (*recording_begin)(ct_stream *s);
	enum ct_status (*recording_end)(ct_stream *s, ct_recording **out);
	enum ct_status (*recording_post)(ct_recording *r, ct_stream *s);
	void (*recording_destroy)(ct_recording *r);
};

/* "cpu", "cuda", "lazy" or "auto" (the first kind with a device; never lazy). An absent kind is CT_UNSUPPORTED with the
 * reason and a list of what is available; any other word is CT_CONFIG. */
enum ct_status ct_device_open(const char *kind, int index, ct_device **out) CT_MUST_CHECK;
/* All memory, streams and events of the device must have been given back. NULL is allowed. */
void ct_device_close(ct_device *d);
enum ct_status ct_device_info(ct_device *d, struct ct_device_info *out) CT_MUST_CHECK;
const struct ct_device_caps *ct_device_caps(const ct_device *d);
const char *ct_device_kind(const ct_device *d);

/* 256-byte aligned; owned by the caller until ct_device_mem_free. Device memory is undefined unless `zeroed`; host
 * memory is zeroed. Freeing waits for posted work that uses the memory if the device needs that. */
enum ct_status ct_device_mem_alloc(ct_device *d, size_t bytes, bool zeroed, void **out) CT_MUST_CHECK;
void ct_device_mem_free(ct_device *d, void *p);
enum ct_status ct_device_host_alloc(ct_device *d, size_t bytes, void **out) CT_MUST_CHECK;
void ct_device_host_free(ct_device *d, void *p);

/* Post to s. dst and src are device memory or memory of ct_device_host_alloc, in any combination, and do not overlap. */
enum ct_status ct_device_copy(ct_device *d, void *dst, const void *src, size_t bytes, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_device_fill(ct_device *d, void *dst, int byte, size_t bytes, ct_stream *s) CT_MUST_CHECK;
/* Waits until all posted work of all streams is done. deadline_ns is on the ct_now_ns clock, CT_FOREVER for none;
 * CT_TIMEOUT after it. The same for the waits below. */
enum ct_status ct_device_sync(ct_device *d, int64_t deadline_ns) CT_MUST_CHECK;

enum ct_status ct_stream_create(ct_device *d, bool high_priority, ct_stream **out) CT_MUST_CHECK;
void ct_stream_destroy(ct_stream *s);
ct_device *ct_stream_device(const ct_stream *s);
enum ct_status ct_stream_sync(ct_stream *s, int64_t deadline_ns) CT_MUST_CHECK;
/* Work posted to s from now on runs after the work that precedes the last ct_event_record of e, which is not timed. The
 * host does not wait. */
enum ct_status ct_stream_wait_event(ct_stream *s, ct_event *e) CT_MUST_CHECK;
/* Posts fn(copy of args [bytes <= CT_STREAM_ARGS_MAX]). CT_UNSUPPORTED on a device without caps.host_code. On the CPU
 * the status is that of fn, which is called until it has finished. */
enum ct_status ct_stream_run(ct_stream *s, ct_stream_fn fn, const void *args, size_t bytes) CT_MUST_CHECK;

/* An event is for one of two uses; the other is CT_BUG. timed false: to order streams (ct_stream_wait_event). timed true:
 * for the host, which waits for it and reads times. In a recording, an event that orders is only known there; a timed
 * event is recorded again each time the recording is posted, and must outlive it. */
enum ct_status ct_event_create(ct_device *d, bool timed, ct_event **out) CT_MUST_CHECK;
void ct_event_destroy(ct_event *e);
/* Replaces the previous call. An event that was never recorded counts as reached. */
enum ct_status ct_event_record(ct_event *e, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_event_wait(ct_event *e, int64_t deadline_ns) CT_MUST_CHECK;
/* Nanoseconds between the moments at which two events were reached; both must have been waited for. */
enum ct_status ct_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns) CT_MUST_CHECK;

/* From now on, work posted to s is recorded and does not run. CT_UNSUPPORTED without caps.recordable; CT_BUG while
 * another recording of the device is under way. */
enum ct_status ct_recording_begin(ct_stream *s) CT_MUST_CHECK;
/* Call it after a failure, too: the streams are as before ct_recording_begin in every case. Returns owned. */
enum ct_status ct_recording_end(ct_stream *s, ct_recording **out) CT_MUST_CHECK;
/* Posts everything that was recorded: it runs after the work posted to s before, and before the work posted to s later.
 * Posts of one recording run one after the other. The memory that the work uses still exists. */
enum ct_status ct_recording_post(ct_recording *r, ct_stream *s) CT_MUST_CHECK;
void ct_recording_destroy(ct_recording *r); /* waits for posted work of the recording; NULL is allowed */

/* Walks the registry, then the kinds that only other builds have, for `ctrain info`: false after the last. */
bool ct_device_kind_at(size_t i, const char **kind, int *count, char *why, size_t why_len);

/* What the module of a back end exports. */
struct ct_device_module {
	struct ct_module_head head;
	const struct ct_device_ops *ops;
};

/* The back ends, for the registry in device.c. */
extern const struct ct_device_ops ct_device_cpu_ops;
extern const struct ct_device_ops ct_device_lazy_ops; /* lazy/lazy_impl.h */

/* First member of every back end's own struct. device.c sets `timed`. */
struct ct_device {
	const struct ct_device_ops *ops;
	struct ct_device_caps caps;
};
struct ct_stream {
	ct_device *device;
};
struct ct_event {
	ct_device *device;
	bool timed;
};
struct ct_recording {
	ct_device *device;
};

#endif
