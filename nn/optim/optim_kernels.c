/* Each loop is written once as an inline function, and KERNELS compiles it for several instruction sets. Compiled with
 * -O3: these loops must vectorize. All versions give the same bits: they execute the same operations per element,
 * multiply-adds are not contracted, and sums are divided into sixteen partial sums in double, whatever the width of a
 * vector. The first moment is m + (1 - beta1) (g - m), which is how PyTorch's Adam computes it (lerp). The choices
 * between momentum, Nesterov momentum and weight decay as L2 are made before a loop, so no loop has a branch. */
#include "nn/optim/optim_kernels_impl.h"

#include <math.h>

#include "base/cpu/features.h"
#include "base/half.h"

#define LANES 16
#define BODY static inline __attribute__((always_inline))

BODY void sgd_plain(size_t n, float *restrict p, const float *restrict g, const struct ct_sgd_coefs *c)
{
	const float lr = c->lr, wd = c->weight_decay, clip = c->clip;

	for (size_t i = 0; i < n; i++)
		p[i] -= lr * (clip * g[i] + wd * p[i]);
}

/* torch.optim.SGD takes buf = g in the first step; with buf = 0 before it, momentum*buf + g is the same. */
BODY void sgd_momentum(size_t n, float *restrict p, const float *restrict g, float *restrict m,
		       const struct ct_sgd_coefs *c)
{
	const float lr = c->lr, momentum = c->momentum, wd = c->weight_decay, clip = c->clip;

	for (size_t i = 0; i < n; i++) {
		float d = clip * g[i] + wd * p[i];
		float buf = momentum * m[i] + d;

		m[i] = buf;
		p[i] -= lr * buf;
	}
}

BODY void sgd_nesterov(size_t n, float *restrict p, const float *restrict g, float *restrict m,
		       const struct ct_sgd_coefs *c)
{
	const float lr = c->lr, momentum = c->momentum, wd = c->weight_decay, clip = c->clip;

	for (size_t i = 0; i < n; i++) {
		float d = clip * g[i] + wd * p[i];
		float buf = momentum * m[i] + d;

		m[i] = buf;
		p[i] -= lr * (d + momentum * buf);
	}
}

BODY void sgd(size_t n, float *p, const float *g, float *m, const struct ct_sgd_coefs *c)
{
	if (!m)
		sgd_plain(n, p, g, c);
	else if (c->nesterov)
		sgd_nesterov(n, p, g, m, c);
	else
		sgd_momentum(n, p, g, m, c);
}

BODY void adam_loop(size_t n, float *restrict p, const float *restrict g, float *restrict m, float *restrict v,
		    const struct ct_adam_coefs *c, bool with_l2)
{
	const float l2 = c->l2;
	const float shrink = c->shrink, step = c->step, rest1 = c->one_minus_beta1, beta2 = c->beta2;
	const float rest2 = c->one_minus_beta2, bias2 = c->inverse_sqrt_bias2, eps = c->eps, clip = c->clip;

	for (size_t i = 0; i < n; i++) {
		float d = with_l2 ? clip * g[i] + l2 * p[i] : clip * g[i];
		float avg = m[i] + rest1 * (d - m[i]);
		float sq = beta2 * v[i] + rest2 * (d * d);

		m[i] = avg;
		v[i] = sq;
		p[i] = p[i] * shrink - step * avg / (sqrtf(sq) * bias2 + eps);
	}
}

BODY void adam(size_t n, float *p, const float *g, float *m, float *v, const struct ct_adam_coefs *c)
{
	if (c->l2 > 0)
		adam_loop(n, p, g, m, v, c, true);
	else
		adam_loop(n, p, g, m, v, c, false);
}

/* The update before the trust ratio. */
BODY float lamb_update(float p, float m, float v, const struct ct_lamb_coefs *c)
{
	return m * c->inverse_bias1 / (sqrtf(v) * c->inverse_sqrt_bias2 + c->eps) + c->weight_decay * p;
}

BODY void lamb_moments(size_t n, const float *restrict p, const float *restrict g, float *restrict m, float *restrict v,
		       const struct ct_lamb_coefs *coefs, double sums[2])
{
	const struct ct_lamb_coefs c = *coefs;
	double p2[LANES] = {0}, u2[LANES] = {0};

	for (size_t i = 0; i < n; i += LANES) {
		int lanes = n - i < LANES ? (int)(n - i) : LANES;

		for (int l = 0; l < lanes; l++) {
			size_t k = i + (size_t)l;
			float d = c.clip * g[k];

			m[k] += c.one_minus_beta1 * (d - m[k]);
			v[k] = c.beta2 * v[k] + c.one_minus_beta2 * (d * d);
			float u = lamb_update(p[k], m[k], v[k], &c);
			p2[l] += (double)p[k] * (double)p[k];
			u2[l] += (double)u * (double)u;
		}
	}
	sums[0] = sums[1] = 0;
	for (int l = 0; l < LANES; l++) {
		sums[0] += p2[l];
		sums[1] += u2[l];
	}
}

