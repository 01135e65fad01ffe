#include "base/device/device.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* The registry, in the order in which "auto" tries the kinds. A kind that only other builds have is listed in
 * kind_names and in absent. */
static const struct ct_device_ops *const registry[] = {
	&ct_device_cpu_ops,
#ifdef CT_WITH_LAZY
	&ct_device_lazy_ops,
#endif
};

static const char *const kind_names[] = {"auto", "cpu", "cuda", "lazy"};
static const struct {
	const char *kind, *why;
} absent[] = {
	{"cuda", "not in this build"},
#ifndef CT_WITH_LAZY
	{"lazy", "not in this build (a device for tests: -DCTRAIN_LAZY=ON)"},
#endif
};

static void add_hint(void)
{
	struct ct_str have = {0};

	for (size_t i = 0; i < CT_ARRAY_LEN(registry); i++) {
		char why[256] = "";
		int n = registry[i]->for_tests ? 0 : registry[i]->count(why, sizeof(why));

		if (n > 0)
			ct_str_addf(&have, "%s%s (%d)", have.len ? ", " : "", registry[i]->kind, n);
	}
	ct_error_hint("available devices: %s", have.len ? ct_str_text(&have) : "none");
	ct_str_release(&have);
}

static bool is_known(const char *kind)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(kind_names); i++) {
		if (strcmp(kind_names[i], kind) == 0)
			return true;
	}
	return false;
}

enum ct_status ct_device_open(const char *kind, int index, ct_device **out)
{
	bool any = strcmp(kind, "auto") == 0;
	char why[256] = "";

	for (size_t i = 0; i < CT_ARRAY_LEN(absent); i++) {
		if (strcmp(absent[i].kind, kind) == 0)
			snprintf(why, sizeof(why), "%s", absent[i].why);
	}
	if (!is_known(kind)) {
		const char *near = ct_suggest(kind, kind_names, CT_ARRAY_LEN(kind_names));

		(void)CT_FAIL(CT_CONFIG, "unknown device kind \"%.40s\"", kind);
		if (near)
			ct_error_hint("did you mean \"%s\"?", near);
		else
			ct_error_hint("choose auto, cpu or cuda");
		return CT_CONFIG;
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(registry); i++) {
		const struct ct_device_ops *ops = registry[i];
		int n;

		if (any ? ops->for_tests : strcmp(ops->kind, kind) != 0)
			continue;
		n = ops->count(why, sizeof(why));
		if (n == 0)
			continue;
		if (index < 0 || index >= n) {
			(void)CT_FAIL(CT_UNSUPPORTED, "no %s device %d (valid indexes: 0 to %d)", ops->kind, index,
				      n - 1);
			add_hint();
			return CT_UNSUPPORTED;
		}
		return ops->open(index, out);
	}
	(void)CT_FAIL(CT_UNSUPPORTED, "no %s device: %s", kind, why);
	add_hint();
	return CT_UNSUPPORTED;
}

bool ct_device_kind_at(size_t i, const char **kind, int *count, char *why, size_t why_len)
{
	size_t n = CT_ARRAY_LEN(registry);

	if (i >= n + CT_ARRAY_LEN(absent))
		return false;
	snprintf(why, why_len, "%s", i < n ? "" : absent[i - n].why);
	*kind = i < n ? registry[i]->kind : absent[i - n].kind;
	*count = i < n ? registry[i]->count(why, why_len) : 0;
	return true;
}

void ct_device_close(ct_device *d)
{
	if (d)
		d->ops->close(d);
}

enum ct_status ct_device_info(ct_device *d, struct ct_device_info *out)
{
	return d->ops->info(d, out);
}

const struct ct_device_caps *ct_device_caps(const ct_device *d)
{
	return &d->caps;
}

const char *ct_device_kind(const ct_device *d)
{
	return d->ops->kind;
}

enum ct_status ct_device_mem_alloc(ct_device *d, size_t bytes, bool zeroed, void **out)
{
	return d->ops->mem_alloc(d, bytes, zeroed, out);
}

void ct_device_mem_free(ct_device *d, void *p)
{
	if (p)
		d->ops->mem_free(d, p);
}

