/* Residual networks: published sizes, names and shapes, stem, stochastic depth, initial values. */
#include <math.h>

#include "tests/nn/nn_check.h"

static ct_graph *build(const struct ct_model_spec *spec)
{
	ct_graph *g = NULL;

	if (ct_model_build(spec, &g) < 0)
		fail_msg("%s", ct_error_message());
	return g;
}

/* Multiply-adds of convolutions and the classifier, as torchvision and the papers count. */
static double macs(const ct_graph *g)
{
	double sum = 0;

	for (int i = 0; i < ct_graph_n_nodes(g); i++) {
		enum ct_op op = ct_graph_node(g, i)->op;

		if (op == CT_OP_CONV2D || op == CT_OP_LINEAR)
			sum += ct_graph_node_flops(g, i) / 2;
	}
	return sum;
}

/* num_params and _ops of torchvision's weight tables (224x224, 1000 classes); for the CIFAR nets the counts of option B
 * and 10 classes: those of the paper's 0.27, 0.46, 0.66 and 0.85 million plus the two projections. */
static void test_sizes(void **state)
{
	static const struct {
		const char *name;
		int image, classes;
		size_t params;
		double gmacs;
	} nets[] = {
		{"resnet18", 224, 1000, 11689512, 1.814},
		{"resnet34", 224, 1000, 21797672, 3.664},
		{"resnet50", 224, 1000, 25557032, 4.089},
		{"resnet101", 224, 1000, 44549160, 7.801},
		{"resnet152", 224, 1000, 60192808, 11.514},
		{"resnext50_32x4d", 224, 1000, 25028904, 4.230},
		{"wide_resnet50_2", 224, 1000, 68883240, 11.398},
		{"resnet20", 32, 10, 272474, 0.041},
		{"resnet32", 32, 10, 466906, 0.069},
		{"resnet44", 32, 10, 661338, 0.098},
		{"resnet56", 32, 10, 855770, 0.126},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(nets); i++) {
		struct ct_model_spec spec = {
			.name = nets[i].name, .input = {3, nets[i].image, nets[i].image}, .n_outputs = nets[i].classes};
		ct_graph *g = build(&spec);

		assert_int_equal(ct_graph_n_elems(g), nets[i].params);
		if (fabs(macs(g) * 1e-9 - nets[i].gmacs) > 0.0006)
			fail_msg("%s: %.4f GMACs, published are %.3f", nets[i].name, macs(g) * 1e-9, nets[i].gmacs);
		ct_graph_destroy(g);
	}
}

static void assert_shape(const ct_graph *g, const char *node, int c, int h)
{
	struct ct_shape s = ct_graph_node(g, node_named(g, node))->shape;

	assert_int_equal(s.c, c);
	assert_int_equal(s.h, h);
	assert_int_equal(s.w, h);
}

static void test_shapes(void **state)
{
	struct ct_model_spec spec = {.name = "resnet50", .input = {3, 224, 224}, .n_outputs = 1000};

	(void)state;
	ct_graph *g = build(&spec);
	assert_shape(g, "conv1", 64, 112);
	assert_shape(g, "maxpool", 64, 56);
	/* v1.5: the 3x3 strides, the 1x1 before it does not. */
	assert_shape(g, "layer2.0.conv1", 128, 56);
	assert_shape(g, "layer2.0.conv2", 128, 28);
	assert_shape(g, "layer2.0.downsample.0", 512, 28);
	assert_shape(g, "layer4.2.relu", 2048, 7);
	assert_int_equal(ct_graph_node(g, node_named(g, "conv1"))->block, -1);
	assert_int_equal(ct_graph_node(g, node_named(g, "layer1.0.conv1"))->block, 0);
	assert_int_equal(ct_graph_node(g, node_named(g, "layer4.2.relu"))->block, 15);
	assert_int_equal(ct_graph_node(g, node_named(g, "avgpool"))->block, -1);
	ct_graph_destroy(g);

	spec = (struct ct_model_spec){.name = "resnet18", .input = {3, 32, 32}, .n_outputs = 10, .small_stem = true};
	g = build(&spec);
	assert_shape(g, "conv1", 64, 32);
	assert_shape(g, "layer1.0.conv1", 64, 32);
	assert_shape(g, "layer4.1.relu", 512, 4);
	assert_int_equal(ct_graph_n_elems(g), 11173962); /* as pytorch-cifar's ResNet18 */
	ct_graph_destroy(g);

	/* As in torchvision the padding carries an image of any size through. */
	spec = (struct ct_model_spec){.name = "resnet18", .input = {3, 1, 3}, .n_outputs = 10};
	g = build(&spec);
	assert_shape(g, "layer4.1.relu", 512, 1);
	ct_graph_destroy(g);
}

