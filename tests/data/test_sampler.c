/* Checks the documented properties of the sampler by brute force: world sizes 1..8, accumulation, and uneven last
 * batches. */
#include "tests/data/fixture.h"

#include <string.h>

#include "data/loader/sampler.h"

static struct ct_sampler sampler(uint32_t n, uint32_t batch, uint32_t world, uint32_t accumulate, bool drop_last)
{
	return (struct ct_sampler){.n = n,
				   .global_batch = batch,
				   .world = world,
				   .accumulate = accumulate,
				   .seed = 42,
				   .shuffle = true,
				   .drop_last = drop_last};
}

/* The slices of a step, rank by rank and micro-batch by micro-batch, tile the global batch without gap or overlap. */
static void check_step(struct ct_sampler s, uint64_t step, uint32_t start, uint32_t n_global)
{
	uint32_t at = 0, last_of_rank = UINT32_MAX;

	for (s.rank = 0; s.rank < s.world; s.rank++) {
		uint32_t of_rank = 0, last = UINT32_MAX;

		for (uint32_t micro = 0; micro < s.accumulate; micro++) {
			struct ct_sampler_slice c = ct_sampler_slice(&s, step, micro);

			assert_int_equal(c.first, start + at);
			assert_int_equal(c.in_batch, at);
			assert_int_equal(c.n_global, n_global);
			assert_true(c.count <= ct_sampler_max_rows(&s));
			/* Even to one sample, larger ones first. */
			assert_true(last == UINT32_MAX || c.count == last || c.count + 1 == last);
			last = c.count;
			of_rank += c.count;
			at += c.count;
		}
		assert_true(of_rank >= n_global / s.world && of_rank <= n_global / s.world + 1);
		assert_true(of_rank <= last_of_rank);
		last_of_rank = of_rank;
	}
	assert_int_equal(at, n_global);
}

static void check_epoch(struct ct_sampler s)
{
	uint64_t steps = ct_sampler_steps(&s), start = 0;

	assert_int_equal(steps, s.drop_last ? s.n / s.global_batch : (s.n + s.global_batch - 1) / s.global_batch);
	for (uint64_t step = 0; step < steps; step++) {
		uint32_t n = s.n - start < s.global_batch ? (uint32_t)(s.n - start) : s.global_batch;

		check_step(s, step, (uint32_t)start, n);
		start += n;
	}
	assert_int_equal(start, s.drop_last ? steps * s.global_batch : s.n);
	assert_int_equal(ct_sampler_slice(&s, steps, 0).count, 0);
	assert_int_equal(ct_sampler_slice(&s, UINT64_MAX, 0).count, 0);
}

static void test_tiling(void **state)
{
	static const uint32_t sizes[] = {1, 2, 5, 16, 41, 100, 7 * 41 + 33}, batches[] = {1, 2, 3, 8, 24, 64, 400};
	int n = 0;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(sizes); i++) {
		for (size_t b = 0; b < CT_ARRAY_LEN(batches); b++) {
			for (uint32_t world = 1; world <= 8; world++) {
				for (uint32_t accumulate = 1; accumulate <= 3; accumulate++) {
					for (int drop = 0; drop < 2; drop++) {
						struct ct_sampler s =
							sampler(sizes[i], batches[b], world, accumulate, drop);

						if (ct_sampler_check(&s) < 0)
							continue;
						check_epoch(s);
						n++;
					}
				}
			}
		}
	}
	assert_in_range(n, 800, 3000);
}

/* Near 2^32 samples nothing wraps. */
static void test_large(void **state)
{
	struct ct_sampler s = sampler(UINT32_MAX, 4000000000u, 7, 3, false);

	(void)state;
	assert_ok(ct_sampler_check(&s));
	assert_int_equal(ct_sampler_steps(&s), 2);
	check_step(s, 1, 4000000000u, UINT32_MAX - 4000000000u);
	s.global_batch = UINT32_MAX;
	assert_int_equal(ct_sampler_steps(&s), 1);
	check_step(s, 0, 0, UINT32_MAX);
}

/* Samples of a step as world ranks see them, in order. */
static void collect(struct ct_sampler s, const uint32_t *perm, uint64_t step, uint32_t *out)
{
	for (s.rank = 0; s.rank < s.world; s.rank++) {
		for (uint32_t micro = 0; micro < s.accumulate; micro++) {
			struct ct_sampler_slice c = ct_sampler_slice(&s, step, micro);

			memcpy(out + c.in_batch, perm + c.first, c.count * sizeof(*out));
		}
	}
}

