/* Reduces the vectors of several ranks, element by element and in the order of the ranks, whatever the number of
 * outputs and whether they are also inputs. shm and mpi compute all their sums here, which is why their results do not
 * depend on the rank that computes them. The vectors are processed in blocks that stay in the first-level cache between
 * the passes over them.
 *
 * There are three cases. If each input is also the output of the same rank and the result is not an average, the first
 * vector accumulates the result, and the last pass writes two vectors at once. Averages of 16-bit numbers, and sums of
 * more than two vectors of them, are accumulated in fp32 and rounded once. Otherwise the first output accumulates, or a
 * block on the stack if that output is an input that is still needed. A vector that is both an input and an output must
 * have been read before it is written. */
#include <stdint.h>
#include <string.h>

#include "base/cpu/features.h"
#include "base/half.h"
#include "dist/comm/comm_impl.h"

/* There is one function per element type, operation and instruction set: KERNELS defines those of one set. All sets
 * round in the same way (elementwise, no reassociation, no contraction), so ranks on different CPUs get bitwise
 * identical results. */
#if defined(__x86_64__)
#define TARGET_avx512 __attribute__((target("avx512f")))
#define TARGET_avx2 __attribute__((target("avx2")))
#endif
#define TARGET_generic

/* The vectors of a kernel are distinct or the same, so no element depends on an earlier one. */
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

/* NAME computes d = a op b; d may be a or b. NAME_both computes a = b = a op b: the all-reduce of two ranks in one pass
 * over memory. */
#define KERNEL(set, name, type, expr)                                                             \
	TARGET_##set static void name##_##set(void *vd, const void *va, const void *vb, size_t n) \
	{                                                                                         \
		const type *x = va, *y = vb;                                                      \
		type *d = vd;                                                                     \
                                                                                                  \
		ELEMENTWISE                                                                       \
		for (size_t i = 0; i < n; i++) {                                                  \
			type a = x[i], b = y[i];                                                  \
			d[i] = (expr);                                                            \
		}                                                                                 \
	}                                                                                         \
                                                                                                  \
	TARGET_##set static void name##_both_##set(void *va, void *vb, size_t n)                  \
	{                                                                                         \
		type *restrict x = va, *restrict y = vb;                                          \
                                                                                                  \
		for (size_t i = 0; i < n; i++) {                                                  \
			type a = x[i], b = y[i];                                                  \
			x[i] = y[i] = (expr);                                                     \
		}                                                                                 \
	}

/* For 16-bit floating-point numbers, the operation is computed in fp32, and each result is rounded. */
#define KERNEL_16(set, name, to_f32, from_f32, expr)                                              \
	TARGET_##set static void name##_##set(void *vd, const void *va, const void *vb, size_t n) \
	{                                                                                         \
		const uint16_t *x = va, *y = vb;                                                  \
		uint16_t *d = vd;                                                                 \
                                                                                                  \
		ELEMENTWISE                                                                       \
		for (size_t i = 0; i < n; i++) {                                                  \
			float a = to_f32(x[i]), b = to_f32(y[i]);                                 \
			d[i] = from_f32(expr);                                                    \
		}                                                                                 \
	}                                                                                         \
                                                                                                  \
	TARGET_##set static void name##_both_##set(void *va, void *vb, size_t n)                  \
	{                                                                                         \
		uint16_t *restrict x = va, *restrict y = vb;                                      \
                                                                                                  \
		for (size_t i = 0; i < n; i++) {                                                  \
			float a = to_f32(x[i]), b = to_f32(y[i]);                                 \
			x[i] = y[i] = from_f32(expr);                                             \
		}                                                                                 \
	}

/* A sum of more than two 16-bit vectors is computed in fp32, and rounded once. */
#define KERNEL_WIDE(set, name, to_f32, from_f32)                                                     \
	TARGET_##set static void widen_##name##_##set(float *restrict sum, const void *vs, size_t n) \
	{                                                                                            \
		const uint16_t *restrict s = vs;                                                     \
                                                                                                     \
		for (size_t i = 0; i < n; i++)                                                       \
			sum[i] = to_f32(s[i]);                                                       \
	}                                                                                            \
                                                                                                     \
	TARGET_##set static void add_##name##_##set(float *restrict sum, const void *vs, size_t n)   \
	{                                                                                            \
		const uint16_t *restrict s = vs;                                                     \
                                                                                                     \
		for (size_t i = 0; i < n; i++)                                                       \
			sum[i] += to_f32(s[i]);                                                      \
	}                                                                                            \
                                                                                                     \
	TARGET_##set static void round_##name##_##set(void *vd, const float *restrict sum, size_t n) \
	{                                                                                            \
		uint16_t *restrict d = vd;                                                           \
                                                                                                     \
		for (size_t i = 0; i < n; i++)                                                       \
			d[i] = from_f32(sum[i]);                                                     \
	}

