#include "nn/graph/op.h"

#include "tests/nn/nn_check.h"

static ct_graph *start(int c, int h, int w)
{
	ct_graph *g = NULL;

	assert_ok(ct_graph_create((struct ct_shape){c, h, w}, &g));
	return g;
}

static void assert_shape(const ct_graph *g, int id, int c, int h, int w)
{
	struct ct_shape s = ct_graph_node(g, id)->shape;

	if (s.c != c || s.h != h || s.w != w)
		fail_msg("%s is %dx%dx%d, not %dx%dx%d", ct_graph_node(g, id)->name, s.c, s.h, s.w, c, h, w);
}

static void test_shapes(void **state)
{
	ct_graph *g = start(3, 33, 20);
	struct ct_window odd = {
		.r = 5, .s = 3, .stride_h = 2, .stride_w = 3, .pad_h = 1, .pad_w = 2, .dilation_h = 2, .dilation_w = 1};

	(void)state;
	int a = ct_graph_conv2d(g, "a", 0, 8, odd, 1, true);
	assert_shape(g, a, 8, 14, 8); /* (33 + 2 - 9)/2 + 1, (20 + 4 - 3)/3 + 1 */
	int b = ct_graph_conv2d(g, "b", a, 6, ct_window_square(3, 1, 1), 2, false);
	assert_shape(g, b, 6, 14, 8);
	int c = ct_graph_batch_norm(g, "c", b, 1e-5f, 0.1f);
	assert_shape(g, c, 6, 14, 8);
	int d = ct_graph_max_pool(g, "d", ct_graph_relu(g, "r", c), ct_window_square(3, 2, 1));
	assert_shape(g, d, 6, 7, 4);
	int e = ct_graph_op(g, CT_OP_AVG_POOL, "e", d, -1, &(struct ct_op_attrs){.win = ct_window_square(2, 2, 0)});
	assert_shape(g, e, 6, 3, 2);
	int f = ct_graph_add(g, "f", e, ct_graph_dropout(g, "drop", e, 0.5f));
	assert_shape(g, f, 6, 3, 2);
	int h = ct_graph_flatten(g, "h", f);
	assert_shape(g, h, 36, 1, 1);
	int i = ct_graph_linear(g, "i", h, 10, true);
	assert_shape(g, i, 10, 1, 1);
	int loss = ct_graph_softmax_xent(g, i, 0.1f);
	assert_int_equal(loss, ct_graph_n_nodes(g) - 1);
	assert_ok(ct_graph_finish(g));
	assert_int_equal(ct_graph_loss(g), loss);

	static const struct {
		const char *name;
		enum ct_param_kind kind;
		int ndim, dims[4], fan_in, fan_out;
	} params[] = {
		{"a.weight", CT_PARAM_WEIGHT, 4, {8, 3, 5, 3}, 45, 120},
		{"a.bias", CT_PARAM_BIAS, 1, {8, 1, 1, 1}, 45, 120},
		{"b.weight", CT_PARAM_WEIGHT, 4, {6, 4, 3, 3}, 36, 54},
		{"c.weight", CT_PARAM_BN_WEIGHT, 1, {6, 1, 1, 1}, 1, 1},
		{"c.bias", CT_PARAM_BN_BIAS, 1, {6, 1, 1, 1}, 1, 1},
		{"i.weight", CT_PARAM_WEIGHT, 2, {10, 36, 1, 1}, 36, 10},
		{"i.bias", CT_PARAM_BIAS, 1, {10, 1, 1, 1}, 36, 10},
	};
	assert_int_equal(ct_graph_n_params(g), CT_ARRAY_LEN(params));
	size_t n = 0;
	for (size_t k = 0; k < CT_ARRAY_LEN(params); k++) {
		const struct ct_param *p = ct_graph_param(g, (int)k);

		assert_string_equal(p->name, params[k].name);
		assert_int_equal(p->kind, params[k].kind);
		assert_int_equal(p->ndim, params[k].ndim);
		assert_memory_equal(p->dims, params[k].dims, sizeof(p->dims));
		assert_int_equal(p->n,
				 (size_t)p->dims[0] * (size_t)p->dims[1] * (size_t)p->dims[2] * (size_t)p->dims[3]);
		assert_int_equal(p->fan_in, params[k].fan_in);
		assert_int_equal(p->fan_out, params[k].fan_out);
		n += p->n;
	}
	assert_int_equal(ct_graph_n_elems(g), n);
	assert_int_equal(ct_graph_n_buffers(g), 2);
	assert_string_equal(ct_graph_buffer(g, 0)->name, "c.running_mean");
	assert_string_equal(ct_graph_buffer(g, 1)->name, "c.running_var");
	ct_graph_destroy(g);
}

