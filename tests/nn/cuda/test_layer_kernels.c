/* The CUDA kernels for batch norm, pooling and weights with groups against nn/host and plain loops, in each element
 * type, on odd shapes. */
#include <math.h>

#include "nn/host/host.h"
#include "tests/nn/cuda/kernel_check.h"

/* Batch norm of one shape on the device and on the host; both see the same rounded input. */
struct norm_case {
	int n, c, h, w;
	bool relu, residual, two; /* two: y has two users, so there are two gradients */
	enum ct_dtype type;
};

struct norm {
	struct norm_case s;
	int cp, plane;
	size_t rows, elems;
	struct ct_node node;
	float *x, *residual, *dy, *dy2, *gamma, *beta, *mean, *var; /* [rows, cp], and vectors [cp] */
	struct ct__k_norm_args a;
};

static void norm_open(struct norm *m, const struct norm_case *s)
{
	struct ct__k_norm_args *a = &m->a;

	*m = (struct norm){.s = *s, .cp = pad_channels(s->c, s->type), .plane = s->h * s->w};
	m->rows = (size_t)s->n * (size_t)m->plane;
	m->elems = m->rows * (size_t)m->cp;
	m->node = (struct ct_node){
		.op = CT_OP_BATCH_NORM, .name = "bn", .shape = {s->c, s->h, s->w}, .eps = 1e-3f, .momentum = 0.1f};
	m->x = random_rows(m->rows, s->c, m->cp, s->type, 11);
	m->residual = random_rows(m->rows, s->c, m->cp, s->type, 12);
	m->dy = random_rows(m->rows, s->c, m->cp, s->type, 13);
	m->dy2 = random_rows(m->rows, s->c, m->cp, s->type, 18);
	m->gamma = random_rows(1, s->c, m->cp, CT_F32, 14);
	m->beta = random_rows(1, s->c, m->cp, CT_F32, 15);
	m->mean = random_rows(1, s->c, m->cp, CT_F32, 16);
	m->var = random_rows(1, s->c, m->cp, CT_F32, 17);
	m->residual[0] = NAN; /* the ReLU passes it, and its gradient */
	for (int i = 0; i < m->cp; i++)
		m->var[i] = fabsf(m->var[i]) + 0.5f;
	*a = (struct ct__k_norm_args){.rows = m->rows,
				      .c = s->c,
				      .cp = m->cp,
				      .relu = s->relu,
				      .eps = m->node.eps,
				      .momentum = m->node.momentum,
				      .type = s->type};
	a->x = gpu_upload(m->x, m->elems, s->type);
	a->residual = s->residual ? gpu_upload(m->residual, m->elems, s->type) : NULL;
	a->y = gpu_upload(NULL, m->elems, s->type);
	a->dy = gpu_upload(m->dy, m->elems, s->type);
	a->dx = gpu_upload(NULL, m->elems, s->type);
	a->dy2 = s->two ? gpu_upload(m->dy2, m->elems, s->type) : NULL;
	a->d = s->residual ? gpu_upload(NULL, m->elems, s->type) : NULL;
	a->mask = s->residual && s->relu ? gpu_bytes(NULL, m->elems * ct_dtype_bytes(s->type) / 16) : NULL;
	a->gamma = gpu_upload(m->gamma, (size_t)m->cp, CT_F32);
	a->beta = gpu_upload(m->beta, (size_t)m->cp, CT_F32);
	a->dgamma = gpu_upload(NULL, (size_t)m->cp, CT_F32);
	a->dbeta = gpu_upload(NULL, (size_t)m->cp, CT_F32);
	a->running_mean = gpu_upload(m->mean, (size_t)m->cp, CT_F32);
	a->running_var = gpu_upload(m->var, (size_t)m->cp, CT_F32);
	a->stat = gpu_upload(NULL, 2 * (size_t)m->cp, CT_F32);
	a->partial =
		gpu_bytes(NULL, (size_t)ct__k_sum_blocks(m->rows, m->cp, s->type) * 2 * (size_t)m->cp * sizeof(double));
	a->sums = gpu_bytes(NULL, (2 * (size_t)s->c + 1) * sizeof(double));
	a->inverse = gpu_bytes(NULL, sizeof(double));
}

