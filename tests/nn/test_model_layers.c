#include "nn/models/layers_impl.h"

#include "nn/graph/op.h"
#include "tests/nn/nn_check.h"

static void assert_window(const struct ct_node *n, int r, int s, int sh, int sw, int ph, int pw, int dh, int dw)
{
	const struct ct_window want = {r, s, sh, sw, ph, pw, dh, dw};

	assert_memory_equal(&n->win, &want, sizeof(want));
}

static void test_values_and_defaults(void **state)
{
	ct_graph *g = graph_make(
		(struct ct_shape){3, 20, 30},
		"conv2d 8 kernel=3x5 stride=1x2 padding=1x2 name=stem; batch_norm eps=1e-3 momentum=0.2 ;\trelu name=r;"
		"conv2d channels=8 kernel=3 padding=2 dilation=2 groups=2 bias=false;batch_norm;add from=r name=sum;"
		"max_pool 3x2 padding=1;avg_pool kernel=2 stride=1;flatten;dropout p=0.25;linear features=7 bias=false;"
		"linear 5 bias=true;relu",
		5, CT_LOSS_CROSS_ENTROPY, 0);
	static const char *const names[] = {"input", "stem",     "bn1",   "r",   "conv1", "bn2",   "sum", "pool1",
					    "pool2", "flatten1", "drop1", "fc1", "fc2",   "relu1", "loss"};

	(void)state;
	assert_int_equal(ct_graph_n_nodes(g), CT_ARRAY_LEN(names));
	for (size_t i = 0; i < CT_ARRAY_LEN(names); i++)
		assert_string_equal(ct_graph_node(g, (int)i)->name, names[i]);
	const struct ct_node *stem = ct_graph_node(g, 1), *bn1 = ct_graph_node(g, 2), *conv = ct_graph_node(g, 4);
	assert_window(stem, 3, 5, 1, 2, 1, 2, 1, 1);
	assert_true(stem->bias >= 0);
	assert_float_equal(bn1->eps, 1e-3, 1e-9);
	assert_float_equal(bn1->momentum, 0.2, 1e-7);
	assert_window(conv, 3, 3, 1, 1, 2, 2, 2, 2);
	assert_int_equal(conv->groups, 2);
	assert_int_equal(conv->bias, -1);
	assert_float_equal(ct_graph_node(g, 5)->eps, 1e-5, 1e-10);
	assert_float_equal(ct_graph_node(g, 5)->momentum, 0.1, 1e-8);
	assert_int_equal(ct_graph_node(g, 6)->in[0], 5);
	assert_int_equal(ct_graph_node(g, 6)->in[1], 3);
	assert_window(ct_graph_node(g, 7), 3, 2, 3, 2, 1, 1, 1, 1); /* the stride is the kernel */
	assert_window(ct_graph_node(g, 8), 2, 2, 1, 1, 0, 0, 1, 1);
	assert_float_equal(ct_graph_node(g, 10)->p, 0.25, 0);
	assert_int_equal(ct_graph_node(g, 11)->bias, -1);
	ct_graph_destroy(g);
}

static void test_branches(void **state)
{
	ct_graph *g = graph_make((struct ct_shape){2, 4, 4},
				 "conv2d 3 kernel=1 name=a;conv2d 3 kernel=1 from=input;add from=a;global_avg_pool", 3,
				 CT_LOSS_CROSS_ENTROPY, 0);

	(void)state;
	assert_int_equal(ct_graph_node(g, 2)->in[0], 0);
	assert_int_equal(ct_graph_node(g, 3)->in[0], 2);
	assert_int_equal(ct_graph_node(g, 3)->in[1], 1);
	ct_graph_destroy(g);
}

