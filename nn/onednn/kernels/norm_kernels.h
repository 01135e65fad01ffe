/* Batch norm fused with the operations after it, forward and backward, on tensors in the layout of
 * block.h or [N,H,W,C]:
 *
 *   y = relu?(factor of the row * (gamma * (x - mean) / sqrt(variance + eps) + beta) + residual)
 *
 * Values and their gradients are fp32 or bfloat16, everything else is fp32, and sums over the batch are double. Results
 * do not depend on the number of threads. The kernels are plain C on vectors of channels; call them only if
 * ct__norm_usable returns true. In blocks, lanes after the last channel must be zero and stay zero.
 *
 * For the statistics of one rank, call ct__norm_forward and ct__norm_backward, which run both passes over a block of
 * channels while the block is in the cache. For statistics over all ranks, call the pass that computes the sums,
 * all-reduce these sums, and then call the second pass. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_KERNELS_H
#define CT_NN_ONEDNN_KERNELS_NORM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/onednn/kernels/block.h"

struct ct_norm_partial;

struct ct_norm {
	int n, channels, plane; /* rows, logical channels, H*W */
	bool nhwc;              /* the layout is [N,H,W,C], without padding, instead of that of block.h */
	bool bf16;              /* whether x, residual, y and their gradients are bfloat16; everything else is fp32 */
	bool relu;
	float eps;
	int threads; /* number of threads that share the work; results do not depend on it */

	const void *x;
	const float *gamma, *beta;        /* [C] */
	float *mean, *variance;           /* [C], biased statistics of the batch, written by the forward pass or
					   * set by the caller */
	const void *residual;             /* or NULL */
	const float *factor;              /* [n] factors of drop path, or NULL */
	void *y;                          /* may be residual */
	void *mask;                       /* with relu and residual: one bit per element, in the order of y; or NULL */
	struct ct_norm_partial *partials; /* scratch: ct__norm_scratch_bytes or ct__norm_nhwc_scratch_bytes */

	/* backward */
	const void *dy, *dy2; /* dy2 may be NULL. Otherwise the gradient of y is dy + dy2, and the first pass writes it,
			       * after the ReLU, to dresidual */
	void *dx;             /* may be x; may be dy if dresidual is NULL; may be dresidual if dy2 is set */
	void *dresidual;      /* the gradient after the ReLU, or NULL; may be dy or dy2 */
	float *dgamma, *dbeta; /* [C] */
};

/* Returns whether this processor has the instructions of the kernels of this directory, for values in fp32 or bfloat16.
 * Only kernels on bfloat16 use the bfloat16 instructions of AVX-512, which many processors with AVX-512 lack. */
bool ct__norm_usable(bool bf16);
size_t ct__norm_scratch_bytes(int n, int channels); /* blocked */
size_t ct__norm_nhwc_scratch_bytes(int n, int channels, int plane);
/* Returns the part of the scratch memory that has room for 2*C + 1 sums. */
double *ct__norm_scratch_sums(const struct ct_norm *p);
size_t ct__norm_mask_bytes(int n, int channels, int plane);

void ct__norm_forward(const struct ct_norm *p);
void ct__norm_backward(const struct ct_norm *p);

/* Computes sums [2*C]: the sum of x for each channel, then the sum of x*x for each channel. count is the number of
 * values per channel. */
void ct__norm_sums(const struct ct_norm *p, double *sums);
void ct__norm_moments(const struct ct_norm *p, const double *sums, double count);
/* The second pass, with given mean and variance. */
void ct__norm_apply(const struct ct_norm *p);
/* Computes dgamma and dbeta of this rank, and sums [2*C]: the sum of d for each channel, then the sum of d*(x -
 * mean)/sqrt(variance + eps) for each channel, where d is dy after the ReLU, times the factor of the row. */
void ct__norm_gradient_sums(const struct ct_norm *p, double *sums);
void ct__norm_gradient_apply(const struct ct_norm *p, const double *sums, double count);

/* Multiplies each of the n rows by its factor. elems is the number of elements of a row, including padding. */
void ct__norm_scale_rows(int threads, int n, size_t elems, bool bf16, const void *x, const float *factor, void *y);

#endif
