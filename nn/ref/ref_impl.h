/* Kernels of the reference engine: plain [N,C,H,W] loops, sums in double. They are written to be obviously correct. The
 * other engines are tested against them, and they are tested against finite differences.
 *
 * Backward kernels add into dx (a value may have several users) and write dw and db. */
#ifndef CT_NN_REF_REF_IMPL_H
#define CT_NN_REF_REF_IMPL_H

#include "nn/engine_impl.h"

/* x [n,F], w [K,F], b [K] or NULL, y [n,K]. acc: scratch [F]. */
void ct__ref_linear_forward(int n, int features, int k, const float *x, const float *w, const float *b, float *y);
void ct__ref_linear_backward(int n, int features, int k, const float *x, const float *w, const float *dy, float *dx,
			     float *dw, float *db, double *acc);

/* x [n,C,H,W], w [K,C/groups,R,S], y [n,K,OH,OW]. acc: scratch, the larger of H*W and OH*OW. */
void ct__ref_conv_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			  const float *b, float *y, double *acc);
void ct__ref_conv_backward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			   const float *dy, float *dx, float *dw, float *db, double *acc);

/* argmax [n,C,OH,OW]: index of the first maximum in its input plane; a NaN counts as the maximum. */
void ct__ref_max_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y,
			      int32_t *argmax);
void ct__ref_max_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy,
			       const int32_t *argmax, float *dx);
void ct__ref_avg_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y);
void ct__ref_avg_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy, float *dx);

#endif
