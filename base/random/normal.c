/* Normal numbers. The definition is ct__rng_normal, and a batch must give the same bits. A batch computes the logarithm
 * and the cosine with polynomials instead of libm's functions, so that a loop over its numbers is vectorized. Before
 * they are rounded to float, its results differ from those of the definition by a few units in the last place of a
 * double. Both round to the same float, unless a boundary between two floats is closer than that, which is the case for
 * about one number in 300,000. A batch therefore rounds both ends of an interval that contains both results, and
 * reports if they differ.
 *
 * The same source is compiled for several instruction sets. target_clones is not used, because its ifunc resolvers run
 * before the thread sanitizer is initialized. */
#include "base/random/normal.h"

#include <math.h>
#include <string.h>

#include "base/cpu/features.h"
#include "base/random/normal_impl.h"

/* Half of the width of the interval, relative to the radius. The sum of all errors is below 2^-49: libm's functions,
 * the polynomials and each operation have relative errors of about 2^-52, and the definition rounds the angle, which is
 * below 2 pi, to 53 bits. */
#define MARGIN 0x1p-46

float ct__rng_normal(uint32_t a, uint32_t b)
{
	/* Computed in double: the last bit of libm's results differs between processors and versions, and rounding to
	 * float hides the difference. */
	double u = ((double)a + 1.0) * 0x1p-32, v = (double)b * 0x1p-32;

	return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * v));
}

/* Converts an integer below 2^52. Compilers vectorize this on processors that cannot convert 64-bit integers. */
static inline double to_double(uint64_t i)
{
	double d;

	i |= 0x4330000000000000u; /* the representation of 2^52 */
	memcpy(&d, &i, sizeof(d));
	return d - 0x1p52;
}

/* log((a + 1) / 2^32). Splits a + 1 into 2^e * m with m in [sqrt(1/2), sqrt(2)). With s = (m - 1) / (m + 1), log(m) is
 * the series 2 (s + s^3/3 + s^5/5 + ...), in which |s| < 0.172. */
static inline double log_of(uint32_t a)
{
	double d = to_double(a) + 1.0, m;
	uint64_t bits, from_half;

	memcpy(&bits, &d, sizeof(bits));
	from_half = bits - 0x3fe6a09e667f3bcdu; /* the representation of sqrt(1/2) */
	bits -= from_half & 0xfff0000000000000u;
	memcpy(&m, &bits, sizeof(m));
	const double s = (m - 1.0) / (m + 1.0), z = s * s;
	double sum = 1.0 / 23;

	for (int k = 21; k >= 3; k -= 2)
		sum = sum * z + 1.0 / k;
	return (to_double(from_half >> 52) - 32.0) * 0.693147180559945309417 + 2.0 * (s + s * z * sum);
}

/* cos(2 pi b / 2^32) = sin(x) with |x| <= pi / 2, by its Taylor series. */
static inline double cos_of(uint32_t b)
{
	const double x = 6.283185307179586476925 * (fabs(to_double(b) * 0x1p-32 - 0.5) - 0.25), z = x * x;
	double sum = 1.0;

	for (int k = 22; k >= 2; k -= 2)
		sum = 1.0 - sum * z * (1.0 / (k * (k + 1)));
	return x * sum;
}

static inline __attribute__((always_inline)) bool batch(const uint32_t *restrict a, const uint32_t *restrict b,
							float *restrict x)
{
	uint64_t differ = 0;

	for (int i = 0; i < CT_RNG_BATCH; i++) {
		const double radius = sqrt(-2.0 * log_of(a[i])), y = radius * cos_of(b[i]), margin = radius * MARGIN;

		x[i] = (float)y;
		differ |= (float)(y - margin) < (float)(y + margin) || y == 0.0; /* the sign of 0 is in doubt */
	}
	return differ == 0;
}

#define BATCH(suffix, attribute)                                                             \
	attribute static bool batch_##suffix(const uint32_t *a, const uint32_t *b, float *x) \
	{                                                                                    \
		return batch(a, b, x);                                                       \
	}

#ifdef __x86_64__
#ifdef __clang__
#define AVX512 "avx512f"
#else
#define AVX512 "avx512f,prefer-vector-width=512" /* otherwise gcc uses 256-bit vectors */
#endif
BATCH(avx512, __attribute__((target(AVX512))))
BATCH(avx2, __attribute__((target("avx2,fma"))))
#endif
BATCH(baseline, )

ct_rng_batch_fn ct__rng_batch_at(size_t i)
{
	ct_rng_batch_fn usable[3];
	size_t n = 0;

#ifdef __x86_64__
	if (ct_cpu_has(CT_CPU_AVX512F))
		usable[n++] = batch_avx512;
	if (ct_cpu_has(CT_CPU_AVX2 | CT_CPU_FMA))
		usable[n++] = batch_avx2;
#endif
	usable[n++] = batch_baseline;
	return i < n ? usable[i] : NULL;
}

float ct_rng_normal(struct ct_rng *r)
{
	const uint32_t a = ct_rng_u32(r), b = ct_rng_u32(r);

	return ct__rng_normal(a, b);
}

/* Takes the next 16 blocks. */
static void next_batch(struct ct_rng *r, ct_rng_batch_fn compute, float *x)
{
	uint32_t pairs[2 * CT_RNG_BATCH], a[CT_RNG_BATCH], b[CT_RNG_BATCH];

	ct_philox4x32_x16(r->ctr, r->key, pairs);
	r->ctr[0] += 16;
	for (int i = 0; i < CT_RNG_BATCH; i++) {
		a[i] = pairs[2 * i];
		b[i] = pairs[2 * i + 1];
	}
	if (compute(a, b, x))
		return;
	for (int i = 0; i < CT_RNG_BATCH; i++)
		x[i] = ct__rng_normal(a[i], b[i]);
}

void ct_rng_normals(struct ct_rng *r, float *x, size_t n)
{
	const ct_rng_batch_fn compute = ct__rng_batch_at(0);

	while (n > 0) {
		const size_t now = r->used == 4 && n >= CT_RNG_BATCH ? CT_RNG_BATCH : 1;

		if (now > 1)
			next_batch(r, compute, x);
		else
			*x = ct_rng_normal(r);
		x += now;
		n -= now;
	}
}
