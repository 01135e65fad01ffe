/* Compares the shared loss heads with formulas in double precision, and tests edge cases. */
#include "nn/engine_impl.h"

#include <math.h>

#include "nn/host/host.h"
#include "tests/nn/nn_check.h"

#define ROWS 9

struct naive {
	double loss;
	int64_t top1, top5;
};

/* weights [k]: of the classes. */
static struct naive naive_xent(const float *z, int label, int k, double smoothing, const float *weights, double *d)
{
	struct naive r = {0};
	double max = -INFINITY, sum = 0, all = 0;
	int before = 0;

	for (int j = 0; j < k; j++)
		max = (double)z[j] > max ? (double)z[j] : max;
	for (int j = 0; j < k; j++)
		sum += exp((double)z[j] - max);
	for (int j = 0; j < k; j++) {
		double target = (double)weights[j] * (smoothing / k + (j == label ? 1 - smoothing : 0));

		r.loss -= target * ((double)z[j] - max - log(sum));
		d[j] = -target;
		all += target;
		before += z[j] > z[label] || (z[j] == z[label] && j < label);
	}
	for (int j = 0; j < k; j++)
		d[j] += all * exp((double)z[j] - max) / sum;
	r.top1 = before < 1;
	r.top5 = before < 5;
	return r;
}

/* Class weights; without `weighted`, all of them are 1. The caller owns the result. */
static float *class_weights(int k, bool weighted)
{
	float *w = CT_NEW_ARRAY(float, (size_t)k);

	for (int j = 0; j < k; j++)
		w[j] = weighted ? 0.25f * (float)(1 + j % 7) : 1;
	return w;
}

static void check_xent(int k, float smoothing, float spread)
{
	size_t n = (size_t)ROWS * (size_t)k;
	float *z = CT_NEW_ARRAY(float, n), *d = CT_NEW_ARRAY(float, n), *ones = class_weights(k, false);
	double *want = CT_NEW_ARRAY(double, (size_t)k), loss = 0;
	int32_t labels[ROWS];
	struct ct_metrics m = {0}, eval = {0};
	int64_t top1 = 0, top5 = 0;

	fill_floats((uint32_t)k, z, n);
	for (size_t i = 0; i < n; i++)
		z[i] *= spread;
	fill_labels((uint32_t)k, labels, ROWS, k);
	const struct ct_batch b = {.n = ROWS, .labels = labels};
	ct_loss_softmax_xent(1, z, &b, k, smoothing, NULL, d, &m);
	ct_loss_softmax_xent(1, z, &b, k, smoothing, NULL, NULL, &eval);
	for (int i = 0; i < ROWS; i++) {
		struct naive r = naive_xent(z + i * k, labels[i], k, (double)smoothing, ones, want);

		loss += r.loss;
		top1 += r.top1;
		top5 += r.top5;
		for (int j = 0; j < k; j++)
			assert_float_equal((double)d[i * k + j], want[j], 3e-7);
	}
	if (fabs(m.loss - loss) > 2e-6 * fabs(loss) + 2e-6)
		fail_msg("k %d, smoothing %g, spread %g: loss %.9g, not %.9g", k, (double)smoothing, (double)spread,
			 m.loss, loss);
	assert_float_equal(eval.loss, m.loss, 1e-6 * fabs(loss));
	assert_int_equal(m.count, ROWS);
	assert_int_equal(m.top1, top1);
	assert_int_equal(m.top5, top5);
	assert_int_equal(eval.top1, top1);
	ct_free(ones);
	ct_free(want);
	ct_free(d);
	ct_free(z);
}

static void test_xent(void **state)
{
	static const int classes[] = {2, 3, 5, 10, 15, 16, 17, 31, 100, 255, 256, 257, 1000};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(classes); i++) {
		check_xent(classes[i], 0, 3);
		check_xent(classes[i], 0.1f, 3);
		check_xent(classes[i], 0.5f, 60);
		check_xent(classes[i], 0, 1e-3f);
		check_xent(classes[i], 0, 1e4f);
	}
}

