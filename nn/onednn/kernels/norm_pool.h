/* Batch norm, ReLU and max pool as one operation on tensors in the layout of block.h or [N,H,W,C], for training. The
 * values between the steps are never written to memory. Values and their gradients are fp32 or bfloat16, everything
 * else is fp32, and sums over the batch are double. The kernels are plain C on vectors of channels; call them only if
 * ct__norm_usable returns true. Results do not depend on the number of threads. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_POOL_H
#define CT_NN_ONEDNN_KERNELS_NORM_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "nn/graph/graph.h"
#include "nn/onednn/kernels/block.h"

#define CT_NORM_POOL_MAX_TAPS 254

struct ct_norm_partial;

struct ct_norm_pool_shape {
	int n, channels;
	bool nhwc; /* the layout is [N,H,W,C], without padding; in blocks, lanes after the last channel must be zero and
		    * stay zero */
	struct ct_shape in, out;
	struct ct_window win; /* dilation 1, at most CT_NORM_POOL_MAX_TAPS elements */
	float eps;
	bool bf16;
};

size_t ct__norm_pool_scratch_bytes(const struct ct_norm_pool_shape *s);
size_t ct__norm_pool_out_elems(
	const struct ct_norm_pool_shape *s); /* number of elements in each of y, picked and taps, including padding */

struct ct_norm_pool {
	struct ct_norm_pool_shape shape;
	int threads; /* number of threads that share the work; results do not depend on it */
	const void *x;
	const float *gamma, *beta;        /* [C] */
	float *mean, *variance;           /* [C], batch statistics (biased) */
	void *y;                          /* the pooled values */
	void *picked;                     /* elements of x at the maxima */
	uint8_t *taps;                    /* position of each maximum in its kernel; 255: the ReLU set it to 0 */
	struct ct_norm_partial *partials; /* scratch memory */
	/* backward */
	const void *dy;
	void *dx; /* may be x, which saves a third of the memory traffic */
	float *dgamma, *dbeta;
};

void ct__norm_pool_forward(struct ct_norm_pool *p);
void ct__norm_pool_backward(struct ct_norm_pool *p);

#endif
