/* Splits models into stages, and compares a chain of stages with the complete net. */
#include <math.h>

#include "tests/nn/stage_chain.h"

static void open_cpu(const char *name, ct_device **device, ct_engine **engine)
{
	assert_ok(ct_device_open("cpu", 0, device));
	assert_ok(ct_engine_open(name, *device, 1, engine));
}

static struct chain_engine chain_engine(const char *name)
{
	return (struct chain_engine){name, CT_PRECISION_FP32, 1e-6, 1e-5, 1e-5, open_cpu};
}

static void check_engine(const char *name)
{
	const struct chain_engine engine = chain_engine(name);

	for (int n = 2; n <= 3; n++) {
		check_chain(&engine, CHAIN_BLOCKS, (struct ct_shape){3, 8, 8}, n);
		check_chain(&engine, CHAIN_PLAIN, (struct ct_shape){2, 5, 5}, n);
		check_chain(&engine, CHAIN_CONVS, (struct ct_shape){3, 8, 8}, n);
	}
	check_chain(&engine, CHAIN_PLAIN, (struct ct_shape){2, 5, 5}, 4);
}

static void test_chains(void **state)
{
	(void)state;
	each_engine(check_engine);
}

static ct_graph *resnet(const char *name)
{
	const struct ct_model_spec spec = {
		.name = name, .input = {3, 32, 32}, .n_outputs = 10, .loss = CT_LOSS_CROSS_ENTROPY, .small_stem = true};
	ct_graph *g;

	assert_ok(ct_model_build(&spec, &g));
	return g;
}

/* No cut is inside a block, and no stage has more FLOPs than the mean and one block. */
static void test_cuts(void **state)
{
	ct_graph *g = resnet("resnet18");
	const int most = 10; /* the stem, 8 blocks, and the classifier */
	int first[16];

	(void)state;
	assert_int_equal(ct_graph_cut(g, most + 1, first), CT_CONFIG);
	for (int n = 1; n <= most; n++) {
		double total = 0, largest = 0;

		assert_ok(ct_graph_cut(g, n, first));
		assert_int_equal(first[0], 1);
		assert_int_equal(first[n], ct_graph_n_nodes(g));
		for (int k = 0; k < n; k++) {
			double flops = 0;

			assert_true(first[k] < first[k + 1]);
			for (int id = first[k]; id < first[k + 1]; id++)
				flops += ct_graph_node_flops(g, id);
			largest = fmax(largest, flops);
			total += flops;
			if (k == 0)
				continue;
			const struct ct_node *node = ct_graph_node(g, first[k]);
			assert_true(node->block < 0 || node->block != ct_graph_node(g, first[k] - 1)->block);
		}
		assert_true(total == ct_graph_flops(g));
		assert_true(largest < total / n + total / 7);
	}
	assert_fails(ct_graph_cut(g, most + 1, first), CT_CONFIG, "10 places");
	ct_graph_destroy(g);
}

/* Two micro-batches in one context: the first one's backward pass must not use the second one's values. */
static void test_one_context(void **state)
{
	struct chain c;
	struct chain_data d;
	const struct chain_engine engine = chain_engine("ref");
	ct_graph *g = graph_make((struct ct_shape){2, 5, 5}, CHAIN_PLAIN, CHAIN_CLASSES, CT_LOSS_CROSS_ENTROPY, 0);
	ct_program *second;

	(void)state;
	chain_open(&c, &engine, g, 2);
	chain_data_fill(&d, c.rig[0].device, g);
	assert_ok(ct_program_create_in(c.rig[0].net, c.rig[0].graph, CHAIN_ROWS, CT_TRAIN, 0, &second));
	const struct ct_batch b = {.n = CHAIN_ROWS, .x = d.x, .labels = d.labels, .y = c.y[0][0]};
	assert_ok(ct_program_forward(c.program[0][0], &b));
	assert_ok(ct_program_forward(second, &b));
	const struct ct_backward_opts with = {.scale = 1, .dy = c.dx[1]}, without = {.scale = 1};
	assert_fails(ct_program_backward(c.program[0][0], &with), CT_BUG, "another program");
	/* Without the gradient of the output. */
	assert_fails(ct_program_backward(second, &without), CT_BUG, "opts.dy must be set");
	ct_program_destroy(second);
	chain_data_release(&d, c.rig[0].device);
	chain_close(&c);
	ct_graph_destroy(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_chains),
					   cmocka_unit_test(test_one_context)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