static void norm_close(struct norm *m)
{
	const struct ct__k_norm_args *a = &m->a;
	const void *device[] = {a->x,     a->residual, a->y,       a->dy,     a->dy2,   a->dx,           a->d,
				a->gamma, a->beta,     a->stat,    a->dgamma, a->dbeta, a->running_mean, a->running_var,
				a->sums,  a->partial,  a->inverse, a->mask};
	float *host[] = {m->x, m->residual, m->dy, m->dy2, m->gamma, m->beta, m->mean, m->var};

	for (size_t i = 0; i < CT_ARRAY_LEN(device); i++)
		gpu_free(device[i]);
	for (size_t i = 0; i < CT_ARRAY_LEN(host); i++)
		test_free(host[i]);
}

static void check_norm_forward(struct norm *m, double *stat, float *y)
{
	const struct norm_case *s = &m->s;
	const double tolerance = tolerance_of(s->type);
	float *x = to_logical(m->x, s->n, s->c, m->cp, m->plane),
	      *out = test_malloc((size_t)s->n * (size_t)(s->c * m->plane) * sizeof(*out));
	float *want;

	ct_batch_norm_own_statistics(&m->node, s->n, true, x, stat);
	assert_int_equal(ct_batch_norm_all_statistics(&m->node, true, m->mean, m->var, stat), CT_OK);
	ct_batch_norm_forward(&m->node, s->n, x, m->gamma, m->beta, stat, out);
	want = to_physical(out, s->n, s->c, m->cp, m->plane);
	for (size_t i = 0; i < m->elems; i++) {
		const bool real = (int)(i % (size_t)m->cp) < s->c;
		float v = real ? want[i] + (s->residual ? m->residual[i] : 0.0f) : 0.0f;

		want[i] = s->relu && v <= 0 ? 0.0f : v;
	}
	check_cuda(ct__k_norm_sums(&m->a, NULL));
	check_cuda(ct__k_norm_finalize(&m->a, NULL));
	check_cuda(ct__k_norm_apply(&m->a, NULL));
	expect_device("running mean", m->a.running_mean, m->mean, (size_t)s->c, CT_F32, 1e-6);
	expect_device("running variance", m->a.running_var, m->var, (size_t)s->c, CT_F32, 1e-6);
	expect_device("norm", m->a.y, want, m->elems, s->type, tolerance * 4);
	float *rounded = gpu_download(m->a.y, m->elems, s->type); /* the mask of backward */
	memcpy(y, rounded, m->elems * sizeof(*y));
	test_free(rounded);
	test_free(want);
	test_free(out);
	test_free(x);
}

/* As the engine does: with a residual, apply has stored the mask, and d is stored. Otherwise the mask is computed
 * again. With two gradients and no residual, d and dx are written over dy. */
static void run_norm_backward(struct norm *m)
{
	struct ct__k_norm_args sums = m->a, data = m->a;

	sums.y = data.y = NULL;
	if (!m->s.residual && m->s.two)
		sums.d = (void *)(uintptr_t)m->a.dy;
	if (sums.d) {
		data.dy = sums.d;
		data.relu = 0;
	}
	if (!m->s.residual && m->s.two) {
		gpu_free(m->a.dx);
		data.dx = m->a.dx = sums.d;
		m->a.dy = NULL;
	}
	check_cuda(ct__k_norm_backward_sums(&sums, NULL));
	check_cuda(ct__k_norm_backward_data(&data, NULL));
}

