/* Compares the norm kernels with formulas in double precision: every combination of ReLU, residual and drop path, odd
 * shapes, both types, in place or not. The first argument limits the instruction set, which changes the layout. Results
 * must not depend on the number of threads. */
#include "nn/onednn/kernels/norm_kernels.h"

#include <math.h>

#include "base/half.h"
#include "nn/onednn/dnnl/shim.h"
#include "tests/nn/onednn_check.h"

#define LANES ((size_t)ct__lanes())
#define MAX_LANES 16
#define EPS 1e-3f

struct shape {
	int n, channels, plane;
};

enum { RELU = 1, RESIDUAL = 2, FACTOR = 4, BF16 = 8, TWO = 16 /* gradients */, NHWC = 32, N_KINDS = 64 };

/* Tensors in fp32 as the kernels see them (bfloat16 ones rounded), blocked. */
struct data {
	struct shape s;
	int kind;
	size_t elems;
	float *x, *residual, *dy, *dy2, *gamma, *beta, *factor;
};

struct result {
	float *y, *dx, *dresidual, *mean, *variance, *dgamma, *dbeta;
};

static size_t index_of(const struct data *d, int n, int c, int i)
{
	const struct shape *s = &d->s;
	size_t blocks = ((size_t)s->channels + LANES - 1) / LANES;

	if (d->kind & NHWC)
		return ((size_t)n * (size_t)s->plane + (size_t)i) * (size_t)s->channels + (size_t)c;
	return (((size_t)n * blocks + (size_t)c / LANES) * (size_t)s->plane + (size_t)i) * LANES + (size_t)c % LANES;
}

static float *tensor(const struct data *d, uint32_t stream, float offset)
{
	size_t logical = (size_t)d->s.n * (size_t)d->s.channels * (size_t)d->s.plane, k = 0;
	float *x = CT_NEW_ARRAY(float, d->elems), *values = CT_NEW_ARRAY(float, logical);

	assert_true(x && values);
	fill_floats(stream, values, logical);
	for (int n = 0; n < d->s.n; n++) {
		for (int c = 0; c < d->s.channels; c++) {
			for (int i = 0; i < d->s.plane; i++, k++) {
				float v = values[k] + offset * (float)(c % 5);

				x[index_of(d, n, c, i)] = d->kind & BF16 ? ct_bf16_to_f32(ct_bf16_from_f32(v)) : v;
			}
		}
	}
	ct_free(values);
	return x;
}

static void make(struct data *d, struct shape s, int kind)
{
	*d = (struct data){.s = s, .kind = kind};
	d->elems = (size_t)s.n * (size_t)s.plane *
		   (kind & NHWC ? (size_t)s.channels : ((size_t)s.channels + LANES - 1) / LANES * LANES);
	d->x = tensor(d, 1, 2);
	d->residual = tensor(d, 2, 0);
	d->dy = tensor(d, 3, 0.1f);
	d->dy2 = tensor(d, 6, 0.2f);
	d->gamma = CT_NEW_ARRAY(float, (size_t)s.channels);
	d->beta = CT_NEW_ARRAY(float, (size_t)s.channels);
	d->factor = CT_NEW_ARRAY(float, (size_t)s.n);
	fill_floats(4, d->gamma, (size_t)s.channels);
	fill_floats(5, d->beta, (size_t)s.channels);
	for (int i = 0; i < s.n; i++)
		d->factor[i] = i % 3 == 1 ? 0 : 1.5f;
}

static void release(struct data *d)
{
	ct_free(d->x);
	ct_free(d->residual);
	ct_free(d->dy);
	ct_free(d->dy2);
	ct_free(d->gamma);
	ct_free(d->beta);
	ct_free(d->factor);
}

static void result_new(struct result *r, const struct data *d)
{
	size_t c = (size_t)d->s.channels;

	*r = (struct result){CT_NEW_ARRAY(float, d->elems), CT_NEW_ARRAY(float, d->elems),
			     CT_NEW_ARRAY(float, d->elems), CT_NEW_ARRAY(float, c),
			     CT_NEW_ARRAY(float, c),        CT_NEW_ARRAY(float, c),
			     CT_NEW_ARRAY(float, c)};
	assert_true(r->y && r->dx && r->dresidual && r->mean && r->variance && r->dgamma && r->dbeta);
}

