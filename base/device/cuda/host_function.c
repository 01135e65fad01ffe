/* Functions of the host in a stream (ct_stream_run). CUDA calls them on a thread of its own, one at a time, and they
 * must not call CUDA. If a function fails, the device has failed: functions that were posted after it are not called,
 * and the next wait returns the error. */
#include <stdalign.h>
#include <string.h>
#include <time.h>

#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"

enum { PAUSE_NS = 20 * 1000 };

/* A function and its arguments. Equal calls share one, which exists until the device is closed, because recordings
 * repeat the call. */
struct cuda_call {
	struct cuda_call *next;
	struct cuda_device *device;
	ct_stream_fn fn;
	size_t bytes;
	alignas(16) unsigned char args[CT_STREAM_ARGS_MAX];
};

static void fail(struct cuda_device *d)
{
	pthread_mutex_lock(&d->mutex);
	if (!atomic_load(&d->failed))
		ct_error_save(&d->error);
	atomic_store(&d->failed, true);
	pthread_mutex_unlock(&d->mutex);
}

static void CUDART_CB run(void *user)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	const struct cuda_call *c = user;
	enum ct_status st = CT_INPROGRESS;
	struct ct_error before;

	ct_error_save(&before);
	ct_error_clear();
	while (!atomic_load(&c->device->failed) && (st = c->fn(c->args)) == CT_INPROGRESS)
		nanosleep(&pause, NULL);
	if (st < 0)
		fail(c->device);
	ct_error_clear();
	if (before.status < 0)
		(void)ct_error_restore(&before);
}

static enum ct_status find(struct cuda_device *d, ct_stream_fn fn, const void *args, size_t bytes,
			   struct cuda_call **out)
{
	struct cuda_call *c = d->calls;

	while (c && (c->fn != fn || c->bytes != bytes || (bytes > 0 && memcmp(c->args, args, bytes) != 0)))
		c = c->next;
	if (!c) {
		CT_TRY_ALLOC(c = CT_NEW(struct cuda_call));
		c->device = d;
		c->fn = fn;
		c->bytes = bytes;
		if (bytes > 0)
			memcpy(c->args, args, bytes);
		c->next = d->calls;
		d->calls = c;
	}
	*out = c;
	return CT_OK;
}

enum ct_status ct__cuda_stream_run(ct_stream *base, ct_stream_fn fn, const void *args, size_t bytes)
{
	struct cuda_device *d = (struct cuda_device *)base->device;
	struct cuda_call *c;

	CT_TRY(ct__cuda_failure(d));
	CT_TRY(find(d, fn, args, bytes, &c));
	return ct__cuda_posted(base, cudaLaunchHostFunc(((struct cuda_stream *)base)->stream, run, c),
			       "cudaLaunchHostFunc");
}

enum ct_status ct__cuda_failure(struct cuda_device *d)
{
	return atomic_load(&d->failed) ? ct_error_restore(&d->error) : CT_OK;
}

void ct__cuda_calls_release(struct cuda_device *d)
{
	struct cuda_call *c;

	if (!d->calls)
		return;
	/* After a failure, functions may still be posted. They return at once. */
	atomic_store(&d->failed, true);
	ct__cuda_released(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	while ((c = d->calls)) {
		d->calls = c->next;
		ct_free(c);
	}
}
