#include "base/rng.h"

#include <math.h>

#include "base/random/normal.h"
#include "base/random/normal_impl.h"
#include "tests/base/check.h"

/* The known answers from the authors' test suite (Random123, kat_vectors). */
static void test_known_answers(void **state)
{
	static const struct {
		uint32_t ctr[4], key[2], out[4];
	} kat[] = {
		{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xa4093822, 0x299f31d0},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(kat); i++) {
		uint32_t out[4];

		ct_philox4x32(kat[i].ctr, kat[i].key, out);
		assert_memory_equal(out, kat[i].out, sizeof(out));
	}
}

static void test_sixteen_blocks_at_once(void **state)
{
	const uint32_t key[2] = {0x89abcdef, 0x01234567};
	uint32_t all[64], one[4];

	(void)state;
	for (uint32_t first = 0xfffffff8u - 16; first != 8; first += 4) { /* also across the wrap of the counter */
		const uint32_t ctr[4] = {first, 4, first * 7, ~first};

		ct_philox4x32_x16(ctr, key, all);
		for (uint32_t i = 0; i < 16; i++) {
			const uint32_t at[4] = {first + i, ctr[1], ctr[2], ctr[3]};

			ct_philox4x32(at, key, one);
			for (int word = 0; word < 4; word++)
				assert_int_equal(all[4 * i + (uint32_t)word], one[word]);
		}
	}
}

static void test_stream_is_the_counter(void **state)
{
	const uint64_t seed = 0x0123456789abcdefu;
	const uint32_t key[2] = {0x89abcdef, 0x01234567};
	struct ct_rng r;

	(void)state;
	ct_rng_init(&r, seed, CT_RNG_AUGMENT, 7, 9);
	for (uint32_t block = 0; block < 5; block++) {
		const uint32_t ctr[4] = {block, CT_RNG_AUGMENT, 7, 9};
		uint32_t out[4];

		ct_philox4x32(ctr, key, out);
		for (int i = 0; i < 4; i++)
			assert_int_equal(ct_rng_u32(&r), out[i]);
	}
	/* Old runs can be resumed only if these values never change. */
	assert_int_equal(CT_RNG_PERMUTE, 1);
	assert_int_equal(CT_RNG_INIT, 2);
	assert_int_equal(CT_RNG_AUGMENT, 3);
	assert_int_equal(CT_RNG_DROPOUT, 4);
	assert_int_equal(CT_RNG_SYNTH, 5);
	assert_int_equal(CT_RNG_DIGITS, 6);
	assert_int_equal(CT_RNG_TEST, 7);
	assert_int_equal(CT_RNG_WINDOW, 8);
	assert_int_equal(CT_RNG_CROP, 9);
	assert_int_equal(CT_RNG_COLOR, 10);
	assert_int_equal(CT_RNG_RAND_AUGMENT, 11);
	assert_int_equal(CT_RNG_ERASE, 12);
	assert_int_equal(CT_RNG_MIX, 13);
	assert_int_equal(CT_RNG_REPLACE, 14);
	assert_int_equal(CT_RNG_SPLIT, 15);
	assert_int_equal(CT_RNG_BALANCE, 16);
	assert_int_equal(CT_RNG_SHOW, 17);
}

static void test_streams_differ(void **state)
{
	static const struct {
		uint64_t seed;
		enum ct_rng_purpose purpose;
		uint32_t a, b;
	} names[] = {{1, CT_RNG_TEST, 0, 0}, {2, CT_RNG_TEST, 0, 0}, {1 + (1ull << 32), CT_RNG_TEST, 0, 0},
		     {1, CT_RNG_INIT, 0, 0}, {1, CT_RNG_TEST, 1, 0}, {1, CT_RNG_TEST, 0, 1}};
	uint64_t first[CT_ARRAY_LEN(names)];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++) {
		struct ct_rng r;

		ct_rng_init(&r, names[i].seed, names[i].purpose, names[i].a, names[i].b);
		first[i] = ct_rng_u32(&r);
		first[i] = first[i] << 32 | ct_rng_u32(&r);
		for (size_t j = 0; j < i; j++)
			assert_true(first[i] != first[j]);
	}
}

static void test_below(void **state)
{
	/* The worst case for a biased method is a bound slightly above half of the range. */
	static const uint32_t bounds[] = {1, 2, 3, 7, 1000, 0x80000001u, 0xC0000000u, UINT32_MAX};
	struct ct_rng r;

	(void)state;
	ct_rng_init(&r, 5, CT_RNG_TEST, 0, 0);
	for (size_t i = 0; i < CT_ARRAY_LEN(bounds); i++) {
		double sum = 0, mean = (bounds[i] - 1.0) / 2, sigma = bounds[i] / sqrt(12.0);
		int n = 20000, low = 0;

		for (int j = 0; j < n; j++) {
			uint32_t v = ct_rng_below(&r, bounds[i]);

			assert_true(v < bounds[i]);
			sum += v;
			low += v < bounds[i] / 3;
		}
		assert_true(fabs(sum / n - mean) <= 5 * sigma / sqrt(n));
		if (bounds[i] > 1000)
			assert_true(fabs((double)low / n - 1.0 / 3) < 5 * sqrt(2.0 / 9 / n));
	}
}

