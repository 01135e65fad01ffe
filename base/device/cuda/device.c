/* The table of the CUDA device, and the symbol by which the program finds it. */
#include <stdio.h>

#include "base/clock.h"
#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"
#include "base/module.h"
#include "base/thread.h"

static int cuda_count(char *why, size_t why_len)
{
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e == cudaSuccess && n > 0) {
		if (why_len > 0)
			why[0] = '\0';
		return n;
	}
	ct__cuda_explain(e == cudaSuccess ? cudaErrorNoDevice : e, why, why_len);
	return 0;
}

static enum ct_status cuda_open(int index, ct_device **out)
{
	struct cuda_device *d;

	/* Creates the context of the device, too. */
	if (ct__cuda_check(cudaSetDevice(index), "cudaSetDevice") < 0)
		return ct_error_wrap("opening CUDA device %d", index);
	CT_TRY_ALLOC(d = CT_NEW(struct cuda_device));
	d->base.ops = &ct__device_cuda_ops;
	d->base.caps = (struct ct_device_caps){.async = true, .recordable = true};
	d->index = index;
	*out = &d->base;
	return CT_OK;
}

static void cuda_close(ct_device *base)
{
	struct cuda_device *d = (struct cuda_device *)base;

	CT_ASSERT(!d->streams); /* a stream was not destroyed */
	ct_free(d);
}

static enum ct_status cuda_info(ct_device *base, struct ct_device_info *out)
{
	const struct cuda_device *d = (struct cuda_device *)base;
	struct cudaDeviceProp properties;
	size_t available = 0, total = 0;

	CT_TRY(ct__cuda_check(cudaGetDeviceProperties(&properties, d->index), "cudaGetDeviceProperties"));
	CT_TRY(ct__cuda_check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo"));
	*out = (struct ct_device_info){
		.kind = "cuda",
		.index = d->index,
		.n_cpus = ct_cpu_count(),
		.total_bytes = total,
		.free_bytes = available,
	};
	snprintf(out->name, sizeof(out->name), "%.80s", properties.name);
	return CT_OK;
}

static cudaError_t poll_streams(void *object)
{
	for (const struct cuda_stream *s = ((struct cuda_device *)object)->streams; s; s = s->next) {
		cudaError_t e = cudaStreamQuery(s->stream);

		if (e != cudaSuccess)
			return e;
	}
	return cudaSuccess;
}

static enum ct_status cuda_sync(ct_device *base, int64_t deadline_ns)
{
	struct cuda_device *d = (struct cuda_device *)base;

	CT_TRY(ct__cuda_not_recording(d, "the host waits for the device"));
	return ct__cuda_wait(poll_streams, d, "waiting for the GPU", deadline_ns);
}

const struct ct_device_ops ct__device_cuda_ops = {
	.kind = "cuda",
	.count = cuda_count,
	.open = cuda_open,
	.close = cuda_close,
	.info = cuda_info,
	.mem_alloc = ct__cuda_mem_alloc,
	.mem_free = ct__cuda_mem_free,
	.host_alloc = ct__cuda_host_alloc,
	.host_free = ct__cuda_host_free,
	.copy = ct__cuda_copy,
	.fill = ct__cuda_fill,
	.sync = cuda_sync,
	.stream_create = ct__cuda_stream_create,
	.stream_destroy = ct__cuda_stream_destroy,
	.stream_sync = ct__cuda_stream_sync,
	.stream_wait_event = ct__cuda_stream_wait_event,
	.event_create = ct__cuda_event_create,
	.event_destroy = ct__cuda_event_destroy,
	.event_record = ct__cuda_event_record,
	.event_wait = ct__cuda_event_wait,
	.event_elapsed = ct__cuda_event_elapsed,
	.recording_begin = ct__cuda_recording_begin,
	.recording_end = ct__cuda_recording_end,
	.recording_post = ct__cuda_recording_post,
	.recording_destroy = ct__cuda_recording_destroy,
};

__attribute__((visibility("default"))) const struct ct_device_module ct_cuda_device = {
	.head = {.abi = CT_MODULE_ABI, .build = CT_BUILD_ID},
	.ops = &ct__device_cuda_ops,
};
