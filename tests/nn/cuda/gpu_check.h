/* Device memory, element types and comparison for tests of the CUDA kernels. The tests run on the software GPU and on
 * real GPUs. */
#ifndef CT_TESTS_NN_CUDA_GPU_CHECK_H
#define CT_TESTS_NN_CUDA_GPU_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#include "base/dtype.h"

#define check_cuda(call) gpu_check_error((call), #call, __FILE__, __LINE__)
void gpu_check_error(cudaError_t e, const char *call, const char *file, int line);

/* Returns n pseudo-random values in [-1, 1), which depend only on the seed. The caller owns them (test_free). */
float *gpu_random(size_t n, uint32_t seed);

/* Returns device memory with n elements of type t: converted from x, or filled with 0xFF bytes if x is NULL. */
void *gpu_upload(const float *x, size_t n, enum ct_dtype t);
void *gpu_bytes(const void *x, size_t bytes); /* a copy of x; if x is NULL, filled with 0xFF */
void gpu_read(void *out, const void *device, size_t bytes);
/* Reads n elements of type t and converts them to fp32. The caller owns the result (test_free). */
float *gpu_download(const void *device, size_t n, enum ct_dtype t);
void gpu_free(const void *device);

/* Rounds x to the element type and converts it back to fp32. */
float gpu_round(float x, enum ct_dtype t);
/* Fails the test unless |got - want| <= tolerance * (1 + |want|) for each element; NaN equals NaN. */
void gpu_expect(const char *what, const float *got, const float *want, size_t n, double tolerance);

#endif