static double naive_mixed(const float *z, int a, int b, double mix, const float *weights, int k, double smoothing,
			  double *d)
{
	double *other = CT_NEW_ARRAY(double, (size_t)k);
	double loss = mix * naive_xent(z, a, k, smoothing, weights, d).loss;

	loss += (1 - mix) * naive_xent(z, b, k, smoothing, weights, other).loss;
	for (int j = 0; j < k; j++)
		d[j] = mix * d[j] + (1 - mix) * other[j];
	ct_free(other);
	return loss;
}

static void check_mixed(int k, float smoothing, bool weighted)
{
	const float mix[ROWS] = {0, 1, 0.5f, 0.25f, 0.9f, 0.1f, 1, 0, 0.75f};
	size_t n = (size_t)ROWS * (size_t)k;
	float *z = CT_NEW_ARRAY(float, n), *d = CT_NEW_ARRAY(float, n), *weights = class_weights(k, weighted);
	double *want = CT_NEW_ARRAY(double, (size_t)k), loss = 0;
	int32_t labels[ROWS], labels_b[ROWS];
	struct ct_metrics m = {0}, plain = {0};

	fill_floats((uint32_t)k, z, n);
	fill_labels((uint32_t)k, labels, ROWS, k);
	fill_labels((uint32_t)k + 1, labels_b, ROWS, k);
	labels_b[4] = labels[4];
	struct ct_batch b = {.n = ROWS, .labels = labels};
	ct_loss_softmax_xent(1, z, &b, k, smoothing, NULL, NULL, &plain);
	b.labels_b = labels_b;
	b.mix = mix;
	ct_loss_softmax_xent(1, z, &b, k, smoothing, weighted ? weights : NULL, d, &m);
	for (int i = 0; i < ROWS; i++) {
		loss += naive_mixed(z + i * k, labels[i], labels_b[i], (double)mix[i], weights, k, (double)smoothing,
				    want);
		for (int j = 0; j < k; j++)
			assert_float_equal((double)d[i * k + j], want[j], weighted ? 6e-7 : 3e-7);
	}
	assert_float_equal(m.loss, loss, 2e-6 * loss);
	assert_int_equal(m.top1, plain.top1); /* by the first label */
	assert_int_equal(m.top5, plain.top5);
	ct_free(weights);
	ct_free(want);
	ct_free(d);
	ct_free(z);
}

static void test_mixed_labels(void **state)
{
	(void)state;
	for (int k = 2; k < 40; k += 7) {
		check_mixed(k, 0, false);
		check_mixed(k, 0.1f, false);
		check_mixed(k, 0, true);
		check_mixed(k, 0.1f, true);
	}
}

static void test_ties_and_ranks(void **state)
{
	const float z[3 * 7] = {1, 1, 1, 1, 1, 1, 1, 7, 6, 5, 4, 3, 2, 1, 0, 9, 9, 0, 0, 0, 0};
	const int32_t labels[3] = {0, 4, 2};
	struct ct_metrics m = {0};

	(void)state;
	ct_loss_softmax_xent(1, z, &(struct ct_batch){.n = 3, .labels = labels}, 7, 0, NULL, NULL, &m);
	assert_int_equal(m.top1, 1); /* the first of equals; 9 at 1 comes before 9 at 2 */
	assert_int_equal(m.top5, 3);
	const int32_t late[3] = {5, 5, 0};
	m = (struct ct_metrics){0};
	ct_loss_softmax_xent(1, z, &(struct ct_batch){.n = 3, .labels = late}, 7, 0, NULL, NULL, &m);
	assert_int_equal(m.top1, 0);
	assert_int_equal(m.top5, 1);
}

