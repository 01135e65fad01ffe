/* The lazy device (lazy_impl.h): its memory, its waits, and the table that the module ctrain_lazy.so exports. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CT_LOG_COMPONENT "device"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "tests/lazy/lazy_impl.h"

#define TOTAL_BYTES ((size_t)8 << 30)
#define DRAIN_NS (10 * CT_SEC)

/* The number of devices that a host with GPUs may have, because every rank opens its own device. */
enum { N_DEVICES = 64 };

extern const struct ct_device_module ct_device_lazy;

/* ---- what the core calls */

void fake_fail(const char *format, ...)
{
	va_list args;

	fputs("lazy device: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

void fake_pause(struct fake_machine *m)
{
	(void)m;
	nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

int64_t fake_now_ns(void)
{
	return ct_now_ns();
}

void *fake_new(size_t bytes)
{
	return ct_calloc(1, bytes);
}

void fake_delete(void *p)
{
	ct_free(p);
}

/* The error chain of this thread becomes the device's error. */
static void set_failed(struct lazy_device *d, enum ct_status st)
{
	if (ct_error_status() != st)
		CT_FAIL(st, "posted work failed: %s", ct_status_text(st));
	ct_error_save(&d->error);
	d->failed = true;
}

void fake_failed(struct fake_stream *s, int error)
{
	set_failed(s->machine->owner, (enum ct_status)error);
}

/* ---- calls and waits */

enum ct_status ct__lazy_enter(struct lazy_device *d)
{
	if (d->running)
		return CT_FAIL(CT_BUG, "a posted function used the device");
	if (!pthread_equal(d->thread, pthread_self()))
		return CT_FAIL(CT_BUG, "two threads use the same device");
	if (d->failed) {
		d->reported = true;
		return ct_error_restore(&d->error);
	}
	return CT_OK;
}

enum ct_status ct__lazy_enter_unrecorded(struct lazy_device *d, const char *what)
{
	CT_TRY(ct__lazy_enter(d));
	return d->recording ? ct__lazy_recording_spoil(d, what) : CT_OK;
}

enum ct_status ct__lazy_reserve(struct lazy_device *d, int n_ops, int n_moments)
{
	CT_TRY_ALLOC(fake_reserve(&d->machine, n_ops, n_moments));
	return CT_OK;
}

/* AddressSanitizer reports an access to a guard at its line. */
static void check_guards(struct lazy_device *d)
{
	const struct fake_block *b;
	size_t distance;

	if (d->failed || !(b = fake_memory_overrun(&d->memory, &distance)))
		return;
	if (b == &fake_memory_before)
		CT_FAIL(CT_BUG, "posted work wrote before the first block of device memory");
	else
		CT_FAIL(CT_BUG, "posted work wrote %zu bytes beyond a block of device memory of %zu bytes", distance,
			b->bytes);
	set_failed(d, CT_BUG);
	fake_drop_work(&d->machine, 0);
}

/* Waits, without checking the caller. */
static enum ct_status wait_for(struct lazy_device *d, const struct fake_target *t, int64_t deadline_ns)
{
	bool done;

	if (fake_is_done(&d->machine, &(struct fake_target){0})) /* no stream has work */
		return CT_OK;
	fake_memory_open(&d->memory);
	done = fake_wait(&d->machine, t, deadline_ns);
	check_guards(d);
	fake_memory_close(&d->memory);
	d->reported |= d->failed;
	if (d->failed)
		return ct_error_restore(&d->error);
	return done ? CT_OK : CT_FAIL(CT_TIMEOUT, "the work that was posted to a lazy device did not finish in time");
}

static enum ct_status wait_checked(struct lazy_device *d, const struct fake_target *t, int64_t deadline_ns)
{
	CT_TRY(ct__lazy_enter_unrecorded(d, "the host waited"));
	return wait_for(d, t, deadline_ns);
}

void ct__lazy_drain(struct lazy_device *d, const struct fake_target *t)
{
	bool keep = ct_error_status() < 0;
	struct ct_error before;

	CT_ASSERT(!d->running);                              /* posted work must not free memory or destroy a stream */
	CT_ASSERT(pthread_equal(d->thread, pthread_self())); /* only one thread may use the device */
	if (keep)
		ct_error_save(&before);
	if (d->recording)
		(void)ct__lazy_recording_spoil(d, "memory was freed, or a stream or recording destroyed,");
	if (!d->failed && !fake_is_done(&d->machine, t) && wait_for(d, t, ct_deadline_in(DRAIN_NS)) < 0) {
		if (!d->failed) {
			set_failed(d, ct_error_status());
			fake_drop_work(&d->machine, 0);
		}
		d->reported = false;
	}
	if (keep)
		(void)ct_error_restore(&before);
	else
		ct_error_clear();
}

static enum ct_status lazy_sync(ct_device *base, int64_t deadline_ns)
{
	return wait_checked((struct lazy_device *)base, &(struct fake_target){0}, deadline_ns);
}

static enum ct_status lazy_stream_sync(ct_stream *base, int64_t deadline_ns)
{
	return wait_checked((struct lazy_device *)base->device,
			    &(struct fake_target){.stream = &((struct lazy_stream *)base)->queue}, deadline_ns);
}

static enum ct_status lazy_event_wait(ct_event *base, int64_t deadline_ns)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct fake_moment *m = ((struct lazy_event *)base)->last.moment;

	return m ? wait_checked(d, &(struct fake_target){.moment = m}, deadline_ns)
		 : ct__lazy_enter_unrecorded(d, "the host waited");
}

/* ---- memory */

/* Begins a call that allocates device memory: as on a GPU, it may need memory of the host, which a test may make fail.
 */
static enum ct_status enter_allocation(struct lazy_device *d)
{
	void *probe;

	CT_TRY(ct__lazy_enter_unrecorded(d, "memory was allocated"));
	CT_TRY_ALLOC(probe = ct_calloc(1, 1));
	ct_free(probe);
	return CT_OK;
}

static enum ct_status lazy_mem_alloc(ct_device *base, size_t bytes, bool zeroed, void **out)
{
	struct lazy_device *d = (struct lazy_device *)base;
	void *p;

	CT_TRY(enter_allocation(d));
	p = fake_memory_alloc(&d->memory, bytes ? bytes : 1, FAKE_ALIGNMENT);
	if (!p)
		return CT_FAIL(CT_NOMEM, "out of memory on lazy device %d: no room for %zu bytes", d->index, bytes);
	if (zeroed)
		memset(p, 0, bytes);
	fake_memory_close(&d->memory);
	*out = p;
	return CT_OK;
}

static void lazy_mem_free(ct_device *base, void *p)
{
	struct lazy_device *d = (struct lazy_device *)base;

	ct__lazy_drain(d, &(struct fake_target){0});
	CT_ASSERT(fake_memory_free(&d->memory, p)); /* not allocated, or freed twice */
	fake_memory_close(&d->memory);
}

static enum ct_status lazy_host_alloc(ct_device *base, size_t bytes, void **out)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct fake_block *h;

	CT_TRY(ct__lazy_enter_unrecorded(d, "memory was allocated"));
	CT_TRY_ALLOC(h = CT_NEW(struct fake_block));
	h->at = ct_calloc_aligned(FAKE_ALIGNMENT, bytes);
	if (!h->at) {
		ct_free(h);
		return CT_NOMEM;
	}
	h->bytes = bytes;
	h->next = d->hosts;
	d->hosts = h;
	*out = h->at;
	return CT_OK;
}

static void lazy_host_free(ct_device *base, void *p)
{
	struct lazy_device *d = (struct lazy_device *)base;
	struct fake_block **place = &d->hosts, *h;

	ct__lazy_drain(d, &(struct fake_target){0});
	while (*place && (*place)->at != p)
		place = &(*place)->next;
	h = *place;
	CT_ASSERT(h); /* not allocated, or freed twice */
	*place = h->next;
	ct_free_aligned(h->at);
	ct_free(h);
}

/* ---- the table */

static int lazy_count(char *why, size_t why_len)
{
	if (why_len > 0)
		why[0] = '\0';
	return N_DEVICES;
}

static enum ct_status read_seed(int64_t *seed)
{
	const char *text = getenv("CTRAIN_LAZY_SEED");

	*seed = 1;
	if (!text || !*text)
		return CT_OK;
	if (ct_parse_i64(text, seed) < 0)
		return CT_FAIL(CT_USAGE, "CTRAIN_LAZY_SEED=%.40s: not an integer", text);
	return CT_OK;
}

static enum ct_status lazy_open(int index, ct_device **out)
{
	struct lazy_device *d;
	int64_t seed;

	CT_TRY(read_seed(&seed));
	CT_TRY_ALLOC(d = CT_NEW(struct lazy_device));
	d->base.ops = ct_device_lazy.ops;
	d->base.caps = (struct ct_device_caps){.async = true, .host_code = true, .recordable = true};
	d->index = index;
	d->thread = pthread_self();
	d->machine.owner = d;
	d->memory.total = TOTAL_BYTES;
	fake_seed(&d->machine, (uint64_t)seed * N_DEVICES + (uint64_t)index);
	*out = &d->base;
	return CT_OK;
}

static void lazy_close(ct_device *base)
{
	struct lazy_device *d = (struct lazy_device *)base;

	if (d->failed && !d->reported)
		CT_WARN("lazy device %d failed, and no call returned its error: %s", d->index, d->error.message);
	CT_ASSERT(!d->running);
	CT_ASSERT(!d->n_recordings);      /* a recording was not destroyed */
	CT_ASSERT(!d->memory.blocks);     /* device memory was not given back */
	CT_ASSERT(!d->hosts);             /* host memory was not given back */
	CT_ASSERT(!d->machine.n_streams); /* a stream was not destroyed */
	CT_ASSERT(!d->n_events);          /* an event was not destroyed */
	for (struct lazy_work *w = d->unused; w; w = d->unused) {
		d->unused = w->next;
		ct_free(w);
	}
	fake_machine_release(&d->machine);
	fake_memory_release(&d->memory);
	ct_free(d);
}

static enum ct_status lazy_info(ct_device *base, struct ct_device_info *out)
{
	const struct lazy_device *d = (struct lazy_device *)base;

	*out = (struct ct_device_info){
		.kind = "lazy",
		.index = d->index,
		.n_cpus = ct_cpu_count(),
		.total_bytes = d->memory.total,
		.free_bytes = d->memory.total - d->memory.used,
	};
	snprintf(out->name, sizeof(out->name), "device for tests");
	return CT_OK;
}

static const struct ct_device_ops ops = {
	.kind = "lazy",
	.for_tests = true,
	.count = lazy_count,
	.open = lazy_open,
	.close = lazy_close,
	.info = lazy_info,
	.mem_alloc = lazy_mem_alloc,
	.mem_free = lazy_mem_free,
	.host_alloc = lazy_host_alloc,
	.host_free = lazy_host_free,
	.copy = ct__lazy_copy,
	.fill = ct__lazy_fill,
	.sync = lazy_sync,
	.stream_create = ct__lazy_stream_create,
	.stream_destroy = ct__lazy_stream_destroy,
	.stream_sync = lazy_stream_sync,
	.stream_wait_event = ct__lazy_stream_wait_event,
	.stream_run = ct__lazy_stream_run,
	.event_create = ct__lazy_event_create,
	.event_destroy = ct__lazy_event_destroy,
	.event_record = ct__lazy_event_record,
	.event_wait = lazy_event_wait,
	.event_elapsed = ct__lazy_event_elapsed,
	.recording_begin = ct__lazy_recording_begin,
	.recording_end = ct__lazy_recording_end,
	.recording_post = ct__lazy_recording_post,
	.recording_destroy = ct__lazy_recording_destroy,
};

const struct ct_device_module ct_device_lazy = {.head = {.abi = CT_MODULE_ABI, .build = CT_BUILD_ID}, .ops = &ops};
