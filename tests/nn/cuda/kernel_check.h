/* Activations in the layout of the kernels, [rows, cp], and comparison with the logical layout [N,C,H,W]. */
#ifndef CT_TESTS_NN_CUDA_KERNEL_CHECK_H
#define CT_TESTS_NN_CUDA_KERNEL_CHECK_H

#include <stdio.h>
#include <string.h>

#include "nn/cuda/kernels/kernels.h"
#include "tests/nn/cuda/gpu_check.h"

/* Returns the tolerance for a result x that has been rounded to the type once, relative to 1 + |x|. */
static inline double tolerance_of(enum ct_dtype t)
{
	return t == CT_F32 ? 2e-6 : t == CT_F16 ? 1e-3 : 8e-3;
}

static inline int pad_channels(int c, enum ct_dtype t)
{
	const int vector = t == CT_F32 ? 4 : 8;

	return (c + vector - 1) / vector * vector;
}

/* Returns a random tensor [rows, cp], rounded to the type, with zeros in the padding. */
static inline float *random_rows(size_t rows, int c, int cp, enum ct_dtype t, uint32_t seed)
{
	float *x = gpu_random(rows * (size_t)cp, seed);

	for (size_t i = 0; i < rows * (size_t)cp; i++)
		x[i] = (int)(i % (size_t)cp) < c ? gpu_round(x[i], t) : 0.0f;
	return x;
}

/* [N,H,W,cp] -> [N,C,H,W] */
static inline float *to_logical(const float *x, int n, int c, int cp, int plane)
{
	float *y = test_malloc((size_t)n * (size_t)c * (size_t)plane * sizeof(*y));

	for (int i = 0; i < n; i++)
		for (int k = 0; k < c; k++)
			for (int p = 0; p < plane; p++)
				y[((size_t)i * (size_t)c + (size_t)k) * (size_t)plane + (size_t)p] =
					x[((size_t)i * (size_t)plane + (size_t)p) * (size_t)cp + (size_t)k];
	return y;
}

static inline float *to_physical(const float *x, int n, int c, int cp, int plane)
{
	float *y = test_calloc((size_t)n * (size_t)cp * (size_t)plane, sizeof(*y));

	for (int i = 0; i < n; i++)
		for (int k = 0; k < c; k++)
			for (int p = 0; p < plane; p++)
				y[((size_t)i * (size_t)plane + (size_t)p) * (size_t)cp + (size_t)k] =
					x[((size_t)i * (size_t)c + (size_t)k) * (size_t)plane + (size_t)p];
	return y;
}

static inline void expect_device(const char *what, const void *device, const float *want, size_t n, enum ct_dtype t,
				 double tolerance)
{
	float *got = gpu_download(device, n, t);

	gpu_expect(what, got, want, n, tolerance);
	test_free(got);
}

/* Returns run(). If there is no CUDA device, prints this reason and returns the exit code 77 instead. */
static inline int run_on_gpu(int (*run)(void))
{
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
		printf("skipped: no CUDA device\n");
		return 77;
	}
	return run();
}

#endif