/* Without rejection, every third value below 3/4 of the range would be twice as frequent. */
static void test_below_is_not_biased(void **state)
{
	struct ct_rng r;
	int n = 20000, thirds[3] = {0};

	(void)state;
	ct_rng_init(&r, 5, CT_RNG_TEST, 1, 0);
	for (int i = 0; i < n; i++)
		thirds[ct_rng_below(&r, 0xC0000000u) % 3]++;
	for (int i = 0; i < 3; i++)
		assert_true(fabs((double)thirds[i] / n - 1.0 / 3) < 5 * sqrt(2.0 / 9 / n));
}

static void test_uniform_and_normal(void **state)
{
	double sum = 0, squares = 0, fourth = 0;
	int n = 100000, bins[10] = {0};
	struct ct_rng r;

	(void)state;
	ct_rng_init(&r, 6, CT_RNG_TEST, 0, 0);
	for (int i = 0; i < n; i++) {
		float u = ct_rng_uniform(&r);

		assert_true(u >= 0 && u < 1);
		bins[(int)(u * 10)]++;
	}
	for (int i = 0; i < 10; i++)
		assert_in_range(bins[i], n / 10 - 500, n / 10 + 500);
	for (int i = 0; i < n; i++) {
		double z = ct_rng_normal(&r);

		assert_true(isfinite(z));
		sum += z;
		squares += z * z;
		fourth += z * z * z * z;
	}
	assert_true(fabs(sum / n) < 5 / sqrt(n));
	assert_true(fabs(squares / n - 1) < 5 * sqrt(2.0 / n));
	assert_true(fabs(fourth / n - 3) < 5 * sqrt(96.0 / n));
	/* The extreme argument of the logarithm. */
	r = (struct ct_rng){.block = {0, 0, UINT32_MAX, 0}, .used = 0};
	assert_true(fabs(ct_rng_normal(&r) - 6.66) < 0.01);
	assert_true(fabs(ct_rng_normal(&r)) < 1e-4);
}

static void test_seek(void **state)
{
	uint32_t numbers[24];
	struct ct_rng r;

	(void)state;
	ct_rng_init(&r, 6, CT_RNG_TEST, 3, 4);
	for (size_t i = 0; i < CT_ARRAY_LEN(numbers); i++)
		numbers[i] = ct_rng_u32(&r);
	for (size_t i = CT_ARRAY_LEN(numbers); i-- > 0;) {
		ct_rng_seek(&r, i);
		for (size_t k = i; k < CT_ARRAY_LEN(numbers); k++)
			assert_int_equal(ct_rng_u32(&r), numbers[k]);
		/* The counter has 32 bits. */
		ct_rng_seek(&r, ((uint64_t)4 << 32) + i);
		assert_int_equal(ct_rng_u32(&r), numbers[i]);
	}
}

static void test_many_normals(void **state)
{
	float x[200];

	(void)state;
	for (uint32_t start = 0; start < 6; start++) {
		for (size_t n = 0; n <= CT_ARRAY_LEN(x); n++) {
			struct ct_rng r, one;

			ct_rng_init(&r, 6, CT_RNG_TEST, start, (uint32_t)n);
			ct_rng_seek(&r, start);
			one = r;
			ct_rng_normals(&r, x, n);
			for (size_t i = 0; i < n; i++) {
				const float y = ct_rng_normal(&one);

				assert_memory_equal(&x[i], &y, sizeof(y));
			}
			assert_int_equal(ct_rng_u32(&r), ct_rng_u32(&one)); /* and continues there */
		}
	}
}

/* Fills a batch with numbers of a stream. Its first pair is given. */
static void fill_batch(struct ct_rng *r, uint32_t first_a, uint32_t first_b, uint32_t *a, uint32_t *b)
{
	for (int i = 0; i < CT_RNG_BATCH; i++) {
		a[i] = ct_rng_u32(r);
		b[i] = ct_rng_u32(r);
	}
	a[0] = first_a;
	b[0] = first_b;
}

/* Whether the result is 0 or almost 0, and therefore has few valid bits. */
static bool is_in_doubt(uint32_t a, uint32_t b)
{
	return a == UINT32_MAX || (b & 0x7fffffff) - 0x3fffffffu <= 2;
}

/* A batch that is accepted has the bits of the definition, with the instructions of every processor. Others are rare.
 */
