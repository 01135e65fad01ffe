/* Which kernels this processor can run, and the calls of them. This file is compiled for every processor. Sizes of
 * memory depend on the number of lanes only. */
#include "nn/onednn/kernels/select.h"

#include "base/cpu/features.h"
#include "nn/onednn/kernels/norm_nhwc.h"

int ct__lanes(void)
{
	return ct_cpu_has(CT_CPU_AVX512) ? 16 : 8;
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

/* The partial sums of blocked tensors are those of a row, and in NHWC those of a tile. */
static size_t n_partials(const struct ct_norm *p)
{
	const struct ct_norm_tiles t = ct__norm_tiles_of(p);

	return p->nhwc ? ct__norm_n_tiles(&t) : (size_t)p->n;
}

size_t ct__norm_nhwc_scratch_bytes(int n, int channels, int plane)
{
	const struct ct_norm_tiles with = ct__norm_tiles((size_t)n, (size_t)plane, channels),
				   without = ct__norm_tiles(1, (size_t)n * (size_t)plane, channels);
	const size_t a = ct__norm_n_tiles(&with), b = ct__norm_n_tiles(&without);

	return ((a > b ? a : b) + 1) * n_blocks(channels) * partial_bytes() + sizeof(double);
}

size_t ct__norm_scratch_bytes(int n, int channels)
{
	return ((size_t)n + 1) * n_blocks(channels) * partial_bytes() +
	       sizeof(double); /* followed by the sums of all rows */
}

/* The sums are stored after the partials. */
double *ct__norm_scratch_sums(const struct ct_norm *p)
{
	return (double *)(void *)((char *)p->partials + n_partials(p) * n_blocks(p->channels) * partial_bytes());
}

size_t ct__norm_mask_bytes(int n, int channels, int plane)
{
	return (size_t)n * n_blocks(channels) * (size_t)plane * (size_t)ct__lanes() / 8;
}

static const struct ct_norm_kernels *kernels_of(const struct ct_norm *p)
{
	return p->nhwc ? CT_SELECT(ct__norm_nhwc_kernels) : CT_SELECT(ct__norm_kernels);
}

void ct__norm_forward(const struct ct_norm *p)
{
	kernels_of(p)->forward(p);
}

void ct__norm_backward(const struct ct_norm *p)
{
	kernels_of(p)->backward(p);
}

void ct__norm_sums(const struct ct_norm *p, double *sums)
{
	kernels_of(p)->sums(p, sums);
}

void ct__norm_moments(const struct ct_norm *p, const double *sums, double count)
{
	kernels_of(p)->moments(p, sums, count);
}

void ct__norm_apply(const struct ct_norm *p)
{
	kernels_of(p)->apply(p);
}

void ct__norm_gradient_sums(const struct ct_norm *p, double *sums)
{
	kernels_of(p)->gradient_sums(p, sums);
}

void ct__norm_gradient_apply(const struct ct_norm *p, const double *sums, double count)
{
	kernels_of(p)->gradient_apply(p, sums, count);
}

void ct__norm_scale_rows(int threads, int n, size_t elems, bool bf16, const void *x, const float *factor, void *y)
{
	CT_SELECT(ct__norm_scale_rows)(threads, n, elems, bf16, x, factor, y);
}

/* The norms of x and of the elements at the maxima need it one after the other. */
size_t ct__norm_pool_scratch_bytes(const struct ct_norm_pool_shape *s)
{
	const size_t in = ct__norm_nhwc_scratch_bytes(s->n, s->channels, s->in.h * s->in.w),
		     out = ct__norm_nhwc_scratch_bytes(s->n, s->channels, s->out.h * s->out.w);

	if (!s->nhwc)
		return ct__norm_scratch_bytes(s->n, s->channels);
	return in > out ? in : out;
}

size_t ct__norm_pool_out_elems(const struct ct_norm_pool_shape *s)
{
	const size_t channels = s->nhwc ? (size_t)s->channels : n_blocks(s->channels) * (size_t)ct__lanes();

	return (size_t)s->n * (size_t)s->out.h * (size_t)s->out.w * channels;
}

void ct__norm_pool_forward(struct ct_norm_pool *p)
{
	CT_SELECT(ct__norm_pool_kernels)->forward(p);
}

void ct__norm_pool_backward(struct ct_norm_pool *p)
{
	CT_SELECT(ct__norm_pool_kernels)->backward(p);
}
