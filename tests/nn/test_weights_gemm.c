/* Compares the gradient of weights as products of matrices with plain sums in double precision, on shapes that leave
 * partial steps, runs, chunks and panels. Both kernels are tested: on processors without AMX, its instructions are
 * emulated (amx.h). Results must not depend on the number of threads. */
#include <math.h>

#include "base/half.h"
#include "nn/onednn/kernels/weights_gemm_impl.h"
#include "tests/nn/amx.h"
#include "tests/nn/nn_check.h"

#define MAX_THREADS 3
#define TOLERANCE 1e-5 /* of the largest value */

#if defined(__x86_64__)
static const struct ct_weights_gemm_shape shapes[] = {
	{.n = 3, .c = 16, .k = 16, .h = 5, .w = 7, .win = {1, 1, 1, 1, 0, 0, 1, 1}},
	{.n = 11, .c = 48, .k = 32, .h = 7, .w = 7, .win = {1, 1, 1, 1, 0, 0, 1, 1}},
	{.n = 2, .c = 32, .k = 48, .h = 14, .w = 14, .win = {1, 1, 2, 2, 0, 0, 1, 1}},
	{.n = 3, .c = 32, .k = 32, .h = 9, .w = 11, .win = {3, 3, 1, 1, 1, 1, 1, 1}},
	{.n = 2, .c = 16, .k = 32, .h = 13, .w = 10, .win = {3, 3, 2, 2, 1, 1, 1, 1}},
	{.n = 2, .c = 16, .k = 16, .h = 12, .w = 12, .win = {5, 3, 3, 2, 2, 0, 1, 2}},
	{.n = 1, .c = 16, .k = 16, .h = 15, .w = 15, .win = {3, 3, 4, 3, 1, 2, 3, 2}},
	{.n = 1, .c = 16, .k = 16, .h = 1, .w = 1, .win = {3, 3, 1, 1, 1, 1, 1, 1}},
	{.n = 2, .c = 16, .k = 16, .h = 3, .w = 4, .win = {1, 1, 1, 1, 2, 2, 1, 1}},
	{.n = 3, .c = 32, .k = 16, .h = 2, .w = 2, .win = {3, 3, 2, 2, 5, 4, 1, 1}},
	{.n = 2, .c = 64, .k = 16, .h = 130, .w = 130, .win = {3, 3, 1, 1, 1, 1, 1, 1}}, /* images larger than a chunk
											  */
	{.n = 5, .c = 208, .k = 176, .h = 33, .w = 33, .win = {1, 1, 1, 1, 0, 0, 1, 1}}, /* several chunks */
};

struct problem {
	struct ct_weights_gemm_shape s;
	size_t n_x, n_dy, n_dw, scratch_bytes;
	uint16_t *x, *dy;
	float *dw;
	double *want;
	void *scratch;
};

static uint16_t *values(uint32_t stream, size_t n)
{
	float *f = CT_NEW_ARRAY(float, n);
	uint16_t *b = ct_calloc_aligned(64, n * sizeof(*b));

	fill_floats(stream, f, n);
	for (size_t i = 0; i < n; i++)
		b[i] = ct_bf16_from_f32(f[i]);
	ct_free(f);
	return b;
}

static void expect(struct problem *p)
{
	const struct ct_weights_gemm_shape *s = &p->s;
	const struct ct_window *w = &s->win;

	for (int i = 0; i < s->n * s->oh * s->ow * w->r * w->s; i++) {
		const int tap = i % (w->r * w->s), pixel = i / (w->r * w->s);
		const int n = pixel / (s->oh * s->ow), oh = pixel / s->ow % s->oh, ow = pixel % s->ow;
		const int h = oh * w->stride_h + tap / w->s * w->dilation_h - w->pad_h;
		const int v = ow * w->stride_w + tap % w->s * w->dilation_w - w->pad_w;

		if (h < 0 || h >= s->h || v < 0 || v >= s->w)
			continue;
		const uint16_t *x = p->x + (size_t)((n * s->h + h) * s->w + v) * (size_t)s->c;
		const uint16_t *dy = p->dy + (size_t)pixel * (size_t)s->k;
		double *dw = p->want + (size_t)tap * (size_t)s->c * (size_t)s->k;
		for (int c = 0; c < s->c; c++) {
			for (int k = 0; k < s->k; k++)
				dw[c * s->k + k] += (double)ct_bf16_to_f32(x[c]) * (double)ct_bf16_to_f32(dy[k]);
		}
	}
}

static void problem_open(struct problem *p, const struct ct_weights_gemm_shape *shape)
{
	const struct ct_window *w = &shape->win;

	*p = (struct problem){.s = *shape};
	struct ct_weights_gemm_shape *s = &p->s;
	s->oh = (s->h + 2 * w->pad_h - (w->r - 1) * w->dilation_h - 1) / w->stride_h + 1;
	s->ow = (s->w + 2 * w->pad_w - (w->s - 1) * w->dilation_w - 1) / w->stride_w + 1;
	p->n_x = (size_t)s->n * (size_t)(s->h * s->w * s->c);
	p->n_dy = (size_t)s->n * (size_t)(s->oh * s->ow * s->k);
	p->n_dw = (size_t)(w->r * w->s * s->c * s->k);
	p->x = values(1, p->n_x);
	p->dy = values(2, p->n_dy);
	p->dw = ct_calloc_aligned(64, p->n_dw * sizeof(float));
	p->want = CT_NEW_ARRAY(double, p->n_dw);
	p->scratch_bytes = ct__weights_gemm_scratch_bytes(s);
	p->scratch = ct_calloc_aligned(64, p->scratch_bytes);
	expect(p);
}

