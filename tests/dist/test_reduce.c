/* Reductions of several vectors: the kernels for all instruction sets give the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu/features.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dist/comm/comm_impl.h"

enum { N = 1003, MAX_VECTORS = 4, MAX_BYTES = N * 8 };

static void fill(void *to, enum ct_dtype t, struct ct_rng *r)
{
	for (size_t i = 0; i < N; i++) {
		const float x = 8 * ct_rng_uniform(r) - 4;
		const uint64_t bits = (uint64_t)ct_rng_u32(r) << 32 | ct_rng_u32(r);

		if (t == CT_F32)
			((float *)to)[i] = x;
		else if (t == CT_F64)
			((double *)to)[i] = (double)x / 3;
		else if (t == CT_BF16)
			((uint16_t *)to)[i] = ct_bf16_from_f32(x);
		else if (t == CT_F16)
			((uint16_t *)to)[i] = ct_f16_from_f32(x);
		else
			memcpy((char *)to + i * ct_dtype_bytes(t), &bits, ct_dtype_bytes(t));
	}
}

/* Reduces n vectors: in place for an even n, otherwise into another vector. */
static void reduce(enum ct_dtype t, enum ct_redop op, int n, void *result)
{
	static _Alignas(64) char vectors[MAX_VECTORS + 1][MAX_BYTES];
	void *in[MAX_VECTORS], *out = vectors[MAX_VECTORS];
	struct ct_rng r;

	ct_rng_init(&r, 7, CT_RNG_TEST, 0, 0);
	for (int i = 0; i < n; i++)
		fill(in[i] = vectors[i], t, &r);
	if (n % 2)
		ct__reduce_ranks(in, n, &out, 1, N, t, op);
	else
		ct__reduce_ranks(in, n, in, n, N, t, op);
	memcpy(result, n % 2 ? out : in[n - 1], N * ct_dtype_bytes(t));
}

static void test_sets_agree(void **state)
{
	static char want[MAX_BYTES], got[MAX_BYTES];
	const enum ct_isa best = ct_cpu_isa();

	(void)state;
	for (int t = 0; t < CT_N_DTYPES; t++) {
		for (int op = CT_SUM; op <= CT_AVG; op++) {
			for (int n = 2; n <= MAX_VECTORS; n++) {
				assert_int_equal(ct_cpu_set_limit(CT_ISA_AUTO), CT_OK);
				reduce((enum ct_dtype)t, (enum ct_redop)op, n, want);
				for (enum ct_isa isa = CT_ISA_AVX2; isa <= best; isa++) {
					assert_int_equal(ct_cpu_set_limit(isa), CT_OK);
					reduce((enum ct_dtype)t, (enum ct_redop)op, n, got);
					assert_memory_equal(got, want, N * ct_dtype_bytes((enum ct_dtype)t));
				}
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sets_agree)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