static void result_release(struct result *r)
{
	ct_free(r->y);
	ct_free(r->dx);
	ct_free(r->dresidual);
	ct_free(r->mean);
	ct_free(r->variance);
	ct_free(r->dgamma);
	ct_free(r->dbeta);
}

/* One channel by the formulas. What the ReLU lets through is taken from `y`, where rounding may decide. */
static void expect_channel(const struct data *d, int c, const float *y, struct result *want)
{
	const struct shape *s = &d->s;
	const double count = (double)s->n * s->plane;
	double mean = 0, variance = 0, sum = 0, dot = 0;

	for (int n = 0; n < s->n; n++) {
		for (int i = 0; i < s->plane; i++)
			mean += (double)d->x[index_of(d, n, c, i)] / count;
	}
	for (int n = 0; n < s->n; n++) {
		for (int i = 0; i < s->plane; i++)
			variance += pow((double)d->x[index_of(d, n, c, i)] - mean, 2) / count;
	}
	const double inv = 1 / sqrt(variance + (double)EPS);
	for (int pass = 0; pass < 2; pass++) {
		for (int n = 0; n < s->n; n++) {
			const double f = d->kind & FACTOR ? (double)d->factor[n] : 1;

			for (int i = 0; i < s->plane; i++) {
				const size_t at = index_of(d, n, c, i);
				double xh = ((double)d->x[at] - mean) * inv,
				       z = f * (xh * (double)d->gamma[c] + (double)d->beta[c]);

				z += d->kind & RESIDUAL ? (double)d->residual[at] : 0;
				bool cut = (d->kind & RELU) && !(y[at] > 0);
				float both = d->kind & TWO ? d->dy[at] + d->dy2[at] : d->dy[at];
				double g =
					cut ? 0
					    : (double)(d->kind & BF16 ? ct_bf16_to_f32(ct_bf16_from_f32(both)) : both);
				want->y[at] = (float)((d->kind & RELU) && z < 0 ? 0 : z);
				want->dresidual[at] = (float)g;
				if (pass == 0) {
					sum += f * g;
					dot += f * g * xh;
				} else {
					want->dx[at] = (float)((double)d->gamma[c] * inv *
							       (f * g - sum / count - xh * dot / count));
				}
			}
		}
	}
	want->mean[c] = (float)mean;
	want->variance[c] = (float)variance;
	want->dgamma[c] = (float)dot;
	want->dbeta[c] = (float)sum;
}

/* As the kernel takes a tensor. */
static void *packed(const struct data *d, const float *x)
{
	void *p = ct_calloc_aligned(64, d->elems * sizeof(float));

	assert_non_null(p);
	for (size_t i = 0; i < d->elems && d->kind & BF16; i++)
		((uint16_t *)p)[i] = ct_bf16_from_f32(x[i]);
	if (!(d->kind & BF16))
		memcpy(p, x, d->elems * sizeof(float));
	return p;
}

