/* What the check of convolution plans needs (nn/cuda/tune/verify.c): operands, and a few elements of the result, each
 * of which a block sums directly from the definition of a convolution. The operands are 1, -1, 2 and -2, so that each
 * product counts, and the sums are integers: they are exact in fp32 in any order, if they are below 2^24. */
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 64, FILL_BLOCK = 256 };

template <class T> static __global__ void conv_fill(const struct ct__k_conv_fill_args a)
{
	const size_t i = (size_t)blockIdx.x * FILL_BLOCK + threadIdx.x;
	uint32_t h = (uint32_t)(i ^ i >> 32) * 0x9E3779B1u + a.seed;

	if (i >= a.n)
		return;
	h = (h ^ h >> 15) * 0x85EBCA77u;
	h = (h ^ h >> 13) * 0xC2B2AE3Du;
	h ^= h >> 16;
	static_cast<T *>(a.x)[i] = from_float<T>((h & 1 ? 1.0f : -1.0f) * (h & 2 ? 1.0f : 2.0f));
}

template <class T> static inline __device__ float element(const void *p, int64_t i)
{
	return to_float(static_cast<const T *>(p)[i]);
}

/* A product of the sums: x[n,h,w,c of the group of k] w[k,r,s,c], which belongs to y[n,p,q,k]. */
struct conv_term {
	int64_t n, p, q, k, r, s, c;
	bool exists;
};

/* Term i of element e of the result; false: there are no more. */
static inline __device__ bool term_of(const struct ct__k_conv_check_args &a, int64_t e, int64_t i, struct conv_term *t)
{
	const int64_t cg = a.c / a.groups, kg = a.k / a.groups;

	t->exists = true;
	if (a.direction == CT__K_CONV_FORWARD) {
		*t = {e / a.k / a.q / a.p, e / a.k / a.q % a.p, e / a.k % a.q, e % a.k,
		      i / cg / a.s,        i / cg % a.s,        i % cg,        true};
		return t->r < a.r;
	}
	if (a.direction == CT__K_CONV_FILTER) {
		*t = {i / a.q / a.p,      i / a.q % a.p, i % a.q, e / cg / a.s / a.r,
		      e / cg / a.s % a.r, e / cg % a.s,  e % cg,  true};
		return t->n < a.n;
	}
	const int64_t c = e % a.c, w = e / a.c % a.w, h = e / a.c / a.w % a.h, r = i / kg / a.s, s = i / kg % a.s,
		      p = h + a.pad_h - r * a.dilation_h, q = w + a.pad_w - s * a.dilation_w;
	*t = {e / a.c / a.w / a.h, p / a.stride_h, q / a.stride_w, c / cg * kg + i % kg, r, s, c % cg, true};
	t->exists = p >= 0 && q >= 0 && p % a.stride_h == 0 && q % a.stride_w == 0 && t->p < a.p && t->q < a.q;
	return r < a.r;
}

template <class T> static inline __device__ float product(const struct ct__k_conv_check_args &a, const conv_term &t)
{
	const int64_t cg = a.c / a.groups, kg = a.k / a.groups, h = t.p * a.stride_h - a.pad_h + t.r * a.dilation_h,
		      w = t.q * a.stride_w - a.pad_w + t.s * a.dilation_w;

	if (!t.exists || h < 0 || w < 0 || h >= a.h || w >= a.w)
		return 0;
	const int64_t x_at = ((t.n * a.h + h) * a.w + w) * a.c + t.k / kg * cg + t.c,
		      w_at = ((t.k * a.r + t.r) * a.s + t.s) * cg + t.c,
		      y_at = ((t.n * a.p + t.p) * a.q + t.q) * a.k + t.k;
	if (a.direction == CT__K_CONV_FORWARD)
		return element<T>(a.x, x_at) * element<T>(a.filter, w_at);
	if (a.direction == CT__K_CONV_FILTER)
		return element<T>(a.x, x_at) * element<T>(a.y, y_at);
	return element<T>(a.y, y_at) * element<T>(a.filter, w_at);
}

template <class T> static __global__ void conv_sums(const struct ct__k_conv_check_args a)
{
	__shared__ double sums[BLOCK], magnitudes[BLOCK];
	const void *result = a.direction == CT__K_CONV_FORWARD ? a.y : a.direction == CT__K_CONV_DATA ? a.x : a.filter;
	const int64_t e = a.n_elements > 1 ? (int64_t)blockIdx.x * (a.n_result - 1) / (a.n_elements - 1) : 0;
	double sum = 0, magnitude = 0;
	conv_term t;

	for (int64_t i = threadIdx.x; term_of(a, e, i, &t); i += BLOCK) {
		const double x = product<T>(a, t);

		sum += x;
		magnitude += fabs(x);
	}
	sums[threadIdx.x] = sum;
	magnitudes[threadIdx.x] = magnitude;
	__syncthreads();
	if (threadIdx.x > 0)
		return;
	for (int i = 1; i < BLOCK; i++) {
		sum += sums[i];
		magnitude += magnitudes[i];
	}
	for (int i = 0; i < 2 && a.addends[i]; i++)
		sum += element<T>(a.addends[i], a.per_channel[i] ? e % a.k : e);
	a.out[blockIdx.x] = {element<T>(result, e), a.relu && sum < 0 ? 0 : sum, magnitude, e};
}

template <class T> static cudaError_t launch_fill(const struct ct__k_conv_fill_args *a, cudaStream_t s)
{
	return ct__launch(conv_fill<T>, blocks_for(a->n, FILL_BLOCK), FILL_BLOCK, 0, s, *a);
}

template <class T> static cudaError_t launch_sums(const struct ct__k_conv_check_args *a, cudaStream_t s)
{
	return ct__launch(conv_sums<T>, (unsigned)a->n_elements, BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_conv_fill(const struct ct__k_conv_fill_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_fill, a, s)
}

extern "C" cudaError_t ct__k_conv_check(const struct ct__k_conv_check_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_sums, a, s)
}