struct wide {
	void (*widen)(float *sum, const void *s, size_t n);
	void (*add)(float *sum, const void *s, size_t n);
	void (*round)(void *d, const float *sum, size_t n);
};

struct kernels {
	void (*one)(void *d, const void *a, const void *b, size_t n);
	void (*both)(void *a, void *b, size_t n);
};

/* The kernels of an instruction set. */
struct kernel_set {
	struct kernels kernels[CT_N_DTYPES][4];
	struct wide bf16, f16;
};

/* clang-format off */
#define ONE(set, name) {name##_##set, name##_both_##set}
#define ROW(set, t) {ONE(set, sum_##t), ONE(set, prod_##t), ONE(set, min_##t), ONE(set, max_##t)}
#define WIDE(set, t) {widen_##t##_##set, add_##t##_##set, round_##t##_##set}
/* clang-format on */

/* Integers wrap around, so they are added and multiplied as unsigned. Min and max propagate a NaN in either operand. */
#define KERNELS(set)                                                                        \
	KERNEL(set, sum_f32, float, (a + b))                                                \
	KERNEL(set, prod_f32, float, (a * b))                                               \
	KERNEL(set, min_f32, float, a < b || a != a ? a : b)                                \
	KERNEL(set, max_f32, float, a > b || a != a ? a : b)                                \
	KERNEL(set, sum_f64, double, (a + b))                                               \
	KERNEL(set, prod_f64, double, (a * b))                                              \
	KERNEL(set, min_f64, double, a < b || a != a ? a : b)                               \
	KERNEL(set, max_f64, double, a > b || a != a ? a : b)                               \
	KERNEL(set, sum_i32, uint32_t, (a + b))                                             \
	KERNEL(set, prod_i32, uint32_t, (a * b))                                            \
	KERNEL(set, min_i32, int32_t, a < b ? a : b)                                        \
	KERNEL(set, max_i32, int32_t, a > b ? a : b)                                        \
	KERNEL(set, sum_i64, uint64_t, (a + b))                                             \
	KERNEL(set, prod_i64, uint64_t, (a * b))                                            \
	KERNEL(set, min_i64, int64_t, a < b ? a : b)                                        \
	KERNEL(set, max_i64, int64_t, a > b ? a : b)                                        \
	KERNEL(set, sum_u8, uint8_t, (uint8_t)(a + b))                                      \
	KERNEL(set, prod_u8, uint8_t, (uint8_t)(1u * a * b))                                \
	KERNEL(set, min_u8, uint8_t, a < b ? a : b)                                         \
	KERNEL(set, max_u8, uint8_t, a > b ? a : b)                                         \
	KERNEL_16(set, sum_bf16, ct_bf16_to_f32, ct_bf16_from_f32, (a + b))                 \
	KERNEL_16(set, sum_f16, ct_f16_to_f32, ct_f16_from_f32, (a + b))                    \
	KERNEL_16(set, prod_bf16, ct_bf16_to_f32, ct_bf16_from_f32, (a * b))                \
	KERNEL_16(set, prod_f16, ct_f16_to_f32, ct_f16_from_f32, (a * b))                   \
	KERNEL_16(set, min_bf16, ct_bf16_to_f32, ct_bf16_from_f32, a < b || a != a ? a : b) \
	KERNEL_16(set, min_f16, ct_f16_to_f32, ct_f16_from_f32, a < b || a != a ? a : b)    \
	KERNEL_16(set, max_bf16, ct_bf16_to_f32, ct_bf16_from_f32, a > b || a != a ? a : b) \
	KERNEL_16(set, max_f16, ct_f16_to_f32, ct_f16_from_f32, a > b || a != a ? a : b)    \
	KERNEL_WIDE(set, bf16, ct_bf16_to_f32, ct_bf16_from_f32)                            \
	KERNEL_WIDE(set, f16, ct_f16_to_f32, ct_f16_from_f32)                               \
	static const struct kernel_set set_##set = {.kernels = {[CT_F32] = ROW(set, f32),   \
								[CT_F64] = ROW(set, f64),   \
								[CT_I32] = ROW(set, i32),   \
								[CT_I64] = ROW(set, i64),   \
								[CT_U8] = ROW(set, u8),     \
								[CT_BF16] = ROW(set, bf16), \
								[CT_F16] = ROW(set, f16)},  \
						    .bf16 = WIDE(set, bf16),                \
						    .f16 = WIDE(set, f16)};

#if defined(__x86_64__)
KERNELS(avx512)
KERNELS(avx2)
#endif
KERNELS(generic)