static void test_extremes(void **state)
{
	float z[2 * 4] = {-3e38f, 3e38f, 0, 0, 90, -90, 0, 0}, d[8];
	const int32_t labels[2] = {1, 0};
	struct ct_metrics m = {0};

	(void)state;
	ct_loss_softmax_xent(1, z, &(struct ct_batch){.n = 2, .labels = labels}, 4, 0, NULL, d, &m);
	assert_float_equal(m.loss, 0, 1e-6);
	assert_int_equal(m.top1, 2);
	for (int i = 0; i < 8; i++)
		assert_float_equal(d[i], 0, 1e-6);
	for (int bad = 0; bad < 3; bad++) {
		z[2] = bad == 0 ? NAN : bad == 1 ? INFINITY : -INFINITY;
		m = (struct ct_metrics){0};
		ct_loss_softmax_xent(1, z, &(struct ct_batch){.n = 1, .labels = labels}, 4, 0.1f, NULL, d, &m);
		assert_false(isfinite(m.loss)); /* never a wrong number */
		assert_int_equal(m.top1, 0);
	}
}

static void test_mse(void **state)
{
	const float y[2 * 3] = {1, 2, 3, 0, 0, 0.5f}, t[2 * 3] = {1, 0, 6, 0, 0, 0};
	float d[6];
	struct ct_metrics m = {0};

	(void)state;
	ct_loss_mse(1, y, &(struct ct_batch){.n = 2, .targets = t}, 3, d, &m);
	assert_float_equal(m.loss, 13.0 / 3 + 0.25 / 3, 1e-12);
	assert_int_equal(m.count, 2);
	assert_int_equal(m.top1 + m.top5, 0);
	const double want[6] = {0, 4.0 / 3, -2, 0, 0, 1.0 / 3};
	for (int i = 0; i < 6; i++)
		assert_float_equal(d[i], want[i], 1e-7);
	ct_loss_mse(1, y, &(struct ct_batch){.n = 2, .targets = t}, 3, NULL, &m);
	assert_int_equal(m.count, 4);
}

/* The same bits as row by row, whatever the number of threads: more rows than a block, rows of many classes. */
static void check_threads(int rows, int k)
{
	const size_t n = (size_t)rows * (size_t)k;
	float *z = CT_NEW_ARRAY(float, n), *d = CT_NEW_ARRAY(float, n), *want = CT_NEW_ARRAY(float, n);
	int32_t *labels = CT_NEW_ARRAY(int32_t, (size_t)rows);
	struct ct_metrics alone = {0}, alone_mse = {0};

	fill_floats((uint32_t)k, z, n);
	fill_labels((uint32_t)k, labels, rows, k);
	const struct ct_batch b = {.n = rows, .labels = labels, .targets = z + k};
	for (int i = 0; i < rows; i++) {
		const size_t at = (size_t)i * (size_t)k;

		ct_loss_softmax_xent(1, z + at, &(struct ct_batch){.n = 1, .labels = labels + i}, k, 0.1f, NULL,
				     want + at, &alone);
		if (i < rows - 1)
			ct_loss_mse(1, z + at, &(struct ct_batch){.n = 1, .targets = z + k + at}, k, NULL, &alone_mse);
	}
	if (rows > 1000)
		assert_true(alone.top1 > 0 && alone.top1 < alone.top5 && alone.top5 < rows);
	for (int threads = 1; threads <= 4; threads++) {
		struct ct_metrics m = {0}, mse = {0};

		memset(d, 0, n * sizeof(*d));
		ct_loss_softmax_xent(threads, z, &b, k, 0.1f, NULL, d, &m);
		assert_memory_equal(&m, &alone, sizeof(m));
		assert_memory_equal(d, want, n * sizeof(*d));
		ct_loss_mse(threads, z, &(struct ct_batch){.n = rows - 1, .targets = z + k}, k, d, &mse);
		assert_memory_equal(&mse, &alone_mse, sizeof(mse));
		assert_true(d[1] == 2.0f / (float)k * (z[1] - z[k + 1]));
	}
	ct_free(labels);
	ct_free(want);
	ct_free(d);
	ct_free(z);
}

static void test_threads(void **state)
{
	(void)state;
	check_threads(2500, 100);
	check_threads(1024, 17);
	check_threads(40, 20000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_xent),     cmocka_unit_test(test_mixed_labels),
		cmocka_unit_test(test_threads),  cmocka_unit_test(test_ties_and_ranks),
		cmocka_unit_test(test_extremes), cmocka_unit_test(test_mse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
