/* A recording is a CUDA graph that is made by stream capture. The mode is thread-local, so that calls of other threads
 * do not invalidate it. The graph is instantiated and uploaded when the recording ends, so that the first post takes no
 * longer than the others. If a rule was violated, cudaStreamEndCapture fails and may leave the capture open; it is then
 * ended again. d->recording is cleared first in every case, so that error paths may free memory. */
#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"

static cudaStream_t stream_of(ct_stream *s)
{
	return ((struct cuda_stream *)s)->stream;
}

enum ct_status ct__cuda_recording_begin(ct_stream *base)
{
	struct cuda_device *d = (struct cuda_device *)base->device;

	CT_TRY(ct__cuda_not_recording(d, "another recording begins"));
	CT_TRY(ct_cuda_check(cudaStreamBeginCapture(stream_of(base), cudaStreamCaptureModeThreadLocal),
			     "cudaStreamBeginCapture"));
	d->recording = true;
	return CT_OK;
}

static enum ct_status instantiate(struct cuda_recording *r, ct_stream *s)
{
	CT_TRY(ct_cuda_check(cudaGraphInstantiate(&r->exec, r->graph, 0), "cudaGraphInstantiate"));
	return ct_cuda_check(cudaGraphUpload(r->exec, stream_of(s)), "cudaGraphUpload");
}

/* Ends a capture that cudaStreamEndCapture has left open, because nothing can be freed while a stream captures. */
static void end_open_capture(cudaStream_t s)
{
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
	cudaGraph_t graph = NULL;

	if (cudaStreamIsCapturing(s, &status) != cudaSuccess || status == cudaStreamCaptureStatusNone)
		return;
	if (cudaStreamEndCapture(s, &graph) == cudaSuccess && graph)
		ct__cuda_released(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

enum ct_status ct__cuda_recording_end(ct_stream *base, ct_recording **out)
{
	struct cuda_device *d = (struct cuda_device *)base->device;
	struct cuda_recording *r;
	cudaGraph_t graph = NULL;
	enum ct_status st;

	CT_ASSERT(d->recording);
	d->recording = false;
	st = ct_cuda_check(cudaStreamEndCapture(stream_of(base), &graph), "cudaStreamEndCapture");
	if (st < 0) {
		end_open_capture(stream_of(base));
		return ct_error_wrap("recording a step");
	}
	r = CT_NEW(struct cuda_recording);
	if (!r) {
		(void)cudaGraphDestroy(graph);
		return CT_FAIL(CT_NOMEM, "out of memory");
	}
	r->base.device = base->device;
	r->graph = graph;
	st = instantiate(r, base);
	if (st < 0) {
		ct__cuda_recording_destroy(&r->base);
		return st;
	}
	*out = &r->base;
	return CT_OK;
}

enum ct_status ct__cuda_recording_post(ct_recording *base, ct_stream *s)
{
	const struct cuda_recording *r = (struct cuda_recording *)base;

	CT_TRY(ct__cuda_posted(s, cudaGraphLaunch(r->exec, stream_of(s)), "cudaGraphLaunch"));
	ct__cuda_note(s, s->posted ? NULL : "recording");
	return CT_OK;
}

/* The last post may still run: CUDA frees an executable graph when its launches are done. */
void ct__cuda_recording_destroy(ct_recording *base)
{
	struct cuda_recording *r = (struct cuda_recording *)base;

	if (r->exec)
		ct__cuda_released(cudaGraphExecDestroy(r->exec), "cudaGraphExecDestroy");
	ct__cuda_released(cudaGraphDestroy(r->graph), "cudaGraphDestroy");
	ct_free(r);
}
