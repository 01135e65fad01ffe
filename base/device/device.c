/* Checked wrappers around the tables of the back ends, and their registry. Back ends rely on what is checked here:
 * objects of one call belong to the same device, copies and fills are not empty, what is freed or destroyed is not
 * NULL, an event is used for one of its two purposes only, and optional functions are called only if they exist. A back
 * end in a module is opened when someone asks for its kind, so CUDA libraries are loaded only if CUDA devices are
 * requested. */
#define CT_LOG_COMPONENT "device"
#include "base/device/device.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/device/cuda_module.h"
#include "base/log.h"
#include "base/mem.h"

/* The device for tests is not part of the program. Builds with tests have its module beside the program, but do not
 * install it. */
static enum ct_status open_lazy(const char *symbol, const void **out)
{
	return ct_module_open("ctrain_lazy.so", symbol, out);
}

/* The registry. */
static const struct kind {
	const char *name;
	const struct ct_device_ops *ops; /* NULL: in a module, or not in this build */
	/* Opens the module and looks up its table `symbol`; NULL: not in this build. */
	enum ct_status (*open_module)(const char *symbol, const void **out);
	const char *symbol;
	const char *why; /* precedes the reason for which the module cannot be opened */
} kinds[] = {
	{"cpu", &ct_device_cpu_ops, NULL, NULL, NULL},
#ifdef CT_WITH_CUDA
	{"cuda", NULL, ct_cuda_module_open, "ct_cuda_device", ""},
#else
	{"cuda", NULL, NULL, NULL, "not in this build"},
#endif
	{"lazy", NULL, open_lazy, "ct_device_lazy", "a device for tests of ctrain itself; "},
};

/* The table of a kind, or NULL and the reason. */
static const struct ct_device_ops *ops_of(const struct kind *k, char *why, size_t why_len)
{
	const void *table;

	if (k->ops)
		return k->ops;
	if (k->open_module && k->open_module(k->symbol, &table) == CT_OK)
		return ((const struct ct_device_module *)table)->ops;
	snprintf(why, why_len, "%s%s", k->why, k->open_module ? ct_error_message() : "");
	ct_error_clear();
	return NULL;
}

/* The number of devices of a kind; 0 and the reason. */
static int count_of(const struct kind *k, const struct ct_device_ops **ops, char *why, size_t why_len)
{
	*ops = ops_of(k, why, why_len);
	return *ops ? (*ops)->count(why, why_len) : 0;
}

/* "cpu (1), cuda (2)". Call it before an error is set: asking a kind may set and clear errors. */
static void list_devices(struct ct_str *list)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		const struct ct_device_ops *ops;
		char why[512] = "";
		int n = count_of(&kinds[i], &ops, why, sizeof(why));

		if (n > 0 && !ops->for_tests)
			ct_str_addf(list, "%s%s (%d)", list->len ? ", " : "", kinds[i].name, n);
	}
	if (list->len == 0)
		ct_str_add(list, "none");
}

static enum ct_status unknown_kind(const char *name)
{
	const char *names[CT_ARRAY_LEN(kinds)];

	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++)
		names[i] = kinds[i].name;
	const char *near = ct_suggest(name, names, CT_ARRAY_LEN(names));
	CT_FAIL(CT_CONFIG, "unknown device kind \"%.40s\"", name);
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	else
		ct_error_hint("choose cpu or cuda");
	return CT_CONFIG;
}

static enum ct_status find_kind(const char *name, const struct kind **out)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(kinds); i++) {
		if (strcmp(kinds[i].name, name) == 0) {
			*out = &kinds[i];
			return CT_OK;
		}
	}
	return unknown_kind(name);
}

/* Fails unless the kind has this device. */
static enum ct_status need(const char *name, int index, const struct ct_device_ops **ops, int *n)
{
	const struct kind *k;
	struct ct_str list = {0};
	char why[512] = "";

