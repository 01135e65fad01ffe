#include "nn/models/model.h"

#include "tests/nn/nn_check.h"

static const struct ct_shape image = {1, 28, 28};

static ct_graph *build(const struct ct_model_spec *spec)
{
	ct_graph *g = NULL;

	if (ct_model_build(spec, &g) < 0)
		fail_msg("%s", ct_error_message());
	return g;
}

static void assert_params(const ct_graph *g, const char *const *names, size_t n, size_t elems)
{
	assert_int_equal(ct_graph_n_params(g), n);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(ct_graph_param(g, (int)i)->name, names[i]);
	assert_int_equal(ct_graph_n_elems(g), elems);
}

static void test_mlp(void **state)
{
	static const char *const names[] = {"fc1.weight", "fc1.bias",   "fc2.weight",
					    "fc2.bias",   "fc3.weight", "fc3.bias"};
	struct ct_model_spec spec = {
		.name = "mlp", .input = image, .n_outputs = 10, .hidden = (int[]){512, 256}, .n_hidden = 2};

	(void)state;
	ct_graph *g = build(&spec);
	assert_params(g, names, CT_ARRAY_LEN(names), 535818);
	int nodes = ct_graph_n_nodes(g);
	ct_graph_destroy(g);

	spec.dropout = 0.5f;
	g = build(&spec);
	assert_int_equal(ct_graph_n_nodes(g), nodes + 2);
	assert_int_equal(ct_graph_node(g, node_named(g, "drop2"))->in[0], node_named(g, "relu2"));
	ct_graph_destroy(g);

	spec.n_hidden = 0;
	spec.loss = CT_LOSS_MSE;
	g = build(&spec);
	assert_int_equal(ct_graph_n_elems(g), 7850);
	assert_int_equal(ct_graph_node(g, ct_graph_loss(g))->op, CT_OP_MSE);
	ct_graph_destroy(g);

	spec.dropout = -0.5f;
	spec.n_hidden = 2;
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "model mlp: drop1: dropout probability -0.5");
	spec.dropout = 0;
	spec.hidden = (int[]){512, 0};
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "model mlp: fc2: 0 output features");
}

static void test_lenet(void **state)
{
	static const char *const names[] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
					    "fc1.bias",     "fc2.weight", "fc2.bias",     "fc3.weight", "fc3.bias"};
	struct ct_model_spec spec = {.name = "lenet", .input = image, .n_outputs = 10};

	(void)state;
	ct_graph *g = build(&spec);
	assert_params(g, names, CT_ARRAY_LEN(names), 61706);
	ct_graph_destroy(g);
	spec.input = (struct ct_shape){3, 6, 6};
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG,
		     "model lenet: conv2: kernel 5x5 is larger than the padded input 3x3");
}

static void test_convnet(void **state)
{
	static const char *const names[] = {"layer1.0.weight", "layer1.0.bias", "layer1.1.weight", "layer1.1.bias",
					    "layer2.0.weight", "layer2.0.bias", "layer2.1.weight", "layer2.1.bias",
					    "fc.weight",       "fc.bias"};
	struct ct_model_spec spec = {.name = "convnet", .input = image, .n_outputs = 10, .label_smoothing = 0.1f};

	(void)state;
	ct_graph *g = build(&spec);
	assert_params(g, names, CT_ARRAY_LEN(names), 29034); /* as PyTorch's */
	assert_string_equal(ct_graph_buffer(g, 3)->name, "layer2.1.running_var");
	ct_graph_destroy(g);
}

static void test_names(void **state)
{
	struct ct_model_spec spec = {.name = "convnett", .input = image, .n_outputs = 10};
	ct_graph *g = NULL;

	(void)state;
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "unknown model \"convnett\"");
	assert_string_equal(ct_error_hint_text(), "did you mean \"convnet\"?");
	spec.name = "zzzzzzzz";
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "unknown model");
	spec.name = "mlp";
	spec.n_outputs = 0;
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "0 outputs");
	assert_int_equal(ct_model_init("resnet50"), CT_INIT_KAIMING);
	assert_int_equal(ct_model_init("convnet"), CT_INIT_PYTORCH);
}

/* Every model has a builder, whose network ends in the requested number of outputs. */
static void test_every_model(void **state)
{
	struct ct_model_spec spec = {.input = {3, 64, 64},
				     .n_outputs = 7,
				     .hidden = (int[]){8},
				     .n_hidden = 1,
				     .layers = (const char *[]){"flatten", "linear 7"},
				     .n_layers = 2};

	(void)state;
	for (size_t i = 0; (spec.name = ct_model_name_at(i)); i++) {
		ct_graph *g = build(&spec);
		const struct ct_node *loss = ct_graph_node(g, ct_graph_loss(g));

		assert_int_equal(ct_graph_node(g, loss->in[0])->shape.c, 7);
		ct_graph_destroy(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mlp),   cmocka_unit_test(test_lenet),       cmocka_unit_test(test_convnet),
		cmocka_unit_test(test_names), cmocka_unit_test(test_every_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
