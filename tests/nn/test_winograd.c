/* Compares Winograd convolutions with plain sums in double precision, on sizes that leave partial tiles, units and
 * panels. Results must not depend on the number of threads. Also compares them with ref inside the engine. The first
 * argument limits the instruction set, which changes the layout. */
#include <math.h>

#include "nn/onednn/dnnl/shim.h"
#include "nn/onednn/kernels/block.h"
#include "nn/onednn/winograd/winograd.h"
#include "tests/nn/onednn_check.h"

#define BLOCK ct__lanes()
#define MAX_THREADS 3
/* Of the result's root mean square, and of its largest value; three times direct summation in single precision, more
 * where a tile holds a single result */
#define RMS_TOLERANCE 6e-6
#define MAX_TOLERANCE 3e-5

/* Everything in the layouts of the kernels, and the same by plain sums. */
struct problem {
	struct ct_winograd_shape s;
	int oh, ow;
	size_t n_x, n_y, n_w;
	float *x, *y, *dy, *dx, *w, *dw, *bias, *db;
	double *y_want, *dx_want, *dw_want, *db_want;
};

static float *floats(size_t n)
{
	float *p = ct_calloc_aligned(64, n * sizeof(float));

	assert_non_null(p);
	return p;
}

static double *doubles(size_t n)
{
	double *p = ct_calloc(n, sizeof(double));

	assert_non_null(p);
	return p;
}

static size_t image_at(int n, int c, int h, int w, int channels, int height, int width)
{
	return ((((size_t)n * (size_t)(channels / BLOCK) + (size_t)(c / BLOCK)) * (size_t)height + (size_t)h) *
			(size_t)width +
		(size_t)w) *
		       BLOCK +
	       (size_t)(c % BLOCK);
}

static size_t weight_at(const struct ct_winograd_shape *s, int k, int c, int tap)
{
	size_t block = (size_t)(k / BLOCK) * (size_t)(s->c / BLOCK) + (size_t)(c / BLOCK);

	return ((block * (size_t)(s->taps * s->taps) + (size_t)tap) * BLOCK + (size_t)(c % BLOCK)) * BLOCK +
	       (size_t)(k % BLOCK);
}

/* The taps of the kernel between pixel `oh, ow` of y and all of x that it sees, for all channels. */
static void add_pixel(struct problem *p, int n, int oh, int ow, int tap)
{
	const struct ct_winograd_shape *s = &p->s;
	const int h = oh + tap / s->taps - s->pad_h, w = ow + tap % s->taps - s->pad_w;

	if (h < 0 || h >= s->h || w < 0 || w >= s->w)
		return;
	for (int k = 0; k < s->k; k++) {
		size_t at_y = image_at(n, k, oh, ow, s->k, p->oh, p->ow);

		for (int c = 0; c < s->c; c++) {
			size_t at_x = image_at(n, c, h, w, s->c, s->h, s->w), at_w = weight_at(s, k, c, tap);

			p->y_want[at_y] += (double)p->x[at_x] * (double)p->w[at_w];
			p->dx_want[at_x] += (double)p->dy[at_y] * (double)p->w[at_w];
			p->dw_want[at_w] += (double)p->dy[at_y] * (double)p->x[at_x];
		}
	}
}

static void expect(struct problem *p)
{
	for (int n = 0; n < p->s.n; n++) {
		for (int oh = 0; oh < p->oh; oh++) {
			for (int ow = 0; ow < p->ow; ow++) {
				for (int k = 0; k < p->s.k; k++) {
					size_t at = image_at(n, k, oh, ow, p->s.k, p->oh, p->ow);

					p->y_want[at] += (double)p->bias[k];
					p->db_want[k] += (double)p->dy[at];
				}
				for (int tap = 0; tap < p->s.taps * p->s.taps; tap++)
					add_pixel(p, n, oh, ow, tap);
			}
		}
	}
}

