/* Synthetic data sets are the same on every rank, training and evaluation data differ, and a model can learn them. */
#include "tests/data/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ct_dataset *open_spec(const struct ct_dataset_spec *spec)
{
	ct_dataset *d;

	assert_ok(ct_dataset_open(spec, &d));
	return d;
}

static void test_images(void **state)
{
	struct ct_dataset_spec spec = {
		.name = "synthetic", .n = 500, .c = 3, .h = 10, .w = 8, .n_classes = 7, .seed = 3, .train = true};
	ct_dataset *a = open_spec(&spec), *b = open_spec(&spec), *other;
	const struct ct_dataset_info *info = ct_dataset_info(a);
	int32_t label, again, histogram[7] = {0};
	uint8_t x[240], y[240];
	char hex[65], hex2[65];

	(void)state;
	assert_int_equal(info->sample_bytes, 240);
	assert_int_equal(info->n, 500);
	assert_int_equal(info->n_classes, 7);
	assert_int_equal(info->kind, CT_SAMPLE_U8_HWC);
	assert_false(info->in_memory);
	for (uint32_t i = 0; i < 500; i++) {
		assert_ok(ct_dataset_read(a, i, x, &label, NULL));
		assert_ok(ct_dataset_read(b, i, y, &again, NULL));
		assert_memory_equal(x, y, sizeof(x));
		assert_int_equal(label, again);
		assert_in_range(label, 0, 6);
		histogram[label]++;
	}
	for (int k = 0; k < 7; k++)
		assert_in_range(histogram[k], 40, 110);
	ct_dataset_digest(a, hex);
	ct_dataset_digest(b, hex2);
	assert_string_equal(hex, hex2);
	/* The other half and another seed have other samples and say so. */
	for (int k = 0; k < 2; k++) {
		spec.train = k != 0;
		spec.seed = k ? 4 : 3;
		other = open_spec(&spec);
		assert_ok(ct_dataset_read(a, 5, x, NULL, NULL));
		assert_ok(ct_dataset_read(other, 5, y, NULL, NULL));
		assert_memory_not_equal(x, y, sizeof(x));
		ct_dataset_digest(other, hex2);
		assert_string_not_equal(hex, hex2);
		ct_dataset_close(other);
	}
	ct_dataset_close(a);
	ct_dataset_close(b);
}

/* Class means of the training half classify the evaluation half far above chance, and not perfectly. */
static void test_learnable(void **state)
{
	enum { PIXELS = 784, TRAIN = 2000, EVAL = 500 };
	struct ct_dataset_spec spec = {.name = "synthetic", .n = TRAIN, .seed = 1, .train = true};

	double (*mean)[PIXELS] = ct_calloc(10, sizeof(*mean)), n[10] = {0};
	ct_dataset *d = open_spec(&spec);
	uint8_t x[PIXELS];
	int32_t label;
	int right = 0;

	(void)state;
	for (uint32_t i = 0; i < TRAIN; i++) {
		assert_ok(ct_dataset_read(d, i, x, &label, NULL));
		n[label]++;
		for (int k = 0; k < PIXELS; k++)
			mean[label][k] += x[k];
	}
	ct_dataset_close(d);
	spec.train = false;
	spec.n = EVAL;
	d = open_spec(&spec);
	for (uint32_t i = 0; i < EVAL; i++) {
		double best = INFINITY;
		int guess = 0;

		assert_ok(ct_dataset_read(d, i, x, &label, NULL));
		for (int c = 0; c < 10; c++) {
			double dist = 0;

			for (int k = 0; k < PIXELS; k++)
				dist += (x[k] - mean[c][k] / n[c]) * (x[k] - mean[c][k] / n[c]);
			if (dist < best) {
				best = dist;
				guess = c;
			}
		}
		right += guess == label;
	}
	assert_in_range(right, EVAL / 2, EVAL);
	ct_dataset_close(d);
	ct_free(mean);
}

/* Ten features, five targets: N(0,1) features, and one linear map explains the targets of both halves. */
static void test_regression(void **state)
{
	enum { N = 4000, F = 10, T = 5 };
	struct ct_dataset_spec spec = {
		.name = "synthetic_regression", .n = N, .c = F, .n_targets = T, .seed = 3, .train = true};
	double sum = 0, squares = 0, cross[2][T][F] = {0};

	(void)state;
	for (int half = 0; half < 2; half++) {
		ct_dataset *d;

		spec.train = half == 0;
		d = open_spec(&spec);
		assert_int_equal(ct_dataset_info(d)->kind, CT_SAMPLE_F32);
		assert_int_equal(ct_dataset_info(d)->n_targets, T);
		assert_int_equal(ct_dataset_info(d)->n_classes, 0);
		assert_int_equal(ct_dataset_info(d)->sample_bytes, F * sizeof(float));
		for (uint32_t i = 0; i < N; i++) {
			float x[F], t[T];

			assert_ok(ct_dataset_read(d, i, x, NULL, t));
			for (int f = 0; f < F; f++) {
				sum += (double)x[f];
				squares += (double)x[f] * (double)x[f];
				for (int k = 0; k < T; k++)
					cross[half][k][f] += (double)(t[k] * x[f]) / N;
			}
		}
		ct_dataset_close(d);
	}
	assert_true(fabs(sum / (2 * N * F)) < 0.02);
	assert_true(fabs(squares / (2 * N * F) - 1) < 0.03);
	/* E[t x] is the map, up to sampling error; the same in both halves. */
	for (int k = 0; k < T * F; k++)
		assert_true(fabs(cross[0][k / F][k % F] - cross[1][k / F][k % F]) < 0.35);
}

static void test_registry(void **state)
{
	static const char *const want[] = {"mnist",       "fashion_mnist", "idx",
					   "cifar10",     "cifar100",      "shards",
					   "imagefolder", "synthetic",     "synthetic_regression"};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(want); i++)
		assert_string_equal(ct_dataset_name_at(i), want[i]);
	assert_null(ct_dataset_name_at(CT_ARRAY_LEN(want)));
	assert_null(ct_dataset_name_at(SIZE_MAX));
}

static void test_bad_specs(void **state)
{
	static const struct ct_dataset_spec bad[] = {
		{.name = "synthetic"},
		{.name = "synthetic", .n = 1, .c = 5},
		{.name = "synthetic", .n = 1, .c = -1},
		{.name = "synthetic", .n = 1, .h = 5000},
		{.name = "synthetic", .n = 1, .w = -3},
		{.name = "synthetic", .n = 1, .n_classes = -1},
		{.name = "synthetic", .n = 1, .n_classes = 1 << 20},
		{.name = "synthetic_regression"},
		{.name = "synthetic_regression", .n = 1, .c = 1 << 20, .h = 4096, .w = 4096},
		{.name = "synthetic_regression", .n = 1, .c = 1 << 20, .n_targets = 5},
		{.name = "synthetic_regression", .n = 1, .n_targets = -1},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		ct_dataset *d;

		assert_int_equal(ct_dataset_open(&bad[i], &d), CT_CONFIG);
		assert_non_null(strstr(ct_error_message(), "synthetic data"));
	}
	ct_dataset_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_images),   cmocka_unit_test(test_learnable), cmocka_unit_test(test_regression),
		cmocka_unit_test(test_registry), cmocka_unit_test(test_bad_specs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
