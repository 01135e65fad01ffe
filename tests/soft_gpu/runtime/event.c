/* Events. Each recording of an event is a moment; the event refers to the last one. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

enum { EVENT_MAGIC = 0xE7E47 };

static cudaError_t create(cudaEvent_t *out, unsigned flags)
{
	cudaEvent_t e;

	if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
		return cudaErrorInvalidValue;
	e = fake_alloc(sizeof(*e));
	*e = (struct CUevent_st){.magic = EVENT_MAGIC, .flags = flags, .device = soft__self.device};
	soft__created(SOFT__EVENT);
	*out = e;
	return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
	SOFT__CALL(SOFT__PLAIN, create(out, cudaEventDefault));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	SOFT__CALL(SOFT__PLAIN, create(out, flags));
}

static bool is_event(cudaEvent_t e)
{
	return e && e->magic == EVENT_MAGIC;
}

/* What waits for the last recording keeps it. Also after the device's error. */
static cudaError_t destroy(cudaEvent_t e)
{
	cudaError_t failed;

	if (!is_event(e))
		return cudaErrorInvalidResourceHandle;
	failed = soft__gpu.devices[e->device].failed;
	fake_event_release(&e->last);
	e->magic = 0;
	free(e);
	soft__destroyed(SOFT__EVENT);
	return failed;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	SOFT__CALL(SOFT__NO_DEVICE, destroy(e));
}

cudaError_t soft__event_record(cudaEvent_t e, cudaStream_t s)
{
	cudaError_t error = soft__legacy_order(s);

	if (error != cudaSuccess)
		return error;
	soft__order_post(s);
	fake_post_record(&s->queue, &e->last);
	memcpy(e->last.moment->clock, s->clock, sizeof(s->clock));
	return cudaSuccess;
}

/* An event in a graph: recorded, or waited for, each time that the graph runs. */
static cudaError_t external(cudaEvent_t e, cudaStream_t s, enum fake_kind kind)
{
	struct soft_work work = {.name = kind == FAKE_EVENT_RECORD ? "event record" : "event wait"};
	struct soft__work *w = soft__work_create(&work);

	w->base.kind = kind;
	w->base.event = &e->last;
	return soft__post(s, w);
}

static cudaError_t record(cudaEvent_t e, cudaStream_t handle, unsigned flags)
{
	cudaStream_t s;
	cudaError_t error = soft__stream(handle, &s);

	if (error != cudaSuccess)
		return error;
	if (!is_event(e) || e->device != s->queue.device)
		return cudaErrorInvalidResourceHandle;
	if (flags & ~(unsigned)cudaEventRecordExternal)
		return cudaErrorInvalidValue;
	if (!s->queue.capture)
		return flags ? cudaErrorIllegalState : soft__event_record(e, s);
	return flags ? external(e, s, FAKE_EVENT_RECORD) : soft__capture_record(s, e);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	SOFT__CALL(SOFT__PLAIN, record(e, s, cudaEventRecordDefault));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags)
{
	SOFT__CALL(SOFT__PLAIN, record(e, s, flags));
}

static cudaError_t wait_event(cudaStream_t handle, cudaEvent_t e, unsigned flags)
{
	cudaStream_t s;
	cudaError_t error = soft__stream(handle, &s);

	if (error != cudaSuccess)
		return error;
	if (!is_event(e))
		return cudaErrorInvalidResourceHandle;
	if (flags & ~(unsigned)cudaEventWaitExternal)
		return cudaErrorInvalidValue;
	if (flags)
		return s->queue.capture ? external(e, s, FAKE_EVENT_WAIT) : cudaErrorIllegalState;
	if (s->queue.capture || e->last.capture_id)
		return soft__capture_wait(s, e);
	if (!e->last.moment)
		return cudaSuccess; /* never recorded */
	error = soft__legacy_order(s);
	if (error != cudaSuccess)
		return error;
	soft__merge(s->clock, e->last.moment->clock);
	fake_post_wait(&s->queue, e->last.moment);
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	SOFT__CALL(SOFT__PLAIN, wait_event(s, e, flags));
}

static cudaError_t check(cudaEvent_t e)
{
	if (!is_event(e))
		return cudaErrorInvalidResourceHandle;
	return e->last.capture_id ? cudaErrorCapturedEvent : soft__gpu.devices[e->device].failed;
}

static cudaError_t query(cudaEvent_t e)
{
	cudaError_t error = check(e);

	if (error == cudaSuccess && e->last.moment && !e->last.moment->reached)
		error = soft__progress(e->device);
	if (error != cudaSuccess || !e->last.moment)
		return error;
	if (!e->last.moment->reached)
		return cudaErrorNotReady;
	soft__order_host(e->last.moment->clock);
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
	SOFT__CALL(SOFT__UNSAFE, query(e));
}

static cudaError_t synchronize(cudaEvent_t e)
{
	cudaError_t error = check(e);

	return error == cudaSuccess && e->last.moment ? soft__wait(e->device, NULL, e->last.moment) : error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	SOFT__CALL(SOFT__UNSAFE, synchronize(e));
}

static cudaError_t elapsed(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	cudaError_t error = check(from);

	error = error ? error : check(to);
	if (error != cudaSuccess)
		return error;
	if (!from->last.moment || !to->last.moment || (from->flags | to->flags) & cudaEventDisableTiming)
		return cudaErrorInvalidResourceHandle;
	if (!from->last.moment->reached || !to->last.moment->reached)
		return cudaErrorNotReady;
	*ms = (float)((double)(to->last.moment->ns - from->last.moment->ns) / 1e6);
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	SOFT__CALL(SOFT__PLAIN, elapsed(ms, from, to));
}
