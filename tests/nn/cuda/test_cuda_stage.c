/* The CUDA engine computes stages of a model, without and with fusion: compares a chain of stages with the complete
 * net. */
#include "base/clock.h"
#include "nn/cuda/program/program.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/nn/stage_chain.h"

static int level;

static void open_cuda(const char *name, ct_device **device, ct_engine **engine)
{
	(void)name;
	assert_int_equal(setenv("CTRAIN_CUDA_LEVEL", level == 0 ? "0" : "1", 1), 0);
	open_engine(true, device, engine);
}

static void check_engine(const struct chain_engine *e)
{
	for (level = 0; level < 2; level++) {
		for (int n = 2; n <= 3; n++) {
			check_chain(e, CHAIN_BLOCKS, (struct ct_shape){3, 8, 8}, n);
			check_chain(e, CHAIN_PLAIN, (struct ct_shape){2, 5, 5}, n);
			check_chain(e, CHAIN_CONVS, (struct ct_shape){3, 8, 8}, n);
		}
		check_chain(e, CHAIN_PLAIN, (struct ct_shape){2, 5, 5}, 4);
	}
}

static void test_fp32(void **state)
{
	(void)state;
	check_engine(&(struct chain_engine){"cuda", CT_PRECISION_FP32, 1e-6, 1e-5, 1e-5, open_cuda});
}

/* The values that pass between stages have the type of activations, so that converting them to fp32 and back changes
 * nothing. */
static void test_bf16(void **state)
{
	(void)state;
	check_engine(&(struct chain_engine){"cuda", CT_PRECISION_BF16, 1e-6, 1e-5, 1e-5, open_cuda});
}

/* A program that is created between the two passes of another context may need a larger workspace, which then moves. */
static void test_moved_workspace(void **state)
{
	const struct chain_engine e = {"cuda", CT_PRECISION_FP32, 1e-6, 1e-5, 1e-5, open_cuda};
	ct_graph *g = graph_make((struct ct_shape){3, 8, 8}, CHAIN_BLOCKS, CHAIN_CLASSES, CT_LOSS_CROSS_ENTROPY, 0);
	struct chain_data d;
	struct chain c;
	ct_program *larger;

	(void)state;
	chain_open(&c, &e, g, 2);
	chain_data_fill(&d, c.rig[0].device, g);
	const struct ct_batch b = {.n = CHAIN_ROWS, .x = d.x, .y = c.y[0][0]};
	const struct ct_backward_opts back = {.scale = 1, .dy = c.dx[1]};
	const struct cuda_program *p = (const struct cuda_program *)c.program[0][0];
	const struct cuda_net *net = c.rig[0].net->impl;

	assert_ok(ct_program_forward(c.program[0][0], &b));
	assert_ok(ct_program_create_in(c.rig[0].net, c.rig[0].graph, 4 * CHAIN_ROWS, CT_TRAIN, 1, &larger));
	assert_int_not_equal(p->bound_blocks, net->n_blocks);
	assert_ok(ct_program_backward(c.program[0][0], &back));
	assert_int_equal(p->bound_blocks, net->n_blocks);
	assert_ok(ct_stream_sync(ct_engine_stream(c.rig[0].engine), CT_FOREVER));
	ct_program_destroy(larger);
	chain_data_release(&d, c.rig[0].device);
	chain_close(&c);
	ct_graph_destroy(g);
}

/* Each stage would have a separate loss scale. */
static void test_fp16_is_refused(void **state)
{
	const struct ct_net_opts opts = {.batch = 2,
					 .input = CT_INPUT_F32_NCHW,
					 .train = true,
					 .input_gradient = true,
					 .precision = CT_PRECISION_FP16};
	ct_graph *g = graph_make((struct ct_shape){2, 5, 5}, CHAIN_PLAIN, CHAIN_CLASSES, CT_LOSS_CROSS_ENTROPY, 0);
	ct_device *device;
	ct_engine *engine;
	ct_net *net;

	(void)state;
	open_cuda("cuda", &device, &engine);
	assert_fails(ct_net_create(engine, g, &opts, &net), CT_UNSUPPORTED, "fp16");
	ct_engine_close(engine);
	ct_device_close(device);
	ct_graph_destroy(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp32), cmocka_unit_test(test_bf16),
					   cmocka_unit_test(test_moved_workspace),
					   cmocka_unit_test(test_fp16_is_refused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