/* What the compiler cannot check: that no descriptor was begun and then forgotten. */
static void test_descriptors(void **state)
{
	(void)state;
	for (enum ct_op op = 0; op < CT_N_OPS; op++) {
		const struct ct_op_info *info = ct_op_info(op);
		const struct ct_op_export *e = &info->exported;
		const bool first = op == CT_OP_INPUT, end = op == CT_OP_OUTPUT;

		if (!info->name || !info->flops || (info->n_inputs == 0) != first || (!info->build) != (first || end))
			fail_msg("the descriptor of operation %d (%s) is not complete", (int)op, info->name);
		for (enum ct_op other = 0; other < op; other++)
			assert_string_not_equal(info->name, ct_op_info(other)->name);
		if (first || end || info->is_loss)
			continue;
		if (!info->layer.prefix)
			fail_msg("%s has no prefix: model.layers cannot name it", info->name);
		if ((!e->onnx) != (e->identity == CT_IDENTITY_IN_EVALUATION))
			fail_msg("%s must have an ONNX operator or be the identity in evaluation", info->name);
		if ((!e->python) == (!e->python_module))
			fail_msg("%s must have either an expression or a module of PyTorch", info->name);
	}
}

static void test_flops(void **state)
{
	ct_graph *g = start(2, 6, 6);

	(void)state;
	int a = ct_graph_conv2d(g, "a", 0, 4, ct_window_square(3, 1, 0), 2, true); /* 4x4x4 outputs of 9 taps */
	int b = ct_graph_batch_norm(g, "b", a, 1e-5f, 0.1f);
	int c = ct_graph_relu(g, "c", b);
	int d = ct_graph_max_pool(g, "d", c, ct_window_square(2, 2, 0)); /* 4x2x2 */
	int e = ct_graph_linear(g, "e", d, 3, true);
	ct_graph_softmax_xent(g, e, 0);
	assert_ok(ct_graph_finish(g));
	assert_float_equal(ct_graph_node_flops(g, a), 64 * 9 * 2 + 64, 0);
	assert_float_equal(ct_graph_node_flops(g, b), 128, 0);
	assert_float_equal(ct_graph_node_flops(g, c), 64, 0);
	assert_float_equal(ct_graph_node_flops(g, d), 64, 0);
	assert_float_equal(ct_graph_node_flops(g, e), 16 * 3 * 2 + 3, 0);
	assert_float_equal(ct_graph_flops(g), 64 * 9 * 2 + 64 + 128 + 64 + 64 + 99, 0);
	ct_graph_destroy(g);
}