static void check_norm_backward(struct norm *m, double *stat, const float *y)
{
	const struct norm_case *s = &m->s;
	const size_t logical = (size_t)s->n * (size_t)(s->c * m->plane);
	float *masked = test_malloc(m->elems * sizeof(*masked)), *dgamma = test_malloc((size_t)s->c * sizeof(float)),
	      *dbeta = test_malloc((size_t)s->c * sizeof(float)), *dx = test_calloc(logical, sizeof(*dx));

	for (size_t i = 0; i < m->elems; i++)
		masked[i] = s->relu && y[i] <= 0 ? 0.0f : gpu_round(m->dy[i] + (s->two ? m->dy2[i] : 0.0f), s->type);
	float *x = to_logical(m->x, s->n, s->c, m->cp, m->plane), *dy = to_logical(masked, s->n, s->c, m->cp, m->plane);
	ct_batch_norm_backward_sums(&m->node, s->n, x, dy, stat, dgamma, dbeta);
	ct_batch_norm_backward_data(&m->node, s->n, x, m->gamma, dy, stat, dx);
	float *want = to_physical(dx, s->n, s->c, m->cp, m->plane);
	run_norm_backward(m);
	expect_device("dgamma", m->a.dgamma, dgamma, (size_t)s->c, CT_F32, 2e-5);
	expect_device("dbeta", m->a.dbeta, dbeta, (size_t)s->c, CT_F32, 2e-6);
	expect_device("dx", m->a.dx, want, m->elems, s->type, tolerance_of(s->type) * 4);
	if (s->residual)
		expect_device("gradient of the residual", m->a.d, masked, m->elems, s->type, 0);
	test_free(want);
	test_free(dy);
	test_free(x);
	test_free(dx);
	test_free(dbeta);
	test_free(dgamma);
	test_free(masked);
}

static void test_norm(void **state)
{
	static const struct norm_case cases[] = {
		{2, 3, 5, 4, false, false, false, CT_F32},
		{3, 16, 7, 7, true, false, false, CT_F32},
		{2, 70, 3, 3, true, true, false, CT_F32},
		{40, 5, 6, 6, false, true, false, CT_F32},
		{2, 20, 5, 5, true, false, false, CT_F16},
		{3, 9, 7, 3, true, true, true, CT_BF16},
		{2, 8, 1, 1, false, false, false, CT_F16},
		{3, 17, 5, 5, true, false, true, CT_F32},
		{2, 33, 4, 5, true, true, true, CT_F32},
		{2, 65, 6, 5, false, true, true, CT_F16},
		{5, 24, 3, 7, true, false, true, CT_BF16},
		{9, 130, 9, 9, true, true, true, CT_F16},
		{3, 300, 2, 2, true, false, false, CT_F16},
		/* several runs and batches for each thread (CT_COLUMN_GRID), and rows that are left over */
		{31, 40, 7, 8, true, false, true, CT_F32},
		{31, 40, 7, 8, true, true, true, CT_BF16},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct norm m;

		norm_open(&m, &cases[i]);
		double *stat = test_malloc(CT_BATCH_NORM_STATS(cases[i].c) * sizeof(*stat));
		float *y = test_malloc(m.elems * sizeof(*y));
		check_norm_forward(&m, stat, y);
		check_norm_backward(&m, stat, y);
		test_free(y);
		test_free(stat);
		norm_close(&m);
	}
}

static void test_norm_in_evaluation(void **state)
{
	const struct norm_case s = {2, 5, 3, 3, false, false, false, CT_F32};
	struct norm m;

	(void)state;
	norm_open(&m, &s);
	float *want = test_malloc(m.elems * sizeof(*want));
	for (size_t i = 0; i < m.elems; i++) {
		const size_t c = i % (size_t)m.cp;
		const double std = sqrt((double)m.var[c] + (double)m.node.eps);
		const double norm = ((double)m.x[i] - (double)m.mean[c]) / std;

		want[i] = c < 5 ? (float)(norm * (double)m.gamma[c] + (double)m.beta[c]) : 0.0f;
	}
	check_cuda(ct__k_norm_running(&m.a, NULL));
	check_cuda(ct__k_norm_apply(&m.a, NULL));
	expect_device("norm in evaluation", m.a.y, want, m.elems, CT_F32, 1e-5);
	test_free(want);
	norm_close(&m);
}

