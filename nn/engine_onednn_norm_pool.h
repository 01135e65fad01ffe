/* Batch norm, ReLU and max pool as one operation on [N,C/16,H,W,16] tensors, for training: what lies between them is
 * never written to memory. Plain C on 16-lane vectors, compiled for AVX-512 where the processor is x86; call only when
 * ct_onednn_norm_pool_usable. Results do not depend on the number of threads. */
#ifndef CT_NN_ENGINE_ONEDNN_NORM_POOL_H
#define CT_NN_ENGINE_ONEDNN_NORM_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "nn/graph.h"

#define CT_NORM_POOL_BLOCK 16
#define CT_NORM_POOL_MAX_TAPS 254

struct ct_norm_pool_shape {
	int n, channels; /* lanes past the last channel hold zeros and get zeros */
	struct ct_shape in, out;
	struct ct_window win; /* dilation 1, at most CT_NORM_POOL_MAX_TAPS elements */
	float eps;
};

/* Per image and block of channels */
struct ct_norm_pool_partial {
	double a[CT_NORM_POOL_BLOCK], b[CT_NORM_POOL_BLOCK];
};
size_t ct_norm_pool_n_planes(const struct ct_norm_pool_shape *s);  /* partials */
size_t ct_norm_pool_out_elems(const struct ct_norm_pool_shape *s); /* with padding: elements of y, picked and taps */
bool ct_onednn_norm_pool_usable(void);

struct ct_norm_pool {
	struct ct_norm_pool_shape shape;
	const float *x, *gamma, *beta; /* x as above; [C] */
	float *mean, *variance;        /* [C], batch statistics (biased) */
	float *y;                      /* pooled */
	float *picked;                 /* x where the maximum was, */
	uint8_t *taps;                 /* and its place in the window, 255: the ReLU cut it off */
	struct ct_norm_pool_partial *partials;
	/* backward */
	const float *dy;
	float *dx, *dgamma, *dbeta; /* dx may be x: saves a third of the memory traffic */
};

void ct_norm_pool_forward(struct ct_norm_pool *p);
void ct_norm_pool_backward(struct ct_norm_pool *p);

#endif