/* One wrong layer on a 3x8x8 input (value 0) with a 4x6x6 convolution "first" (value 1) before it. */
static void wrong_kernel(ct_graph *g)
{
	ct_graph_conv2d(g, "x", 1, 4, ct_window_square(7, 1, 0), 1, true);
}
static void wrong_groups(ct_graph *g)
{
	ct_graph_conv2d(g, "x", 1, 6, ct_window_square(3, 1, 0), 4, true);
}
static void wrong_channels(ct_graph *g)
{
	ct_graph_conv2d(g, "x", 1, 0, ct_window_square(3, 1, 0), 1, true);
}
static void wrong_stride(ct_graph *g)
{
	ct_graph_conv2d(g, "x", 1, 4, ct_window_square(3, 0, 0), 1, true);
}
static void wrong_padding(ct_graph *g)
{
	ct_graph_conv2d(g, "x", 1, 4, ct_window_square(3, 1, -1), 1, true);
}
static void wrong_pool_padding(ct_graph *g)
{
	ct_graph_max_pool(g, "x", 1, ct_window_square(2, 2, 2));
}
static void wrong_pool_dilation(ct_graph *g)
{
	struct ct_window w = ct_window_square(2, 1, 1);

	w.dilation_h = w.dilation_w = 7;
	ct_graph_max_pool(g, "x", 1, w);
}
static void wrong_avg_dilation(ct_graph *g)
{
	struct ct_window w = ct_window_square(2, 1, 0);

	w.dilation_h = 2;
	ct_graph_op(g, CT_OP_AVG_POOL, "x", 1, -1, &(struct ct_op_attrs){.win = w});
}
static void wrong_add(ct_graph *g)
{
	ct_graph_add(g, "x", 0, 1);
}
static void wrong_linear(ct_graph *g)
{
	ct_graph_linear(g, "x", 1, -3, true);
}
static void wrong_huge_linear(ct_graph *g)
{
	ct_graph_linear(g, "x", 1, INT32_MAX, true);
}
static void wrong_dropout(ct_graph *g)
{
	ct_graph_dropout(g, "x", 1, 1.0f);
}
static void wrong_drop_path(ct_graph *g)
{
	ct_graph_drop_path(g, "x", 1, -0.5f);
}
static void wrong_zero_gamma(ct_graph *g)
{
	ct_graph_zero_gamma(g, 1);
}
static void wrong_nested_block(ct_graph *g)
{
	ct_graph_begin_block(g);
	ct_graph_begin_block(g);
}
static void wrong_end_of_block(ct_graph *g)
{
	ct_graph_end_block(g);
}
static void wrong_open_block(ct_graph *g)
{
	ct_graph_begin_block(g);
	ct_graph_mse(g, ct_graph_linear(g, "x", 1, 4, true));
}
static void wrong_eps(ct_graph *g)
{
	ct_graph_batch_norm(g, "x", 1, 0, 0.1f);
}
static void wrong_loss_shape(ct_graph *g)
{
	ct_graph_softmax_xent(g, 1, 0);
}
static void wrong_smoothing(ct_graph *g)
{
	ct_graph_softmax_xent(g, ct_graph_linear(g, "x", 1, 4, true), 1.0f);
}
static void wrong_classes(ct_graph *g)
{
	ct_graph_softmax_xent(g, ct_graph_linear(g, "x", 1, 1, true), 0);
}
static void wrong_two_losses(ct_graph *g)
{
	int x = ct_graph_linear(g, "x", 1, 4, true);

	ct_graph_mse(g, x);
	ct_graph_softmax_xent(g, x, 0);
}
static void wrong_after_loss(ct_graph *g)
{
	ct_graph_relu(g, "x", ct_graph_mse(g, ct_graph_linear(g, "y", 1, 4, true)));
}
static void wrong_no_loss(ct_graph *g)
{
	ct_graph_linear(g, "x", 1, 4, true);
}
static void wrong_unused(ct_graph *g)
{
	ct_graph_relu(g, "idle", 1);
	ct_graph_mse(g, ct_graph_linear(g, "x", 1, 4, true));
}
static void wrong_twice_named(ct_graph *g)
{
	ct_graph_mse(g, ct_graph_linear(g, "first", 1, 4, true));
}
static void wrong_empty_name(ct_graph *g)
{
	ct_graph_relu(g, "", 1);
}
static void wrong_long_name(ct_graph *g)
{
	ct_graph_relu(g, "a234567890123456789012345678901234567890123456789012345678901234", 1);
}
static void wrong_character(ct_graph *g)
{
	ct_graph_relu(g, "a/b", 1);
}
static void wrong_first_of_two(ct_graph *g)
{
	ct_graph_dropout(g, "early", 1, -1);
	ct_graph_linear(g, "late", 1, 0, true);
}

static void test_errors(void **state)
{
	static const struct {
		void (*build)(ct_graph *g);
		const char *part;
	} cases[] = {
		{wrong_kernel, "x: kernel 7x7 is larger than the padded input 6x6"},
		{wrong_groups, "x: 4 groups do not divide 4 input and 6 output channels"},
		{wrong_channels, "x: 0 output channels"},
		{wrong_stride, "stride 0"},
		{wrong_padding, "padding -1"},
		{wrong_pool_padding, "padding 2 is more than half of the kernel 2"},
		{wrong_pool_dilation, "padding only"},
		{wrong_avg_dilation, "does not support dilation"},
		{wrong_add, "cannot add input of shape 3x8x8 and first of shape 4x6x6"},
		{wrong_linear, "x: -3 output features"},
		{wrong_huge_linear, "x.weight has more than"},
		{wrong_dropout, "dropout probability 1 must"},
		{wrong_drop_path, "drop_path probability -0.5 must"},
		{wrong_zero_gamma, "first: a conv2d has no gamma"},
		{wrong_nested_block, "block 0 has not ended: blocks cannot be nested"},
		{wrong_end_of_block, "ended that has not begun"},
		{wrong_open_block, "block 0 has not ended"},
		{wrong_eps, "x: eps 0"},
		{wrong_loss_shape, "the loss needs a vector, but the output of first is 4x6x6"},
		{wrong_smoothing, "label smoothing 1 must"},
		{wrong_classes, "at least 2 classes, but x has 1"},
		{wrong_two_losses, "must have one loss head"},
		{wrong_after_loss, "nothing can follow the loss"},
		{wrong_no_loss, "no loss head"},
		{wrong_unused, "idle: no other layer uses its output"},
		{wrong_twice_named, "two layers are named \"first\""},
		{wrong_empty_name, "has 0 characters"},
		{wrong_long_name, "has 64 characters"},
		{wrong_character, "\"a/b\" may contain"},
		{wrong_first_of_two, "early: dropout"},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		ct_graph *g = start(3, 8, 8);

		assert_int_equal(ct_graph_conv2d(g, "first", 0, 4, ct_window_square(3, 1, 0), 1, true), 1);
		cases[i].build(g);
		assert_fails(ct_graph_finish(g), CT_CONFIG, cases[i].part);
		ct_graph_destroy(g);
	}
}

