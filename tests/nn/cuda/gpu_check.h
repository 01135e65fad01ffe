/* Device memory, element types and comparison for tests of the CUDA kernels. They run on the software GPU and on a real one. */
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

/* Pseudo-random values in [-1, 1), the same for equal seeds. Owned by the caller (test_free). */
float *gpu_random(size_t n, uint32_t seed);

/* Device memory with n elements of type t: converted from x, or filled with 0xFF bytes if x is NULL. */
void *gpu_upload(const float *x, size_t n, enum ct_dtype t);
void *gpu_bytes(const void *x, size_t bytes); /* a copy of bytes; NULL: filled with 0xFF */
void gpu_read(void *out, const void *device, size_t bytes);
/* Reads n elements of type t as fp32. Owned by the caller (test_free). */
float *gpu_download(const void *device, size_t n, enum ct_dtype t);
void gpu_free(const void *device);

/* Rounds to the element type and back. */
float gpu_round(float x, enum ct_dtype t);
/* Fails the test unless |got - want| <= tolerance * (1 + |want|) for each element; NaN equals NaN. */
void gpu_expect(const char *what, const float *got, const float *want, size_t n, double tolerance);

#endif