static void test_zero_gamma(void **state)
{
	struct ct_model_spec spec = {.name = "resnet50", .input = {3, 32, 32}, .n_outputs = 10, .zero_gamma = true};
	int n = 0;

	(void)state;
	ct_graph *g = build(&spec);
	for (int i = 0; i < ct_graph_n_nodes(g); i++) {
		const struct ct_node *node = ct_graph_node(g, i);
		const char *dot = strrchr(node->name, '.');
		bool last = dot && !strcmp(dot, ".bn3");

		assert_int_equal(node->zero_gamma, last);
		n += last;
	}
	assert_int_equal(n, 16);
	ct_graph_destroy(g);
}

static void test_drop_path(void **state)
{
	struct ct_model_spec spec = {.name = "resnet18", .input = {3, 32, 32}, .n_outputs = 10, .drop_path = 0.21f};
	ct_graph *g = build(&spec);
	int n = 0;

	(void)state;
	for (int i = 0; i < ct_graph_n_nodes(g); i++) {
		const struct ct_node *node = ct_graph_node(g, i);

		if (node->op != CT_OP_DROP_PATH)
			continue;
		n++; /* the first block has none */
		assert_float_equal(node->p, 0.03 * n, 1e-6);
		assert_int_equal(node->block, n);
		assert_int_equal(ct_graph_node(g, node->in[0])->op, CT_OP_BATCH_NORM);
	}
	assert_int_equal(n, 7);
	ct_graph_destroy(g);
	g = NULL;
	spec.drop_path = 1;
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "must be in [0, 1)");
	spec.drop_path = NAN;
	assert_fails(ct_model_build(&spec, &g), CT_CONFIG, "must be in [0, 1)");
}

/* torchvision's: He et al. with fan out on convolutions (groups do not divide it), PyTorch's default on fc. */
static void test_init(void **state)
{
	struct ct_model_spec spec = {
		.name = "resnext50_32x4d", .input = {3, 32, 32}, .n_outputs = 1000, .zero_gamma = true};
	struct ct_net_opts opts = {.batch = 1, .input = CT_INPUT_F32_NCHW};
	struct rig r;

	(void)state;
	rig_open(&r, "ref", build(&spec), &opts);
	assert_ok(ct_net_init(r.net, CT_INIT_KAIMING, 5));
	for (int i = 0; i < ct_graph_n_params(r.graph); i++) {
		const struct ct_param *p = ct_graph_param(r.graph, i);
		float *x = export_param(r.net, on_host(ct_net_params(r.net)), i);
		double sum = 0, squares = 0, n = (double)p->n, most = 0;

		for (size_t k = 0; k < p->n; k++) {
			sum += (double)x[k];
			squares += (double)x[k] * (double)x[k];
			most = fmax(most, fabs((double)x[k]));
		}
		if (p->kind == CT_PARAM_WEIGHT && p->ndim == 4) {
			double var = 2.0 / (p->dims[0] * p->dims[2] * p->dims[3]);

			assert_float_equal(squares / n / var, 1, 6 * sqrt(2 / n));
			assert_float_equal(sum / n / sqrt(var), 0, 6 / sqrt(n));
		} else if (p->kind == CT_PARAM_WEIGHT) {
			assert_true(most <= 1 / sqrt(2048.0) && most > 0.999 / sqrt(2048.0));
		} else if (p->kind == CT_PARAM_BN_WEIGHT) {
			bool zero = ct_graph_node(r.graph, p->node)->zero_gamma;

			assert_true(sum == (zero ? 0 : n));
		}
		ct_free(x);
	}
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),     cmocka_unit_test(test_shapes), cmocka_unit_test(test_zero_gamma),
		cmocka_unit_test(test_drop_path), cmocka_unit_test(test_init),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