enum ct_status ct_device_host_alloc(ct_device *d, size_t bytes, void **out)
{
	return d->ops->host_alloc ? d->ops->host_alloc(d, bytes, out)
				  : ct_device_cpu_ops.mem_alloc(d, bytes, true, out);
}

void ct_device_host_free(ct_device *d, void *p)
{
	if (!p)
		return;
	if (d->ops->host_free)
		d->ops->host_free(d, p);
	else
		ct_device_cpu_ops.mem_free(d, p);
}

enum ct_status ct_device_copy(ct_device *d, void *dst, const void *src, size_t bytes, ct_stream *s)
{
	CT_ASSERT(s->device == d);
	return bytes ? d->ops->copy(d, dst, src, bytes, s) : CT_OK;
}

enum ct_status ct_device_fill(ct_device *d, void *dst, int byte, size_t bytes, ct_stream *s)
{
	CT_ASSERT(s->device == d);
	return bytes ? d->ops->fill(d, dst, byte, bytes, s) : CT_OK;
}

enum ct_status ct_device_sync(ct_device *d, int64_t deadline_ns)
{
	return d->ops->sync(d, deadline_ns);
}

enum ct_status ct_stream_create(ct_device *d, bool high_priority, ct_stream **out)
{
	return d->ops->stream_create(d, high_priority, out);
}

void ct_stream_destroy(ct_stream *s)
{
	if (s)
		s->device->ops->stream_destroy(s);
}

ct_device *ct_stream_device(const ct_stream *s)
{
	return s->device;
}

enum ct_status ct_stream_sync(ct_stream *s, int64_t deadline_ns)
{
	return s->device->ops->stream_sync(s, deadline_ns);
}

enum ct_status ct_stream_wait_event(ct_stream *s, ct_event *e)
{
	CT_ASSERT(e->device == s->device);
	if (e->timed)
		return CT_FAIL(CT_BUG, "a stream waits for a timed event, which does not order streams");
	return s->device->ops->stream_wait_event(s, e);
}

enum ct_status ct_stream_run(ct_stream *s, ct_stream_fn fn, const void *args, size_t bytes)
{
	CT_ASSERT(bytes <= CT_STREAM_ARGS_MAX);
	if (!s->device->ops->stream_run)
		return CT_FAIL(CT_UNSUPPORTED, "a %s device cannot run functions of the host", s->device->ops->kind);
	return s->device->ops->stream_run(s, fn, args, bytes);
}

enum ct_status ct_event_create(ct_device *d, bool timed, ct_event **out)
{
	CT_TRY(d->ops->event_create(d, timed, out));
	(*out)->timed = timed;
	return CT_OK;
}

void ct_event_destroy(ct_event *e)
{
	if (e)
		e->device->ops->event_destroy(e);
}

enum ct_status ct_event_record(ct_event *e, ct_stream *s)
{
	CT_ASSERT(e->device == s->device);
	return e->device->ops->event_record(e, s);
}

enum ct_status ct_event_wait(ct_event *e, int64_t deadline_ns)
{
	if (!e->timed)
		return CT_FAIL(CT_BUG, "the host waits for an event that was not created as timed");
	return e->device->ops->event_wait(e, deadline_ns);
}

enum ct_status ct_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns)
{
	CT_ASSERT(from->device == to->device);
	if (!from->timed || !to->timed)
		return CT_FAIL(CT_BUG, "the time between two events was requested, but one was not created as timed");
	return from->device->ops->event_elapsed(from, to, ns);
}

enum ct_status ct_recording_begin(ct_stream *s)
{
	if (!s->device->caps.recordable)
		return CT_FAIL(CT_UNSUPPORTED, "a %s device does not record posted work", s->device->ops->kind);
	return s->device->ops->recording_begin(s);
}

enum ct_status ct_recording_end(ct_stream *s, ct_recording **out)
{
	*out = NULL;
	if (!s->device->caps.recordable)
		return CT_FAIL(CT_UNSUPPORTED, "a %s device does not record posted work", s->device->ops->kind);
	return s->device->ops->recording_end(s, out);
}

enum ct_status ct_recording_post(ct_recording *r, ct_stream *s)
{
	CT_ASSERT(r->device == s->device);
	return r->device->ops->recording_post(r, s);
}

void ct_recording_destroy(ct_recording *r)
{
	if (r)
		r->device->ops->recording_destroy(r);
}
