/* Batch norm, ReLU and max pool as one operation on [N,C/16,H,W,16] tensors, for training: what lies between them is
 * never written to memory. Values and their gradients are fp32 or bfloat16, everything else is fp32, sums over the batch
 * are double. Plain C on 16-lane vectors; call only when ct__norm_usable. Results do not depend on the number of
 * threads. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_POOL_H
#define CT_NN_ONEDNN_KERNELS_NORM_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "nn/graph/graph.h"
#include "nn/onednn/kernels/block.h"

#define CT_NORM_POOL_MAX_TAPS 254

struct ct_norm_partial;

struct ct_norm_pool_shape {
	int n, channels; /* lanes past the last channel hold zeros and get zeros */
	struct ct_shape in, out;
	struct ct_window win; /* dilation 1, at most CT_NORM_POOL_MAX_TAPS elements */
	float eps;
	bool bf16;
};

size_t ct__norm_pool_scratch_bytes(const struct ct_norm_pool_shape *s);
size_t ct__norm_pool_out_elems(const struct ct_norm_pool_shape *s); /* with padding: elements of y, picked and taps */

struct ct_norm_pool {
	struct ct_norm_pool_shape shape;
	int threads; /* how many share the work: a matter of speed only */
	const void *x;
	const float *gamma, *beta;        /* [C] */
	float *mean, *variance;           /* [C], batch statistics (biased) */
	void *y;                          /* pooled */
	void *picked;                     /* x where the maximum was, */
	uint8_t *taps;                    /* and its place in the window, 255: the ReLU cut it off */
	struct ct_norm_partial *partials; /* scratch */
	/* backward */
	const void *dy;
	void *dx; /* may be x: saves a third of the memory traffic */
	float *dgamma, *dbeta;
};

void ct__norm_pool_forward(struct ct_norm_pool *p);
void ct__norm_pool_backward(struct ct_norm_pool *p);

#endif
