/* Compares the kernels of norm, ReLU and max pool with formulas in double precision: both layouts and types, windows
 * that overlap, leave a remainder or reach over the edge, channels that do not fill a vector or fill many. The first
 * argument limits the instruction set, which changes the layout. Results must not depend on the number of threads. */
#include "nn/onednn/kernels/norm_pool.h"

#include <math.h>

#include "base/half.h"
#include "nn/onednn/kernels/norm_kernels.h"
#include "tests/nn/onednn_check.h"

#define EPS 1e-3f
#define GUARD 64 /* bytes after each tensor that no kernel may write */
#define MAX_CHANNELS 530

static size_t elems_of(const struct ct_norm_pool_shape *s, struct ct_shape plane)
{
	const size_t lanes = (size_t)ct__lanes();
	const size_t channels = s->nhwc ? (size_t)s->channels : ((size_t)s->channels + lanes - 1) / lanes * lanes;

	return (size_t)s->n * (size_t)plane.h * (size_t)plane.w * channels;
}

static size_t index_of(const struct ct_norm_pool_shape *s, struct ct_shape plane, int n, int c, int h, int w)
{
	const size_t lanes = (size_t)ct__lanes(), channels = (size_t)s->channels, channel = (size_t)c,
		     blocks = (channels + lanes - 1) / lanes, size = (size_t)plane.h * (size_t)plane.w,
		     pixel = (size_t)h * (size_t)plane.w + (size_t)w;

	if (s->nhwc)
		return ((size_t)n * size + pixel) * channels + channel;
	return (((size_t)n * blocks + channel / lanes) * size + pixel) * lanes + channel % lanes;
}

/* What the kernels read and write. Values are those that the kernels see: bfloat16 ones are rounded. */
struct tensors {
	struct ct_norm_pool_shape shape;
	float *x, *dy, *y, *picked, *dx;
	uint8_t *taps;
	float gamma[MAX_CHANNELS], beta[MAX_CHANNELS];
	float mean[MAX_CHANNELS], variance[MAX_CHANNELS], dgamma[MAX_CHANNELS], dbeta[MAX_CHANNELS];
};

static float *tensor(const struct ct_norm_pool_shape *s, struct ct_shape plane, uint32_t stream, float offset)
{
	const size_t elems = elems_of(s, plane), channels = (size_t)s->channels;
	float *x = CT_NEW_ARRAY(float, elems), *values = CT_NEW_ARRAY(float, elems);
	const float *next = values;

	assert_true(x && values);
	fill_floats(stream, values, elems);
	for (size_t c = 0; c < channels; c++) {
		for (int i = 0; i < s->n * plane.h * plane.w; i++) {
			const int n = i / (plane.h * plane.w), h = i / plane.w % plane.h, w = i % plane.w;
			const float v = *next++ + offset * (float)(c % 5);

			x[index_of(s, plane, n, (int)c, h, w)] = s->bf16 ? ct_bf16_to_f32(ct_bf16_from_f32(v)) : v;
		}
	}
	ct_free(values);
	return x;
}

static void make(struct tensors *t, const struct ct_norm_pool_shape *s)
{
	const size_t out = elems_of(s, s->out);

	*t = (struct tensors){.shape = *s};
	t->x = tensor(s, s->in, 1, 2);
	t->dy = tensor(s, s->out, 2, 0.1f);
	t->y = CT_NEW_ARRAY(float, out);
	t->picked = CT_NEW_ARRAY(float, out);
	t->dx = CT_NEW_ARRAY(float, elems_of(s, s->in));
	t->taps = CT_NEW_ARRAY(uint8_t, out);
	assert_true(t->y && t->picked && t->dx && t->taps);
	fill_floats(3, t->gamma, (size_t)s->channels);
	fill_floats(4, t->beta, (size_t)s->channels);
}

static void release(struct tensors *t)
{
	ct_free(t->x);
	ct_free(t->dy);
	ct_free(t->y);
	ct_free(t->picked);
	ct_free(t->dx);
	ct_free(t->taps);
}