struct pool_case {
	int n, c, h, w, r, stride, pad, dilation;
	bool average;
	enum ct_dtype type;
};

/* Plain loops over [n,h,w,cp]; the forward value and the gradient. */
static void pool_reference(const struct ct__k_pool_args *a, const float *x, const float *dy, float *y, float *dx)
{
	for (int i = 0; i < a->n * a->p * a->q * a->cp; i++) {
		const int c = i % a->cp, q = i / a->cp % a->q, p = i / a->cp / a->q % a->p, n = i / a->cp / a->q / a->p;
		int count = 0, best = -1;
		double sum = 0;

		for (int pass = 0; pass < 2; pass++) {
			for (int t = 0; t < a->r * a->s; t++) {
				const int h = p * a->stride_h - a->pad_h + t / a->s * a->dilation_h,
					  w = q * a->stride_w - a->pad_w + t % a->s * a->dilation_w;
				const int at = ((n * a->h + h) * a->w + w) * a->cp + c;

				if (h < 0 || h >= a->h || w < 0 || w >= a->w)
					continue;
				if (pass == 0) {
					count++;
					sum += (double)x[at];
					if (best < 0 || x[at] > x[best] || (isnan(x[at]) && !isnan(x[best])))
						best = at;
				} else if (a->average) {
					dx[at] += dy[i] / (float)count;
				}
			}
		}
		y[i] = a->average ? (float)(sum / count) : x[best];
		if (!a->average)
			dx[best] += dy[i];
	}
}

static void check_pool(const struct pool_case *k)
{
	const int cp = pad_channels(k->c, k->type), reach = k->dilation * (k->r - 1) + 1;
	struct ct__k_pool_args a = {.n = k->n,
				    .h = k->h,
				    .w = k->w,
				    .p = (k->h + 2 * k->pad - reach) / k->stride + 1,
				    .q = (k->w + 2 * k->pad - reach) / k->stride + 1,
				    .cp = cp,
				    .r = k->r,
				    .s = k->r,
				    .stride_h = k->stride,
				    .stride_w = k->stride,
				    .pad_h = k->pad,
				    .pad_w = k->pad,
				    .dilation_h = k->dilation,
				    .dilation_w = k->dilation,
				    .average = k->average,
				    .type = k->type};
	const size_t n_in = (size_t)(k->n * k->h * k->w * cp), n_out = (size_t)(k->n * a.p * a.q * cp);
	float *x = random_rows((size_t)(k->n * k->h * k->w), k->c, cp, k->type, 21),
	      *dy = random_rows((size_t)(k->n * a.p * a.q), k->c, cp, k->type, 22),
	      *y = test_malloc(n_out * sizeof(*y)), *dx = test_calloc(n_in, sizeof(*dx));

	x[0] = x[(size_t)cp];                        /* equal values: the first tap wins */
	x[n_in / 2 / (size_t)cp * (size_t)cp] = NAN; /* the largest element */
	pool_reference(&a, x, dy, y, dx);
	a.x = gpu_upload(x, n_in, k->type);
	a.dy = gpu_upload(dy, n_out, k->type);
	a.y = gpu_upload(NULL, n_out, k->type);
	a.dx = gpu_upload(NULL, n_in, k->type);
	a.tap = gpu_bytes(NULL, n_out);
	check_cuda(ct__k_pool(&a, NULL));
	check_cuda(ct__k_pool_backward(&a, NULL));
	expect_device("pool", a.y, y, n_out, k->type, tolerance_of(k->type));
	expect_device("pool gradient", a.dx, dx, n_in, k->type, tolerance_of(k->type) * 2);
	gpu_free(a.tap);
	gpu_free(a.dx);
	gpu_free(a.y);
	gpu_free(a.dy);
	gpu_free(a.x);
	test_free(dx);
	test_free(y);
	test_free(dy);
	test_free(x);
}

