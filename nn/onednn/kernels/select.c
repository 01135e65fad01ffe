/* Which kernels this processor can run, and the calls of them. This file is compiled for every processor. Sizes of
 * memory depend on the number of lanes only. */
#include "nn/onednn/kernels/select.h"

#include "base/cpu/features.h"

int ct__lanes(void)
{
#if defined(__x86_64__)
	return ct_cpu_has(CT_CPU_AVX512) ? 16 : 8;
#else
	return 16;
#endif
}

bool ct__norm_usable(bool bf16)
{
#if defined(__x86_64__)
	return ct_cpu_has(bf16 ? CT_CPU_AVX512 | CT_CPU_AVX512BF16 : CT_CPU_AVX2 | CT_CPU_FMA);
#else
	(void)bf16;
	return true;
#endif
}

static size_t n_blocks(int channels)
{
	return ((size_t)channels + (size_t)ct__lanes() - 1) / (size_t)ct__lanes();
}

/* Two sums for each lane, in double. */
static size_t partial_bytes(void)
{
	return 2 * (size_t)ct__lanes() * sizeof(double);
}

size_t ct__norm_scratch_bytes(int n, int channels)
{
	return ((size_t)n + 1) * n_blocks(channels) * partial_bytes() +
	       sizeof(double); /* followed by the sums of all rows */
}

/* The sums are stored after the partials. */
double *ct__norm_scratch_sums(const struct ct_norm *p)
{
	return (double *)(void *)((char *)p->partials + (size_t)p->n * n_blocks(p->channels) * partial_bytes());
}

size_t ct__norm_mask_bytes(int n, int channels, int plane)
{
	return (size_t)n * n_blocks(channels) * (size_t)plane * (size_t)ct__lanes() / 8;
}

void ct__norm_forward(const struct ct_norm *p)
{
	CT_SELECT(ct__norm_kernels)->forward(p);
}

void ct__norm_backward(const struct ct_norm *p)
{
	CT_SELECT(ct__norm_kernels)->backward(p);
}

void ct__norm_sums(const struct ct_norm *p, double *sums)
{
	CT_SELECT(ct__norm_kernels)->sums(p, sums);
}

void ct__norm_moments(const struct ct_norm *p, const double *sums, double count)
{
	CT_SELECT(ct__norm_kernels)->moments(p, sums, count);
}

void ct__norm_apply(const struct ct_norm *p)
{
	CT_SELECT(ct__norm_kernels)->apply(p);
}

void ct__norm_gradient_sums(const struct ct_norm *p, double *sums)
{
	CT_SELECT(ct__norm_kernels)->gradient_sums(p, sums);
}

void ct__norm_gradient_apply(const struct ct_norm *p, const double *sums, double count)
{
	CT_SELECT(ct__norm_kernels)->gradient_apply(p, sums, count);
}

void ct__norm_scale_rows(int threads, int n, size_t elems, bool bf16, const void *x, const float *factor, void *y)
{
	CT_SELECT(ct__norm_scale_rows)(threads, n, elems, bf16, x, factor, y);
}

static size_t n_planes(const struct ct_norm_pool_shape *s)
{
	return (size_t)s->n * n_blocks(s->channels);
}

size_t ct__norm_pool_scratch_bytes(const struct ct_norm_pool_shape *s)
{
	return n_planes(s) * partial_bytes();
}

size_t ct__norm_pool_out_elems(const struct ct_norm_pool_shape *s)
{
	return n_planes(s) * (size_t)s->out.h * (size_t)s->out.w * (size_t)ct__lanes();
}

void ct__norm_pool_forward(struct ct_norm_pool *p)
{
	CT_SELECT(ct__norm_pool_kernels)->forward(p);
}

void ct__norm_pool_backward(struct ct_norm_pool *p)
{
	CT_SELECT(ct__norm_pool_kernels)->backward(p);
}