BODY void lamb_apply(size_t n, float *restrict p, const float *restrict m, const float *restrict v,
		     const struct ct_lamb_coefs *coefs)
{
	const struct ct_lamb_coefs c = *coefs;

	for (size_t i = 0; i < n; i++)
		p[i] -= c.step * lamb_update(p[i], m[i], v[i], &c);
}

BODY double sum_squares(size_t n, const float *g)
{
	double part[LANES] = {0}, sum = 0;
	size_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		for (int l = 0; l < LANES; l++)
			part[l] += (double)g[i + (size_t)l] * (double)g[i + (size_t)l];
	}
	for (; i < n; i++)
		sum += (double)g[i] * (double)g[i];
	for (int l = 0; l < LANES; l++)
		sum += part[l];
	return sum;
}

BODY void average(size_t n, float *restrict e, const float *restrict x, float decay, float rest)
{
	for (size_t i = 0; i < n; i++)
		e[i] = decay * e[i] + rest * x[i];
}

BODY void to_half(size_t n, uint16_t *restrict h, const float *restrict x, enum ct_dtype t)
{
	if (t == CT_BF16) {
		for (size_t i = 0; i < n; i++)
			h[i] = ct_bf16_from_f32(x[i]);
	} else {
		for (size_t i = 0; i < n; i++)
			h[i] = ct_f16_from_f32(x[i]);
	}
}

BODY void from_half(size_t n, float *restrict x, const uint16_t *restrict h, enum ct_dtype t)
{
	if (t == CT_BF16) {
		for (size_t i = 0; i < n; i++)
			x[i] = ct_bf16_to_f32(h[i]);
	} else {
		for (size_t i = 0; i < n; i++)
			x[i] = ct_f16_to_f32(h[i]);
	}
}

/* Defines the kernels and their table, compiled for one target. */
#define KERNELS(suffix, attribute, target_name)                                                                        \
	attribute static void sgd_##suffix(size_t n, float *p, const float *g, float *m, const struct ct_sgd_coefs *c) \
	{                                                                                                              \
		sgd(n, p, g, m, c);                                                                                    \
	}                                                                                                              \
	attribute static void adam_##suffix(size_t n, float *p, const float *g, float *m, float *v,                    \
					    const struct ct_adam_coefs *c)                                             \
	{                                                                                                              \
		adam(n, p, g, m, v, c);                                                                                \
	}                                                                                                              \
	attribute static void lamb_moments_##suffix(size_t n, const float *p, const float *g, float *m, float *v,      \
						    const struct ct_lamb_coefs *c, double sums[2])                     \
	{                                                                                                              \
		lamb_moments(n, p, g, m, v, c, sums);                                                                  \
	}                                                                                                              \
	attribute static void lamb_apply_##suffix(size_t n, float *p, const float *m, const float *v,                  \
						  const struct ct_lamb_coefs *c)                                       \
	{                                                                                                              \
		lamb_apply(n, p, m, v, c);                                                                             \
	}                                                                                                              \
	attribute static double sum_squares_##suffix(size_t n, const float *g)                                         \
	{                                                                                                              \
		return sum_squares(n, g);                                                                              \
	}                                                                                                              \
	attribute static void average_##suffix(size_t n, float *e, const float *x, float decay, float rest)            \
	{                                                                                                              \
		average(n, e, x, decay, rest);                                                                         \
	}                                                                                                              \
	attribute static void to_half_##suffix(size_t n, uint16_t *h, const float *x, enum ct_dtype t)                 \
	{                                                                                                              \
		to_half(n, h, x, t);                                                                                   \
	}                                                                                                              \
	attribute static void from_half_##suffix(size_t n, float *x, const uint16_t *h, enum ct_dtype t)               \
	{                                                                                                              \
		from_half(n, x, h, t);                                                                                 \
	}                                                                                                              \
	static const struct ct_optim_kernels kernels_##suffix = {                                                      \
		target_name,          sgd_##suffix,     adam_##suffix,    lamb_moments_##suffix, lamb_apply_##suffix,  \
		sum_squares_##suffix, average_##suffix, to_half_##suffix, from_half_##suffix};

#ifdef __x86_64__
#ifdef __clang__
#define AVX512 "avx512f"
#else
#define AVX512 "avx512f,prefer-vector-width=512" /* otherwise gcc uses 256-bit vectors */
#endif
KERNELS(avx512, __attribute__((target(AVX512))), "avx512f")
KERNELS(avx2, __attribute__((target("avx2"))), "avx2")
#endif
KERNELS(baseline, , "baseline")

const struct ct_optim_kernels *ct__optim_kernels_at(size_t i)
{
	const struct ct_optim_kernels *usable[3];
	size_t n = 0;

#ifdef __x86_64__
	if (ct_cpu_has(CT_CPU_AVX512F))
		usable[n++] = &kernels_avx512;
	if (ct_cpu_has(CT_CPU_AVX2))
		usable[n++] = &kernels_avx2;
#endif
	usable[n++] = &kernels_baseline;
	return i < n ? usable[i] : NULL;
}
