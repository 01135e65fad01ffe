/* The value of an element is a hash of rank and index, reduced to a small range, so that every rank can compute the
 * values of all others, and a result at a wrong position is unlikely to look right. The ranges become smaller with the
 * number of ranks, because sums must stay exact in bf16 and products in uint8: beyond 255 ranks the others contribute
 * 0, and only the first seven contribute a factor 2. Results are compared as bytes. The destination is filled with
 * other bytes first, so an element that an operation does not write is wrong, too. */
#include <stdint.h>
#include <string.h>

#include "base/half.h"
#include "dist/bench_values_impl.h"

#define OTHER_BYTE 0xa5
/* bf16 represents all integers up to this one. */
#define MAX_SUM 255
/* uint8 represents the product of this many twos. */
#define MAX_TWOS 7

/* Multiplication and shifts as in the finalizer of SplitMix64 (Steele et al., OOPSLA 2014). */
static int value_of(const struct ct__bench_values *v, int rank, size_t i)
{
	const uint32_t n_values = v->size < MAX_SUM ? (uint32_t)(MAX_SUM / v->size) + 1 : 2;
	const uint64_t who = v->redop == CT_AVG ? 0 : (uint64_t)rank;
	uint64_t h = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15 + who * 0xd1b54a32d192ed03;

	if ((v->redop == CT_SUM && rank >= MAX_SUM) || (v->redop == CT_AVG && v->size > MAX_SUM))
		return 0;
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
	if (v->redop == CT_PROD)
		return rank < MAX_TWOS ? 1 + (int)(h >> 63) : 1;
	return (int)((h >> 32) * (n_values < 16 ? n_values : 16) >> 32);
}

static int reduction_of(const struct ct__bench_values *v, size_t i)
{
	int all = value_of(v, 0, i);

	for (int q = 1; q < v->size && v->redop != CT_AVG; q++) {
		const int x = value_of(v, q, i);

		switch (v->redop) {
		case CT_PROD:
			all *= x;
			break;
		case CT_MIN:
			all = x < all ? x : all;
			break;
		case CT_MAX:
			all = x > all ? x : all;
			break;
		case CT_SUM:
		case CT_AVG:
			all += x;
			break;
		}
	}
	return all;
}

/* Writes x as an element of type t. */
static void encode(enum ct_dtype t, int x, void *at)
{
	const float f = (float)x;
	const double d = x;
	const int64_t i64 = x;
	const uint8_t u8 = (uint8_t)x;
	uint16_t half;

	switch (t) {
	case CT_F32:
		memcpy(at, &f, sizeof(f));
		return;
	case CT_F64:
		memcpy(at, &d, sizeof(d));
		return;
	case CT_I32:
		memcpy(at, &x, sizeof(x));
		return;
	case CT_I64:
		memcpy(at, &i64, sizeof(i64));
		return;
	case CT_U8:
		memcpy(at, &u8, sizeof(u8));
		return;
	case CT_BF16:
	case CT_F16:
		half = t == CT_BF16 ? ct_bf16_from_f32(f) : ct_f16_from_f32(f);
		memcpy(at, &half, sizeof(half));
		return;
	case CT_N_DTYPES:
		break;
	}
}

/* The number of elements in the source of an operation, and in its result on this rank. */
static void lengths(const struct ct__bench_values *v, enum ct_bench_op op, size_t count, size_t *n_src, size_t *n_dst)
{
	const size_t all = count * (size_t)v->size;

	*n_src = *n_dst = count;
	switch (op) {
	case CT_BENCH_REDUCE:
		*n_dst = v->rank == v->root ? count : 0;
		break;
	case CT_BENCH_BROADCAST:
		*n_src = v->rank == v->root ? count : 0;
		break;
	case CT_BENCH_ALLGATHER:
		*n_dst = all;
		break;
	case CT_BENCH_GATHER:
		*n_dst = v->rank == v->root ? all : 0;
		break;
	case CT_BENCH_SCATTER:
		*n_src = v->rank == v->root ? all : 0;
		break;
	case CT_BENCH_REDUCE_SCATTER:
		*n_src = all;
		break;
	case CT_BENCH_BARRIER:
		*n_src = *n_dst = 0;
		break;
	case CT_BENCH_ALLREDUCE:
	case CT_BENCH_SENDRECV:
	case CT_BENCH_N_OPS:
		break;
	}
}

void ct__bench_fill(const struct ct__bench_values *v, enum ct_bench_op op, size_t count, void *src, void *dst)
{
	const size_t bytes = ct_dtype_bytes(v->dtype);
	size_t n_src, n_dst;

	lengths(v, op, count, &n_src, &n_dst);
	memset(dst, OTHER_BYTE, n_dst * bytes);
	for (size_t i = 0; i < n_src; i++)
		encode(v->dtype, value_of(v, v->rank, i), (char *)src + i * bytes);
}

/* Element i of the result on this rank. */
static int expected(const struct ct__bench_values *v, enum ct_bench_op op, size_t count, size_t i)
{
	const size_t own = (size_t)v->rank * count;

	switch (op) {
	case CT_BENCH_ALLREDUCE:
	case CT_BENCH_REDUCE:
		return reduction_of(v, i);
	case CT_BENCH_REDUCE_SCATTER:
		return reduction_of(v, own + i);
	case CT_BENCH_BROADCAST:
		return value_of(v, v->root, i);
	case CT_BENCH_SCATTER:
		return value_of(v, v->root, own + i);
	case CT_BENCH_ALLGATHER:
	case CT_BENCH_GATHER:
		return value_of(v, (int)(i / count), i % count);
	case CT_BENCH_SENDRECV:
		return value_of(v, (v->rank + v->size - 1) % v->size, i);
	case CT_BENCH_BARRIER:
	case CT_BENCH_N_OPS:
		break;
	}
	return 0;
}

int64_t ct__bench_count_wrong(const struct ct__bench_values *v, enum ct_bench_op op, size_t count, const void *dst)
{
	const size_t bytes = ct_dtype_bytes(v->dtype);
	size_t n_src, n_dst;
	int64_t wrong = 0;
	char want[8];

	lengths(v, op, count, &n_src, &n_dst);
	for (size_t i = 0; i < n_dst; i++) {
		encode(v->dtype, expected(v, op, count, i), want);
		wrong += memcmp((const char *)dst + i * bytes, want, bytes) != 0;
	}
	return wrong;
}