static void test_errors(void **state)
{
	static const struct {
		const char *layers, *message, *hint;
	} cases[] = {
		{"", "layer 1, \"\": a layer has no type", ""},
		{"linear 5;  ", "layer 2, \"  \": a layer has no type", ""},
		{"conv 4 kernel=3", "layer 1, \"conv 4 kernel=3\": unknown layer \"conv\"", "did you mean \"conv2d\"?"},
		{"transformer", "unknown layer \"transformer\"", ""},
		{"conv2d kernel=3", "conv2d needs channels", ""},
		{"conv2d 4", "conv2d needs kernel", ""},
		{"conv2d 4 kernel=3 strid=2", "conv2d has no key \"strid\"", "did you mean \"stride\"?"},
		{"conv2d 4 kernel=3 p=2", "conv2d has no key \"p\"", ""},
		{"conv2d 4 8 kernel=3", "channels is given twice", ""},
		{"conv2d 4 kernel=3 kernel=5", "kernel is given twice", ""},
		{"conv2d 4 kernel=0", "kernel=0 is not an integer of at least 1", ""},
		{"conv2d 4 kernel=3x", "kernel= is not an integer", ""},
		{"conv2d 4 kernel=3x3x3", "is not an integer", ""},
		{"conv2d 4 kernel=", "kernel= is not an integer", ""},
		{"conv2d 4 kernel=3.5", "kernel=3.5 is not an integer", ""},
		{"conv2d -4 kernel=3", "channels=-4 is not an integer", ""},
		{"conv2d 99999999999 kernel=3", "channels=99999999999 is not an integer", ""},
		{"conv2d 4 kernel=3 stride=0", "stride=0 is not an integer of at least 1", ""},
		{"conv2d 4 kernel=3 padding=-1", "padding=-1 is not an integer of at least 0", ""},
		{"conv2d 4 kernel=3 groups=2x2", "groups=2x2 is not an integer", ""},
		{"conv2d 4 kernel=3 groups=3", "conv1: 3 groups do not divide", ""},
		{"conv2d 4 kernel=99", "conv1: kernel 99x99 is larger", ""},
		{"conv2d 4 kernel=3 bias=yes", "bias=yes is invalid: write true or false", ""},
		{"linear", "linear needs features", ""},
		{"linear five", "features=five is not an integer", ""},
		{"linear 5 kernel=3", "linear has no key \"kernel\"", ""},
		{"batch_norm 5", "batch_norm does not accept the value \"5\" without a key", ""},
		{"batch_norm eps=small", "eps=small is not a number", ""},
		{"batch_norm eps=nan", "eps=nan is not a number", ""},
		{"batch_norm eps=0", "bn1: eps 0", ""},
		{"batch_norm momentum=2", "momentum 2", ""},
		{"relu 3", "relu does not accept the value", ""},
		{"max_pool", "max_pool needs kernel", ""},
		{"max_pool 2 padding=2", "pool1: padding 2 is more than half", ""},
		{"avg_pool 2 dilation=2", "avg_pool has no key \"dilation\"", ""},
		{"global_avg_pool 2", "global_avg_pool does not accept the value", ""},
		{"flatten x", "flatten does not accept the value", ""},
		{"dropout", "dropout needs p", ""},
		{"dropout 1", "drop1: dropout probability 1", ""},
		{"dropout 0.5 0.5", "p is given twice", ""},
		{"add", "add needs from", ""},
		{"relu;add from=missing", "layer 2, \"add from=missing\": from=missing: no earlier layer", ""},
		{"conv2d 4 kernel=3;add from=input", "the shapes must be equal", ""},
		{"relu name=a;relu name=a", "layer 2, \"relu name=a\": name=a: another layer", ""},
		{"relu name=input", "name=input: another layer", ""},
		{"relu name=", "has 0 characters", ""},
		{"relu name=a/b", "letters, digits", ""},
		{"relu;linear 4", "the output of the last layer is 4x1x1, but the data needs 5 outputs",
		 "end the list with \"linear 5\""},
		{"conv2d 5 kernel=3", "the output of the last layer is 5x6x6, but", ""},
		{"relu name=lost;linear 5 from=input", "lost: no other layer uses its output", ""},
		{"linear 5;linear 5 name=loss", "two layers are named \"loss\"", ""},
		{"relu\x01", "layer 1, \"relu\\x01\": unknown layer", ""},
	};
	ct_graph *g = NULL;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		enum ct_status st =
			graph_try((struct ct_shape){3, 8, 8}, cases[i].layers, 5, CT_LOSS_CROSS_ENTROPY, 0, &g);

		if (st != CT_CONFIG || !strstr(ct_error_message(), cases[i].message))
			fail_msg("\"%s\": status %s, message \"%s\", not \"%s\"", cases[i].layers, ct_status_name(st),
				 ct_error_message(), cases[i].message);
		if (cases[i].hint[0] && !strstr(ct_error_hint_text(), cases[i].hint))
			fail_msg("\"%s\": hint \"%s\"", cases[i].layers, ct_error_hint_text());
		assert_non_null(strstr(ct_error_message(), "model layers: "));
	}
}

static void test_long_text_and_empty_list(void **state)
{
	struct ct_model_spec spec = {.name = "layers", .input = {3, 8, 8}, .n_outputs = 5};
	char text[400];
	ct_graph *g = NULL;

	(void)state;
	memset(text, 'r', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_fails(graph_try(spec.input, text, 5, CT_LOSS_MSE, 0, &g), CT_CONFIG, "at most 255 characters");
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "model.layers is empty");
}

/* If the number of classes is not known otherwise, the list determines it. */
static void test_open_end(void **state)
{
	ct_graph *g = NULL;

	(void)state;
	assert_int_equal(graph_try((struct ct_shape){3, 8, 8}, "conv2d 7 kernel=1;global_avg_pool", 0,
				   CT_LOSS_CROSS_ENTROPY, 0, &g),
			 CT_OK);
	assert_int_equal(ct_graph_node(g, ct_graph_node(g, ct_graph_loss(g))->in[0])->shape.c, 7);
	ct_graph_destroy(g);
	assert_fails(graph_try((struct ct_shape){3, 8, 8}, "conv2d 7 kernel=1", 0, CT_LOSS_CROSS_ENTROPY, 0, &g),
		     CT_CONFIG, "the output of the last layer is 7x8x8, but it must be a vector");
}

/* MODELS.md describes every layer. */
static void test_page(void **state)
{
	char *page = NULL;
	size_t len = 0;

	(void)state;
	assert_ok(ct_file_read(CT_SOURCE_DIR "/docs/MODELS.md", (size_t)1 << 20, &page, &len));
	for (enum ct_op op = 0; op < CT_N_OPS; op++) {
		char row[64], with_options[64];

		snprintf(row, sizeof(row), "\n| `%s` |", ct_op_name(op));
		snprintf(with_options, sizeof(with_options), "\n| `%s ", ct_op_name(op));
		if (ct_op_info(op)->layer.prefix && !strstr(page, row) && !strstr(page, with_options))
			fail_msg("docs/MODELS.md has no row for the layer %s", ct_op_name(op));
	}
	ct_free(page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_and_defaults),
		cmocka_unit_test(test_branches),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_long_text_and_empty_list),
		cmocka_unit_test(test_open_end),
		cmocka_unit_test(test_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