static void open_problem(struct problem *p, struct ct_winograd_shape s)
{
	const size_t c = (size_t)s.c, k = (size_t)s.k, n = (size_t)s.n;

	*p = (struct problem){.s = s, .oh = s.h + 2 * s.pad_h - s.taps + 1, .ow = s.w + 2 * s.pad_w - s.taps + 1};
	p->n_x = n * c * (size_t)s.h * (size_t)s.w;
	p->n_y = n * k * (size_t)p->oh * (size_t)p->ow;
	p->n_w = k * c * (size_t)(s.taps * s.taps);
	p->x = floats(p->n_x);
	p->dx = floats(p->n_x);
	p->y = floats(p->n_y);
	p->dy = floats(p->n_y);
	p->w = floats(p->n_w);
	p->dw = floats(p->n_w);
	p->bias = floats(k);
	p->db = floats(k);
	p->dx_want = doubles(p->n_x);
	p->y_want = doubles(p->n_y);
	p->dw_want = doubles(p->n_w);
	p->db_want = doubles(k);
	fill_floats(1, p->x, p->n_x);
	fill_floats(2, p->dy, p->n_y);
	fill_floats(3, p->w, p->n_w);
	fill_floats(4, p->bias, k);
}

static void close_problem(struct problem *p)
{
	float *f[] = {p->x, p->dx, p->y, p->dy, p->w, p->dw, p->bias, p->db};

	for (size_t i = 0; i < CT_ARRAY_LEN(f); i++)
		ct_free_aligned(f[i]);
	ct_free(p->dx_want);
	ct_free(p->y_want);
	ct_free(p->dw_want);
	ct_free(p->db_want);
}

/* The scratch is as large as promised, and its values do not matter. */
static void convolve(struct problem *p, enum ct_conv_pass pass, int threads, bool relu)
{
	const size_t bytes = ct__winograd_scratch_bytes(&p->s, pass, threads);
	struct ct_winograd op = {.shape = p->s,
				 .threads = threads,
				 .scratch = floats(bytes / sizeof(float)),
				 .weights = p->w,
				 .x = p->x,
				 .bias = p->bias,
				 .y = p->y,
				 .relu = relu,
				 .dy = p->dy,
				 .dx = p->dx,
				 .dw = p->dw,
				 .db = p->db};

	memset(op.scratch, 0xff, bytes); /* NaN */
	if (pass == CT_CONV_FORWARD)
		ct__winograd_forward(&op);
	else if (pass == CT_CONV_BACKWARD_DATA)
		ct__winograd_backward_data(&op);
	else
		ct__winograd_backward_weights(&op);
	ct_free_aligned(op.scratch);
}

static void compare(const struct problem *p, const char *what, const float *x, const double *want, size_t n)
{
	double sum = 0, errors = 0, top = 0, worst = 0;

	for (size_t i = 0; i < n; i++) {
		double error = fabs((double)x[i] - want[i]);

		if (!(error <= worst)) /* a NaN, too */
			worst = error;
		sum += want[i] * want[i];
		errors += error * error;
		top = fabs(want[i]) > top ? fabs(want[i]) : top;
	}
	if (!(worst <= MAX_TOLERANCE * top) || !(errors <= RMS_TOLERANCE * RMS_TOLERANCE * sum))
		fail_msg("%s of [%d,%d->%d,%d,%d] padded by %d,%d: error %.1e of the largest, %.1e root mean square",
			 what, p->s.n, p->s.c, p->s.k, p->s.h, p->s.w, p->s.pad_h, p->s.pad_w, worst / top,
			 sqrt(errors / sum));
}

/* Results with one thread, to be met to the bit with more. */
struct kept {
	float *y, *dx, *dw, *db;
};

static float *keep(const float *x, size_t n)
{
	float *copy = floats(n);

	memcpy(copy, x, n * sizeof(*x));
	memset((void *)(uintptr_t)x, 0xff, n * sizeof(*x)); /* what is not written again shows */
	return copy;
}

static void same_bits(float *kept, const float *x, size_t n, bool last)
{
	assert_memory_equal(kept, x, n * sizeof(*x));
	if (last)
		ct_free_aligned(kept);
}

static void run_all(struct problem *p, int threads)
{
	convolve(p, CT_CONV_FORWARD, threads, false);
	convolve(p, CT_CONV_BACKWARD_DATA, threads, false);
	convolve(p, CT_CONV_BACKWARD_WEIGHTS, threads, false);
}

static void check_shape(struct ct_winograd_shape s)
{
	struct problem p;

	open_problem(&p, s);
	expect(&p);
	run_all(&p, 1);
	compare(&p, "y", p.y, p.y_want, p.n_y);
	compare(&p, "dx", p.dx, p.dx_want, p.n_x);
	compare(&p, "dw", p.dw, p.dw_want, p.n_w);
	compare(&p, "db", p.db, p.db_want, (size_t)s.k);
	struct kept one = {keep(p.y, p.n_y), keep(p.dx, p.n_x), keep(p.dw, p.n_w), keep(p.db, (size_t)s.k)};
	for (int threads = 2; threads <= MAX_THREADS; threads++) {
		bool last = threads == MAX_THREADS;

		run_all(&p, threads);
		same_bits(one.y, p.y, p.n_y, last);
		same_bits(one.dx, p.dx, p.n_x, last);
		same_bits(one.dw, p.dw, p.n_w, last);
		same_bits(one.db, p.db, (size_t)s.k, last);
	}
	close_problem(&p);
}

