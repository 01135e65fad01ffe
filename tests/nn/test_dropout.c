#include <math.h>

#include "nn/engine_impl.h"
#include "nn/host/host.h"
#include "tests/nn/nn_check.h"

#define N 4001

static void test_rate_and_scale(void **state)
{
	static const float rates[] = {0, 0.1f, 0.5f, 0.9f};
	static float mask[N];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(rates); i++) {
		int kept = 0;

		ct_dropout_mask(1, 2, 3, 4, rates[i], N, mask);
		for (int k = 0; k < N; k++) {
			assert_true(mask[k] == 0 || mask[k] == 1 / (1 - rates[i]));
			kept += mask[k] != 0;
		}
		/* Five standard deviations. */
		assert_float_equal(kept, N * (1 - (double)rates[i]),
				   5 * sqrt(N * (double)rates[i] * (1 - (double)rates[i])) + 0.01);
	}
}

/* Fraction of elements that two masks of probability one half share. */
static double shared(const float *a, const float *b)
{
	int same = 0;

	for (int i = 0; i < N; i++)
		same += a[i] == b[i];
	return (double)same / N;
}

static void test_every_key_counts(void **state)
{
	static float base[N], other[N];

	(void)state;
	ct_dropout_mask(1, 2, 3, 4, 0.5f, N, base);
	ct_dropout_mask(1, 2, 3, 4, 0.5f, N, other);
	assert_float_equal(shared(base, other), 1, 0);
	const uint64_t keys[][4] = {{2, 2, 3, 4},
				    {1, 3, 3, 4},
				    {1, 2, 4, 4},
				    {1, 2, 3, 5},
				    {1 + (1ull << 32), 2, 3, 4},
				    {1, 2 + (1ull << 32), 3, 4},
				    {1, 2, 3, 4 + (1ull << 32)},
				    {2, 1, 3, 4}};
	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		ct_dropout_mask(keys[i][0], keys[i][1], (int)keys[i][2], keys[i][3], 0.5f, N, other);
		assert_float_equal(shared(base, other), 0.5, 0.05);
	}
	/* A shorter mask is the beginning of a longer one. */
	ct_dropout_mask(1, 2, 3, 4, 0.5f, 7, other);
	assert_memory_equal(base, other, 7 * sizeof(float));
}

/* A row is dropped whole: by the first number of its dropout mask. */
static void test_rows_of_a_drop_path(void **state)
{
	float rows[200], one;
	int kept = 0;

	(void)state;
	ct_drop_path_mask(1, 2, 3, 40, 0.25f, 200, rows);
	for (int i = 0; i < 200; i++) {
		ct_dropout_mask(1, 2, 3, 40 + (uint64_t)i, 0.25f, 1, &one);
		assert_true(rows[i] == one);
		kept += rows[i] != 0;
	}
	assert_in_range(kept, 120, 180);
}

/* Loss of 12 rows in a step, in programs of `rows` rows, each given the position of its first row in the global batch.
 */
static double loss_in_parts(const char *engine, uint64_t step, int rows)
{
	const struct ct_shape shape = {2, 4, 4};
	struct ct_net_opts opts = {.batch = rows, .input = CT_INPUT_F32_NCHW, .seed = 77, .train = true};
	float x[12 * 32];
	int32_t labels[12];
	struct ct_metrics m = {0};
	struct rig r;

	fill_floats(1, x, CT_ARRAY_LEN(x));
	fill_labels(2, labels, 12, 3);
	rig_open(&r, engine,
		 graph_make(shape,
			    "conv2d 4 kernel=1;dropout 0.3;drop_path 0.4;flatten;linear 20;relu;dropout 0.5;linear 3",
			    3, CT_LOSS_CROSS_ENTROPY, 0),
		 &opts);
	set_step(r.net, step);
	for (int i = 0; i < 12; i += rows) {
		struct ct_batch b = {.n = rows, .x = x + i * 32, .labels = labels + i, .first = (uint64_t)i};

		assert_ok(forward_now(r.program, &b, &m));
	}
	rig_close(&r);
	return m.loss;
}

static void check_split(const char *engine)
{
	for (uint64_t step = 5; step < 7; step++) {
		double whole = loss_in_parts("ref", step, 12);

		for (int rows = 1; rows <= 12; rows++) {
			if (12 % rows == 0)
				assert_float_equal(loss_in_parts(engine, step, rows), whole, 1e-5 * whole);
		}
		/* Another step has other masks. */
		assert_true(fabs(loss_in_parts(engine, step + 1, 12) - whole) > 1e-3 * whole);
	}
}

static void test_the_split_into_ranks_does_not_matter(void **state)
{
	(void)state;
	each_engine(check_split);
}

static void check_evaluation(const char *engine)
{
	struct ct_net_opts opts = {.batch = 3, .input = CT_INPUT_F32_NCHW};
	float x[3 * 5], value[3 * 5];
	int32_t labels[3] = {0, 1, 2};
	struct ct_batch b = {.n = 3, .x = x, .labels = labels};
	struct ct_metrics m = {0};
	struct rig r;

	fill_floats(1, x, CT_ARRAY_LEN(x));
	rig_open(&r, engine, graph_make((struct ct_shape){5, 1, 1}, "dropout 0.5", 5, CT_LOSS_CROSS_ENTROPY, 0), &opts);
	assert_ok(ct_program_create(r.net, 3, CT_EVAL, &r.program));
	assert_ok(forward_now(r.program, &b, &m));
	assert_ok(ct_program_read(r.program, node_named(r.graph, "drop1"), false, value));
	assert_memory_equal(value, x, sizeof(x));
	rig_close(&r);
}

static void test_identity_in_evaluation(void **state)
{
	(void)state;
	each_engine(check_evaluation);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rate_and_scale),
		cmocka_unit_test(test_every_key_counts),
		cmocka_unit_test(test_rows_of_a_drop_path),
		cmocka_unit_test(test_the_split_into_ranks_does_not_matter),
		cmocka_unit_test(test_identity_in_evaluation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
