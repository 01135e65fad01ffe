/* Asks cuDNN, without a GPU, for plans on an H100 and an H200 for each kind of operation graph that the engine uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "nn/cuda/cudnn/plan.h"

static const char *const devices[] = {"h100", "h200"};
static ct__cudnn_target *targets[2];

struct shape {
	const char *name;
	int64_t n, c, h, w, k;
	struct ct_window win;
};

#define WINDOW(r, stride, pad) {r, r, stride, stride, pad, pad, 1, 1}
/* c and k are multiples of 8, as the engine pads them. */
static const struct shape shapes[] = {
	{"linear 784-128", 64, 784, 1, 1, 128, WINDOW(1, 1, 0)},
	{"linear 2048-1000", 256, 2048, 1, 1, 1000, WINDOW(1, 1, 0)},
	{"convnet 5x5, first", 64, 8, 28, 28, 16, WINDOW(5, 1, 2)},
	{"convnet 5x5, second", 64, 16, 14, 14, 32, WINDOW(5, 1, 2)},
	{"stem 7x7", 64, 8, 224, 224, 64, WINDOW(7, 2, 3)},
	{"3x3, stage 1", 64, 64, 56, 56, 64, WINDOW(3, 1, 1)},
	{"3x3, stride 2", 64, 128, 56, 56, 128, WINDOW(3, 2, 1)},
	{"1x1, stage 4", 64, 512, 7, 7, 2048, WINDOW(1, 1, 0)},
	{"1x1, stride 2", 64, 1024, 14, 14, 2048, WINDOW(1, 2, 0)},
	{"one row", 1, 16, 14, 14, 32, WINDOW(3, 1, 1)},
};

struct arithmetic {
	const char *name;
	enum ct_dtype type;
	bool exact;
};

static const struct arithmetic arithmetics[] = {
	{"fp32", CT_F32, true}, {"tf32", CT_F32, false}, {"fp16", CT_F16, false}, {"bf16", CT_BF16, false}};

enum kind { FORWARD, FORWARD_BIAS_RELU, DATA, FILTER, N_KINDS };

static int64_t out_size(int64_t size, int r, int stride, int pad)
{
	return (size + 2 * pad - r) / stride + 1;
}

static ct__cudnn_graph *build(const struct shape *s, enum kind kind, enum ct_dtype t)
{
	const int64_t p = out_size(s->h, s->win.r, s->win.stride_h, s->win.pad_h),
		      q = out_size(s->w, s->win.s, s->win.stride_w, s->win.pad_w);
	ct__cudnn_graph *g;

	assert_int_equal(ct__cudnn_graph_create(&g), CT_OK);
	const int x = ct__cudnn_tensor(g, "x", (int64_t[4]){s->n, s->c, s->h, s->w}, t, false),
		  w = ct__cudnn_tensor(g, "w", (int64_t[4]){s->k, s->c, s->win.r, s->win.s}, t, false);
	const int64_t out[4] = {s->n, s->k, p, q};

	if (kind == FORWARD_BIAS_RELU) {
		const int y = ct__cudnn_tensor(g, "conv", out, CT_F32, true),
			  b = ct__cudnn_channels(g, "bias", s->k, t),
			  sum = ct__cudnn_tensor(g, "sum", out, CT_F32, true),
			  z = ct__cudnn_tensor(g, "y", out, t, false);

		ct__cudnn_add_conv(g, CT__CUDNN_FORWARD, x, w, y, &s->win);
		ct__cudnn_add_pointwise(g, CT__CUDNN_ADD, y, b, sum);
		ct__cudnn_add_pointwise(g, CT__CUDNN_RELU, sum, 0, z);
	} else {
		const int y = ct__cudnn_tensor(g, "y", out, t, false);

		ct__cudnn_add_conv(g,
				   kind == FORWARD ? CT__CUDNN_FORWARD
				   : kind == DATA  ? CT__CUDNN_DATA
						   : CT__CUDNN_FILTER,
				   x, w, y, &s->win);
	}
	assert_int_equal(ct__cudnn_graph_finish(g), CT_OK);
	return g;
}

static const char *const kinds[] = {"forward", "forward, bias, ReLU", "data", "filter"};

