/* Batch norm together with what follows it, forward and backward, on tensors of layout [N,C/16,H,W,16]:
 *
 *   y = relu?(factor of the row * (gamma * (x - mean) / sqrt(variance + eps) + beta) + residual)
 *
 * Values and their gradients are fp32 or bfloat16, everything else is fp32, sums over the batch are double. Results do not
 * depend on the number of threads. Plain C on 16-lane vectors; call only when ct__norm_usable. Lanes past the last
 * channel hold zeros and get zeros.
 *
 * Of one rank alone: ct__norm_forward and ct__norm_backward, which take a block of channels through both passes while it is
 * in the cache. Of several ranks: sums, the caller adds those of all ranks, then the second pass. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_H
#define CT_NN_ONEDNN_KERNELS_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/onednn/kernels/block.h"

struct ct_norm_partial;

struct ct_norm {
	int n, channels, plane; /* rows, logical channels, H*W */
	bool bf16;              /* x, residual, y and the gradients of these */
	bool relu;
	float eps;
	int threads; /* how many will share the work: a matter of speed only */

	const void *x;
	const float *gamma, *beta;        /* [C] */
	float *mean, *variance;           /* [C], written by the forward pass: of the batch (biased), or given */
	const void *residual;             /* or NULL */
	const float *factor;              /* [n], drop path, or NULL */
	void *y;                          /* may be residual */
	uint16_t *mask;                   /* with relu and residual: one bit an element, in the order of y; or NULL */
	struct ct_norm_partial *partials; /* scratch: ct__norm_scratch_bytes */

	/* backward */
	const void *dy, *dy2;  /* dy2 or NULL: dy is the sum of both, and the first pass writes it, cut, to dresidual */
	void *dx;              /* may be x, or what nobody needs: dy without dresidual, dresidual with dy2 */
	void *dresidual;       /* dy where the ReLU let it through, or NULL; may be dy or dy2 */
	float *dgamma, *dbeta; /* [C] */
};

bool ct__norm_usable(void);
size_t ct__norm_scratch_bytes(int n, int channels);
/* In that scratch: room for 2*C + 1 sums. */
double *ct__norm_scratch_sums(const struct ct_norm *p);
size_t ct__norm_mask_bytes(int n, int channels, int plane);

void ct__norm_forward(const struct ct_norm *p);
void ct__norm_backward(const struct ct_norm *p);

/* sums [2*C]: of x of every channel, then of x*x. count: values of a channel. */
void ct__norm_sums(const struct ct_norm *p, double *sums);
void ct__norm_moments(const struct ct_norm *p, const double *sums, double count);
/* The second pass: mean and variance are given. */
void ct__norm_apply(const struct ct_norm *p);
/* dgamma and dbeta of this rank; sums [2*C]: of dy of every channel, then of dy*(x - mean)/sqrt(variance + eps), over what
 * the ReLU let through and times the row's factor. */
void ct__norm_gradient_sums(const struct ct_norm *p, double *sums);
void ct__norm_gradient_apply(const struct ct_norm *p, const double *sums, double count);

/* y = x * the row's factor; elems: of a row, padding included. */
void ct__norm_scale_rows(int threads, int n, size_t elems, bool bf16, const void *x, const float *factor, void *y);

#endif
