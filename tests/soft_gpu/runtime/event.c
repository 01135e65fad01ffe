/* Events. Each recording of an event is a moment; the event refers to the last one. */
#include <stdlib.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

enum { EVENT_MAGIC = 0xE7E47 };

static cudaError_t create(cudaEvent_t *out, unsigned flags)
{
	cudaEvent_t e;

	if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
		return cudaErrorInvalidValue;
	e = soft__alloc(sizeof(*e));
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
	soft__moment_drop(e->moment);
	free(e->nodes);
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
	e->capture_id = 0;
	soft__moment_drop(e->moment);
	e->moment = soft__moment_create(s->clock);
	soft__merge(e->moment->clock, soft__gpu.host_clock);
	soft__push(s, (struct soft__op){.kind = SOFT__OP_RECORD, .moment = soft__moment_keep(e->moment)});
	return cudaSuccess;
}

/* An event in a graph: recorded, or waited for, each time that the graph runs. */
static cudaError_t external(cudaEvent_t e, cudaStream_t s, enum soft__kind kind)
{
	struct soft_work work = {.name = kind == SOFT__EVENT_RECORD ? "event record" : "event wait"};
	struct soft__work *w = soft__work_create(&work, kind);

	w->event = e;
	return soft__post(s, w);
}

static cudaError_t record(cudaEvent_t e, cudaStream_t handle, unsigned flags)
{
	cudaStream_t s;
	cudaError_t error = soft__stream(handle, &s);

	if (error != cudaSuccess)
		return error;
	if (!is_event(e) || e->device != s->device)
		return cudaErrorInvalidResourceHandle;
	if (flags & ~(unsigned)cudaEventRecordExternal)
		return cudaErrorInvalidValue;
	if (!s->capture)
		return flags ? cudaErrorIllegalState : soft__event_record(e, s);
	return flags ? external(e, s, SOFT__EVENT_RECORD) : soft__capture_record(s, e);
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
		return s->capture ? external(e, s, SOFT__EVENT_WAIT) : cudaErrorIllegalState;
	if (s->capture || e->capture_id)
		return soft__capture_wait(s, e);
	if (!e->moment)
		return cudaSuccess; /* never recorded */
	error = soft__legacy_order(s);
	if (error != cudaSuccess)
		return error;
	soft__merge(s->clock, e->moment->clock);
	soft__push(s, (struct soft__op){.kind = SOFT__OP_WAIT, .moment = soft__moment_keep(e->moment)});
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
	return e->capture_id ? cudaErrorCapturedEvent : soft__gpu.devices[e->device].failed;
}

static cudaError_t query(cudaEvent_t e)
{
	cudaError_t error = check(e);

	if (error == cudaSuccess && e->moment && !e->moment->reached)
		error = soft__progress(e->device);
	if (error != cudaSuccess || !e->moment)
		return error;
	if (!e->moment->reached)
		return cudaErrorNotReady;
	soft__order_host(e->moment->clock);
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
	SOFT__CALL(SOFT__UNSAFE, query(e));
}

static cudaError_t synchronize(cudaEvent_t e)
{
	cudaError_t error = check(e);

	return error == cudaSuccess && e->moment ? soft__wait(e->device, NULL, e->moment) : error;
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
	if (!from->moment || !to->moment || (from->flags | to->flags) & cudaEventDisableTiming)
		return cudaErrorInvalidResourceHandle;
	if (!from->moment->reached || !to->moment->reached)
		return cudaErrorNotReady;
	*ms = (float)((double)(to->moment->ns - from->moment->ns) / 1e6);
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	SOFT__CALL(SOFT__PLAIN, elapsed(ms, from, to));
}