static size_t bytes_of(const struct tensors *t, size_t elems)
{
	return elems * (t->shape.bf16 ? sizeof(uint16_t) : sizeof(float));
}

/* Returns x as the kernels take it, followed by the guard. */
static void *packed(const struct tensors *t, const float *x, size_t elems)
{
	char *p = ct_calloc_aligned(64, bytes_of(t, elems) + GUARD);

	assert_non_null(p);
	for (size_t i = 0; x && i < elems && t->shape.bf16; i++)
		((uint16_t *)(void *)p)[i] = ct_bf16_from_f32(x[i]);
	if (x && !t->shape.bf16)
		memcpy(p, x, elems * sizeof(float));
	memset(p + bytes_of(t, elems), 0x5a, GUARD);
	return p;
}

static void assert_guarded(const void *p, size_t bytes)
{
	for (size_t i = 0; i < GUARD; i++)
		assert_int_equal(((const uint8_t *)p)[bytes + i], 0x5a);
}

static void unpack(const struct tensors *t, void *p, float *x, size_t elems)
{
	for (size_t i = 0; i < elems; i++)
		x[i] = t->shape.bf16 ? ct_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
	assert_guarded(p, bytes_of(t, elems));
	ct_free_aligned(p);
}

static void run_kernels(struct tensors *t, int threads, bool in_place)
{
	const size_t in = elems_of(&t->shape, t->shape.in), out = elems_of(&t->shape, t->shape.out);
	void *x = packed(t, t->x, in), *dx = packed(t, NULL, in), *dy = packed(t, t->dy, out);
	struct ct_norm_pool p = {.shape = t->shape,
				 .threads = threads,
				 .x = x,
				 .gamma = t->gamma,
				 .beta = t->beta,
				 .mean = t->mean,
				 .variance = t->variance,
				 .y = packed(t, NULL, out),
				 .picked = packed(t, NULL, out),
				 .taps = ct_calloc_aligned(64, out + GUARD),
				 .partials = ct_calloc_aligned(64, ct__norm_pool_scratch_bytes(&t->shape)),
				 .dy = dy,
				 .dx = in_place ? x : dx,
				 .dgamma = t->dgamma,
				 .dbeta = t->dbeta};

	assert_true(p.taps && p.partials);
	assert_int_equal(ct__norm_pool_out_elems(&t->shape), out);
	memset(p.taps + out, 0x5a, GUARD);
	ct__norm_pool_forward(&p);
	ct__norm_pool_backward(&p);
	memcpy(t->taps, p.taps, out);
	assert_guarded(p.taps, out);
	ct_free_aligned(p.taps);
	ct_free_aligned(p.partials);
	unpack(t, p.y, t->y, out);
	unpack(t, p.picked, t->picked, out);
	unpack(t, p.dx, t->dx, in);
	ct_free_aligned(in_place ? dx : x);
	ct_free_aligned(dy);
}

/* A channel by the formulas. */
struct channel {
	const struct tensors *t;
	int c;
	double mean, variance, inv; /* inv: 1 / sqrt(variance + eps) */
	double sum, dot;            /* of the gradients after the ReLU, and of these times normalized values */
	double *given;              /* [N,H,W] the gradients that the windows give to the elements */
	double close;               /* tolerance of values */
};

static double value_at(const struct channel *k, int n, int h, int w)
{
	return (double)k->t->x[index_of(&k->t->shape, k->t->shape.in, n, k->c, h, w)];
}

static void find_moments(struct channel *k)
{
	const struct ct_norm_pool_shape *s = &k->t->shape;
	const int elems = s->n * s->in.h * s->in.w;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < elems; i++) {
			const double v = value_at(k, i / (s->in.h * s->in.w), i / s->in.w % s->in.h, i % s->in.w);

			*(pass ? &k->variance : &k->mean) += (pass ? (v - k->mean) * (v - k->mean) : v) / elems;
		}
	}
	k->inv = 1 / sqrt(k->variance + (double)EPS);
}