static bool no_instructions(void)
{
	const struct ct_winograd_shape plain = {4, 16, 16, 16, 16, 2, 2, 5, false};

	if (ct__winograd_usable(&plain))
		return false;
	print_message("this processor has no AVX2\n");
	return true;
}

static void test_sizes(void **state)
{
	static const struct ct_winograd_shape shapes[] = {
		{1, 16, 16, 8, 8, 2, 2, 0, false},    {2, 16, 32, 14, 14, 2, 2, 0, false},
		{3, 32, 16, 7, 11, 2, 2, 0, false},   {5, 48, 16, 9, 6, 2, 2, 0, false},
		{4, 16, 48, 5, 13, 2, 2, 0, false},   {3, 48, 48, 10, 7, 0, 1, 0, false},
		{1, 32, 32, 5, 5, 0, 0, 0, false},    {2, 16, 16, 1, 1, 4, 4, 0, false},
		{2, 16, 32, 3, 21, 4, 0, 0, false},   {5, 32, 48, 4, 4, 2, 2, 0, false},
		{3, 16, 16, 31, 18, 2, 2, 0, false},  {2, 16, 16, 6, 75, 2, 2, 0, false},
		{17, 16, 16, 10, 10, 2, 2, 0, false}, {33, 16, 32, 4, 4, 3, 1, 0, false},
	};

	/* Units of several images, partial sums in few groups, channels cut among threads */
	static const struct ct_winograd_shape large[] = {
		{9, 64, 80, 9, 10, 1, 1, 3, false},  {3, 128, 112, 5, 7, 1, 1, 3, false},
		{2, 256, 208, 6, 4, 1, 1, 3, false}, {5, 336, 256, 3, 3, 1, 1, 3, false},
		{1, 32, 512, 8, 8, 1, 1, 3, false},  {1, 64, 64, 29, 31, 1, 1, 3, false},
	};

	(void)state;
	if (no_instructions())
		skip();
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++) {
		for (int taps = 3; taps <= 5; taps += 2) {
			struct ct_winograd_shape s = shapes[i];

			s.taps = taps;
			if (s.pad_h < taps && s.pad_w < taps && s.h + 2 * s.pad_h >= taps && s.w + 2 * s.pad_w >= taps)
				check_shape(s);
		}
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(large); i++)
		check_shape(large[i]);
}