static void test_pool(void **state)
{
	static const struct pool_case cases[] = {
		{2, 3, 8, 6, 2, 2, 0, 1, false, CT_F32},
		{1, 64, 13, 11, 3, 2, 1, 1, false, CT_F32},
		{2, 5, 9, 9, 3, 1, 2, 2, false, CT_F16},
		{2, 9, 7, 5, 3, 2, 1, 1, true, CT_F32},
		{3, 17, 7, 7, 7, 1, 0, 1, true, CT_BF16},
		{1, 8, 5, 5, 2, 3, 0, 1, false, CT_BF16},
		{2, 12, 9, 8, 5, 1, 2, 1, false, CT_F16},
		{2, 12, 9, 8, 5, 1, 2, 1, true, CT_F16},
		{2, 300, 9, 9, 3, 2, 1, 1, false, CT_BF16}, /* more than one block along a row */
		/* strides and dilations with and without a common divisor */
		{2, 3, 11, 12, 3, 3, 1, 2, false, CT_F32},
		{2, 3, 11, 12, 3, 3, 1, 2, true, CT_F32},
		{1, 9, 13, 12, 3, 4, 1, 2, false, CT_BF16},
		{1, 9, 13, 12, 3, 4, 1, 2, true, CT_F32},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check_pool(&cases[i]);
}

/* Sizes that 32 bits cannot index are refused, and not truncated. */
static void test_too_large_pool(void **state)
{
	const struct ct__k_pool_args rows = {.n = 46341, .p = 46341, .q = 1, .cp = 4, .type = CT_F32},
				     width = {.n = 1, .p = 1, .q = (1 << 30) + 1, .cp = 4096, .type = CT_F32};

	(void)state;
	assert_int_equal(ct__k_pool(&rows, NULL), cudaErrorInvalidConfiguration);
	assert_int_equal(ct__k_pool(&width, NULL), cudaErrorInvalidConfiguration);
}

/* Each of the groups connects c input channels with k output channels. */
static void check_groups(int n_groups, int k, int c, int plane, enum ct_dtype t)
{
	const int kp = pad_channels(n_groups * k, t), cp = pad_channels(n_groups * c, t);
	const size_t rows = (size_t)kp * (size_t)plane, n = rows * (size_t)cp;
	float *w = random_rows(rows, n_groups * c, cp, t, 51), *want = test_malloc(n * sizeof(*want));
	struct ct__k_groups_args a = {.k = k, .c = c, .plane = plane, .kp = kp, .cp = cp, .type = t};

	for (int i = 0; i < kp; i++)
		for (int p = 0; p < plane; p++)
			for (int j = 0; j < cp; j++) {
				const size_t at = ((size_t)i * (size_t)plane + (size_t)p) * (size_t)cp + (size_t)j;

				want[at] = i / k == j / c ? w[at] : 0.0f;
			}
	a.w = gpu_upload(w, n, t);
	check_cuda(ct__k_groups(&a, NULL));
	expect_device("weights with groups", a.w, want, n, t, 0);
	gpu_free(a.w);
	test_free(want);
	test_free(w);
}

static void test_groups(void **state)
{
	static const enum ct_dtype types[] = {CT_F32, CT_F16, CT_BF16};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(types); i++) {
		check_groups(2, 9, 3, 1, types[i]);
		check_groups(3, 2, 5, 9, types[i]);
		check_groups(13, 1, 1, 25, types[i]);
		check_groups(5, 7, 3, 15, types[i]);
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_norm),   cmocka_unit_test(test_norm_in_evaluation),
		cmocka_unit_test(test_pool),   cmocka_unit_test(test_too_large_pool),
		cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_on_gpu(run);
}