/* Checks the values of a window, and that its tap is that of a maximum: which one may depend on rounding. */
static void check_window(struct channel *k, int n, int oh, int ow)
{
	const struct tensors *t = k->t;
	const struct ct_norm_pool_shape *s = &t->shape;
	const size_t out = index_of(s, s->out, n, k->c, oh, ow);
	double most = -INFINITY, picked = -INFINITY;

	for (int i = 0; i < s->win.r * s->win.s; i++) {
		const int h = oh * s->win.stride_h - s->win.pad_h + i / s->win.s,
			  w = ow * s->win.stride_w - s->win.pad_w + i % s->win.s;

		if (h < 0 || w < 0 || h >= s->in.h || w >= s->in.w)
			continue;
		const double v = value_at(k, n, h, w), xh = (v - k->mean) * k->inv,
			     z = xh * (double)t->gamma[k->c] + (double)t->beta[k->c];
		most = z > most ? z : most;
		if (t->taps[out] != i)
			continue;
		picked = z;
		assert_true((double)t->picked[out] == v);
		k->given[(n * s->in.h + h) * s->in.w + w] += (double)t->dy[out];
		k->sum += (double)t->dy[out];
		k->dot += (double)t->dy[out] * xh;
	}
	if (t->taps[out] == 255)
		picked = 0;
	assert_true(picked >= fmax(most, 0) - 1e-5);
	assert_true(fabs((double)t->y[out] - fmax(most, 0)) <= k->close * (1 + fabs(most)));
}

static void check_channel(const struct tensors *t, int c, double close)
{
	const struct ct_norm_pool_shape *s = &t->shape;
	const int elems = s->n * s->in.h * s->in.w;
	struct channel k = {.t = t, .c = c, .given = CT_NEW_ARRAY(double, (size_t)elems), .close = close};

	assert_non_null(k.given);
	find_moments(&k);
	for (int i = 0; i < s->n * s->out.h * s->out.w; i++)
		check_window(&k, i / (s->out.h * s->out.w), i / s->out.w % s->out.h, i % s->out.w);
	assert_float_equal((double)t->mean[c], k.mean, 1e-6 * (1 + fabs(k.mean)));
	assert_float_equal((double)t->variance[c], k.variance, 1e-5 * k.variance);
	assert_float_equal((double)t->dbeta[c], k.sum, 1e-5 * (1 + fabs(k.sum)));
	assert_float_equal((double)t->dgamma[c], k.dot, 1e-4 * (1 + fabs(k.dot)));
	for (int i = 0; i < elems; i++) {
		const int n = i / (s->in.h * s->in.w), h = i / s->in.w % s->in.h, w = i % s->in.w;
		const double xh = (value_at(&k, n, h, w) - k.mean) * k.inv, slope = (double)t->gamma[c] * k.inv;
		const double want = slope * (k.given[i] - k.sum / elems - xh * k.dot / elems);

		assert_float_equal((double)t->dx[index_of(s, s->in, n, c, h, w)], want, close * (1 + fabs(want)));
	}
	ct_free(k.given);
}

static void check(const struct ct_norm_pool_shape *s)
{
	const size_t channels = (size_t)s->channels * sizeof(float), out = elems_of(s, s->out);
	struct tensors t, again;

	make(&t, s);
	make(&again, s);
	run_kernels(&t, 1, false);
	for (int c = 0; c < s->channels; c++)
		check_channel(&t, c, s->bf16 ? 1.0 / 128 : 1e-5);
	for (int threads = 1; threads <= 3; threads++) {
		run_kernels(&again, threads, threads != 2);
		assert_memory_equal(t.y, again.y, out * sizeof(float));
		assert_memory_equal(t.taps, again.taps, out);
		assert_memory_equal(t.dx, again.dx, elems_of(s, s->in) * sizeof(float));
		assert_memory_equal(t.mean, again.mean, channels);
		assert_memory_equal(t.variance, again.variance, channels);
		assert_memory_equal(t.dgamma, again.dgamma, channels);
		assert_memory_equal(t.dbeta, again.dbeta, channels);
	}
	release(&t);
	release(&again);
}

