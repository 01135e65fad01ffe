/* Reductions in the order of ranks. Every partial result is rounded to the element type, as in NCCL's rings, which pass
 * partial results of that type from rank to rank. */
#include <string.h>

#include "base/half.h"
#include "tests/soft_gpu/nccl/nccl_impl.h"

/* X(ncclDataType_t, name, element type, type in which one operation is computed, conversions from and to the element
 * type). Signed integers are computed as unsigned ones where they could overflow. */
#define AS_IS(x) (x)
#define REAL_TYPES(X)                                                            \
	X(ncclFloat16, f16, uint16_t, float, ct_f16_to_f32, ct_f16_from_f32)     \
	X(ncclBfloat16, bf16, uint16_t, float, ct_bf16_to_f32, ct_bf16_from_f32) \
	X(ncclFloat32, f32, float, float, AS_IS, AS_IS)                          \
	X(ncclFloat64, f64, double, double, AS_IS, AS_IS)
#define INTEGER_TYPES(X)                                          \
	X(ncclInt8, i8, int8_t, uint64_t, AS_IS, (int8_t))        \
	X(ncclUint8, u8, uint8_t, uint64_t, AS_IS, (uint8_t))     \
	X(ncclInt32, i32, int32_t, uint64_t, AS_IS, (int32_t))    \
	X(ncclUint32, u32, uint32_t, uint64_t, AS_IS, (uint32_t)) \
	X(ncclInt64, i64, int64_t, uint64_t, AS_IS, (int64_t))    \
	X(ncclUint64, u64, uint64_t, uint64_t, AS_IS, (uint64_t))

static const struct {
	const char *name;
	size_t bytes;
	bool reduces;
} types[ncclNumTypes] = {
#define ROW(id, name, type, compute, from, to) [id] = {#name, sizeof(type), true},
	REAL_TYPES(ROW) INTEGER_TYPES(ROW)
#undef ROW
		[ncclFloat8e4m3] = {"f8e4m3", 1, false},
	[ncclFloat8e5m2] = {"f8e5m2", 1, false},
};

size_t soft__type_bytes(ncclDataType_t t)
{
	return (unsigned)t < ncclNumTypes ? types[t].bytes : 0;
}

const char *soft__type_name(uint32_t t)
{
	return t < ncclNumTypes ? types[t].name : "?";
}

bool soft__can_reduce(ncclDataType_t t)
{
	return types[t].reduces;
}

#define SUM(a, b) ((a) + (b))
#define PROD(a, b) ((a) * (b))

/* acc = acc OP x for each element; both are converted, and the result is rounded. */
#define LOOP(type, compute, from, to, op)                                        \
	do {                                                                     \
		type *a = acc;                                                   \
		const type *b = x;                                               \
		for (size_t i = 0; i < n; i++)                                   \
			a[i] = to(op((compute)from(a[i]), (compute)from(b[i]))); \
	} while (0)
/* The larger or the smaller one. As in NCCL, the maximum and the minimum ignore a NaN if the other is a number. */
#define PICK(type, from, sign)                                                      \
	do {                                                                        \
		type *a = acc;                                                      \
		const type *b = x;                                                  \
		for (size_t i = 0; i < n; i++) {                                    \
			if (from(b[i]) sign from(a[i]) || from(a[i]) != from(a[i])) \
				a[i] = b[i];                                        \
		}                                                                   \
	} while (0)
#define COMBINE(id, name, type, compute, from, to)                                  \
	static void combine_##name(uint32_t op, void *acc, const void *x, size_t n) \
	{                                                                           \
		if (op == ncclProd)                                                 \
			LOOP(type, compute, from, to, PROD);                        \
		else if (op == ncclMax)                                             \
			PICK(type, from, >);                                        \
		else if (op == ncclMin)                                             \
			PICK(type, from, <);                                        \
		else                                                                \
			LOOP(type, compute, from, to, SUM);                         \
	}
REAL_TYPES(COMBINE)
INTEGER_TYPES(COMBINE)

static void combine(const struct soft__call *call, void *acc, const void *x, size_t n)
{
	switch (call->type) {
#define CASE(id, name, type, compute, from, to)      \
	case id:                                     \
		combine_##name(call->op, acc, x, n); \
		break;
		REAL_TYPES(CASE) INTEGER_TYPES(CASE)
#undef CASE
	}
}

static void divide(uint32_t type, char *memory, int by, size_t n)
{
	switch (type) {
#define CASE(id, name, type, compute, from, to)                  \
	case id:                                                 \
		for (size_t i = 0; i < n; i++)                   \
			((type *)(void *)memory)[i] /= (type)by; \
		break;
		INTEGER_TYPES(CASE)
#undef CASE
	}
}

void soft__reduce(const struct soft__call *call, int n_ranks, const char *const *from, char *to, size_t n)
{
	memcpy(to, from[0], n * types[call->type].bytes);
	for (int r = 1; r < n_ranks; r++)
		combine(call, to, from[r], n);
	if (call->op == ncclAvg)
		divide(call->type, to, n_ranks, n);
}

void soft__scale(uint32_t type, const void *scalar, const char *from, char *to, size_t n)
{
	size_t bytes = types[type].bytes;
	struct soft__call call = {.type = type, .op = ncclProd};

	for (size_t i = 0; i < n; i++)
		memcpy(to + i * bytes, scalar, bytes);
	combine(&call, to, from, n);
}

bool soft__average(ncclDataType_t type, int n_ranks, char scalar[8])
{
	switch ((int)type) {
#define CASE(id, name, type, compute, from, to)          \
	case id: {                                       \
		type one = to((compute)(1.0 / n_ranks)); \
		memcpy(scalar, &one, sizeof(one));       \
		return true;                             \
	}
		REAL_TYPES(CASE)
#undef CASE
	default:
		return false;
	}
}
