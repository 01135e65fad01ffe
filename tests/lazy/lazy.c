/* The table of the lazy device (lazy_impl.h), which the module ctrain_lazy.so exports. */
#include <stdio.h>
#include <stdlib.h>

#define CT_LOG_COMPONENT "device"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "tests/lazy/lazy_impl.h"

/* The number of devices that a host with GPUs may have, because every rank opens its own device. */
enum { N_DEVICES = 64 };

extern const struct ct_device_module ct_device_lazy;

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
	enum ct_status st;
	int64_t seed;

	CT_TRY(read_seed(&seed));
	CT_TRY_ALLOC(d = CT_NEW(struct lazy_device));
	d->base.ops = ct_device_lazy.ops;
	d->base.caps = (struct ct_device_caps){.async = true, .host_code = true, .recordable = true};
	d->index = index;
	d->thread = pthread_self();
	ct_rng_init(&d->rng, (uint64_t)seed, CT_RNG_TEST, 0, (uint32_t)index);
	st = ct__lazy_memory_reserve(d);
	if (st < 0) {
		ct_free(d);
		return st;
	}
	*out = &d->base;
	return CT_OK;
}

static void lazy_close(ct_device *base)
{
	struct lazy_device *d = (struct lazy_device *)base;

	if (d->failed && !d->reported)
		CT_WARN("lazy device %d failed, and no call returned its error: %s", d->index, d->error.message);
	CT_ASSERT(!d->running);
	CT_ASSERT(!d->n_recordings); /* a recording was not destroyed */
	CT_ASSERT(!d->blocks);       /* device memory was not given back */
	CT_ASSERT(!d->hosts);        /* host memory was not given back */
	CT_ASSERT(!d->streams);      /* a stream was not destroyed */
	CT_ASSERT(!d->n_events);     /* an event was not destroyed */
	ct__lazy_queues_release(d);
	ct__lazy_memory_release(d);
	ct_free(d);
}

static enum ct_status lazy_info(ct_device *base, struct ct_device_info *out)
{
	const struct lazy_device *d = (struct lazy_device *)base;

	*out = (struct ct_device_info){
		.kind = "lazy",
		.index = d->index,
		.n_cpus = ct_cpu_count(),
		.total_bytes = ct__lazy_total_bytes,
		.free_bytes = ct__lazy_total_bytes - d->used_bytes,
	};
	snprintf(out->name, sizeof(out->name), "device for tests");
	return CT_OK;
}

static enum ct_status lazy_sync(ct_device *base, int64_t deadline_ns)
{
	return ct__lazy_wait((struct lazy_device *)base, NULL, NULL, deadline_ns);
}

static enum ct_status lazy_stream_sync(ct_stream *base, int64_t deadline_ns)
{
	return ct__lazy_wait((struct lazy_device *)base->device, (struct lazy_stream *)base, NULL, deadline_ns);
}

static enum ct_status lazy_event_wait(ct_event *base, int64_t deadline_ns)
{
	struct lazy_device *d = (struct lazy_device *)base->device;
	struct lazy_moment *m = ((struct lazy_event *)base)->moment;

	return m ? ct__lazy_wait(d, NULL, m, deadline_ns) : ct__lazy_enter_unrecorded(d, "the host waited");
}

static const struct ct_device_ops ops = {
	.kind = "lazy",
	.for_tests = true,
	.count = lazy_count,
	.open = lazy_open,
	.close = lazy_close,
	.info = lazy_info,
	.mem_alloc = ct__lazy_mem_alloc,
	.mem_free = ct__lazy_mem_free,
	.host_alloc = ct__lazy_host_alloc,
	.host_free = ct__lazy_host_free,
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
