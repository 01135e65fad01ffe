/* Streams are non-blocking ones, so that they do not synchronize with CUDA's default stream. They form a list in the
 * device, which its wait and the list of suspects go through.
 *
 * A wait that succeeds proves that earlier kernels of the stream have not failed, which makes later messages shorter
 * (notes.c). An event remembers up to which kernel this holds, and its stream only as an address to be compared,
 * because the stream may be destroyed before the event. An event that is recorded in a capture has no stream, because
 * the kernels before it run only when the recording is posted. */
#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"

static struct cuda_device *device_of(const ct_stream *s)
{
	return (struct cuda_device *)s->device;
}

enum ct_status ct__cuda_stream_create(ct_device *base, bool high_priority, ct_stream **out)
{
	struct cuda_device *d = (struct cuda_device *)base;
	struct cuda_stream *s;
	int least = 0, greatest = 0;
	enum ct_status st;

	CT_TRY(ct__cuda_use(d));
	CT_TRY(ct_cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange"));
	CT_TRY_ALLOC(s = CT_NEW(struct cuda_stream));
	s->base.device = base;
	st = ct_cuda_check(
		cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking, high_priority ? greatest : least),
		"cudaStreamCreateWithPriority");
	if (st < 0) {
		ct_free(s);
		return st;
	}
	s->base.handle = s->stream;
	s->next = d->streams;
	d->streams = s;
	*out = &s->base;
	return CT_OK;
}

void ct__cuda_stream_destroy(ct_stream *base)
{
	struct cuda_stream *s = (struct cuda_stream *)base, **place = &device_of(base)->streams;

	while (*place != s)
		place = &(*place)->next;
	*place = s->next;
	ct__cuda_released(cudaStreamDestroy(s->stream), "cudaStreamDestroy");
	ct_free(s);
}

static cudaError_t poll_stream(void *object)
{
	return cudaStreamQuery(((struct cuda_stream *)object)->stream);
}

enum ct_status ct__cuda_stream_sync(ct_stream *base, int64_t deadline_ns)
{
	const struct cuda_stream *s = (struct cuda_stream *)base;

	CT_TRY(ct__cuda_not_recording(device_of(base), "the host waits for a stream"));
	CT_TRY(ct__cuda_wait(device_of(base), poll_stream, base, "cudaStreamQuery", deadline_ns));
	ct__cuda_note_done(device_of(base), s, s->notes.posted);
	return CT_OK;
}

enum ct_status ct__cuda_stream_wait_event(ct_stream *base, ct_event *event)
{
	return ct__cuda_posted(
		base, cudaStreamWaitEvent(((struct cuda_stream *)base)->stream, ((struct cuda_event *)event)->event, 0),
		"cudaStreamWaitEvent");
}

enum ct_status ct__cuda_event_create(ct_device *base, bool timed, ct_event **out)
{
	struct cuda_event *e;
	enum ct_status st;

	CT_TRY(ct__cuda_use((struct cuda_device *)base));
	CT_TRY_ALLOC(e = CT_NEW(struct cuda_event));
	e->base.device = base;
	st = ct_cuda_check(cudaEventCreateWithFlags(&e->event, timed ? cudaEventDefault : cudaEventDisableTiming),
			   "cudaEventCreateWithFlags");
	if (st < 0) {
		ct_free(e);
		return st;
	}
	*out = &e->base;
	return CT_OK;
}

void ct__cuda_event_destroy(ct_event *base)
{
	struct cuda_event *e = (struct cuda_event *)base;

	ct__cuda_released(cudaEventDestroy(e->event), "cudaEventDestroy");
	ct_free(e);
}

/* In a capture, cudaEventRecord makes an event that only orders work of the capture. The external flag makes a node of
 * the graph that records the event at each launch. */
enum ct_status ct__cuda_event_record(ct_event *base, ct_stream *s)
{
	struct cuda_event *e = (struct cuda_event *)base;
	const struct cuda_stream *cs = (struct cuda_stream *)s;
	enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;

	if (base->timed && device_of(s)->recording)
		CT_TRY(ct_cuda_check(cudaStreamIsCapturing(cs->stream, &status), "cudaStreamIsCapturing"));
	e->stream = device_of(s)->recording ? NULL : cs;
	e->posted = cs->notes.posted;
	return ct__cuda_posted(s,
			       cudaEventRecordWithFlags(e->event, cs->stream,
							status == cudaStreamCaptureStatusActive
								? cudaEventRecordExternal
								: cudaEventRecordDefault),
			       "cudaEventRecordWithFlags");
}

static cudaError_t poll_event(void *object)
{
	return cudaEventQuery(((struct cuda_event *)object)->event);
}

enum ct_status ct__cuda_event_wait(ct_event *base, int64_t deadline_ns)
{
	struct cuda_device *d = (struct cuda_device *)base->device;
	const struct cuda_event *e = (struct cuda_event *)base;

	CT_TRY(ct__cuda_not_recording(d, "the host waits for an event"));
	CT_TRY(ct__cuda_wait(d, poll_event, base, "cudaEventQuery", deadline_ns));
	ct__cuda_note_done(d, e->stream, e->posted);
	return CT_OK;
}

enum ct_status ct__cuda_event_elapsed(const ct_event *from, const ct_event *to, int64_t *ns)
{
	float ms = 0;

	CT_TRY(ct_cuda_check(cudaEventElapsedTime(&ms, ((const struct cuda_event *)from)->event,
						  ((const struct cuda_event *)to)->event),
			     "cudaEventElapsedTime"));
	*ns = (int64_t)((double)ms * 1e6);
	return CT_OK;
}
