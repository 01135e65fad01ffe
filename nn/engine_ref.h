/* Kernels of the reference engine: plain [N,C,H,W] loops, sums in double. They are written to be seen to be right; the
 * other engines are tested against them, and they against finite differences.
 *
 * Backward kernels add into dx (a value may have several users) and write dw and db. */
#ifndef CT_NN_ENGINE_REF_H
#define CT_NN_ENGINE_REF_H

#include "nn/engine_impl.h"

/* x [n,F], w [K,F], b [K] or NULL, y [n,K]. acc: scratch [F]. */
void ct_ref_linear_forward(int n, int features, int k, const float *x, const float *w, const float *b, float *y);
void ct_ref_linear_backward(int n, int features, int k, const float *x, const float *w, const float *dy, float *dx,
			    float *dw, float *db, double *acc);

/* x [n,C,H,W], w [K,C/groups,R,S], y [n,K,OH,OW]. acc: scratch, the larger of H*W and OH*OW. */
void ct_ref_conv_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			 const float *b, float *y, double *acc);
void ct_ref_conv_backward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			  const float *dy, float *dx, float *dw, float *db, double *acc);

/* stat [2*C]: mean and 1/sqrt(var + eps) that the forward pass used. train: batch statistics, and running_* are
 * updated with the unbiased variance, as PyTorch. */
void ct_ref_batch_norm_forward(const struct ct_node *node, int n, bool train, const float *x, const float *gamma,
			       const float *beta, float *running_mean, float *running_var, float *y, double *stat);
void ct_ref_batch_norm_backward(const struct ct_node *node, int n, const float *x, const float *gamma, const float *dy,
				const double *stat, float *dx, float *dgamma, float *dbeta);

/* argmax [n,C,OH,OW]: index of the first maximum in its input plane; a NaN counts as the maximum. */
void ct_ref_max_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y,
			     int32_t *argmax);
void ct_ref_max_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy,
			      const int32_t *argmax, float *dx);
void ct_ref_avg_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y);
void ct_ref_avg_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy, float *dx);

#endif
