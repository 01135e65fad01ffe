/* The CUDA kernels for elements, losses and dropout against nn/host and plain loops, in each element type, on odd
 * shapes. */
#include <math.h>

#include "nn/host/host.h"
#include "tests/nn/cuda/kernel_check.h"

static const enum ct_dtype types[] = {CT_F32, CT_F16, CT_BF16};

static void check_input(enum ct_dtype t, int n_valid, int n, int h, int w, int c, bool bytes)
{
	const int cp = pad_channels(c, t);
	const size_t n_in = (size_t)n_valid * (size_t)(h * w * c), n_out = (size_t)n * (size_t)(h * w * cp);
	float *random = gpu_random(n_in, 3), *want = test_calloc(n_out, sizeof(*want));
	uint8_t *u8 = test_malloc(n_in);
	struct ct__k_input_args a = {.n_valid = n_valid,
				     .n = n,
				     .h = h,
				     .w = w,
				     .c = c,
				     .cp = cp,
				     .mean = {0.1f, 0.2f, 0.3f, 0.4f},
				     .std = {0.5f, 0.6f, 0.7f, 0.8f},
				     .bytes = bytes,
				     .type = t};

	for (size_t i = 0; i < n_in; i++)
		u8[i] = (uint8_t)((random[i] + 1) * 127);
	for (int i = 0; i < n_valid; i++)
		for (int p = 0; p < h * w; p++)
			for (int k = 0; k < c; k++) {
				const float v =
					bytes ? ((float)u8[(i * h * w + p) * c + k] / 255.0f - a.mean[k]) / a.std[k]
					      : random[(i * c + k) * h * w + p];

				want[(i * h * w + p) * cp + k] = gpu_round(v, t);
			}
	a.x = bytes ? gpu_bytes(u8, n_in) : gpu_bytes(random, n_in * sizeof(*random));
	a.y = gpu_upload(NULL, n_out, t);
	check_cuda(ct__k_input(&a, NULL));
	expect_device("input", a.y, want, n_out, t, 0);
	gpu_free(a.x);
	gpu_free(a.y);
	test_free(u8);
	test_free(want);
	test_free(random);
}

static void test_input(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++) {
		check_input(types[i], 2, 2, 5, 3, 3, true);
		check_input(types[i], 3, 5, 7, 1, 1, true);
		check_input(types[i], 2, 3, 4, 6, 3, false);
		check_input(types[i], 1, 1, 1, 1, 37, false);
		check_input(types[i], 2, 3, 2, 90, 20, false); /* several vectors, more than one block along a row */
	}
}

static float map_reference(enum ct__k_map_op op, float a, float b, float c)
{
	switch (op) {
	case CT__K_ADD:
		return a + b;
	case CT__K_RELU:
		return a <= 0 ? 0.0f : a;
	case CT__K_ADD_RELU:
		return a + b <= 0 ? 0.0f : a + b;
	case CT__K_RELU_BACKWARD:
		return b <= 0 ? 0.0f : a + c;
	case CT__K_MAP_N:
		break;
	}
	fail();
	return 0;
}

static void check_map(enum ct__k_map_op op, size_t n, enum ct_dtype t)
{
	float *a = gpu_random(n, 1), *b = gpu_random(n, 2), *c = gpu_random(n, 3),
	      *want = test_malloc(n * sizeof(*want));
	const bool two = op == CT__K_RELU_BACKWARD && n > 8;
	struct ct__k_map_args m = {.op = op, .n = n, .type = t};

	a[1] = NAN;
	b[2] = NAN;
	b[3] = 0;
	for (size_t i = 0; i < n; i++) {
		a[i] = gpu_round(a[i], t);
		b[i] = gpu_round(b[i], t);
		c[i] = two ? gpu_round(c[i], t) : 0;
		want[i] = gpu_round(map_reference(op, a[i], b[i], c[i]), t);
	}
	m.a = gpu_upload(a, n, t);
	m.b = gpu_upload(b, n, t);
	m.c = two ? gpu_upload(c, n, t) : NULL;
	m.y = gpu_upload(NULL, n, t);
	check_cuda(ct__k_map(&m, NULL));
	expect_device("map", m.y, want, n, t, 0);
	gpu_free(m.y);
	m.y = (void *)(uintptr_t)m.a; /* in place */
	check_cuda(ct__k_map(&m, NULL));
	expect_device("map in place", m.y, want, n, t, 0);
	gpu_free(m.a);
	gpu_free(m.b);
	gpu_free(m.c);
	test_free(want);
	test_free(c);
	test_free(b);
	test_free(a);
}

