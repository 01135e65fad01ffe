#include <stdint.h>
#include <string.h>

#include "dist/comm_impl.h"

/* One body per element type and operation; the compiler makes an AVX-512, an AVX2 and a plain copy of each and the loader
 * picks one. All copies round alike (elementwise, no reassociation, no contraction), so ranks on different CPUs still get
 * the same bits. The resolvers run before a sanitizer's runtime is up, hence not there. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

#define KERNEL(name, type, expr)                                         \
	CLONES static void name(void *vd, const void *vs, size_t n)      \
	{                                                                \
		type *restrict d = vd;                                   \
		const type *restrict s = vs;                             \
                                                                         \
		for (size_t i = 0; i < n; i++) {                         \
			type a = d[i], b = s[i];                         \
			d[i] = (expr);                                   \
		}                                                        \
	}

/* Integers wrap around, so they are added and multiplied as unsigned. Min and max hand on a NaN of either side. */
KERNEL(sum_f32, float, a + b)
KERNEL(prod_f32, float, a *b)
KERNEL(min_f32, float, a < b || a != a ? a : b)
KERNEL(max_f32, float, a > b || a != a ? a : b)
KERNEL(sum_f64, double, a + b)
KERNEL(prod_f64, double, a *b)
KERNEL(min_f64, double, a < b || a != a ? a : b)
KERNEL(max_f64, double, a > b || a != a ? a : b)
KERNEL(sum_i32, uint32_t, a + b)
KERNEL(prod_i32, uint32_t, a *b)
KERNEL(min_i32, int32_t, a < b ? a : b)
KERNEL(max_i32, int32_t, a > b ? a : b)
KERNEL(sum_i64, uint64_t, a + b)
KERNEL(prod_i64, uint64_t, a *b)
KERNEL(min_i64, int64_t, a < b ? a : b)
KERNEL(max_i64, int64_t, a > b ? a : b)
KERNEL(sum_u8, uint8_t, (uint8_t)(a + b))
KERNEL(prod_u8, uint8_t, (uint8_t)(a * b))
KERNEL(min_u8, uint8_t, a < b ? a : b)
KERNEL(max_u8, uint8_t, a > b ? a : b)

static inline float bf16_to_f32(uint16_t v)
{
	uint32_t u = (uint32_t)v << 16;
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/* Round to nearest even; a NaN stays one. */
static inline uint16_t bf16_from_f32(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#define KERNEL_BF16(name, expr)                                                 \
	CLONES static void name(void *vd, const void *vs, size_t n)             \
	{                                                                       \
		uint16_t *restrict d = vd;                                      \
		const uint16_t *restrict s = vs;                                \
                                                                                \
		for (size_t i = 0; i < n; i++) {                                \
			float a = bf16_to_f32(d[i]), b = bf16_to_f32(s[i]);     \
			d[i] = bf16_from_f32(expr);                             \
		}                                                               \
	}

KERNEL_BF16(sum_bf16, a + b)
KERNEL_BF16(prod_bf16, a *b)
KERNEL_BF16(min_bf16, a < b || a != a ? a : b)
KERNEL_BF16(max_bf16, a > b || a != a ? a : b)

typedef void (*kernel_fn)(void *d, const void *s, size_t n);

static const kernel_fn kernels[CT_N_DTYPES][4] = {
	[CT_F32] = { sum_f32, prod_f32, min_f32, max_f32 },
	[CT_F64] = { sum_f64, prod_f64, min_f64, max_f64 },
	[CT_I32] = { sum_i32, prod_i32, min_i32, max_i32 },
	[CT_I64] = { sum_i64, prod_i64, min_i64, max_i64 },
	[CT_U8] = { sum_u8, prod_u8, min_u8, max_u8 },
	[CT_BF16] = { sum_bf16, prod_bf16, min_bf16, max_bf16 },
};

void ct_reduce_into(void *dst, const void *src, size_t n, enum ct_dtype t, enum ct_redop op)
{
	kernels[t][op == CT_AVG ? CT_SUM : op](dst, src, n);
}

#define SCALE(type, expr)                        \
	do {                                     \
		type *d = dst;                   \
		for (size_t i = 0; i < n; i++) { \
			type a = d[i];           \
			d[i] = (expr);           \
		}                                \
	} while (0)

void ct_reduce_scale(void *dst, size_t n, enum ct_dtype t, int k)
{
	switch (t) {
	case CT_F32:
		SCALE(float, a / (float)k);
		return;
	case CT_F64:
		SCALE(double, a / (double)k);
		return;
	case CT_I32:
		SCALE(int32_t, a / k);
		return;
	case CT_I64:
		SCALE(int64_t, a / k);
		return;
	case CT_U8:
		SCALE(uint8_t, (uint8_t)(a / k));
		return;
	case CT_BF16:
		SCALE(uint16_t, bf16_from_f32(bf16_to_f32(a) / (float)k));
		return;
	case CT_N_DTYPES:
		break;
	}
	CT_ASSERT(!"element type");
}

#define BLOCK_BYTES 8192

void ct_reduce_ranks(void *const *in, int n_in, void *const *out, int n_out, size_t n, enum ct_dtype t, enum ct_redop op)
{
	_Alignas(64) unsigned char acc[BLOCK_BYTES];
	size_t elem = ct_dtype_bytes(t), step = sizeof(acc) / elem;

	for (size_t i = 0; i < n; i += step) {
		size_t m = n - i < step ? n - i : step, at = i * elem;

		memcpy(acc, (const char *)in[0] + at, m * elem);
		for (int r = 1; r < n_in; r++)
			ct_reduce_into(acc, (const char *)in[r] + at, m, t, op);
		if (op == CT_AVG)
			ct_reduce_scale(acc, m, t, n_in);
		for (int r = 0; r < n_out; r++)
			memcpy((char *)out[r] + at, acc, m * elem);
	}
}