static void unpack(const struct data *d, const void *p, float *x)
{
	for (size_t i = 0; i < d->elems; i++)
		x[i] = d->kind & BF16 ? ct_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

/* in_place: dx over x and the residual's gradient over dy, or dx over dy. */
static void run_kernels(const struct data *d, int threads, bool in_place, bool in_parts, struct result *got)
{
	const struct shape *s = &d->s;
	const bool joins = (d->kind & RELU) && (d->kind & RESIDUAL);
	void *x = packed(d, d->x), *residual = packed(d, d->residual), *dy = packed(d, d->dy), *dy2 = packed(d, d->dy2);
	const bool two = d->kind & TWO;
	void *y = packed(d, d->residual), *dx = packed(d, d->x), *dresidual = packed(d, d->x);
	double sums[2 * 530];
	struct ct_norm p = {.n = s->n,
			    .channels = s->channels,
			    .plane = s->plane,
			    .nhwc = d->kind & NHWC,
			    .bf16 = d->kind & BF16,
			    .relu = d->kind & RELU,
			    .eps = EPS,
			    .threads = threads,
			    .x = x,
			    .gamma = d->gamma,
			    .beta = d->beta,
			    .mean = got->mean,
			    .variance = got->variance,
			    .residual = d->kind & RESIDUAL ? residual : NULL,
			    .factor = d->kind & FACTOR ? d->factor : NULL,
			    .y = in_place ? residual : y,
			    .dy = dy,
			    .dy2 = two ? dy2 : NULL,
			    .dx = !in_place ? dx
				  : joins   ? x
					    : dy,
			    .dresidual = !joins && !two ? NULL
					 : in_place     ? dy
							: dresidual,
			    .dgamma = got->dgamma,
			    .dbeta = got->dbeta};

	p.partials = ct_calloc_aligned(64, p.nhwc ? ct__norm_nhwc_scratch_bytes(s->n, s->channels, s->plane)
						  : ct__norm_scratch_bytes(s->n, s->channels));
	p.mask = joins ? ct_calloc_aligned(64, ct__norm_mask_bytes(s->n, s->channels, s->plane)) : NULL;
	if (in_parts) {
		ct__norm_sums(&p, sums);
		ct__norm_moments(&p, sums, (double)s->n * s->plane);
		ct__norm_apply(&p);
	} else {
		ct__norm_forward(&p);
	}
	unpack(d, p.y, got->y);
	p.residual = joins ? p.residual : NULL;
	if (in_parts) {
		ct__norm_gradient_sums(&p, sums);
		ct__norm_gradient_apply(&p, sums, (double)s->n * s->plane);
	} else {
		ct__norm_backward(&p);
	}
	unpack(d, p.dx, got->dx);
	if (joins)
		unpack(d, p.dresidual, got->dresidual);
	void *const all[] = {x, residual, dy, dy2, y, dx, dresidual, p.partials, p.mask};
	for (size_t i = 0; i < CT_ARRAY_LEN(all); i++)
		ct_free_aligned(all[i]);
}

static void compare(const struct data *d, const char *what, const float *got, const float *want, size_t n,
		    double relative)
{
	double largest = 1e-30;

	for (size_t i = 0; i < n; i++)
		largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
	for (size_t i = 0; i < n; i++) {
		double error = fabs((double)got[i] - (double)want[i]) / largest;

		if (!(error <= relative))
			fail_msg("%dx%dx%d kind %d: %s[%zu] is %.9g, not %.9g", d->s.n, d->s.channels, d->s.plane,
				 d->kind, what, i, (double)got[i], (double)want[i]);
	}
}

static void assert_same(const struct data *d, const struct result *a, const struct result *b)
{
	const size_t bytes = d->elems * sizeof(float), c = (size_t)d->s.channels * sizeof(float);

	assert_memory_equal(a->y, b->y, bytes);
	assert_memory_equal(a->dx, b->dx, bytes);
	assert_memory_equal(a->dresidual, b->dresidual, bytes);
	assert_memory_equal(a->mean, b->mean, c);
	assert_memory_equal(a->variance, b->variance, c);
	assert_memory_equal(a->dgamma, b->dgamma, c);
	assert_memory_equal(a->dbeta, b->dbeta, c);
}

static void check(struct shape s, int kind)
{
	const double close = kind & BF16 ? 1.0 / 256 : 2e-6;
	struct data d;
	struct result got, want, again;
	const size_t c = (size_t)s.channels;

	make(&d, s, kind);
	result_new(&got, &d);
	result_new(&want, &d);
	run_kernels(&d, 1, false, false, &got);
	for (int i = 0; i < s.channels; i++)
		expect_channel(&d, i, got.y, &want);
	compare(&d, "mean", got.mean, want.mean, c, 1e-6);
	compare(&d, "variance", got.variance, want.variance, c, 1e-6);
	compare(&d, "y", got.y, want.y, d.elems, close);
	compare(&d, "dbeta", got.dbeta, want.dbeta, c, 2e-6);
	/* The mean is kept as fp32: its rounding, times the sum of dy, is in there. */
	compare(&d, "dgamma", got.dgamma, want.dgamma, c, 1e-4);
	compare(&d, "dx", got.dx, want.dx, d.elems, 10 * close);
	if ((kind & RELU) && (kind & RESIDUAL))
		compare(&d, "gradient of the residual", got.dresidual, want.dresidual, d.elems, 0);
	for (int threads = 1; threads <= 3; threads++) {
		for (int in_place = 0; in_place < 2; in_place++) {
			for (int in_parts = 0; in_parts < 2; in_parts++) {
				result_new(&again, &d);
				run_kernels(&d, threads, in_place, in_parts, &again);
				assert_same(&d, &got, &again);
				result_release(&again);
			}
		}
	}
	result_release(&got);
	result_release(&want);
	release(&d);
}

static void test_against_formulas(void **state)
{
	static const struct shape shapes[] = {{2, 16, 4},   {1, 16, 2},  {5, 17, 7}, {3, 48, 1}, {2, 80, 49},
					      {4, 33, 257}, {1, 3, 600}, {7, 64, 9}, {2, 530, 3}};

	(void)state;
	skip_without_norm_kernels();
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++) {
		for (int kind = 0; kind < N_KINDS; kind++) {
			if (ct__norm_usable(kind & BF16))
				check(shapes[i], kind);
		}
	}
}

