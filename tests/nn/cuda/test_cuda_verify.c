/* The check of plans against direct sums finds nothing wrong with right plans of any form, and finds each wrong one. */
#include "base/clock.h"
#include "nn/cuda/program/program.h"
#include "nn/cuda/tune/verify.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"
#include "tests/soft_gpu/soft_gpu.h"

static const struct form {
	int64_t n, c, h, w, k;
	int groups;
	struct ct_window win; /* r, s, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w */
} forms[] = {
	{3, 8, 7, 5, 16, 1, {3, 3, 1, 1, 1, 1, 1, 1}},  {2, 16, 9, 8, 8, 2, {3, 2, 2, 1, 1, 0, 1, 1}},
	{2, 8, 11, 10, 8, 1, {3, 3, 1, 2, 2, 2, 2, 3}}, {5, 24, 1, 1, 16, 1, {1, 1, 1, 1, 0, 0, 1, 1}},
	{1, 8, 4, 4, 8, 8, {3, 3, 1, 1, 1, 1, 1, 1}},
};

static int64_t extent(int64_t size, int window, int stride, int pad, int dilation)
{
	return (size + 2 * pad - dilation * (window - 1) - 1) / stride + 1;
}

enum { PLAIN, BIAS, RESIDUAL, N_FUSED }; /* BIAS and RESIDUAL: with ReLU */

static ct__cudnn_graph *graph_of(const struct form *f, enum ct__cudnn_conv direction, enum ct_dtype type, int fused)
{
	const struct ct_window *v = &f->win;
	const int64_t y_dims[4] = {f->n, f->k, extent(f->h, v->r, v->stride_h, v->pad_h, v->dilation_h),
				   extent(f->w, v->s, v->stride_w, v->pad_w, v->dilation_w)};
	ct__cudnn_graph *g;

	assert_ok(ct__cudnn_graph_create(&g));
	const int x = ct__cudnn_tensor(g, "x", (int64_t[4]){f->n, f->c, f->h, f->w}, type, false);
	const int w = ct__cudnn_tensor(g, "w", (int64_t[4]){f->k, f->c / f->groups, v->r, v->s}, type, false);
	int y = ct__cudnn_tensor(g, "y", y_dims, type, false), from = y;

	if (fused != PLAIN)
		from = ct__cudnn_tensor(g, "conv", y_dims, CT_F32, true);
	ct__cudnn_add_conv(g, direction, x, w, from, v);
	if (fused == RESIDUAL) {
		const int sum = ct__cudnn_tensor(g, "sum", y_dims, CT_F32, true);

		ct__cudnn_add_pointwise(g, CT__CUDNN_ADD, from, ct__cudnn_tensor(g, "residual", y_dims, type, false),
					sum);
		from = sum;
	}
	if (fused != PLAIN) {
		const int sum = ct__cudnn_tensor(g, "biased", y_dims, CT_F32, true);

		ct__cudnn_add_pointwise(g, CT__CUDNN_ADD, from, ct__cudnn_channels(g, "bias", f->k, type), sum);
		ct__cudnn_add_pointwise(g, CT__CUDNN_RELU, sum, 0, y);
	}
	return g;
}

static enum ct_status verify(const struct cuda_engine *e, ct__cudnn_graph *g)
{
	const struct ct__cudnn_filter filter = {.deterministic = true, .max_workspace_bytes = 1 << 20};
	const struct ct__timing where = {
		.device = e->base.device, .stream = e->base.stream, .handle = e->cudnn, .target = e->target};
	const struct ct__cudnn_choice *one;
	ct__cudnn_choices *c;
	size_t n = 0;

	assert_ok(ct__cudnn_choices_create(&c));
	assert_ok(ct__cudnn_choices_add(c, "layer", g, &filter, &one));
	assert_ok(ct__cudnn_choices_make(c, e->target, CT_AUTOTUNE_OFF, &where));
	const int engine = (int)ct__cudnn_plan_info(one->plan)->engine;
	assert_int_equal(engine, 10);
	const enum ct_status st = ct__plans_verify(c, &where, &n);
	assert_int_equal(n, 1);
	ct__cudnn_choices_destroy(c);
	return st;
}

static void for_each_graph(void (*fn)(const struct cuda_engine *e, ct__cudnn_graph *g, enum ct__cudnn_conv direction))
{
	static const enum ct_dtype types[] = {CT_F32, CT_F16, CT_BF16};
	ct_device *device;
	ct_engine *e;

	open_engine(true, &device, &e);
	assert_int_equal(cudnnSetStream(((struct cuda_engine *)e)->cudnn, (cudaStream_t)e->stream->handle), 0);
	for (size_t i = 0; i < CT_ARRAY_LEN(forms) * CT_ARRAY_LEN(types); i++) {
		const struct form *f = &forms[i % CT_ARRAY_LEN(forms)];
		const enum ct_dtype type = types[i / CT_ARRAY_LEN(forms)];

		for (int d = CT__CUDNN_FORWARD; d <= CT__CUDNN_FILTER; d++)
			fn((struct cuda_engine *)e, graph_of(f, d, type, PLAIN), d);
		for (int fused = BIAS; fused < N_FUSED; fused++)
			fn((struct cuda_engine *)e, graph_of(f, CT__CUDNN_FORWARD, type, fused), CT__CUDNN_FORWARD);
	}
	ct_engine_close(e);
	ct_device_close(device);
	assert_int_equal(soft_gpu_live() + soft_cudnn_live(), 0);
}

static void expect_right(const struct cuda_engine *e, ct__cudnn_graph *g, enum ct__cudnn_conv direction)
{
	(void)direction;
	if (verify(e, g) < 0)
		fail_msg("%s", ct_error_message());
}

static void test_right(void **state)
{
	(void)state;
	for_each_graph(expect_right);
}

static void expect_wrong(const struct cuda_engine *e, ct__cudnn_graph *g, enum ct__cudnn_conv direction)
{
	static const char *const says[] = {
		[CT__CUDNN_FORWARD] = "layer: the self check found a wrong output: plan 10 of cuDNN computes ",
		[CT__CUDNN_DATA] = "layer: the self check found a wrong gradient of the input: plan 10 ",
		[CT__CUDNN_FILTER] = "layer: the self check found a wrong gradient of the weights: plan 10 "};

	assert_int_equal(verify(e, g), CT_DEVICE);
	assert_non_null(strstr(ct_error_message(), says[direction]));
	assert_non_null(strstr(ct_error_hint_text(), "train.autotune=on"));
	ct_error_clear();
}

static void test_wrong(void **state)
{
	(void)state;
	soft_cudnn_set_broken(10, SOFT_CUDNN_WRONG);
	for_each_graph(expect_wrong);
	soft_cudnn_set_broken(-1, SOFT_CUDNN_WRONG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_wrong)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
