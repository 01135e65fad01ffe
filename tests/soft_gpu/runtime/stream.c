/* Streams. The pending work of a destroyed stream is still executed; after that, its slot is reused. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

enum { STREAM_MAGIC = 0x57AEA31 };

cudaStream_t soft__stream_in(int slot)
{
	return (cudaStream_t)soft__gpu.machine.streams[slot];
}

cudaStream_t soft__stream_create(int device, unsigned flags, int priority)
{
	cudaStream_t s = NULL;

	for (int i = 0; i < soft__gpu.machine.n_streams && !s; i++) {
		if (soft__stream_in(i)->dead && !soft__stream_in(i)->queue.first)
			s = soft__stream_in(i);
	}
	if (!s) {
		s = fake_alloc(sizeof(*s));
		fake_stream_add(&soft__gpu.machine, &s->queue, device);
	}
	s->magic = STREAM_MAGIC;
	s->dead = false;
	s->queue.device = device;
	s->flags = flags;
	s->priority = priority;
	memcpy(s->clock, soft__gpu.host_clock, sizeof(s->clock));
	s->clock[s->queue.slot] = s->seq;
	return s;
}

cudaError_t soft__stream(cudaStream_t handle, cudaStream_t *out)
{
	struct soft__device *d = soft__current();

	if (handle == NULL || handle == cudaStreamLegacy) {
		if (!d->legacy)
			d->legacy = soft__stream_create(soft__self.device, cudaStreamDefault, 0);
		handle = d->legacy;
	} else if (handle == cudaStreamPerThread || handle->magic != STREAM_MAGIC) {
		return cudaErrorInvalidResourceHandle;
	}
	*out = handle;
	return soft__gpu.devices[handle->queue.device].failed;
}

/* s goes on when t has done what is posted to it now. */
static void wait_for_stream(cudaStream_t s, cudaStream_t t)
{
	struct fake_event e = {0};

	if (t->queue.first) {
		fake_post_record(&t->queue, &e);
		fake_post_wait(&s->queue, e.moment);
		fake_event_release(&e);
	}
	soft__merge(s->clock, t->clock);
}

cudaError_t soft__legacy_order(cudaStream_t s)
{
	cudaStream_t legacy = soft__gpu.devices[s->queue.device].legacy;
	cudaError_t e;

	if (!legacy || s->flags & cudaStreamNonBlocking)
		return cudaSuccess;
	if (s != legacy) {
		wait_for_stream(s, legacy);
		return cudaSuccess;
	}
	e = soft__capture_implicit(s->queue.device);
	for (int i = 0; e == cudaSuccess && i < soft__gpu.machine.n_streams; i++) {
		cudaStream_t t = soft__stream_in(i);

		if (t != s && t->queue.device == s->queue.device && !(t->flags & cudaStreamNonBlocking))
			wait_for_stream(s, t);
	}
	return e;
}

static cudaError_t create(cudaStream_t *out, unsigned flags, int priority)
{
	if (flags & ~(unsigned)cudaStreamNonBlocking)
		return cudaErrorInvalidValue;
	*out = soft__stream_create(soft__self.device, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
	soft__created(SOFT__STREAM);
	return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
	SOFT__CALL(SOFT__PLAIN, create(out, cudaStreamDefault, 0));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	SOFT__CALL(SOFT__PLAIN, create(out, flags, 0));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
	SOFT__CALL(SOFT__PLAIN, create(out, flags, priority));
}

/* Also after the device's error, so that a program can give back what it has. */
static cudaError_t destroy(cudaStream_t s)
{
	if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread || s->magic != STREAM_MAGIC)
		return cudaErrorInvalidResourceHandle;
	if (s->queue.capture)
		return cudaErrorStreamCaptureUnsupported;
	s->magic = 0;
	s->dead = true;
	soft__destroyed(SOFT__STREAM);
	return soft__gpu.devices[s->queue.device].failed;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	SOFT__CALL(SOFT__NO_DEVICE, destroy(s));
}

static cudaError_t synchronize(cudaStream_t handle)
{
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	return e == cudaSuccess ? soft__wait(s->queue.device, s, NULL) : e;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	SOFT__CALL(SOFT__UNSAFE, synchronize(s));
}

cudaError_t cudaDeviceSynchronize(void)
{
	SOFT__CALL(SOFT__UNSAFE, soft__wait(soft__self.device, NULL, NULL));
}

static cudaError_t query(cudaStream_t handle)
{
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e == cudaSuccess)
		e = soft__progress(s->queue.device);
	if (e != cudaSuccess || s->queue.first)
		return e ? e : cudaErrorNotReady;
	soft__order_host(s->clock);
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
	SOFT__CALL(SOFT__UNSAFE, query(s));
}

static cudaError_t get_int(cudaStream_t handle, int *out, int (*of)(const struct CUstream_st *s))
{
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e == cudaSuccess)
		*out = of(s);
	return e;
}

static int priority_of(const struct CUstream_st *s)
{
	return s->priority;
}

static int flags_of(const struct CUstream_st *s)
{
	return (int)s->flags;
}

static int device_of(const struct CUstream_st *s)
{
	return s->queue.device;
}

cudaError_t cudaStreamGetPriority(cudaStream_t s, int *priority)
{
	SOFT__CALL(SOFT__PLAIN, get_int(s, priority, priority_of));
}

cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned *flags)
{
	SOFT__CALL(SOFT__PLAIN, get_int(s, (int *)flags, flags_of));
}

cudaError_t cudaStreamGetDevice(cudaStream_t s, int *device)
{
	SOFT__CALL(SOFT__PLAIN, get_int(s, device, device_of));
}