static void test_map(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++)
		for (int op = 0; op < CT__K_MAP_N; op++) {
			check_map((enum ct__k_map_op)op, 8, types[i]);
			check_map((enum ct__k_map_op)op, 4104, types[i]);
		}
}

static void test_convert(void **state)
{
	enum { N = 999 };
	const float loss_scale = 6;
	const float *scale = gpu_upload(&loss_scale, 1, CT_F32);
	float *x = gpu_random(N, 5), want[N];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++)
		for (size_t j = 0; j < CT_ARRAY_LEN(types); j++) {
			struct ct__k_convert_args a = {.n = N,
						       .from = types[i],
						       .to = types[j],
						       .scale = j % 2 ? 0.5f : 1.0f,
						       .loss_scale = (i + j) % 2 ? scale : NULL};
			const float factor = a.loss_scale ? a.scale * loss_scale : a.scale;

			for (int k = 0; k < N; k++)
				want[k] = gpu_round(factor * gpu_round(x[k], types[i]), types[j]);
			a.x = gpu_upload(x, N, types[i]);
			a.y = gpu_upload(NULL, N, types[j]);
			check_cuda(ct__k_convert(&a, NULL));
			expect_device("convert", a.y, want, N, types[j], 0);
			gpu_free(a.x);
			gpu_free(a.y);
		}
	gpu_free(scale);
	test_free(x);
}

static void check_bias(size_t rows, int c, enum ct_dtype t)
{
	const int cp = pad_channels(c, t);
	const size_t n = rows * (size_t)cp;
	float *x = random_rows(rows, c, cp, t, 7), *bias = random_rows(1, c, cp, CT_F32, 8),
	      *want = test_malloc(n * sizeof(*want));
	double *sums = test_calloc((size_t)cp, sizeof(*sums));
	float *db = test_malloc((size_t)cp * sizeof(*db));
	struct ct__k_bias_args f = {.rows = rows, .cp = cp, .relu = rows % 2 == 0, .type = t};
	struct ct__k_bias_backward_args b = {.rows = rows, .cp = cp, .type = t};

	for (size_t i = 0; i < n; i++) {
		const float y = x[i] + bias[i % (size_t)cp];

		want[i] = gpu_round(f.relu && y <= 0 ? 0.0f : y, t);
		sums[i % (size_t)cp] += (double)x[i];
	}
	for (int i = 0; i < cp; i++)
		db[i] = (float)sums[i];
	f.x = b.dy = gpu_upload(x, n, t);
	f.bias = gpu_upload(bias, (size_t)cp, CT_F32);
	f.y = gpu_upload(NULL, n, t);
	check_cuda(ct__k_bias(&f, NULL));
	expect_device("bias", f.y, want, n, t, 0);
	b.db = gpu_upload(NULL, (size_t)cp, CT_F32);
	b.partial = gpu_bytes(NULL, (size_t)ct__k_sum_blocks(rows, cp, t) * 2 * (size_t)cp * sizeof(double));
	check_cuda(ct__k_bias_backward(&b, NULL));
	expect_device("bias gradient", b.db, db, (size_t)cp, CT_F32, 1e-6);
	gpu_free(b.partial);
	gpu_free(b.db);
	gpu_free(f.y);
	gpu_free(f.bias);
	gpu_free(f.x);
	test_free(db);
	test_free(sums);
	test_free(want);
	test_free(bias);
	test_free(x);
}

/* The gradient of a bias that is followed by a ReLU, from two gradients of its output; d is written over the second
 * one. */