	CT_TRY(find_kind(name, &k));
	*n = count_of(k, ops, why, sizeof(why));
	if (index >= 0 && index < *n)
		return CT_OK;
	list_devices(&list);
	if (*n == 0)
		CT_FAIL(CT_NO_DEVICE, "no %s device: %s", name, why);
	else
		CT_FAIL(CT_NO_DEVICE, "no %s device %d (valid indexes: 0 to %d)", name, index, *n - 1);
	ct_error_hint("available devices: %s", ct_str_text(&list));
	ct_str_release(&list);
	return CT_NO_DEVICE;
}

enum ct_status ct_device_open(const char *kind, int index, ct_device **out)
{
	const struct ct_device_ops *ops;
	int n;

	CT_TRY(need(kind, index, &ops, &n));
	return ops->open(index, out);
}

enum ct_status ct_device_count(const char *kind, int *n)
{
	const struct ct_device_ops *ops;

	return need(kind, 0, &ops, n);
}

enum ct_status ct_device_check(const char *kind, int index)
{
	const struct ct_device_ops *ops;
	const struct kind *k;
	char why[512];

	CT_TRY(find_kind(kind, &k));
	ops = ops_of(k, why, sizeof(why));
	if (!ops)
		return CT_FAIL(CT_NO_DEVICE, "no %s device: %s", kind, why);
	return ops->check ? ops->check(index) : CT_OK;
}

const char *ct_device_choose(bool *has_driver, char *why, size_t why_len)
{
	const struct ct_device_ops *ops;
	const struct kind *cuda;

	*has_driver = ct_cuda_has_driver();
	if (!*has_driver)
		snprintf(why, why_len, "no NVIDIA driver is installed");
	else if (find_kind("cuda", &cuda) == CT_OK && count_of(cuda, &ops, why, why_len) > 0)
		return "cuda";
	return "cpu";
}

enum ct_status ct_device_describe(const char *kind, int index, struct ct_device_info *out)
{
	const struct ct_device_ops *ops;
	int n;

	CT_TRY(need(kind, index, &ops, &n));
	if (!ops->describe)
		return CT_FAIL(CT_UNSUPPORTED, "a %s device must be opened to describe it", kind);
	return ops->describe(index, out);
}

bool ct_device_kind_at(size_t i, const char **kind, int *count, char *why, size_t why_len)
{
	const struct ct_device_ops *ops;

	if (i >= CT_ARRAY_LEN(kinds))
		return false;
	*kind = kinds[i].name;
	snprintf(why, why_len, "%s", "");
	*count = count_of(&kinds[i], &ops, why, why_len);
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
	enum ct_status st = d->ops->mem_alloc(d, bytes, zeroed, out);

	if (st < 0)
		d->purpose = NULL;
	return st;
}

void ct_device_mem_free(ct_device *d, void *p)
{
	if (p)
		d->ops->mem_free(d, p);
}

void ct_device_purpose(ct_device *d, const char *what)
{
	d->purpose = what;
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

void ct_device_add_check(ct_device *d, ct_device_check_fn check, void *arg)
{
	CT_ASSERT(d->n_checks < CT_DEVICE_CHECKS);
	d->checks[d->n_checks].check = check;
	d->checks[d->n_checks++].arg = arg;
}

void ct_device_remove_check(ct_device *d, const void *arg)
{
	int n = 0;

	for (int i = 0; i < d->n_checks; i++) {
		if (d->checks[i].arg != arg)
			d->checks[n++] = d->checks[i];
	}
	d->n_checks = n;
}

/* Waits without checks: after a failure, the work still ends. */
static enum ct_status sync_unchecked(ct_device *d, int64_t deadline_ns)
{
	const int n = d->n_checks;

	d->n_checks = 0;
	const enum ct_status st = ct_device_sync(d, deadline_ns);
	d->n_checks = n;
	return st;
}

void ct_device_drain(ct_device *d)
{
	struct ct_error before;

	if (!d || !d->caps.async)
		return;
	ct_error_save(&before);
	if (sync_unchecked(d, ct_deadline_in(CT_SEC)) == CT_OK)
		return;
	if (before.status == CT_OK) {
		CT_WARN("%s", ct_error_message());
		ct_error_clear();
	} else {
		(void)ct_error_restore(&before);
	}
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

void ct_stream_note(ct_stream *s, const char *work)
{
	s->posted = work;
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