static uint16_t *to_bf16(float *x, size_t n)
{
	uint16_t *y = ct_calloc_aligned(64, n * sizeof(*y));

	assert_non_null(y);
	for (size_t i = 0; i < n; i++) {
		uint32_t bits;

		memcpy(&bits, &x[i], sizeof(bits));
		y[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
		bits = (uint32_t)y[i] << 16;
		memcpy(&x[i], &bits, sizeof(bits)); /* what is left of it */
	}
	return y;
}

/* Images in bfloat16: what fp32 gives of the same values, rounded; gradients of weights are the same to the bit. */
static void test_bf16(void **state)
{
	struct problem p;

	(void)state;
	if (no_instructions())
		skip();
	open_problem(&p, (struct ct_winograd_shape){5, 48, 32, 10, 7, 1, 1, 3, false});
	uint16_t *x = to_bf16(p.x, p.n_x), *dy = to_bf16(p.dy, p.n_y);
	run_all(&p, 2);
	float *y = p.y, *dx = p.dx, *dw = keep(p.dw, p.n_w), *x32 = p.x, *dy32 = p.dy;
	uint16_t *y_want = to_bf16(y, p.n_y), *dx_want = to_bf16(dx, p.n_x);
	p.s.bf16 = true;
	p.x = (float *)(void *)x;
	p.dy = (float *)(void *)dy;
	run_all(&p, 2);
	assert_memory_equal(p.y, y_want, p.n_y * sizeof(*y_want));
	assert_memory_equal(p.dx, dx_want, p.n_x * sizeof(*dx_want));
	same_bits(dw, p.dw, p.n_w, true);
	p.x = x32;
	p.dy = dy32;
	ct_free_aligned(x);
	ct_free_aligned(dy);
	ct_free_aligned(y_want);
	ct_free_aligned(dx_want);
	close_problem(&p);
}

static void test_relu_and_nan(void **state)
{
	struct problem p;

	(void)state;
	if (no_instructions())
		skip();
	open_problem(&p, (struct ct_winograd_shape){2, 16, 16, 9, 9, 2, 2, 5, false});
	convolve(&p, CT_CONV_FORWARD, 1, false);
	float *plain = keep(p.y, p.n_y);
	convolve(&p, CT_CONV_FORWARD, 1, true);
	for (size_t i = 0; i < p.n_y; i++)
		assert_true(p.y[i] == (plain[i] > 0 ? plain[i] : 0));
	ct_free_aligned(plain);
	p.x[image_at(1, 3, 4, 4, 16, 9, 9)] = NAN;
	convolve(&p, CT_CONV_FORWARD, 1, true);
	convolve(&p, CT_CONV_BACKWARD_WEIGHTS, 1, false);
	assert_true(isnan(p.y[image_at(1, 7, 4, 4, 16, 9, 9)]));
	assert_false(isnan(p.y[image_at(0, 7, 4, 4, 16, 9, 9)]));
	assert_true(isnan(p.dw[weight_at(&p.s, 7, 3, 12)]));
	close_problem(&p);
}

static void test_usable(void **state)
{
	static const struct ct_winograd_shape refused[] = {
		{8, 1, 16, 28, 28, 2, 2, 5, false},   {8, 16, 20, 14, 14, 2, 2, 5, false},
		{8, 128, 64, 14, 14, 2, 2, 5, false}, {8, 16, 16, 14, 14, 5, 2, 5, false},
		{8, 16, 16, 3, 14, 0, 0, 5, false},   {8, 16, 16, 5, 5, 0, 0, 5, false},
		{8, 16, 16, 14, 14, -1, 0, 5, false}, {8, 16, 16, 14, 4, 2, 0, 5, false},
		{8, 16, 16, 14, 14, 3, 1, 3, false},  {8, 16, 20, 14, 14, 1, 1, 3, false},
		{8, 16, 16, 14, 14, 1, 1, 4, false},  {2, 64, 64, 7, 7, 1, 1, 3, false},
		{8, 64, 64, 12, 12, 1, 1, 3, true},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(refused); i++)
		assert_false(ct__winograd_usable(&refused[i]));
}

static void test_engine(void **state)
{
	static const char *const layers[] = {
		"conv2d 16 kernel=3;conv2d 32 kernel=5 padding=2;relu;conv2d 16 kernel=5;flatten;linear 10",
		"conv2d 16 kernel=5 padding=2;batch_norm;relu;max_pool 2;flatten;linear 10",
		"conv2d 16 kernel=5 padding=2 name=c;relu;conv2d 16 kernel=5 padding=2 bias=false;add from=c;"
		"global_avg_pool;linear 10",
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		for (int threads = 1; threads <= 2; threads++) {
			struct job j = {.engine = "onednn",
					.layers = layers[i],
					.input = {16, 14, 15},
					.threads = threads,
					.batch = 5,
					.n = 5,
					.kind = CT_INPUT_F32_NCHW,
					.steps = 2};

			assert_equals_ref(&j, 1e-4);
		}
	}
}

/* Few rows have too few tiles and are convolved by the library, on the weights of the many. */
static void test_few_rows(void **state)
{
	static const int rows[][2] = {{16, 1}, {1, 16}, {16, 16}};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(rows); i++) {
		struct job j = {
			.engine = "onednn",
			.layers =
				"conv2d 64 kernel=3 padding=1;batch_norm;relu;conv2d 48 kernel=3 padding=1 bias=false;"
				"relu;global_avg_pool;linear 10",
			.input = {16, 8, 7},
			.threads = 2,
			.batch = rows[i][0],
			.n = rows[i][1],
			.kind = CT_INPUT_F32_NCHW,
			.steps = 2};

		assert_equals_ref(&j, 1e-4);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),  cmocka_unit_test(test_bf16),   cmocka_unit_test(test_relu_and_nan),
		cmocka_unit_test(test_usable), cmocka_unit_test(test_engine), cmocka_unit_test(test_few_rows),
	};

	int skipped = skip_without_onednn(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