static void check_bias_and_relu(size_t rows, int c, enum ct_dtype t)
{
	const int cp = pad_channels(c, t);
	const size_t n = rows * (size_t)cp;
	float *dy = random_rows(rows, c, cp, t, 31), *dy2 = random_rows(rows, c, cp, t, 32),
	      *y = random_rows(rows, c, cp, t, 33), *want = test_malloc(n * sizeof(*want)),
	      *db = test_malloc((size_t)cp * sizeof(*db));
	double *sums = test_calloc((size_t)cp, sizeof(*sums));
	struct ct__k_bias_backward_args b = {.rows = rows, .cp = cp, .type = t};

	for (size_t i = 0; i < n; i++) {
		want[i] = y[i] <= 0 ? 0.0f : gpu_round(dy[i] + dy2[i], t);
		sums[i % (size_t)cp] += (double)want[i];
	}
	for (int i = 0; i < cp; i++)
		db[i] = (float)sums[i];
	b.dy = gpu_upload(dy, n, t);
	b.dy2 = b.d = gpu_upload(dy2, n, t);
	b.y = gpu_upload(y, n, t);
	b.db = gpu_upload(NULL, (size_t)cp, CT_F32);
	b.partial = gpu_bytes(NULL, (size_t)ct__k_sum_blocks(rows, cp, t) * 2 * (size_t)cp * sizeof(double));
	check_cuda(ct__k_bias_backward(&b, NULL));
	expect_device("gradient before the ReLU", b.d, want, n, t, 0);
	expect_device("bias gradient", b.db, db, (size_t)cp, CT_F32, 1e-6);
	gpu_free(b.partial);
	gpu_free(b.db);
	gpu_free(b.y);
	gpu_free(b.d);
	gpu_free(b.dy);
	test_free(sums);
	test_free(db);
	test_free(want);
	test_free(y);
	test_free(dy2);
	test_free(dy);
}

static void check_fold(int k, int row, bool bias, enum ct_dtype t, enum ct_dtype bias_type)
{
	const int kp = pad_channels(k, t);
	const size_t n = (size_t)kp * (size_t)row;
	float *w = gpu_random(n, 41), *vectors = gpu_random(5 * (size_t)kp, 42), *want = test_malloc(n * sizeof(*want)),
	      *want_bias = test_malloc((size_t)kp * sizeof(*want_bias));
	const float *b = vectors, *gamma = b + kp, *beta = gamma + kp, *mean = beta + kp, *var = mean + kp;
	struct ct__k_fold_args a = {
		.eps = 1e-3f, .k = k, .kp = kp, .row = (size_t)row, .type = t, .bias_type = bias_type};

	for (int i = 0; i < kp; i++) {
		vectors[4 * kp + i] = fabsf(var[i]) + 0.1f;
		const double scale = i < k ? (double)gamma[i] / sqrt((double)var[i] + 1e-3) : 0;
		const double shift = (double)(bias ? b[i] : 0.0f) - (double)mean[i];

		want_bias[i] = i < k ? gpu_round((float)((double)beta[i] + shift * scale), bias_type) : 0;
		for (int j = 0; j < row; j++)
			want[i * row + j] = gpu_round((float)((double)w[i * row + j] * scale), t);
	}
	a.w = gpu_upload(w, n, CT_F32);
	a.bias = bias ? gpu_upload(b, (size_t)kp, CT_F32) : NULL;
	a.gamma = gpu_upload(gamma, (size_t)kp, CT_F32);
	a.beta = gpu_upload(beta, (size_t)kp, CT_F32);
	a.mean = gpu_upload(mean, (size_t)k, CT_F32);
	a.var = gpu_upload(var, (size_t)k, CT_F32);
	a.w_out = gpu_upload(NULL, n, t);
	a.bias_out = gpu_upload(NULL, (size_t)kp, bias_type);
	check_cuda(ct__k_fold(&a, NULL));
	expect_device("folded weights", a.w_out, want, n, t, tolerance_of(t));
	expect_device("folded bias", a.bias_out, want_bias, (size_t)kp, bias_type, tolerance_of(bias_type));
	const void *device[] = {a.w, a.bias, a.gamma, a.beta, a.mean, a.var, a.w_out, a.bias_out};
	for (size_t i = 0; i < CT_ARRAY_LEN(device); i++)
		gpu_free(device[i]);
	test_free(want_bias);
	test_free(want);
	test_free(vectors);
	test_free(w);
}

static void test_fold(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++) {
		check_fold(5, 36, false, types[i], types[i]);
		check_fold(16, 1200, true, types[i], CT_F32);
	}
}

static void test_bias(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++) {
		check_bias(1, 10, types[i]);
		check_bias(130, 3, types[i]);
		check_bias(1100, 70, types[i]);
		check_bias_and_relu(130, 3, types[i]);
		check_bias_and_relu(1100, 70, types[i]);
	}
}

struct loss_case {
	int n_valid, n, k;
	bool mixed, mse;
	float smoothing;
	enum ct_dtype type;
	bool weighted;
};

