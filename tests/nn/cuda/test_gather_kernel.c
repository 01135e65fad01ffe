/* The kernel that computes batches from images in device memory, against plain loops, in each element type, on odd
 * shapes. */
#include "base/status.h"
#include "tests/image_row_pixels.h"
#include "tests/nn/cuda/kernel_check.h"

enum { SAMPLES = 5, MAX_ROWS = 7 };

struct shape {
	int n_valid, n, h, w, c;
};

static uint32_t draw(uint32_t *state, uint32_t n)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8) % n;
}

static struct ct_image_view draw_view(uint32_t *state, const struct shape *s)
{
	struct ct_image_view v = {.sample = draw(state, SAMPLES), .flip = (uint8_t)draw(state, 2)};

	v.dx = (int16_t)((int)draw(state, (uint32_t)(2 * s->w + 3)) - s->w - 1);
	v.dy = (int16_t)((int)draw(state, 5) - 2);
	if (draw(state, 2)) {
		v.left = (uint16_t)draw(state, (uint32_t)s->w);
		v.top = (uint16_t)draw(state, (uint32_t)s->h);
		v.right = (uint16_t)(v.left + draw(state, (uint32_t)(s->w - v.left) + 1));
		v.bottom = (uint16_t)(v.top + draw(state, (uint32_t)(s->h - v.top) + 1));
	}
	return v;
}

static struct ct_image_row draw_row(uint32_t *state, const struct shape *s)
{
	static const uint16_t weights[] = {256, 0, 1, 100, 255};
	struct ct_image_row r = {.own = draw_view(state, s), .other = draw_view(state, s)};

	r.weight = weights[draw(state, CT_ARRAY_LEN(weights))];
	if (draw(state, 2)) {
		r.left = (uint16_t)draw(state, (uint32_t)s->w);
		r.right = (uint16_t)s->w;
		r.bottom = (uint16_t)draw(state, (uint32_t)s->h + 1);
	}
	r.label = (int32_t)draw(state, 10);
	r.label_b = (int32_t)draw(state, 10);
	r.mix = (float)draw(state, 257) / 256;
	return r;
}

static void expect_labels(const struct ct__k_gather_args *a, const struct ct_image_row *rows, bool mixed)
{
	int32_t labels[MAX_ROWS], labels_b[MAX_ROWS];
	float mix[MAX_ROWS];

	gpu_read(labels, a->labels, (size_t)a->n * sizeof(*labels));
	for (int i = 0; i < a->n_valid; i++)
		assert_int_equal(labels[i], rows[i].label);
	if (!mixed)
		return;
	gpu_read(labels_b, a->labels_b, (size_t)a->n * sizeof(*labels_b));
	gpu_read(mix, a->mix, (size_t)a->n * sizeof(*mix));
	for (int i = 0; i < a->n_valid; i++) {
		assert_int_equal(labels_b[i], rows[i].label_b);
		assert_true(mix[i] == rows[i].mix);
	}
}

static float *expected(const struct ct__k_gather_args *a, const struct ct_image_row *rows, const uint8_t *samples)
{
	const size_t pixels = (size_t)(a->h * a->w), bytes = pixels * (size_t)a->c;
	float *want = test_calloc((size_t)a->n * pixels * (size_t)a->cp, sizeof(*want));
	uint8_t *x = test_malloc(bytes);

	for (int i = 0; i < a->n_valid; i++) {
		image_row_pixels(&rows[i], samples, a->fill, a->h, a->w, a->c, x);
		for (size_t p = 0; p < bytes; p++) {
			const size_t k = p % (size_t)a->c, at = (size_t)i * pixels + p / (size_t)a->c;

			want[at * (size_t)a->cp + k] =
				gpu_round(((float)x[p] / 255.0f - a->mean[k]) / a->std[k], a->type);
		}
	}
	test_free(x);
	return want;
}

static void check_gather(enum ct_dtype t, const struct shape *s, uint32_t seed)
{
	const size_t bytes = SAMPLES * (size_t)(s->h * s->w * s->c);
	const int cp = pad_channels(s->c, t);
	const size_t n_out = (size_t)s->n * (size_t)(s->h * s->w * cp);
	const bool mixed = seed % 2;
	struct ct_image_row rows[MAX_ROWS];
	uint8_t *samples = test_malloc(bytes);
	struct ct__k_gather_args a = {.n_valid = s->n_valid,
				      .n = s->n,
				      .h = s->h,
				      .w = s->w,
				      .c = s->c,
				      .cp = cp,
				      .mean = {0.1f, 0.2f, 0.3f, 0.4f},
				      .std = {0.5f, 0.6f, 0.7f, 0.8f},
				      .fill = {11, 22, 33, 44},
				      .type = t};

	for (size_t i = 0; i < bytes; i++)
		samples[i] = (uint8_t)draw(&seed, 256);
	for (int i = 0; i < s->n_valid; i++)
		rows[i] = draw_row(&seed, s);
	float *want = expected(&a, rows, samples);
	a.samples = gpu_bytes(samples, bytes);
	a.rows = gpu_bytes(rows, (size_t)s->n_valid * sizeof(*rows));
	a.y = gpu_upload(NULL, n_out, t);
	a.labels = gpu_bytes(NULL, (size_t)s->n * sizeof(*a.labels));
	if (mixed) {
		a.labels_b = gpu_bytes(NULL, (size_t)s->n * sizeof(*a.labels_b));
		a.mix = gpu_bytes(NULL, (size_t)s->n * sizeof(*a.mix));
	}
	check_cuda(ct__k_gather(&a, NULL));
	expect_device("gather", a.y, want, n_out, t, 0);
	expect_labels(&a, rows, mixed);
	gpu_free(a.mix);
	gpu_free(a.labels_b);
	gpu_free(a.labels);
	gpu_free(a.y);
	gpu_free(a.rows);
	gpu_free(a.samples);
	test_free(want);
	test_free(samples);
}

static void test_gather(void **state)
{
	static const struct shape shapes[] = {
		{2, 2, 5, 3, 3}, {3, 5, 7, 1, 1}, {1, 1, 1, 1, 4}, {7, 7, 9, 12, 2}, {4, 6, 28, 28, 1}};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++) {
		for (uint32_t seed = 0; seed < 6; seed++) {
			check_gather(CT_F32, &shapes[i], seed);
			check_gather(CT_F16, &shapes[i], seed);
			check_gather(CT_BF16, &shapes[i], seed);
		}
	}
}

/* The channels of a pixel must be one vector. */
static void test_refused(void **state)
{
	struct ct__k_gather_args a = {.n = 1, .h = 1, .w = 1, .c = 5, .cp = 8, .type = CT_BF16};

	(void)state;
	assert_int_equal(ct__k_gather(&a, NULL), cudaErrorInvalidValue);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_gather), cmocka_unit_test(test_refused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_on_gpu(run);
}
