/* Small kernels for the tests of the software GPU. Each has an argument struct and a launcher. */
#ifndef CT_TESTS_SOFT_GPU_KERNELS_H
#define CT_TESTS_SOFT_GPU_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kernel_type { TYPE_F32, TYPE_F16, TYPE_BF16 };

struct saxpy_args { /* computes y = a x + y */
	void *y;    /* [n] of the element type */
	const void *x;
	float a;
	int n;
};
cudaError_t kernel_saxpy(const struct saxpy_args *a, enum kernel_type type, cudaStream_t s);

struct row_args {       /* computes the softmax of each row */
	const float *x; /* [rows, n] */
	float *y;
	int n;
	int without_barrier; /* 1: omit a barrier, a deliberate mistake */
};
cudaError_t kernel_softmax(const struct row_args *a, int rows, cudaStream_t s);

struct histogram_args {
	const int *x; /* [n] values in [0, n_bins) */
	unsigned *bins;
	int n, n_bins;
};
/* shared_bytes must have room for n_bins counters. */
cudaError_t kernel_histogram(const struct histogram_args *a, int blocks, size_t shared_bytes, cudaStream_t s);

struct last_block_args {
	unsigned *count; /* 0 before the launch */
	int *partial;    /* [blocks] */
	int *sum;        /* of 1 to the number of blocks */
	int fence;       /* 0: omit the fence, a deliberate mistake */
};
cudaError_t kernel_last_block(const struct last_block_args *a, int blocks, cudaStream_t s);

struct transpose_args {
	const float *x; /* [rows, columns] */
	float *y;       /* [columns, rows] */
	int rows, columns;
};
cudaError_t kernel_transpose(const struct transpose_args *a, cudaStream_t s);

struct warp_args {
	int *out; /* [8 * 32]: results of one warp's shuffles and votes */
};
cudaError_t kernel_warp(const struct warp_args *a, cudaStream_t s);

enum { N_BUILTINS = 48 };
struct builtins_args {
	int *out; /* [N_BUILTINS]: results of built-in functions */
};
cudaError_t kernel_builtins(const struct builtins_args *a, cudaStream_t s);

enum misuse {
	MISUSE_NONE,
	MISUSE_DIVERGENT_BARRIER,
	MISUSE_EARLY_END,
	MISUSE_ABSENT_LANE,
	MISUSE_OTHER_MASK,
	MISUSE_SHARED_OVERFLOW,
	MISUSE_STATIC_OVERFLOW,
	MISUSE_UNSET,      /* not a mistake: returns the initial contents of shared memory */
	MISUSE_NO_BARRIER, /* warp 1 reads what warp 0 writes */
};
struct misuse_args {
	int *out; /* [64] */
	int what, index;
};
cudaError_t kernel_misuse(const struct misuse_args *a, cudaStream_t s);

#ifdef __cplusplus
}
#endif

#endif