static const struct kernel_set *set_of_processor(void)
{
#if defined(__x86_64__)
	if (ct_cpu_has(CT_CPU_AVX512F))
		return &set_avx512;
	if (ct_cpu_has(CT_CPU_AVX2))
		return &set_avx2;
#endif
	return &set_generic;
}

static const struct kernels *kernels_of(enum ct_dtype t, enum ct_redop op)
{
	return &set_of_processor()->kernels[t][op == CT_AVG ? CT_SUM : op];
}

void ct__reduce_into(void *dst, const void *src, size_t n, enum ct_dtype t, enum ct_redop op)
{
	kernels_of(t, op)->one(dst, dst, src, n);
}

#define SCALE(type, expr)                        \
	do {                                     \
		type *d = dst;                   \
		for (size_t i = 0; i < n; i++) { \
			type a = d[i];           \
			d[i] = (expr);           \
		}                                \
	} while (0)

void ct__reduce_scale(void *dst, size_t n, enum ct_dtype t, int k)
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
		SCALE(uint16_t, ct_bf16_from_f32(ct_bf16_to_f32(a) / (float)k));
		return;
	case CT_F16:
		SCALE(uint16_t, ct_f16_from_f32(ct_f16_to_f32(a) / (float)k));
		return;
	case CT_N_DTYPES:
		break;
	}
	CT_ASSERT(!"element type");
}

/* Small enough that a block stays in the first-level cache between its passes. */
#define BLOCK_BYTES 8192

static char *at(void *p, size_t offset)
{
	return (char *)p + offset;
}

/* All-reduce in place: the first vector accumulates the result, and the last step writes two vectors. */
static void reduce_in_place(void *const *v, int n_v, size_t from, size_t n, size_t elem, const struct kernels *k)
{
	for (int r = 1; r < n_v - 1; r++)
		k->one(at(v[0], from), at(v[0], from), at(v[r], from), n);
	k->both(at(v[0], from), at(v[n_v - 1], from), n);
	for (int r = 1; r < n_v - 1; r++)
		memcpy(at(v[r], from), at(v[0], from), n * elem);
}

/* Outputs are written after all inputs have been read. */
static void sum_wide(void *const *in, int n_in, void *const *out, int n_out, size_t n, const struct wide *k,
		     bool average)
{
	_Alignas(64) float sum[BLOCK_BYTES / sizeof(float)];
	const size_t step = CT_ARRAY_LEN(sum);

	for (size_t i = 0; i < n; i += step) {
		const size_t m = n - i < step ? n - i : step, from = i * sizeof(uint16_t);

		k->widen(sum, at(in[0], from), m);
		for (int r = 1; r < n_in; r++)
			k->add(sum, at(in[r], from), m);
		if (average)
			ct__reduce_scale(sum, m, CT_F32, n_in);
		k->round(at(out[0], from), sum, m);
		for (int r = 1; r < n_out; r++)
			memcpy(at(out[r], from), at(out[0], from), m * sizeof(uint16_t));
	}
}

void ct__reduce_ranks(void *const *in, int n_in, void *const *out, int n_out, size_t n, enum ct_dtype t,
		      enum ct_redop op)
{
	_Alignas(64) char acc[BLOCK_BYTES];
	const struct kernels *k = kernels_of(t, op);
	size_t elem = ct_dtype_bytes(t), step = BLOCK_BYTES / elem;
	bool in_place = n_in == n_out && n_in > 1 && op != CT_AVG, taken = false;

	if ((t == CT_BF16 || t == CT_F16) && ((op == CT_SUM && n_in > 2) || op == CT_AVG)) {
		const struct kernel_set *set = set_of_processor();

		sum_wide(in, n_in, out, n_out, n, t == CT_BF16 ? &set->bf16 : &set->f16, op == CT_AVG);
		return;
	}
	for (int r = 0; r < n_out && in_place; r++)
		in_place = in[r] == out[r];
	/* The first output accumulates the result, unless it is still needed as an input before the last step. */
	for (int r = 2; r < n_in; r++)
		taken |= out[0] == in[r];
	for (size_t i = 0; i < n; i += step) {
		size_t m = n - i < step ? n - i : step, from = i * elem;
		char *first = at(out[0], from), *sum = at(in[0], from);

		if (in_place) {
			reduce_in_place(in, n_in, from, m, elem, k);
			continue;
		}
		for (int r = 1; r < n_in; r++) {
			char *to = taken && r < n_in - 1 ? acc : first;

			k->one(to, sum, at(in[r], from), m);
			sum = to;
		}
		if (op == CT_AVG)
			ct__reduce_scale(sum, m, t, n_in);
		for (int r = 0; r < n_out; r++) {
			if (at(out[r], from) != sum)
				memcpy(at(out[r], from), sum, m * elem);
		}
	}
}
