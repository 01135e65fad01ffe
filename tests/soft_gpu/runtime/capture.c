/* Stream capture: posted work becomes nodes of a graph, and events become edges. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct CUgraph_st *soft__graph_create(struct fake_graph *graph); /* graph.c */

static cudaError_t invalidate(struct soft__capture *c, cudaError_t e)
{
	c->invalid = true;
	return e;
}

static struct soft__capture *capture_of(const struct CUstream_st *s)
{
	return (struct soft__capture *)s->queue.capture;
}

/* The thread-local mode also forbids what CUDA may allow: queries and waits for streams that are not captured. */
cudaError_t soft__capture_unsafe(void)
{
	cudaError_t e = cudaSuccess;

	for (struct fake_capture *base = soft__gpu.machine.captures; base; base = base->next) {
		struct soft__capture *c = (struct soft__capture *)base;

		if (c->mode == cudaStreamCaptureModeGlobal ||
		    (c->mode == cudaStreamCaptureModeThreadLocal && c->thread == &soft__self))
			e = invalidate(c, cudaErrorStreamCaptureUnsupported);
	}
	return e;
}

cudaError_t soft__capture_implicit(int device)
{
	cudaError_t e = cudaSuccess;

	for (int i = 0; i < soft__gpu.machine.n_streams; i++) {
		cudaStream_t s = soft__stream_in(i);

		if (s->queue.capture && s->queue.device == device && !(s->flags & cudaStreamNonBlocking))
			e = invalidate(capture_of(s), cudaErrorStreamCaptureImplicit);
	}
	return e;
}

cudaError_t soft__capture_work(cudaStream_t s, struct soft__work *w)
{
	if (capture_of(s)->invalid)
		return cudaErrorStreamCaptureInvalidated;
	fake_capture_work(&s->queue, &w->base);
	return cudaSuccess;
}

cudaError_t soft__capture_record(cudaStream_t s, cudaEvent_t e)
{
	if (capture_of(s)->invalid)
		return cudaErrorStreamCaptureInvalidated;
	fake_capture_record(&s->queue, &e->last);
	return cudaSuccess;
}

cudaError_t soft__capture_wait(cudaStream_t s, cudaEvent_t e)
{
	struct soft__capture *c = (struct soft__capture *)fake_capture_find(&soft__gpu.machine, e->last.capture_id);
	struct soft__capture *own = capture_of(s);

	if (!c)
		return own ? invalidate(own, cudaErrorStreamCaptureIsolation) : cudaErrorCapturedEvent;
	if (c->invalid)
		return cudaErrorStreamCaptureInvalidated;
	if (s == soft__gpu.devices[s->queue.device].legacy)
		return invalidate(c, cudaErrorStreamCaptureImplicit);
	if (own && own != c) {
		invalidate(own, cudaErrorStreamCaptureMerge);
		return invalidate(c, cudaErrorStreamCaptureMerge);
	}
	fake_capture_wait(&c->base, &s->queue, &e->last);
	return cudaSuccess;
}

static cudaError_t begin(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
	struct soft__capture *c;
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess)
		return e;
	if (s == soft__gpu.devices[s->queue.device].legacy)
		return cudaErrorStreamCaptureUnsupported;
	if (s->queue.capture)
		return cudaErrorIllegalState;
	if (mode != cudaStreamCaptureModeGlobal && mode != cudaStreamCaptureModeThreadLocal &&
	    mode != cudaStreamCaptureModeRelaxed)
		return cudaErrorInvalidValue;
	c = fake_alloc(sizeof(*c));
	*c = (struct soft__capture){.mode = mode, .thread = &soft__self};
	fake_capture_begin(&c->base, &s->queue);
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	SOFT__CALL(SOFT__PLAIN, begin(s, mode));
}

static cudaError_t end(cudaStream_t handle, cudaGraph_t *out)
{
	struct soft__capture *c;
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	*out = NULL;
	if (e != cudaSuccess)
		return e;
	c = capture_of(s);
	if (!c)
		return cudaErrorIllegalState;
	if (c->base.origin != &s->queue)
		return invalidate(c, cudaErrorStreamCaptureUnmatched);
	if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &soft__self)
		return invalidate(c, cudaErrorStreamCaptureWrongThread);
	if (!fake_capture_end(&c->base))
		e = cudaErrorStreamCaptureUnjoined;
	if (c->invalid)
		e = cudaErrorStreamCaptureInvalidated;
	if (e == cudaSuccess)
		*out = soft__graph_create(c->base.graph);
	else
		fake_graph_drop(c->base.graph);
	free(c);
	return e;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
	SOFT__CALL(SOFT__PLAIN, end(s, out));
}

static cudaError_t status_of(cudaStream_t handle, enum cudaStreamCaptureStatus *out, unsigned long long *id)
{
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess)
		return e;
	*out = !s->queue.capture        ? cudaStreamCaptureStatusNone
	       : capture_of(s)->invalid ? cudaStreamCaptureStatusInvalidated
					: cudaStreamCaptureStatusActive;
	if (id && s->queue.capture)
		*id = s->queue.capture->id;
	return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out)
{
	SOFT__CALL(SOFT__PLAIN, status_of(s, out, NULL));
}

unsigned soft_gpu_capture(cudaStream_t handle)
{
	cudaStream_t s;
	unsigned id = 0;

	soft__lock();
	if (soft__stream(handle, &s) == cudaSuccess && s->queue.capture)
		id = s->queue.capture->id;
	soft__unlock();
	return id;
}
