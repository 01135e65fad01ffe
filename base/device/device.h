/* Devices, their memory, streams and events: no maths here. One table per kind; the CPU device is always there, its
 * streams run at once and its events are complete when recorded. Registry: the array at the end of device.c. */
#ifndef CT_BASE_DEVICE_DEVICE_H
#define CT_BASE_DEVICE_DEVICE_H

#include <stdint.h>

#include "base/status.h"

typedef struct ct_device ct_device;
typedef struct ct_stream ct_stream;
typedef struct ct_event ct_event;

struct ct_device_info {
	char kind[16]; /* "cpu", "cuda" */
	char name[96]; /* model name of the processor */
	int index;
	int n_cpus; /* CPUs this process may use (CPU device) */
	uint64_t total_bytes, free_bytes;
};

struct ct_device_ops {
	const char *kind;
	/* How many there are; 0 with the reason in why when none can be used. */
	int (*count)(char *why, size_t why_len);
	enum ct_status (*open)(int index, ct_device **out);
	void (*close)(ct_device *d);
	enum ct_status (*info)(ct_device *d, struct ct_device_info *out);
	enum ct_status (*mem_alloc)(ct_device *d, size_t bytes, void **out); /* zeroed, 256-byte aligned */
	void (*mem_free)(ct_device *d, void *p);
	/* Pinned. Optional: NULL stands for the CPU's mem_alloc, host_free likewise. */
	enum ct_status (*host_alloc)(ct_device *d, size_t bytes, void **out);
	void (*host_free)(ct_device *d, void *p);
	enum ct_status (*copy)(ct_device *d, void *dst, const void *src, size_t bytes, ct_stream *s);
	enum ct_status (*stream_create)(ct_device *d, bool high_priority, ct_stream **out);
	void (*stream_destroy)(ct_stream *s);
	enum ct_status (*stream_sync)(ct_stream *s, int64_t deadline_ns);
	enum ct_status (*event_create)(ct_device *d, ct_event **out);
	void (*event_destroy)(ct_event *e);
	enum ct_status (*event_record)(ct_event *e, ct_stream *s);
	enum ct_status (*event_test)(ct_event *e); /* CT_OK or CT_INPROGRESS */
};

/* "cpu", "cuda" or "auto" (first kind with a device). An absent kind is CT_UNSUPPORTED with the reason and what there
 * is; any other word is CT_CONFIG. */
enum ct_status ct_device_open(const char *kind, int index, ct_device **out) CT_MUST_CHECK;
void ct_device_close(ct_device *d);
enum ct_status ct_device_info(ct_device *d, struct ct_device_info *out) CT_MUST_CHECK;
enum ct_status ct_device_mem_alloc(ct_device *d, size_t bytes, void **out) CT_MUST_CHECK;
void ct_device_mem_free(ct_device *d, void *p);
enum ct_status ct_device_host_alloc(ct_device *d, size_t bytes, void **out) CT_MUST_CHECK;
void ct_device_host_free(ct_device *d, void *p);
enum ct_status ct_device_copy(ct_device *d, void *dst, const void *src, size_t bytes, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_stream_create(ct_device *d, bool high_priority, ct_stream **out) CT_MUST_CHECK;
void ct_stream_destroy(ct_stream *s);
enum ct_status ct_stream_sync(ct_stream *s, int64_t deadline_ns) CT_MUST_CHECK;
enum ct_status ct_event_create(ct_device *d, ct_event **out) CT_MUST_CHECK;
void ct_event_destroy(ct_event *e);
enum ct_status ct_event_record(ct_event *e, ct_stream *s) CT_MUST_CHECK;
enum ct_status ct_event_test(ct_event *e) CT_MUST_CHECK;
/* Walks the registry, then the kinds that only other builds have, for `ctrain info`: false past the end. */
bool ct_device_kind_at(size_t i, const char **kind, int *count, char *why, size_t why_len);

/* The back ends, for the registry in device.c. */
extern const struct ct_device_ops ct_device_cpu_ops;

/* First member of every back end's own struct. */
struct ct_device {
	const struct ct_device_ops *ops;
};
struct ct_stream {
	ct_device *device;
};
struct ct_event {
	ct_device *device;
};

#endif
