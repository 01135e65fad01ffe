/* Convolutions with 3x3 and 5x5 kernels and stride 1 by Winograd's minimal filtering, F(4x4,3x3) and F(4x4,5x5). They
 * need 1/4 and 1/6.25, respectively, of the multiplications of a direct convolution.
 *
 *   y[n,k] = bias[k] + sum_c x[n,c] * w[k,c]     forward, then optionally a sum and ReLU; [N,C,H,W] -> [N,K,OH,OW]
 *   dx, and dw with db                           backward: data, weights
 *
 * Source: A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016. A tile of 4x4 results is
 * A^T [(G w G^T) . (B^T x B)] A, where x denotes the 6x6 or 8x8 values on which the tile depends. For each of the 36 or
 * 64 points, the products of all tiles are one matrix product over channels. Backward-data is the same computation with
 * rotated and transposed weights. Backward-weights is the adjoint G^T [sum over tiles (B^T x B) . (A dy A^T)] G,
 * transformed back once. The matrices are in transforms_template.h.
 *
 * Layout: tensors [N,C/b,H,W,b], weights [K/b,C/b,taps,taps,b c,b k], bias plain; aligned to 64 bytes. The block b
 * is that of kernels/block.h. The error
 * is measured against double precision. Its root mean square, relative to that of the result, is mostly 1e-6 to
 * 3e-6 and at most 6e-6; no error exceeds 3e-5 of the largest value (tests/nn/test_winograd.c). This is about three
 * times the error of direct summation. A NaN or an infinity makes all results NaN in every tile that reads it. Results
 * do not depend on the number of threads. The functions allocate no memory. */
#ifndef CT_NN_ONEDNN_WINOGRAD_WINOGRAD_H
#define CT_NN_ONEDNN_WINOGRAD_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "nn/net_plan.h"

/* The padding is at most taps - 1 on each side: OH = H + 2 pad_h - taps + 1, OW = W + 2 pad_w - taps + 1. */
struct ct_winograd_shape {
	int n, c, k, h, w, pad_h, pad_w;
	int taps;  /* 3 or 5 */
	bool bf16; /* images and their gradients are bfloat16; weights, bias and all arithmetic stay fp32 */
};

/* Returns whether this processor has the required instructions and the channels fill complete blocks. */
bool ct__winograd_possible(const struct ct_winograd_shape *s);
/* Returns whether, in addition, Winograd filtering can be expected to be faster than direct convolution. The images
 * must fill their tiles, convolutions with 3x3 kernels need at least 32 tiles in the batch (bf16: 96), and those with
 * 5x5 kernels must have few enough channels for the transformed weights to stay in the second-level cache. */
bool ct__winograd_usable(const struct ct_winograd_shape *s);

size_t ct__winograd_scratch_bytes(const struct ct_winograd_shape *s, enum ct_conv_pass pass, int threads);

struct ct_winograd {
	struct ct_winograd_shape shape;
	int threads; /* limit on the number of threads; the scratch memory must be large enough for it */
	void *scratch;
	const float *weights;
	const void *x;     /* float or bfloat16, like y, dy and dx */
	const float *bias; /* may be NULL */
	void *y;
	bool relu;
	bool sum; /* add the result to the contents of y, before the ReLU */
	const void *dy;
	void *dx;
	float *dw, *db; /* db may be NULL */
};

void ct__winograd_forward(const struct ct_winograd *op);
void ct__winograd_backward_data(const struct ct_winograd *op);
void ct__winograd_backward_weights(const struct ct_winograd *op);

#endif