/* Any world and accumulation sees the same global batches; together they are each sample once. */
static void test_same_batches(void **state)
{
	enum { N = 320, BATCH = 48 };
	uint32_t perm[N], one[BATCH], many[BATCH];
	struct ct_sampler s = sampler(N, BATCH, 1, 1, false);

	(void)state;
	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		bool seen[N] = {false};

		ct_sampler_order(&s, epoch, perm);
		for (uint64_t step = 0; step < ct_sampler_steps(&s); step++) {
			uint32_t n = ct_sampler_slice(&s, step, 0).n_global;

			collect(s, perm, step, one);
			for (uint32_t i = 0; i < n; i++) {
				assert_true(one[i] < N);
				assert_false(seen[one[i]]);
				seen[one[i]] = true;
			}
			for (uint32_t world = 2; world <= 8; world++) {
				memset(many, 0, sizeof(many));
				collect(sampler(N, BATCH, world, 1 + world % 3, false), perm, step, many);
				assert_memory_equal(one, many, n * sizeof(*one));
			}
		}
		for (uint32_t i = 0; i < N; i++)
			assert_true(seen[i]);
	}
}

static void test_order(void **state)
{
	uint32_t a[100], b[100], moved = 0;
	struct ct_sampler s = sampler(100, 10, 1, 1, false), t = s;

	(void)state;
	ct_sampler_order(&s, 3, a);
	t.world = 4;
	t.rank = 2;
	t.global_batch = 20;
	ct_sampler_order(&t, 3, b);
	assert_memory_equal(a, b, sizeof(a));
	ct_sampler_order(&s, 4, b);
	assert_memory_not_equal(a, b, sizeof(a));
	t.seed++;
	ct_sampler_order(&t, 3, b);
	assert_memory_not_equal(a, b, sizeof(a));
	for (uint32_t i = 0; i < 100; i++)
		moved += a[i] != i;
	assert_true(moved > 80);
	s.shuffle = false;
	ct_sampler_order(&s, 3, a);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(a[i], i);
}

/* Groups of the sizes of real shards, with empty ones: in window mode each run of `window` groups is a block of its
 * own, whole, mixed, and the blocks come in another order each epoch. */
