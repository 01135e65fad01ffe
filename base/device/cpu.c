/* On the CPU device, posting is doing: each function returns when its work is done. Streams and events have therefore
 * nothing to order and nothing to wait for; an event only stores the time at which it was recorded. A posted function
 * that has to be called again (CT_INPROGRESS) is called in a loop, so a communicator that waits for another rank blocks
 * the caller here. device.c uses the memory functions of this table for the pinned memory of devices that have none of
 * their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/device/device.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"

static int cpu_count(char *why, size_t why_len)
{
	if (why_len > 0)
		why[0] = '\0';
	return 1;
}

static enum ct_status cpu_open(int index, ct_device **out)
{
	ct_device *d;

	(void)index;
	CT_TRY_ALLOC(d = CT_NEW(ct_device));
	d->ops = &ct_device_cpu_ops;
	d->caps = (struct ct_device_caps){.host_visible = true, .host_code = true};
	*out = d;
	return CT_OK;
}

static void cpu_close(ct_device *d)
{
	ct_free(d);
}

/* Reads the value of the first "key : value" line, truncated to fit, or "" if there is none. */
static void find_value(const char *text, const char *key, char *buf, size_t size)
{
	const char *line = strstr(text, key), *value = line ? strchr(line, ':') : NULL;
	size_t n;

	buf[0] = '\0';
	if (!value)
		return;
	value += 1 + strspn(value + 1, " \t");
	n = strcspn(value, "\n");
	if (n >= size)
		n = size - 1;
	memcpy(buf, value, n);
	buf[n] = '\0';
}

static void read_value(const char *path, const char *key, char *buf, size_t size)
{
	char *text;
	size_t len;

	buf[0] = '\0';
	if (ct_file_read(path, (size_t)16 << 20, &text, &len) < 0) {
		ct_error_clear(); /* the value is only displayed */
		return;
	}
	find_value(text, key, buf, size);
	ct_free(text);
}

/* Virtual machines give processors of several generations the same model name, so the numbers are part of the name. */
static void read_processor(char *name, size_t size)
{
	char family[16], model[16];

	read_value("/proc/cpuinfo", "model name", name, size);
	if (!name[0])
		snprintf(name, size, "CPU");
	read_value("/proc/cpuinfo", "cpu family", family, sizeof(family));
	read_value("/proc/cpuinfo", "model\t", model, sizeof(model));
	if (family[0]) /* x86 */
		snprintf(name + strlen(name), size - strlen(name), ", family %s, model %s", family, model);
}

static enum ct_status cpu_info(ct_device *d, struct ct_device_info *out)
{
	char kib[32];

	(void)d;
	*out = (struct ct_device_info){.kind = "cpu", .n_cpus = ct_cpu_count()};
	read_processor(out->name, sizeof(out->name));
	read_value("/proc/meminfo", "MemTotal", kib, sizeof(kib));
	out->total_bytes = strtoull(kib, NULL, 10) * 1024;
	read_value("/proc/meminfo", "MemAvailable", kib, sizeof(kib));
	out->free_bytes = strtoull(kib, NULL, 10) * 1024;
	return CT_OK;
}

/* The memory is always zeroed. */
static enum ct_status cpu_mem_alloc(ct_device *d, size_t bytes, bool zeroed, void **out)
{
	(void)d;
	(void)zeroed;
	CT_TRY_ALLOC(*out = ct_calloc_aligned(256, bytes));
	return CT_OK;
}

static void cpu_mem_free(ct_device *d, void *p)
{
	(void)d;
	ct_free_aligned(p);
}

static enum ct_status cpu_copy(ct_device *d, void *dst, const void *src, size_t bytes, ct_stream *s)
{
	(void)d;
	(void)s;
	memcpy(dst, src, bytes);
	return CT_OK;
}

static enum ct_status cpu_fill(ct_device *d, void *dst, int byte, size_t bytes, ct_stream *s)
{
	(void)d;
	(void)s;
	memset(dst, byte, bytes);
	return CT_OK;
}

static enum ct_status cpu_sync(ct_device *d, int64_t deadline_ns)
{
	(void)d;
	(void)deadline_ns;
	return CT_OK;
}

static enum ct_status cpu_stream_create(ct_device *d, bool high_priority, ct_stream **out)
{
	ct_stream *s;

	(void)high_priority;
	CT_TRY_ALLOC(s = CT_NEW(ct_stream));
	s->device = d;
	*out = s;
	return CT_OK;
}

static void cpu_stream_destroy(ct_stream *s)
{
	ct_free(s);
}

static enum ct_status cpu_stream_sync(ct_stream *s, int64_t deadline_ns)
{
	(void)s;
	(void)deadline_ns;
	return CT_OK;
}

static enum ct_status cpu_stream_wait_event(ct_stream *s, ct_event *e)
{
	(void)s;
	(void)e;
	return CT_OK;
}

static enum ct_status cpu_stream_run(ct_stream *s, ct_stream_fn fn, const void *args, size_t bytes)
{
	enum ct_status st;

	(void)s;
	(void)bytes;
	do {
		st = fn(args);
	} while (st == CT_INPROGRESS);
	return st;
}

struct cpu_event {
	ct_event base;
	int64_t at_ns;
};

static enum ct_status cpu_event_create(ct_device *d, bool timed, ct_event **out)
{
	struct cpu_event *e;

	(void)timed;
	CT_TRY_ALLOC(e = CT_NEW(struct cpu_event));
	e->base.device = d;
	*out = &e->base;
	return CT_OK;
}

static void cpu_event_destroy(ct_event *e)
{
	ct_free(e);
}

static enum ct_status cpu_event_record(ct_event *e, ct_stream *s)
{
	(void)s;
	((struct cpu_event *)e)->at_ns = ct_now_ns();
	return CT_OK;
}

static enum ct_status cpu_event_wait(ct_event *e, int64_t deadline_ns)
{
	(void)e;
	(void)deadline_ns;
	return CT_OK;
}

static enum ct_status cpu_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns)
{
	*ns = ((const struct cpu_event *)to)->at_ns - ((const struct cpu_event *)from)->at_ns;
	return CT_OK;
}

const struct ct_device_ops ct_device_cpu_ops = {
	.kind = "cpu",
	.count = cpu_count,
	.open = cpu_open,
	.close = cpu_close,
	.info = cpu_info,
	.mem_alloc = cpu_mem_alloc,
	.mem_free = cpu_mem_free,
	.copy = cpu_copy,
	.fill = cpu_fill,
	.sync = cpu_sync,
	.stream_create = cpu_stream_create,
	.stream_destroy = cpu_stream_destroy,
	.stream_sync = cpu_stream_sync,
	.stream_wait_event = cpu_stream_wait_event,
	.stream_run = cpu_stream_run,
	.event_create = cpu_event_create,
	.event_destroy = cpu_event_destroy,
	.event_record = cpu_event_record,
	.event_wait = cpu_event_wait,
	.event_elapsed = cpu_event_elapsed,
};
