/* The table of the CUDA device, and the symbol by which the program finds it. */
#include <stdio.h>

#include "base/clock.h"
#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"
#include "base/process/module.h"
#include "base/thread.h"

/* Does not create a context. */
static cudaError_t read_capability(int index, int *major, int *minor)
{
	cudaError_t e = cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, index);

	return e == cudaSuccess ? cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, index) : e;
}

/* Returns whether one of n devices can run the kernels; if not, writes the reason. */
static bool one_is_capable(int n, char *why, size_t why_len)
{
	int major = 0, minor = 0;

	for (int i = n - 1; i >= 0; i--) {
		cudaError_t e = read_capability(i, &major, &minor);

		if (e != cudaSuccess) {
			ct_cuda_explain(e, "cudaDeviceGetAttribute", why, why_len);
			return false;
		}
		if (major >= CT__CUDA_MIN_MAJOR)
			return true;
	}
	snprintf(why, why_len, "GPU 0 has compute capability %d.%d: " CT__CUDA_NEEDS, major, minor);
	return false;
}

/* If no device is capable, there is none, and so `device: auto` uses the CPU. cuda_check refuses single devices. */
static int cuda_count(char *why, size_t why_len)
{
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e != cudaSuccess || n == 0) {
		ct_cuda_explain(e == cudaSuccess ? cudaErrorNoDevice : e, "cudaGetDeviceCount", why, why_len);
		return 0;
	}
	if (!one_is_capable(n, why, why_len))
		return 0;
	if (why_len > 0)
		why[0] = '\0';
	return n;
}

/* The device that this thread has bound. A thread that has bound none uses device 0. */
static _Thread_local int bound = -1;

enum ct_status ct__cuda_use(const struct cuda_device *d)
{
	if (bound == d->index)
		return CT_OK;
	CT_TRY(ct_cuda_check(cudaSetDevice(d->index), "cudaSetDevice"));
	bound = d->index;
	return CT_OK;
}

static enum ct_status cuda_check(int index)
{
	int major = 0, minor = 0;

	CT_TRY(ct_cuda_check(read_capability(index, &major, &minor), "cudaDeviceGetAttribute"));
	if (major >= CT__CUDA_MIN_MAJOR)
		return CT_OK;
	CT_FAIL(CT_NO_DEVICE, "it has compute capability %d.%d", major, minor);
	return ct_error_hint("%s", CT__CUDA_NEEDS);
}

static enum ct_status cuda_open(int index, ct_device **out)
{
	struct cuda_device *d;

	if (cuda_check(index) < 0)
		return ct_error_wrap("opening CUDA device %d", index);
	/* Creates the context of the device, too. */
	bound = -1;
	if (ct__cuda_use(&(struct cuda_device){.index = index}) < 0)
		return ct_error_wrap("opening CUDA device %d", index);
	CT_TRY_ALLOC(d = CT_NEW(struct cuda_device));
	pthread_mutex_init(&d->mutex, NULL);
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
	CT_ASSERT(!d->allocations);
	ct__cuda_calls_release(d);
	pthread_mutex_destroy(&d->mutex);
	ct_free(d);
}

/* "GPU-" and the 16 bytes in hexadecimal, as nvidia-smi prints them. */
static void write_uuid(const unsigned char *u, char *out, size_t len)
{
	snprintf(out, len, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
		 u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

static enum ct_status cuda_describe(int index, struct ct_device_info *out)
{
	struct cudaDeviceProp p;

	*out = (struct ct_device_info){.kind = "cuda", .index = index, .n_cpus = ct_cpu_count()};
	CT_TRY(ct_cuda_check(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties"));
	out->total_bytes = p.totalGlobalMem;
	snprintf(out->name, sizeof(out->name), "%.80s", p.name);
	snprintf(out->arch, sizeof(out->arch), "sm_%d%d", p.major, p.minor);
	write_uuid((const unsigned char *)p.uuid.bytes, out->uuid, sizeof(out->uuid));
	return ct_cuda_check(cudaDeviceGetPCIBusId(out->bus, (int)sizeof(out->bus), index), "cudaDeviceGetPCIBusId");
}

static enum ct_status cuda_info(ct_device *base, struct ct_device_info *out)
{
	size_t available = 0, total = 0;

	CT_TRY(cuda_describe(((struct cuda_device *)base)->index, out));
	CT_TRY(ct_cuda_check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo"));
	out->total_bytes = total;
	out->free_bytes = available;
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
	CT_TRY(ct__cuda_wait(d, poll_streams, d, "cudaStreamQuery", deadline_ns));
	for (struct cuda_stream *s = d->streams; s; s = s->next)
		s->notes.done = s->notes.posted;
	return CT_OK;
}

const struct ct_device_ops ct__device_cuda_ops = {
	.kind = "cuda",
	.count = cuda_count,
	.open = cuda_open,
	.close = cuda_close,
	.info = cuda_info,
	.check = cuda_check,
	.describe = cuda_describe,
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
	.stream_run = ct__cuda_stream_run,
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