static void test_batches_of_normals(void **state)
{
	static const uint32_t edges[] = {0,           1,           2,           0x3fffffffu, 0x40000000u, 0x40000001u,
					 0x7fffffffu, 0x80000000u, 0x80000001u, 0xbfffffffu, 0xc0000000u, 0xc0000001u,
					 0xb504f332u, 0xb504f333u, 0xb504f334u, 0xfffffffeu, 0xffffffffu};
	const size_t n = CT_ARRAY_LEN(edges);
	uint32_t a[CT_RNG_BATCH], b[CT_RNG_BATCH];
	float x[CT_RNG_BATCH];
	ct_rng_batch_fn batch;

	(void)state;
	for (size_t which = 0; (batch = ct__rng_batch_at(which)); which++) {
		struct ct_rng r;
		int refused = 0;

		ct_rng_init(&r, 7, CT_RNG_TEST, 0, 0);
		for (size_t round = 0; round < n * n * 50; round++) {
			fill_batch(&r, edges[round % n], edges[round / n % n], a, b);
			if (!batch(a, b, x)) {
				refused += !is_in_doubt(a[0], b[0]);
				continue;
			}
			for (int i = 0; i < CT_RNG_BATCH; i++) {
				const float y = ct__rng_normal(a[i], b[i]);

				assert_memory_equal(&x[i], &y, sizeof(y));
			}
		}
		assert_true(refused < 10);
	}
}

static void assert_permutation(const uint32_t *perm, uint32_t n)
{
	unsigned char *seen = ct_calloc(n, 1);

	assert_non_null(seen);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(perm[i] < n);
		assert_int_equal(seen[perm[i]]++, 0);
	}
	ct_free(seen);
}

/* The definition, without drawing numbers in advance. */
static void plain_permutation(uint64_t seed, uint32_t epoch, uint32_t *perm, uint32_t n)
{
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_PERMUTE, epoch, 0);
	for (uint32_t i = 0; i < n; i++)
		perm[i] = i;
	for (uint32_t left = n; left > 1; left--) {
		uint32_t j = ct_rng_below(&r, left), t = perm[left - 1];

		perm[left - 1] = perm[j];
		perm[j] = t;
	}
}

static void test_permutation(void **state)
{
	static const uint32_t sizes[] = {0, 1, 2, 3, 63, 64, 65, 66, 128, 129, 1000, 60000};
	static const uint32_t pinned[8] = {1, 7, 2, 3, 5, 6, 0, 4};
	uint32_t *a = CT_NEW_ARRAY(uint32_t, 60000), *b = CT_NEW_ARRAY(uint32_t, 60000);

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(sizes); i++) {
		uint32_t n = sizes[i], same = 0;

		ct_rng_permutation(42, 3, a, n);
		assert_permutation(a, n);
		plain_permutation(42, 3, b, n);
		assert_memory_equal(a, b, n * sizeof(*a));
		ct_rng_permutation(42, 4, b, n);
		assert_permutation(b, n);
		for (uint32_t j = 0; j < n; j++)
			same += a[j] == b[j];
		/* Two unrelated permutations have about one number in the same place. */
		if (n >= 63)
			assert_true(same < 10);
		ct_rng_permutation(43, 3, b, n);
		if (n >= 63)
			assert_memory_not_equal(a, b, n * sizeof(*a));
	}
	/* A resumed run must get the same order as before. */
	ct_rng_permutation(1, 0, a, 8);
	assert_memory_equal(a, pinned, sizeof(pinned));
	ct_free(a);
	ct_free(b);
}

static void test_all_orders_are_as_likely(void **state)
{
	int counts[256] = {0}, n = 24000, orders = 0;
	double chi2 = 0;

	(void)state;
	for (int epoch = 0; epoch < n; epoch++) {
		uint32_t p[4];

		ct_rng_permutation(9, (uint32_t)epoch, p, 4);
		counts[p[0] | p[1] << 2 | p[2] << 4 | p[3] << 6]++;
	}
	for (int i = 0; i < 256; i++) {
		if (counts[i] == 0)
			continue;
		orders++;
		chi2 += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
	}
	assert_int_equal(orders, 24);
	assert_true(chi2 < 60); /* 23 degrees of freedom: above once in 30,000 */
}

static void test_hash(void **state)
{
	(void)state;
	assert_true(ct_hash64("", 0) == 0xcbf29ce484222325u);
	assert_true(ct_hash64("a", 1) == 0xaf63dc4c8601ec8cu);
	assert_true(ct_hash64("foobar", 6) == 0x85944171f73967e8u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_answers),
		cmocka_unit_test(test_sixteen_blocks_at_once),
		cmocka_unit_test(test_stream_is_the_counter),
		cmocka_unit_test(test_streams_differ),
		cmocka_unit_test(test_below),
		cmocka_unit_test(test_below_is_not_biased),
		cmocka_unit_test(test_uniform_and_normal),
		cmocka_unit_test(test_seek),
		cmocka_unit_test(test_many_normals),
		cmocka_unit_test(test_batches_of_normals),
		cmocka_unit_test(test_permutation),
		cmocka_unit_test(test_all_orders_are_as_likely),
		cmocka_unit_test(test_hash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