static void check_loss(const struct loss_case *s)
{
	const int kp = pad_channels(s->k, s->type);
	const size_t n_logits = (size_t)s->n * (size_t)kp;
	float *z = random_rows((size_t)s->n, s->k, kp, s->type, 31), *targets = gpu_random((size_t)(s->n * s->k), 32),
	      *mix = gpu_random((size_t)s->n, 33), *weights = gpu_random((size_t)s->k, 34),
	      *want = test_calloc(n_logits, sizeof(*want));
	int32_t *labels = test_malloc((size_t)s->n * sizeof(*labels)),
		*labels_b = test_malloc((size_t)s->n * sizeof(*labels_b));
	struct ct_metrics sum = {0}, got;
	struct ct__k_loss_args a = {.smoothing = s->smoothing,
				    .n_valid = s->n_valid,
				    .n = s->n,
				    .k = s->k,
				    .kp = kp,
				    .mse = s->mse,
				    .type = s->type};

	for (int i = 0; i < s->n; i++) {
		labels[i] = i * 7 % s->k;
		labels_b[i] = i * 5 % s->k;
		mix[i] = fabsf(mix[i]);
	}
	for (int j = 0; j < s->k; j++)
		weights[j] = 0.125f + fabsf(weights[j]);
	for (size_t i = 0; i < n_logits; i++) /* some rows have equal logits: earlier classes win */
		z[i] = i / (size_t)kp % 3 == 1 ? 0.0f : gpu_round(8 * z[i], s->type);
	float *logical = to_logical(z, s->n, s->k, kp, 1),
	      *dlogits = test_calloc((size_t)(s->n * s->k), sizeof(*dlogits));
	const struct ct_batch b = {.n = s->n_valid,
				   .labels = labels,
				   .targets = targets,
				   .labels_b = s->mixed ? labels_b : NULL,
				   .mix = s->mixed ? mix : NULL};
	if (s->mse)
		ct_loss_mse(1, logical, &b, s->k, dlogits, &sum);
	else
		ct_loss_softmax_xent(1, logical, &b, s->k, s->smoothing, s->weighted ? weights : NULL, dlogits, &sum);
	for (int i = 0; i < s->n_valid; i++)
		memcpy(want + (size_t)i * (size_t)kp, dlogits + (size_t)i * (size_t)s->k, (size_t)s->k * sizeof(*want));

	const struct ct_metrics before = {.loss = 1, .count = 10, .top1 = 2, .top5 = 3};
	a.logits = gpu_upload(z, n_logits, s->type);
	a.labels = gpu_bytes(labels, (size_t)s->n * sizeof(*labels));
	a.labels_b = s->mixed ? gpu_bytes(labels_b, (size_t)s->n * sizeof(*labels_b)) : NULL;
	a.mix = s->mixed ? gpu_bytes(mix, (size_t)s->n * sizeof(*mix)) : NULL;
	a.class_weights = s->weighted ? gpu_bytes(weights, (size_t)s->k * sizeof(*weights)) : NULL;
	a.targets = gpu_bytes(targets, (size_t)(s->n * s->k) * sizeof(*targets));
	a.dlogits = gpu_bytes(NULL, n_logits * sizeof(float));
	a.row_loss = gpu_bytes(NULL, (size_t)s->n * sizeof(double));
	a.row_hits = gpu_bytes(NULL, (size_t)s->n * sizeof(uint32_t));
	a.metrics = gpu_bytes(&before, sizeof(before));
	check_cuda(ct__k_loss(&a, NULL));
	expect_device("gradient of the loss", a.dlogits, want, n_logits, CT_F32, 2e-6);
	gpu_read(&got, a.metrics, sizeof(got));
	assert_true(fabs(got.loss - 1 - sum.loss) <= 1e-6 * fabs(sum.loss));
	assert_int_equal(got.count - 10, s->n_valid);
	assert_int_equal(got.top1 - 2, sum.top1);
	assert_int_equal(got.top5 - 3, sum.top5);

	const void *device[] = {a.logits,  a.labels,   a.labels_b, a.mix,     a.targets,
				a.dlogits, a.row_loss, a.row_hits, a.metrics, a.class_weights};
	void *host[] = {z, targets, mix, weights, want, labels, labels_b, logical, dlogits};
	for (size_t i = 0; i < CT_ARRAY_LEN(device); i++)
		gpu_free(device[i]);
	for (size_t i = 0; i < CT_ARRAY_LEN(host); i++)
		test_free(host[i]);
}