static void check_plans(const struct shape *s, enum kind kind, const struct arithmetic *a, int device)
{
	const struct ct__cudnn_filter filter = {
		.exact = a->exact, .deterministic = true, .max_workspace_bytes = (int64_t)1 << 30};
	struct ct__cudnn_candidates c;
	ct__cudnn_graph *g = build(s, kind, a->type);

	if (ct__cudnn_plan_find(g, targets[device], &filter, 64, &c) < 0)
		fail_msg("%s, %s, %s, %s: %s", s->name, kinds[kind], a->name, devices[device], ct_error_message());
	printf("%-20s %-20s %s %s: %2d plans, %2d filtered, %2d refused; first: engine %lld, %lld KiB%s%s\n", s->name,
	       kinds[kind], a->name, devices[device], c.n, c.n_filtered, c.n_refused,
	       (long long)ct__cudnn_plan_info(c.plans[0])->engine,
	       (long long)ct__cudnn_plan_info(c.plans[0])->workspace_bytes / 1024,
	       ct__cudnn_plan_info(c.plans[0])->tensor_core ? ", tensor cores" : "",
	       ct__cudnn_plan_info(c.plans[0])->compiled_at_run_time ? ", compiled at run time" : "");
	for (int i = 0; i < c.n; i++) {
		const struct ct__cudnn_plan_info *info = ct__cudnn_plan_info(c.plans[i]);

		assert_true(info->deterministic);
		assert_false(a->exact && (info->tensor_core || info->down_convert));
		assert_true(info->workspace_bytes <= filter.max_workspace_bytes);
	}
	ct__cudnn_candidates_release(&c);
	ct__cudnn_graph_destroy(g);
}

static void test_every_graph_has_a_plan(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(shapes); i++)
		for (int kind = 0; kind < N_KINDS; kind++)
			for (size_t a = 0; a < CT_ARRAY_LEN(arithmetics); a++)
				for (int d = 0; d < 2; d++)
					check_plans(&shapes[i], (enum kind)kind, &arithmetics[a], d);
}

static void test_text_form(void **state)
{
	ct__cudnn_graph *g = build(&shapes[0], FORWARD_BIAS_RELU, CT_F16);

	(void)state;
	assert_string_equal(ct__cudnn_graph_text(g),
			    "forward x=x:f16[64,784,1,1] w=w:f16[128,784,1,1] y=virtual-conv:f32[64,128,1,1] "
			    "stride=1,1 pad=0,0 dilation=1,1; add x=virtual-conv:f32[64,128,1,1] b=bias:f16[1,128,1,1] "
			    "y=virtual-sum:f32[64,128,1,1]; relu x=virtual-sum:f32[64,128,1,1] y=y:f16[64,128,1,1]");
	ct__cudnn_graph_destroy(g);
}

/* The output of a convolution must have the size that its window gives. */
static void test_wrong_size_is_refused(void **state)
{
	const struct ct_window win = WINDOW(3, 1, 1);
	ct__cudnn_graph *g;

	(void)state;
	assert_int_equal(ct__cudnn_graph_create(&g), CT_OK);
	const int x = ct__cudnn_tensor(g, "x", (int64_t[4]){2, 8, 6, 6}, CT_F32, false),
		  w = ct__cudnn_tensor(g, "w", (int64_t[4]){8, 8, 3, 3}, CT_F32, false),
		  y = ct__cudnn_tensor(g, "y", (int64_t[4]){2, 8, 7, 7}, CT_F32, false);
	ct__cudnn_add_conv(g, CT__CUDNN_FORWARD, x, w, y, &win);
	assert_true(ct__cudnn_graph_finish(g) < 0);
	assert_non_null(strstr(ct_error_message(), "y=y:f32[2,8,7,7]"));
	ct__cudnn_graph_destroy(g);
}

static void test_filter_that_allows_nothing(void **state)
{
	const struct ct__cudnn_filter filter = {.max_workspace_bytes = -1};
	struct ct__cudnn_candidates c;
	ct__cudnn_graph *g = build(&shapes[5], FORWARD, CT_F16);

	(void)state;
	assert_int_equal(ct__cudnn_plan_find(g, targets[0], &filter, 64, &c), CT_UNSUPPORTED);
	assert_non_null(strstr(ct_error_message(), "not allowed"));
	ct__cudnn_graph_destroy(g);
}

static void test_bad_device_description(void **state)
{
	ct__cudnn_target *t;

	(void)state;
	assert_true(ct__cudnn_target_from_json("{\"deviceVer\":", &t) < 0);
}

static int open_targets(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		char path[512], *json;
		size_t n;

		snprintf(path, sizeof(path), "%s/%s.json", CT_DEVICES, devices[i]);
		if (ct_file_read(path, 1 << 16, &json, &n) < 0 || ct__cudnn_target_from_json(json, &targets[i]) < 0) {
			fprintf(stderr, "%s: %s\n", path, ct_error_message());
			return -1;
		}
		ct_free(json);
	}
	return 0;
}

static int close_targets(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		ct__cudnn_target_destroy(targets[i]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_graph_has_a_plan), cmocka_unit_test(test_text_form),
		cmocka_unit_test(test_wrong_size_is_refused),  cmocka_unit_test(test_filter_that_allows_nothing),
		cmocka_unit_test(test_bad_device_description),
	};

	return cmocka_run_group_tests(tests, open_targets, close_targets);
}