static void test_window(void **state)
{
	enum { GROUPS = 12, N = 7 * 41 + 33 };
	static const uint32_t sizes[GROUPS] = {41, 0, 41, 41, 0, 41, 41, 41, 41, 33, 0, 0};
	uint32_t first[GROUPS + 1] = {0}, group_of[N], perm[N], again[N], orders[2][GROUPS] = {0}, alike = 0;
	struct ct_sampler s = sampler(N, 16, 1, 1, false);

	(void)state;
	for (uint32_t g = 0; g < GROUPS; g++) {
		first[g + 1] = first[g] + sizes[g];
		for (uint32_t i = first[g]; i < first[g + 1]; i++)
			group_of[i] = g;
	}
	s.n_groups = GROUPS;
	s.group_first = first;
	for (s.window = 1; s.window <= 10; s.window++) {
		assert_ok(ct_sampler_check(&s));
		for (uint32_t epoch = 0; epoch < 2; epoch++) {
			bool seen[N] = {false}, closed[GROUPS] = {false};
			uint32_t in_order = 0;

			memset(perm, 0xff, sizeof(perm));
			ct_sampler_order(&s, epoch, perm);
			ct_sampler_order(&s, epoch, again);
			assert_memory_equal(perm, again, sizeof(perm));
			for (uint32_t at = 0, block = 0; at < N; block++) {
				uint32_t n_in_block = 0, left = 0;
				bool in_block[GROUPS] = {false};

				for (; at < N; at++) {
					uint32_t g;

					assert_true(perm[at] < N && !seen[perm[at]]);
					g = group_of[perm[at]];
					if (!in_block[g]) {
						if (left == 0 && n_in_block == s.window)
							break;
						assert_false(closed[g]);
						in_block[g] = closed[g] = true;
						n_in_block++;
						left += sizes[g];
					}
					seen[perm[at]] = true;
					left--;
					in_order += at > 0 && perm[at] == perm[at - 1] + 1;
				}
				assert_int_equal(left, 0);
				assert_int_equal(n_in_block, at < N || 8 % s.window == 0 ? (s.window < 8 ? s.window : 8)
											 : 8 % s.window);
				orders[epoch][block] = group_of[perm[at - 1]];
			}
			assert_true(in_order < N / 8);
		}
		if (s.window == 1) {
			assert_memory_not_equal(orders[0], orders[1], sizeof(orders[0]));
			/* Two of seven shards of the same size are mixed differently. */
			for (uint32_t k = 0; k < 41; k++)
				alike += perm[k] - first[group_of[perm[k]]] ==
					 perm[N - 41 + k] - first[group_of[perm[N - 41 + k]]];
			assert_true(alike < 10);
		}
	}
	/* Groups that end elsewhere; no groups at all. */
	s.n--;
	assert_int_equal(ct_sampler_check(&s), CT_BUG);
	s.n++;
	s.group_first = NULL;
	s.n_groups = 1;
	assert_ok(ct_sampler_check(&s));
	ct_sampler_order(&s, 0, perm);
	s.window = 0;
	ct_sampler_order(&s, 0, again);
	assert_memory_equal(perm, again, sizeof(perm));
	/* All groups of one sample, or of none. */
	s.window = 2;
	s.n = s.n_groups = GROUPS;
	s.group_first = (const uint32_t[GROUPS + 1]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	ct_sampler_order(&s, 0, perm);
	for (uint32_t i = 0, sum = 0; i < GROUPS; i++) {
		sum |= 1u << perm[i];
		assert_int_equal(i + 1 == GROUPS ? sum : 0, i + 1 == GROUPS ? 0xfff : 0);
	}
}

static void expect_refused(struct ct_sampler s, enum ct_status want, const char *says)
{
	assert_int_equal(ct_sampler_check(&s), want);
	assert_non_null(strstr(ct_error_message(), says));
}

static void test_check(void **state)
{
	struct ct_sampler s = sampler(100, 8, 4, 2, false);

	(void)state;
	assert_ok(ct_sampler_check(&s));
	expect_refused(sampler(0, 8, 4, 2, false), CT_DATA, "empty");
	expect_refused(sampler(100, 0, 4, 2, false), CT_CONFIG, "at least 1");
	expect_refused(sampler(100, 8, 0, 2, false), CT_CONFIG, "at least 1");
	expect_refused(sampler(100, 8, 4, 0, false), CT_CONFIG, "at least 1");
	expect_refused(sampler(100, 7, 4, 2, false), CT_CONFIG, "too small for 4 ranks x 2 micro-batches");
	expect_refused(sampler(100, 65536, 65536, 65536, false), CT_CONFIG, "too small");
	expect_refused(sampler(100, 101, 4, 2, true), CT_CONFIG, "larger than the data set");
	s.rank = 4;
	expect_refused(s, CT_CONFIG, "rank 4 is not below the world size 4");
}

/* Every class that has samples occurs equally often, up to one; samples of a class differ in number by at most one. */
static void test_balanced(void **state)
{
	enum { N = 103, CLASSES = 5 };
	static const uint32_t first[CLASSES + 1] = {0, 60, 60, 90, 100, 103};
	struct ct_sampler s = {.n = N,
			       .global_batch = 10,
			       .world = 1,
			       .accumulate = 1,
			       .seed = 7,
			       .shuffle = true,
			       .balanced = true,
			       .n_classes = CLASSES,
			       .class_first = first};
	uint32_t by_class[N], perm[2][N], uses[N], seen[N] = {0};

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		by_class[i] = (i * 10 + 3) % N; /* 10 and 103 have no common factor */
	s.by_class = by_class;
	for (uint32_t epoch = 0; epoch < 40; epoch++) {
		memset(uses, 0, sizeof(uses));
		ct_sampler_order(&s, epoch, perm[0]);
		ct_sampler_order(&s, epoch, perm[1]);
		assert_memory_equal(perm[0], perm[1], sizeof(perm[0]));
		for (int i = 0; i < N; i++) {
			assert_true(perm[0][i] < N);
			uses[perm[0][i]]++;
			seen[perm[0][i]]++;
		}
		for (int k = 0; k < CLASSES; k++) {
			const uint32_t n = first[k + 1] - first[k];
			uint32_t total = 0, least = UINT32_MAX, most = 0;

			for (uint32_t i = first[k]; i < first[k + 1]; i++) {
				const uint32_t u = uses[by_class[i]];

				total += u;
				least = u < least ? u : least;
				most = u > most ? u : most;
			}
			assert_true(n == 0 || total == 25 || total == 26);
			assert_true(n == 0 || most - least <= 1);
		}
	}
	for (int i = 0; i < N; i++) /* in the long run, every sample is used */
		assert_true(seen[i] > 0);
	s.rank = 0;
	ct_sampler_order(&s, 1, perm[1]);
	assert_memory_not_equal(perm[0], perm[1], sizeof(perm[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tiling),   cmocka_unit_test(test_large),  cmocka_unit_test(test_same_batches),
		cmocka_unit_test(test_order),    cmocka_unit_test(test_window), cmocka_unit_test(test_check),
		cmocka_unit_test(test_balanced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