static void test_loss(void **state)
{
	static const struct loss_case cases[] = {
		{5, 5, 10, false, false, 0.0f, CT_F32, false},   {3, 7, 3, false, false, 0.1f, CT_F32, false},
		{9, 9, 1000, true, false, 0.1f, CT_F32, false},  {300, 300, 37, true, false, 0.0f, CT_F16, false},
		{4, 4, 10, false, false, 0.1f, CT_BF16, false},  {6, 8, 12, false, true, 0.0f, CT_F32, false},
		{600, 601, 2, false, true, 0.0f, CT_F16, false}, {7, 9, 37, false, false, 0.2f, CT_F32, true},
		{6, 6, 10, true, false, 0.1f, CT_F32, true},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check_loss(&cases[i]);
}

/* A logit that is not finite makes the loss so, and counts as a miss. */
static void test_loss_of_nan(void **state)
{
	float z[8] = {1, 2, NAN, 0};
	const int32_t label = 1;
	struct ct__k_metrics metrics = {0};
	struct ct__k_loss_args a = {.n_valid = 1, .n = 1, .k = 3, .kp = 4, .type = CT_F32};

	(void)state;
	a.logits = gpu_upload(z, 4, CT_F32);
	a.labels = gpu_bytes(&label, sizeof(label));
	a.row_loss = gpu_bytes(NULL, sizeof(double));
	a.row_hits = gpu_bytes(NULL, sizeof(uint32_t));
	a.metrics = gpu_bytes(&metrics, sizeof(metrics));
	check_cuda(ct__k_loss(&a, NULL));
	gpu_read(&metrics, a.metrics, sizeof(metrics));
	assert_true(isnan(metrics.loss));
	assert_int_equal(metrics.top1, 0);
	assert_int_equal(metrics.top5, 0);
	gpu_free(a.metrics);
	gpu_free(a.row_hits);
	gpu_free(a.row_loss);
	gpu_free(a.labels);
	gpu_free(a.logits);
}

static void check_dropout(int n, int c, int h, int w, bool per_row, enum ct_dtype t)
{
	const int cp = pad_channels(c, t), plane = h * w;
	const size_t elems = (size_t)c * (size_t)plane, total = (size_t)(n * plane * cp);
	const uint64_t step = 0x100000007ull, first = 0xfffffffeull; /* both use more than 32 bits */
	float *x = random_rows((size_t)(n * plane), c, cp, t, 41),
	      *mask = test_malloc((size_t)n * elems * sizeof(*mask)), *rows = test_malloc((size_t)n * sizeof(*rows));
	struct ct__k_dropout_args a = {.seed = 0x123456789abull,
				       .node = 3,
				       .n = n,
				       .h = h,
				       .w = w,
				       .c = c,
				       .cp = cp,
				       .per_row = per_row,
				       .p = 0.3f,
				       .type = t};

	ct_drop_path_mask(a.seed, step, a.node, first, a.p, n, rows);
	for (int i = 0; i < n; i++) {
		float *row = mask + (size_t)i * elems;

		ct_dropout_mask(a.seed, step, a.node, first + (uint64_t)i, a.p, elems, row);
		for (size_t k = 0; per_row && k < elems; k++)
			row[k] = rows[i];
	}
	float *want = to_physical(mask, n, c, cp, plane);
	for (size_t i = 0; i < total; i++)
		want[i] = gpu_round(x[i] * want[i], t);
	a.x = gpu_upload(x, total, t);
	a.y = gpu_upload(NULL, total, t);
	a.step = gpu_bytes(&step, sizeof(step));
	a.first = first;
	check_cuda(ct__k_dropout(&a, NULL));
	expect_device("dropout", a.y, want, total, t, 0);
	gpu_free(a.step);
	gpu_free(a.y);
	gpu_free(a.x);
	test_free(want);
	test_free(rows);
	test_free(mask);
	test_free(x);
}

static void test_dropout(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++) {
		check_dropout(3, 128, 1, 1, false, types[i]);
		check_dropout(2, 5, 3, 7, false, types[i]);
		check_dropout(9, 6, 2, 2, true, types[i]);
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_input),       cmocka_unit_test(test_map),     cmocka_unit_test(test_convert),
		cmocka_unit_test(test_fold),        cmocka_unit_test(test_bias),    cmocka_unit_test(test_loss),
		cmocka_unit_test(test_loss_of_nan), cmocka_unit_test(test_dropout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_on_gpu(run);
}
