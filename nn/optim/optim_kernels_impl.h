/* Elementwise kernels of optimizers, EMA weights and conversions over contiguous ranges, with the widest vectors of the
 * CPU. The same source is compiled for several instruction sets, each with its own table of kernels. Floating-point
 * contraction is off (-ffp-contract=off), so every vector width gives bit-identical results. target_clones is not used,
 * because its ifunc resolvers run before the thread sanitizer is initialized. */
#ifndef CT_NN_OPTIM_OPTIM_KERNELS_IMPL_H
#define CT_NN_OPTIM_OPTIM_KERNELS_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

struct ct_sgd_coefs {
	float lr, momentum, weight_decay;
	float clip; /* factor by which the gradient is multiplied */
	bool nesterov;
};

/* Adam and AdamW */
struct ct_adam_coefs {
	float l2;     /* Adam: the weight decay, which is added to the gradient; AdamW: 0 */
	float shrink; /* AdamW: 1 - lr*weight_decay; Adam: 1 */
	float step;   /* lr / (1 - beta1^t) */
	float one_minus_beta1, beta2, one_minus_beta2;
	float inverse_sqrt_bias2; /* 1 / sqrt(1 - beta2^t) */
	float eps, clip;
};

struct ct_lamb_coefs {
	float inverse_bias1; /* 1 / (1 - beta1^t) */
	float one_minus_beta1, beta2, one_minus_beta2;
	float inverse_sqrt_bias2; /* 1 / sqrt(1 - beta2^t) */
	float eps, clip, weight_decay;
	float step; /* lr * trust ratio */
};

struct ct_optim_kernels {
	const char *target;
	/* p, g and m have n elements. m is NULL if there is no momentum. */
	void (*sgd)(size_t n, float *p, const float *g, float *m, const struct ct_sgd_coefs *c);
	void (*adam)(size_t n, float *p, const float *g, float *m, float *v, const struct ct_adam_coefs *c);
	/* LAMB has two passes. The first one updates the moments, and computes the sums of squares of p and of the
	 * update u. The second one computes p -= step*u. */
	void (*lamb_moments)(size_t n, const float *p, const float *g, float *m, float *v,
			     const struct ct_lamb_coefs *c, double sums[2]);
	void (*lamb_apply)(size_t n, float *p, const float *m, const float *v, const struct ct_lamb_coefs *c);
	/* Returns the sum of squares, computed in double as sixteen partial sums that are added in a fixed order. */
	double (*sum_squares)(size_t n, const float *g);
	/* e = decay*e + (1-decay)*x */
	void (*average)(size_t n, float *e, const float *x, float decay, float rest);
	/* Convert between fp32 and the 16-bit type t. */
	void (*to_half)(size_t n, uint16_t *h, const float *x, enum ct_dtype t);
	void (*from_half)(size_t n, float *x, const uint16_t *h, enum ct_dtype t);
};

/* Returns table i of the tables that this CPU can run, in order of decreasing vector width, or NULL if there is no
 * table i. Use table 0; the others are for tests. */
const struct ct_optim_kernels *ct__optim_kernels_at(size_t i);

#endif