/* Mean a thousand deviations from zero: the variance must not drown. */
static void test_far_from_zero(void **state)
{
	enum { N = 4, PLANE = 1000 };
	float gamma[MAX_LANES], beta[MAX_LANES] = {0}, mean[MAX_LANES], variance[MAX_LANES];
	double want = 0;

	(void)state;
	skip_without_norm_kernels();
	float *x = ct_calloc_aligned(64, N * PLANE * LANES * sizeof(float));
	float *noise = CT_NEW_ARRAY(float, N *PLANE);
	fill_floats(1, noise, N * PLANE);
	for (size_t i = 0; i < N * PLANE; i++) {
		for (size_t l = 0; l < LANES; l++)
			x[i * LANES + l] = 1000 + noise[i];
	}
	double sum = 0;
	for (size_t i = 0; i < N * PLANE; i++)
		sum += (double)x[i * LANES];
	for (size_t i = 0; i < N * PLANE; i++)
		want += pow((double)x[i * LANES] - sum / (N * PLANE), 2) / (N * PLANE);
	for (size_t l = 0; l < LANES; l++)
		gamma[l] = 1;
	struct ct_norm p = {.n = N,
			    .channels = ct__lanes(),
			    .plane = PLANE,
			    .eps = EPS,
			    .threads = 1,
			    .x = x,
			    .gamma = gamma,
			    .beta = beta,
			    .mean = mean,
			    .variance = variance,
			    .y = x};
	p.partials = ct_calloc_aligned(64, ct__norm_scratch_bytes(N, ct__lanes()));
	ct__norm_forward(&p);
	for (size_t l = 0; l < LANES; l++) {
		assert_float_equal((double)mean[l], sum / (N * PLANE), 1e-4);
		assert_float_equal((double)variance[l], want, 1e-5 * want);
	}
	ct_free_aligned(p.partials);
	ct_free_aligned(x);
	ct_free(noise);
}

/* What is not a number stays so, and is let through. */
static void test_not_a_number(void **state)
{
	float x[2 * MAX_LANES] __attribute__((aligned(64))) = {0}, y[2 * MAX_LANES] __attribute__((aligned(64)));
	float ones[MAX_LANES], mean[MAX_LANES], variance[MAX_LANES];

	(void)state;
	skip_without_norm_kernels();
	for (size_t l = 0; l < LANES; l++)
		ones[l] = 1;
	x[3] = NAN;
	struct ct_norm p = {.n = 1,
			    .channels = ct__lanes(),
			    .plane = 2,
			    .relu = true,
			    .eps = EPS,
			    .x = x,
			    .gamma = ones,
			    .beta = ones,
			    .mean = mean,
			    .variance = variance,
			    .y = y};
	p.partials = ct_calloc_aligned(64, ct__norm_scratch_bytes(1, ct__lanes()));
	ct__norm_forward(&p);
	for (size_t l = 0; l < 2 * LANES; l++)
		assert_int_equal(isnan(y[l]) != 0, l % LANES == 3);
	assert_true(isnan(variance[3]));
	ct_free_aligned(p.partials);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_formulas),
		cmocka_unit_test(test_far_from_zero),
		cmocka_unit_test(test_not_a_number),
	};

	int skipped = limit_isa(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
