#include <string.h>

#include "base/device/cuda/cuda_impl.h"

static cudaStream_t stream_of(ct_stream *s)
{
	return ((struct cuda_stream *)s)->stream;
}

/* Adds what the device has to the message of a failed allocation. */
static enum ct_status alloc_failed(const struct cuda_device *d, enum ct_status st, const char *where, size_t bytes)
{
	size_t available = 0, total = 0;

	if (st == CT_NOMEM && cudaMemGetInfo(&available, &total) == cudaSuccess)
		return ct_error_wrap("allocating %.1f MiB %s (device %d has %.1f of %.1f MiB free)",
				     (double)bytes / 1048576, where, d->index, (double)available / 1048576,
				     (double)total / 1048576);
	return ct_error_wrap("allocating %.1f MiB %s", (double)bytes / 1048576, where);
}

enum ct_status ct__cuda_mem_alloc(ct_device *base, size_t bytes, bool zeroed, void **out)
{
	struct cuda_device *d = (struct cuda_device *)base;
	enum ct_status st;
	void *p = NULL;

	CT_TRY(ct__cuda_not_recording(d, "memory is allocated"));
	CT_TRY(ct__cuda_use(d));
	st = ct__cuda_check(cudaMalloc(&p, bytes > 0 ? bytes : 1), "cudaMalloc");
	if (st < 0)
		return alloc_failed(d, st, "on the GPU", bytes);
	/* Other streams do not wait for the default stream, which the fill runs on. */
	if (zeroed)
		st = ct__cuda_check(cudaMemset(p, 0, bytes), "cudaMemset");
	if (st == CT_OK && zeroed)
		st = ct__cuda_check(cudaStreamSynchronize(NULL), "cudaStreamSynchronize");
	if (st < 0) {
		(void)cudaFree(p);
		return st;
	}
	*out = p;
	return CT_OK;
}

/* cudaFree waits for all posted work. An error of that work is returned by the next call. */
void ct__cuda_mem_free(ct_device *base, void *p)
{
	CT_ASSERT(!((struct cuda_device *)base)->recording);
	ct__cuda_released(cudaFree(p), "cudaFree");
}

enum ct_status ct__cuda_host_alloc(ct_device *base, size_t bytes, void **out)
{
	struct cuda_device *d = (struct cuda_device *)base;
	enum ct_status st;
	void *p = NULL;

	CT_TRY(ct__cuda_not_recording(d, "memory is allocated"));
	CT_TRY(ct__cuda_use(d));
	st = ct__cuda_check(cudaHostAlloc(&p, bytes > 0 ? bytes : 1, cudaHostAllocPortable), "cudaHostAlloc");
	if (st < 0)
		return alloc_failed(d, st, "of pinned host memory", bytes);
	memset(p, 0, bytes);
	*out = p;
	return CT_OK;
}

void ct__cuda_host_free(ct_device *base, void *p)
{
	CT_ASSERT(!((struct cuda_device *)base)->recording);
	ct__cuda_released(cudaFreeHost(p), "cudaFreeHost");
}

enum ct_status ct__cuda_copy(ct_device *base, void *dst, const void *src, size_t bytes, ct_stream *s)
{
	(void)base;
	return ct__cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_of(s)), "cudaMemcpyAsync");
}

enum ct_status ct__cuda_fill(ct_device *base, void *dst, int byte, size_t bytes, ct_stream *s)
{
	(void)base;
	return ct__cuda_check(cudaMemsetAsync(dst, byte, bytes, stream_of(s)), "cudaMemsetAsync");
}
