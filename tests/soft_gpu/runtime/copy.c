/* Copies and fills. */
#include <stdlib.h>
#include <string.h>

#include "tests/soft_gpu/runtime/runtime_impl.h"

struct move {
	void *dst;
	const void *src; /* NULL: fill with `byte` */
	size_t bytes;
	int byte;
	void *staged; /* owned copy of a pageable source; NULL */
};

static cudaError_t run_move(void *args)
{
	const struct move *m = args;

	if (m->staged)
		memcpy(m->dst, m->staged, m->bytes);
	else if (m->src)
		memcpy(m->dst, m->src, m->bytes);
	else
		memset(m->dst, m->byte, m->bytes);
	return cudaSuccess;
}

static void release_move(void *args)
{
	free(((struct move *)args)->staged);
}

static cudaError_t post_move(const struct move *m, const char *name, cudaStream_t s)
{
	/* Pageable memory is not the device's: it cannot conflict with work. */
	struct soft_range ranges[2] = {{m->dst, m->bytes, true}, {m->src, m->src && !m->staged ? m->bytes : 0, false}};
	struct soft_work work = {.name = name,
				 .run = run_move,
				 .args = m,
				 .args_bytes = sizeof(*m),
				 .release = release_move,
				 .ranges = ranges,
				 .n_ranges = 2};

	if (!soft__find_block(m->dst, NULL) && !soft__is_pinned(m->dst, 1))
		ranges[0].bytes = 0;
	return soft__post(s, soft__work_create(&work));
}

static cudaError_t check_direction(const void *dst, const void *src, enum cudaMemcpyKind kind)
{
	bool to_device = soft__find_block(dst, NULL), from_device = soft__find_block(src, NULL);

	switch (kind) {
	case cudaMemcpyHostToDevice:
		return to_device && !from_device ? cudaSuccess : cudaErrorInvalidValue;
	case cudaMemcpyDeviceToHost:
		return !to_device && from_device ? cudaSuccess : cudaErrorInvalidValue;
	case cudaMemcpyDeviceToDevice:
		return to_device && from_device ? cudaSuccess : cudaErrorInvalidValue;
	case cudaMemcpyHostToHost:
		return !to_device && !from_device ? cudaSuccess : cudaErrorInvalidValue;
	case cudaMemcpyDefault:
		return cudaSuccess;
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
}

/* A range that begins in device or pinned memory ends in the same allocation. Pageable: not known to CUDA. */
static bool is_pageable(const char *what, const void *p, size_t bytes)
{
	if (!soft__find_block(p, NULL) && !soft__is_pinned(p, 1))
		return true;
	soft__check_range(what, p, bytes);
	return false;
}

static const char *name_of(const void *dst, const void *src)
{
	bool to_device = soft__find_block(dst, NULL), from_device = soft__find_block(src, NULL);

	if (to_device)
		return from_device ? "copy from device to device" : "copy from host to device";
	return from_device ? "copy from device to host" : "copy from host to host";
}

/* With pageable memory as CUDA does: the source is read before the call returns, and the destination is written before
 * it returns. */
static cudaError_t copy_async(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t handle)
{
	struct move m = {.dst = dst, .src = src, .bytes = bytes};
	cudaStream_t s;
	bool pageable_dst, pageable_src;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess || bytes == 0)
		return e;
	if (!dst || !src)
		return cudaErrorInvalidValue;
	e = check_direction(dst, src, kind);
	if (e != cudaSuccess)
		return e;
	pageable_dst = is_pageable("destination of a copy", dst, bytes);
	pageable_src = is_pageable("source of a copy", src, bytes);
	if (s->queue.capture && (pageable_dst || pageable_src))
		soft_gpu_fail("a copy of pageable memory is captured: allocate it with cudaMallocHost");
	if (pageable_src) {
		m.staged = fake_alloc(bytes);
		memcpy(m.staged, src, bytes);
	}
	e = post_move(&m, name_of(dst, src), s);
	return e == cudaSuccess && pageable_dst ? soft__wait(s->queue.device, s, NULL) : e;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t s)
{
	SOFT__CALL(SOFT__PLAIN, copy_async(dst, src, bytes, kind, s));
}

static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	cudaError_t e = copy_async(dst, src, bytes, kind, NULL);

	return e == cudaSuccess ? soft__wait(soft__self.device, soft__current()->legacy, NULL) : e;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	SOFT__CALL(SOFT__UNSAFE, copy(dst, src, bytes, kind));
}

static cudaError_t fill_async(void *dst, int byte, size_t bytes, cudaStream_t handle)
{
	struct move m = {.dst = dst, .bytes = bytes, .byte = byte};
	cudaStream_t s;
	cudaError_t e = soft__stream(handle, &s);

	if (e != cudaSuccess || bytes == 0)
		return e;
	if (!soft__find_block(dst, NULL))
		return cudaErrorInvalidValue;
	soft__check_range("destination of a fill", dst, bytes);
	return post_move(&m, "fill", s);
}

cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t s)
{
	SOFT__CALL(SOFT__PLAIN, fill_async(dst, byte, bytes, s));
}

cudaError_t cudaMemset(void *dst, int byte, size_t bytes)
{
	SOFT__CALL(SOFT__UNSAFE, fill_async(dst, byte, bytes, NULL));
}