static void test_input_shapes(void **state)
{
	static const struct ct_shape wrong[] = {{0, 1, 1}, {1, 0, 5}, {1, 5, -1}, {INT32_MAX, 2, 1}, {1, INT32_MAX, 1}};
	ct_graph *g = NULL;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(wrong); i++)
		assert_fails(ct_graph_create(wrong[i], &g), CT_CONFIG, "input shape");
	ct_graph_destroy(NULL);
}

/* A block of two nodes between others; `zero`: its norm starts with gamma 0. */
static ct_graph *with_blocks(bool blocks, bool zero)
{
	ct_graph *g = start(4, 5, 5);
	int first = ct_graph_relu(g, "before", 0);

	for (int i = 0; i < 2; i++) {
		if (blocks)
			ct_graph_begin_block(g);
		int norm = ct_graph_batch_norm(g, i ? "norm1" : "norm0", first, 1e-5f, 0.1f);
		if (zero && i)
			ct_graph_zero_gamma(g, norm);
		int path = ct_graph_drop_path(g, i ? "path1" : "path0", norm, 0.2f);
		if (blocks)
			ct_graph_end_block(g);
		first = ct_graph_add(g, i ? "add1" : "add0", path, first);
	}
	ct_graph_mse(g, ct_graph_linear(g, "fc", first, 2, true));
	assert_ok(ct_graph_finish(g));
	return g;
}

static void test_blocks_and_their_last_norm(void **state)
{
	static const int blocks[] = {-1, -1, 0, 0, -1, 1, 1, -1, -1, -1};
	ct_graph *g = with_blocks(true, true), *other;
	char hex[65], same[65];

	(void)state;
	assert_int_equal(ct_graph_n_nodes(g), CT_ARRAY_LEN(blocks));
	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		assert_int_equal(ct_graph_node(g, id)->block, blocks[id]);
		assert_int_equal(ct_graph_node(g, id)->zero_gamma, id == 5);
	}
	assert_shape(g, 3, 4, 5, 5);
	assert_int_equal(ct_graph_node(g, 3)->op, CT_OP_DROP_PATH);
	assert_float_equal(ct_graph_node(g, 3)->p, 0.2f, 0);
	assert_float_equal(ct_graph_node_flops(g, 3), 100, 0);
	ct_graph_digest(g, hex);
	other = with_blocks(false, true);
	ct_graph_digest(other, same);
	assert_string_equal(hex, same); /* blocks change no result */
	ct_graph_destroy(other);
	other = with_blocks(true, false);
	ct_graph_digest(other, same);
	assert_string_not_equal(hex, same);
	ct_graph_destroy(other);
	ct_graph_destroy(g);
}

static void digest_of(const char *layers, float smoothing, char hex[65])
{
	ct_graph *g = graph_make((struct ct_shape){1, 8, 8}, layers, 3, CT_LOSS_CROSS_ENTROPY, smoothing);

	ct_graph_digest(g, hex);
	ct_graph_destroy(g);
}

static void test_digest_tells_models_apart(void **state)
{
	static const char *const texts[] = {
		"flatten;linear 3",
		"flatten;linear 3 bias=false",
		"flatten;linear 3 name=x",
		"conv2d 4 kernel=3;flatten;linear 3",
		"conv2d 4 kernel=3 padding=1;flatten;linear 3",
		"conv2d 4 kernel=3 dilation=2;flatten;linear 3",
		"conv2d 4 kernel=3;batch_norm;flatten;linear 3",
		"conv2d 4 kernel=3;batch_norm eps=1e-4;flatten;linear 3",
		"conv2d 4 kernel=3;batch_norm momentum=0.2;flatten;linear 3",
		"conv2d 4 kernel=3;dropout 0.1;flatten;linear 3",
		"conv2d 4 kernel=3;dropout 0.2;flatten;linear 3",
		"conv2d 4 kernel=3;max_pool 2;flatten;linear 3",
		"conv2d 4 kernel=3;avg_pool 2;flatten;linear 3",
	};
	char hex[CT_ARRAY_LEN(texts)][65], other[65];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(texts); i++) {
		digest_of(texts[i], 0, hex[i]);
		assert_int_equal(strlen(hex[i]), 64);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(hex[i], hex[j]);
		digest_of(texts[i], 0, other);
		assert_string_equal(hex[i], other);
		digest_of(texts[i], 0.1f, other);
		assert_string_not_equal(hex[i], other);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_flops),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_input_shapes),
		cmocka_unit_test(test_blocks_and_their_last_norm),
		cmocka_unit_test(test_digest_tells_models_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
