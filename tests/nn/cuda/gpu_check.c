#include "tests/nn/cuda/gpu_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

void gpu_check_error(cudaError_t e, const char *call, const char *file, int line)
{
	if (e != cudaSuccess) {
		print_error("%s:%d: %s: %s\n", file, line, call, cudaGetErrorName(e));
		fail();
	}
}

float *gpu_random(size_t n, uint32_t seed)
{
	float *x = test_malloc((n > 0 ? n : 1) * sizeof(*x));
	uint32_t state = seed * 2654435761u + 12345;

	for (size_t i = 0; i < n; i++) {
		state = state * 1664525u + 1013904223u;
		x[i] = (float)(int32_t)state * 0x1p-31f;
	}
	return x;
}

static void to_bytes(void *out, const float *x, size_t n, enum ct_dtype t)
{
	for (size_t i = 0; i < n; i++) {
		if (t == CT_F32)
			((float *)out)[i] = x[i];
		else
			((uint16_t *)out)[i] = t == CT_F16 ? ct_f16_from_f32(x[i]) : ct_bf16_from_f32(x[i]);
	}
}

static float from_bytes(const void *p, size_t i, enum ct_dtype t)
{
	if (t == CT_F32)
		return ((const float *)p)[i];
	return t == CT_F16 ? ct_f16_to_f32(((const uint16_t *)p)[i]) : ct_bf16_to_f32(((const uint16_t *)p)[i]);
}

void *gpu_bytes(const void *x, size_t bytes)
{
	void *p;

	check_cuda(cudaMalloc(&p, bytes > 0 ? bytes : 1));
	if (x)
		check_cuda(cudaMemcpy(p, x, bytes, cudaMemcpyHostToDevice));
	else
		check_cuda(cudaMemset(p, 0xFF, bytes));
	return p;
}

void *gpu_upload(const float *x, size_t n, enum ct_dtype t)
{
	void *bytes, *p;

	if (!x)
		return gpu_bytes(NULL, n * ct_dtype_bytes(t));
	bytes = test_malloc(n * ct_dtype_bytes(t) + 1);
	to_bytes(bytes, x, n, t);
	p = gpu_bytes(bytes, n * ct_dtype_bytes(t));
	test_free(bytes);
	return p;
}

void gpu_read(void *out, const void *device, size_t bytes)
{
	check_cuda(cudaMemcpy(out, device, bytes, cudaMemcpyDeviceToHost));
}

float *gpu_download(const void *device, size_t n, enum ct_dtype t)
{
	void *bytes = test_malloc(n * ct_dtype_bytes(t) + 1);
	float *x = test_malloc(n * sizeof(*x) + 1);

	gpu_read(bytes, device, n * ct_dtype_bytes(t));
	for (size_t i = 0; i < n; i++)
		x[i] = from_bytes(bytes, i, t);
	test_free(bytes);
	return x;
}

void gpu_free(const void *device)
{
	check_cuda(cudaFree((void *)(uintptr_t)device));
}

float gpu_round(float x, enum ct_dtype t)
{
	uint16_t bits[2];

	if (t == CT_F32)
		return x;
	to_bytes(bits, &x, 1, t);
	return from_bytes(bits, 0, t);
}

void gpu_expect(const char *what, const float *got, const float *want, size_t n, double tolerance)
{
	for (size_t i = 0; i < n; i++) {
		const double error = fabs((double)got[i] - (double)want[i]);

		if (isnan(got[i]) && isnan(want[i]))
			continue;
		if (!(error <= tolerance * (1 + fabs((double)want[i]))))
			fail_msg("%s: element %zu of %zu is %g and should be %g", what, i, n, (double)got[i],
				 (double)want[i]);
	}
}