static void test_against_formulas(void **state)
{
	static const struct {
		int n, channels, h, w;
		struct ct_window win;
	} cases[] = {
		{3, 64, 12, 10, {3, 3, 2, 2, 1, 1, 1, 1}}, /* ResNet */
		{2, 17, 23, 9, {3, 3, 2, 2, 1, 1, 1, 1}},  /* a block with one channel */
		{2, 33, 8, 6, {2, 2, 2, 2, 0, 0, 1, 1}},   /* LeNet */
		{1, 5, 7, 9, {2, 2, 2, 2, 0, 0, 1, 1}},    /* remainders */
		{2, 20, 5, 6, {2, 3, 1, 2, 1, 0, 1, 1}},   /* not square */
		{2, 16, 7, 8, {2, 2, 3, 3, 0, 0, 1, 1}},   /* elements in no window */
		{4, 3, 2, 2, {2, 2, 1, 1, 1, 1, 1, 1}},    /* more windows than elements */
		{1, 530, 3, 3, {3, 3, 1, 1, 1, 1, 1, 1}},  /* several panels of channels */
		{5, 8, 20, 20, {5, 5, 5, 5, 0, 0, 1, 1}},
	};

	(void)state;
	skip_without_norm_kernels();
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		const struct ct_window w = cases[i].win;
		const struct ct_shape in = {cases[i].channels, cases[i].h, cases[i].w},
				      out = {in.c, (in.h + 2 * w.pad_h - w.r) / w.stride_h + 1,
					     (in.w + 2 * w.pad_w - w.s) / w.stride_w + 1};

		for (int kind = 0; kind < 4; kind++) {
			const struct ct_norm_pool_shape s = {.n = cases[i].n,
							     .channels = in.c,
							     .nhwc = kind & 1,
							     .in = in,
							     .out = out,
							     .win = w,
							     .eps = EPS,
							     .bf16 = kind & 2};

			if (ct__norm_usable(s.bf16))
				check(&s);
		}
	}
}

/* Of equal values the first is the maximum, and a NaN is: as in PyTorch. All channels are in one block, so that the
 * layouts are the same. */
static void check_choice(bool nhwc)
{
	_Alignas(64) static float x[4 * 16], y[16], picked[16];
	static uint8_t taps[16];
	static float gamma[16], beta[16], mean[16], variance[16];
	struct ct_norm_pool p = {.shape = {.n = 1,
					   .channels = ct__lanes(),
					   .nhwc = nhwc,
					   .in = {ct__lanes(), 2, 2},
					   .out = {ct__lanes(), 1, 1},
					   .win = ct_window_square(2, 2, 0),
					   .eps = 1e-5f},
				 .x = x,
				 .gamma = gamma,
				 .beta = beta,
				 .mean = mean,
				 .variance = variance,
				 .y = y,
				 .picked = picked,
				 .taps = taps};

	for (int c = 0; c < 16; c++) {
		gamma[c] = c % 2 ? 1 : -1;
		beta[c] = 2;
	}
	for (int k = 0; k < 4; k++) {
		float *at = x + k * ct__lanes();

		at[1] = k == 1 || k == 2 ? 5 : 3; /* two maxima */
		at[2] = k == 1 || k == 2 ? 5 : 3; /* the same, turned round by gamma */
		at[3] = (float)k;
		at[5] = k == 1 ? NAN : 0;
	}
	beta[3] = -9; /* the ReLU cuts all */
	p.partials = ct_calloc_aligned(64, ct__norm_pool_scratch_bytes(&p.shape));
	ct__norm_pool_forward(&p);
	ct_free_aligned(p.partials);
	const int want[] = {0, 1, 0, 255, 0};
	for (int c = 0; c < 5; c++)
		assert_int_equal(taps[c], want[c]);
	assert_true(picked[1] == 5 && picked[2] == 3);
	assert_true(fabsf(y[1] - 3) < 1e-3f && fabsf(y[2] - 3) < 1e-3f && y[3] == 0 && y[0] == 2);
	assert_true(isnan(y[5]) && taps[5] != 255);
}

static void test_choice(void **state)
{
	(void)state;
	skip_without_norm_kernels();
	check_choice(false);
	check_choice(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_formulas), cmocka_unit_test(test_choice)};
	int skipped = limit_isa(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
