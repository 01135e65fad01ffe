/* The kernels are compiled once for each instruction set: on x86 for AVX2, with vectors of 8 lanes, and for AVX-512,
 * with 16; on other processors once, with 8 lanes, for the instructions that all of them have (on aarch64, NEON). The
 * names of what a kernel file provides end with the number of lanes. */
#ifndef CT_NN_ONEDNN_KERNELS_SELECT_H
#define CT_NN_ONEDNN_KERNELS_SELECT_H

#include "nn/onednn/kernels/norm_kernels.h"
#include "nn/onednn/kernels/norm_pool.h"

/* The address of NAME_8 or NAME_16: of a table or function for this processor. */
#if defined(__x86_64__)
#define CT_SELECT(name) (ct__lanes() == 8 ? &name##_8 : &name##_16)
#else
#define CT_SELECT(name) (&name##_8)
#endif

struct ct_norm_kernels {
	void (*forward)(const struct ct_norm *p);
	void (*backward)(const struct ct_norm *p);
	void (*sums)(const struct ct_norm *p, double *sums);
	void (*moments)(const struct ct_norm *p, const double *sums, double count);
	void (*apply)(const struct ct_norm *p);
	void (*gradient_sums)(const struct ct_norm *p, double *sums);
	void (*gradient_apply)(const struct ct_norm *p, const double *sums, double count);
};
extern const struct ct_norm_kernels ct__norm_kernels_8, ct__norm_kernels_16;
extern const struct ct_norm_kernels ct__norm_nhwc_kernels_8, ct__norm_nhwc_kernels_16;

struct ct_norm_pool_kernels {
	void (*forward)(struct ct_norm_pool *p);
	void (*backward)(struct ct_norm_pool *p);
};
extern const struct ct_norm_pool_kernels ct__norm_pool_kernels_8, ct__norm_pool_kernels_16;

void ct__norm_scale_rows_8(int threads, int n, size_t elems, bool bf16, const void *x, const float *factor, void *y);
void ct__norm_scale_rows_16(int threads, int n, size_t elems, bool bf16, const void *x, const float *factor, void *y);

#endif
