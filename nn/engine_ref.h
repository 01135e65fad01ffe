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

/* stat [CT_REF_NORM_STATS(C)]: of each channel mean and 1/sqrt(var + eps), then the number of values behind them, then
 * scratch. Batch statistics are those of all ranks where opts->sync is set, and running_* are updated with their
 * unbiased variance, as PyTorch does. */
#define CT_REF_NORM_STATS(c) (4 * (size_t)(c) + 2)
enum ct_status ct_ref_batch_norm_statistics(const struct ct_node *node, int n, const struct ct_net_opts *opts,
					    const float *x, float *running_mean, float *running_var,
					    double *stat) CT_MUST_CHECK;
void ct_ref_batch_norm_running(const struct ct_node *node, const float *running_mean, const float *running_var,
			       double *stat);
void ct_ref_batch_norm_forward(const struct ct_node *node, int n, const float *x, const float *gamma, const float *beta,
			       const double *stat, float *y);
enum ct_status ct_ref_batch_norm_backward(const struct ct_node *node, int n, const struct ct_net_opts *opts,
					  const float *x, const float *gamma, const float *dy, double *stat, float *dx,
					  float *dgamma, float *dbeta) CT_MUST_CHECK;

/* argmax [n,C,OH,OW]: index of the first maximum in its input plane; a NaN counts as the maximum. */
void ct_ref_max_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y,
			     int32_t *argmax);
void ct_ref_max_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy,
			      const int32_t *argmax, float *dx);
void ct_ref_avg_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y);
void ct_ref_avg_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy, float *dx);

#endif
