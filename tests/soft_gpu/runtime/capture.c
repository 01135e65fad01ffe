/* Stream capture: posted work becomes nodes of a graph, and events become edges. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct CUgraph_st *soft__graph_create(struct soft__body *body); /* graph.c */

static struct soft__capture *active;
static unsigned last_id;

static cudaError_t invalidate(struct soft__capture *c, cudaError_t e)
{
	c->invalid = true;
	return e;
}

static struct soft__capture *find(unsigned id)
{
	struct soft__capture *c = active;

	while (c && c->id != id)
		c = c->next;
	return c;
}

/* The thread-local mode also forbids what CUDA may allow: queries and waits for streams that are not captured. */
cudaError_t soft__capture_unsafe(void)
{
	cudaError_t e = cudaSuccess;

	for (struct soft__capture *c = active; c; c = c->next) {
		if (c->mode == cudaStreamCaptureModeGlobal ||
		    (c->mode == cudaStreamCaptureModeThreadLocal && c->thread == &soft__self))
			e = invalidate(c, cudaErrorStreamCaptureUnsupported);
	}
	return e;
}

cudaError_t soft__capture_implicit(int device)
{
	cudaError_t e = cudaSuccess;

	for (int i = 0; i < soft__gpu.n_streams; i++) {
		cudaStream_t s = soft__gpu.streams[i];

		if (s->capture && s->device == device && !(s->flags & cudaStreamNonBlocking))
			e = invalidate(s->capture, cudaErrorStreamCaptureImplicit);
	}
	return e;
}

static void depend_on(cudaStream_t s, int node)
{
	for (int i = 0; i < s->n_deps; i++) {
		if (s->deps[i] == node)
			return;
	}
	s->deps = soft__grow(s->deps, s->n_deps, &s->deps_capacity, sizeof(*s->deps));
	s->deps[s->n_deps++] = node;
}

static int *copy_of(const int *a, int n)
{
	int *copy = soft__alloc(sizeof(*copy) * (size_t)n);

	if (n)
		memcpy(copy, a, sizeof(*copy) * (size_t)n);
	return copy;
}

cudaError_t soft__capture_work(cudaStream_t s, struct soft__work *w)
{
	struct soft__body *b = s->capture->body;

	if (s->capture->invalid)
		return cudaErrorStreamCaptureInvalidated;
	b->nodes = soft__grow(b->nodes, b->n_nodes, &b->capacity, sizeof(*b->nodes));
	b->nodes[b->n_nodes++] =
		(struct soft__node){.work = w, .deps = copy_of(s->deps, s->n_deps), .n_deps = s->n_deps};
	s->n_deps = 0;
	depend_on(s, b->n_nodes - 1);
	return cudaSuccess;
}

cudaError_t soft__capture_record(cudaStream_t s, cudaEvent_t e)
{
	if (s->capture->invalid)
		return cudaErrorStreamCaptureInvalidated;
	soft__moment_drop(e->moment);
	e->moment = NULL;
	free(e->nodes);
	e->nodes = copy_of(s->deps, s->n_deps);
	e->n_nodes = s->n_deps;
	e->capture_id = s->capture->id;
	return cudaSuccess;
}

cudaError_t soft__capture_wait(cudaStream_t s, cudaEvent_t e)
{
	struct soft__capture *c = find(e->capture_id);

	if (!c)
		return s->capture ? invalidate(s->capture, cudaErrorStreamCaptureIsolation) : cudaErrorCapturedEvent;
	if (c->invalid)
		return cudaErrorStreamCaptureInvalidated;
	if (s == soft__gpu.devices[s->device].legacy)
		return invalidate(c, cudaErrorStreamCaptureImplicit);
	if (s->capture && s->capture != c) {
		invalidate(s->capture, cudaErrorStreamCaptureMerge);
		return invalidate(c, cudaErrorStreamCaptureMerge);
	}
	if (!s->capture) {
		s->capture = c;
		s->n_deps = 0;
	}
	for (int i = 0; i < e->n_nodes; i++)
		depend_on(s, e->nodes[i]);
	return cudaSuccess;
}

static cudaError_t begin(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
	struct soft__capture *c;
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess)
		return e;
	if (s == soft__gpu.devices[s->device].legacy)
		return cudaErrorStreamCaptureUnsupported;
	if (s->capture)
		return cudaErrorIllegalState;
	if (mode != cudaStreamCaptureModeGlobal && mode != cudaStreamCaptureModeThreadLocal &&
	    mode != cudaStreamCaptureModeRelaxed)
		return cudaErrorInvalidValue;
	c = soft__alloc(sizeof(*c));
	*c = (struct soft__capture){active, ++last_id, mode, &soft__self, s, soft__alloc(sizeof(*c->body)), false};
	c->body->refs = 1;
	active = c;
	s->capture = c;
	s->n_deps = 0;
	return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	SOFT__CALL(SOFT__PLAIN, begin(s, mode));
}

/* Whether each node comes before what the origin would do next. */
static bool is_joined(const struct soft__capture *c)
{
	const struct soft__body *b = c->body;
	bool *joined = soft__alloc((size_t)b->n_nodes);
	bool all = true;

	for (int i = 0; i < c->origin->n_deps; i++)
		joined[c->origin->deps[i]] = true;
	for (int i = b->n_nodes - 1; i >= 0; i--) {
		for (int k = 0; joined[i] && k < b->nodes[i].n_deps; k++)
			joined[b->nodes[i].deps[k]] = true;
		all = all && joined[i];
	}
	free(joined);
	return all;
}

static cudaError_t end(cudaStream_t handle, cudaGraph_t *out)
{
	struct soft__capture *c, **link;
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	*out = NULL;
	if (e != cudaSuccess)
		return e;
	c = s->capture;
	if (!c)
		return cudaErrorIllegalState;
	if (c->origin != s)
		return invalidate(c, cudaErrorStreamCaptureUnmatched);
	if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != &soft__self)
		return invalidate(c, cudaErrorStreamCaptureWrongThread);
	if (c->invalid)
		e = cudaErrorStreamCaptureInvalidated;
	else if (!is_joined(c))
		e = cudaErrorStreamCaptureUnjoined;
	for (int i = 0; i < soft__gpu.n_streams; i++) {
		if (soft__gpu.streams[i]->capture == c)
			soft__gpu.streams[i]->capture = NULL;
	}
	for (link = &active; *link != c; link = &(*link)->next)
		;
	*link = c->next;
	soft__body_finish(c->body);
	if (e == cudaSuccess)
		*out = soft__graph_create(c->body);
	else
		soft__body_drop(c->body);
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
	*out = !s->capture           ? cudaStreamCaptureStatusNone
	       : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
				     : cudaStreamCaptureStatusActive;
	if (id && s->capture)
		*id = s->capture->id;
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
	if (soft__stream(handle, &s) == cudaSuccess && s->capture)
		id = s->capture->id;
	soft__unlock();
	return id;
}