static void problem_close(struct problem *p)
{
	ct_free_aligned(p->scratch);
	ct_free(p->want);
	ct_free_aligned(p->dw);
	ct_free_aligned(p->dy);
	ct_free_aligned(p->x);
}

/* All memory that the kernels write is filled with NaN first. */
static void compute(struct problem *p, int threads, ct__gemm_block_fn block)
{
	const struct ct_weights_gemm op = {
		.shape = p->s, .threads = threads, .scratch = p->scratch, .x = p->x, .dy = p->dy, .dw = p->dw};

	memset(p->scratch, 0xff, p->scratch_bytes);
	memset(p->dw, 0xff, p->n_dw * sizeof(float));
	ct__weights_gemm_with(&op, block);
}

static void check(const struct ct_weights_gemm_shape *shape, ct__gemm_block_fn block)
{
	struct problem p;
	double largest = 0, worst = 0;

	problem_open(&p, shape);
	compute(&p, 1, block);
	for (size_t i = 0; i < p.n_dw; i++) {
		const double error = fabs((double)p.dw[i] - p.want[i]);

		assert_true(isfinite(error));
		largest = fmax(largest, fabs(p.want[i]));
		worst = fmax(worst, error);
	}
	printf("%dx%dx%d, %d to %d channels, kernel %dx%d: largest error %.1e of the largest value\n", p.s.n, p.s.h,
	       p.s.w, p.s.c, p.s.k, p.s.win.r, p.s.win.s, worst / largest);
	assert_true(worst <= TOLERANCE * largest);
	float *one = CT_NEW_ARRAY(float, p.n_dw);
	memcpy(one, p.dw, p.n_dw * sizeof(float));
	for (int threads = 2; threads <= MAX_THREADS; threads++) {
		compute(&p, threads, block);
		assert_memory_equal(p.dw, one, p.n_dw * sizeof(float));
	}
	ct_free(one);
	problem_close(&p);
}

static void check_all(ct__gemm_block_fn block)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++)
		check(&shapes[i], block);
}

static void test_avx512(void **state)
{
	(void)state;
	check_all(ct__gemm_block_avx512);
}

static void test_amx(void **state)
{
	(void)state;
	if (!ct_cpu_has(CT_CPU_AMX_BF16)) {
		amx_emulate();
	} else if (!ct__weights_gemm_uses_amx()) {
		print_message("the system does not let this process use AMX\n");
		skip();
	}
	check_all(ct__gemm_block_amx);
	printf("%lld instructions were emulated\n", (long long)amx_executed());
	assert_true(ct_cpu_has(CT_CPU_AMX_BF16) || amx_executed() > 0);
}

/* The shapes test what they should: more than one run, chunk, and image of a run. */
static void test_grids(void **state)
{
	bool runs = false, chunks = false, images = false, large = false, odd_rows = false, odd_cols = false;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++) {
		struct problem p;

		problem_open(&p, &shapes[i]);
		const struct ct__weights_gemm_grid g = ct__weights_gemm_grid(&p.s);
		assert_true(ct__weights_gemm_possible(&p.s));
		assert_true(g.images * g.runs >= p.s.n && g.chunk >= 1 && g.chunk <= g.runs);
		runs = runs || g.chunk > 1;
		chunks = chunks || g.chunk < g.runs;
		images = images || (g.images > 1 && g.images * g.runs > p.s.n);
		large = large || (g.x_run + g.dy_run) * sizeof(uint16_t) > (size_t)2 << 20;
		/* The last block is alone, and adds to what other chunks have left. */
		odd_rows = odd_rows || (g.chunk < g.runs && p.s.c / GEMM_CHANNELS % 2 == 1);
		odd_cols = odd_cols || (g.chunk < g.runs && p.s.k / GEMM_CHANNELS % 2 == 1);
		problem_close(&p);
	}
	assert_true(runs && chunks && images && large && odd_rows && odd_cols);
}

static void test_possible(void **state)
{
	struct ct_weights_gemm_shape s = shapes[0];

	(void)state;
	s.oh = s.h;
	s.ow = s.w;
	assert_true(ct__weights_gemm_possible(&s));
	s.c = 8;
	assert_false(ct__weights_gemm_possible(&s));
	s.c = 16;
	s.win.stride_w = 5;
	assert_false(ct__weights_gemm_possible(&s));
	s.win.stride_w = 1;
	/* The copies would be 100 times as large as the images. */
	struct ct_weights_gemm_shape sparse = s;
	sparse.win = (struct ct_window){3, 3, 1, 1, 200, 200, 200, 200};
	sparse.h = sparse.w = sparse.oh = sparse.ow = 40;
	assert_false(ct__weights_gemm_possible(&sparse));
	sparse.win = ct_window_square(3, 1, 1);
	assert_true(ct__weights_gemm_possible(&sparse));
	assert_ok(ct_cpu_set_limit(CT_ISA_AVX512));
	assert_false(ct__weights_gemm_possible(&s));
	assert_ok(ct_cpu_set_limit(CT_ISA_AUTO));
}
#endif

int main(void)
{
#if defined(__x86_64__)
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_grids), cmocka_unit_test(test_possible),
					   cmocka_unit_test(test_avx512), cmocka_unit_test(test_amx)};

	if (ct_cpu_has(CT_CPU_AVX512 | CT_CPU_AVX512BF16))
		return cmocka_run_group_tests(tests, NULL, NULL);
#endif
	printf("skipped: this processor has no bfloat16 instructions\n");
	return 77;
}
