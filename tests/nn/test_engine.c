/* The wrappers that every engine uses: registry, order of calls, checks of batches. */
#include "nn/engine_impl.h"

#include "tests/nn/nn_check.h"

static const char *const layers = "conv2d 4 kernel=3;batch_norm;relu;flatten;linear 7;dropout 0.5;linear 3";
static const struct ct_shape shape = {2, 5, 5};
#define ROWS 4

struct data {
	float x[ROWS * 50];
	int32_t labels[ROWS];
};

static struct ct_batch make_batch(struct data *d)
{
	fill_floats(1, d->x, CT_ARRAY_LEN(d->x));
	fill_labels(2, d->labels, ROWS, 3);
	return (struct ct_batch){.n = ROWS, .x = d->x, .labels = d->labels};
}

static void open_rig(struct rig *r, const char *engine, bool train)
{
	struct ct_net_opts opts = {.batch = ROWS, .input = CT_INPUT_F32_NCHW, .train = train};

	rig_open(r, engine, graph_make(shape, layers, 3, CT_LOSS_CROSS_ENTROPY, 0), &opts);
}

static unsigned computes_all_but_dropout(enum ct_op op)
{
	return op == CT_OP_DROPOUT ? 0 : op == CT_OP_RELU ? CT_IN(FP32) : CT_IN_ALL;
}

static enum ct_status refuse_linear(const ct_graph *g, int node)
{
	return ct_graph_node(g, node)->op == CT_OP_LINEAR ? CT_FAIL(CT_UNSUPPORTED, "too wide") : CT_OK;
}

/* An engine states what it computes before anything runs. */
static void test_operations(void **state)
{
	ct_graph *g = graph_make(shape, layers, 3, CT_LOSS_CROSS_ENTROPY, 0);
	struct ct_net_opts opts = {.batch = ROWS, .input = CT_INPUT_F32_NCHW, .contexts = 1};
	struct ct_engine_ops ops = ct__engine_ops_ref;
	ct_engine *engine = NULL;
	ct_device *device;
	ct_net *net;

	(void)state;
	ops.computes = computes_all_but_dropout;
	assert_ok(ct_device_open("cpu", 0, &device));
	assert_ok(ct__engine_open_with(&ops, device, 1, &engine));
	assert_fails(ct_engine_check_graph(engine, g, CT_PRECISION_FP32), CT_UNSUPPORTED,
		     "drop1: the engine \"ref\" does not compute dropout in fp32");
	assert_non_null(strstr(ct_error_hint_text(), "use train.engine="));
	assert_fails(ct_engine_check_graph(engine, g, CT_PRECISION_BF16), CT_UNSUPPORTED,
		     "relu1: the engine \"ref\" does not compute relu in bf16");
	assert_non_null(strstr(ct_error_hint_text(), "use precision=fp32"));
	assert_fails(ct_net_create(engine, g, &opts, &net), CT_UNSUPPORTED, "drop1: ");
	ops.computes = ct__engine_ops_ref.computes;
	assert_ok(ct_engine_check_graph(engine, g, CT_PRECISION_FP32));
	ops.check_node = refuse_linear;
	assert_fails(ct_engine_check_graph(engine, g, CT_PRECISION_FP32), CT_UNSUPPORTED, "too wide");
	ct_engine_close(engine);

	assert_ok(ct_engine_check_model("auto", device, g, CT_PRECISION_FP32));
	assert_fails(ct_engine_check_model("ref", device, g, CT_PRECISION_BF16), CT_UNSUPPORTED, "fp32 only");
	assert_fails(ct_engine_check_model("gpu9", device, g, CT_PRECISION_FP32), CT_UNSUPPORTED, "not available");
	ct_device_close(device);
	ct_graph_destroy(g);
}

/* Today every engine computes every operation. An engine without one is listed here, and its users get an error. */
static void assert_computes_all(const ct_engine *engine)
{
	for (enum ct_op op = 0; op < CT_N_OPS; op++) {
		if (!(engine->ops->computes(op) & CT_IN(FP32)))
			fail_msg("the engine %s does not compute %s", engine->ops->name, ct_op_name(op));
	}
}

static void test_registry(void **state)
{
	ct_device *device;
	ct_engine *engine = NULL;
	const char *name = NULL;
	bool available = false, has_ref = false;
	char why[512];
	size_t i = 0;

	(void)state;
	assert_ok(ct_device_open("cpu", 0, &device));
	for (; ct_engine_at(i, &name, &available, why, sizeof(why)); i++) {
		has_ref |= available && !strcmp(name, "ref");
		if (available) {
			assert_ok(ct_engine_open(name, device, 1, &engine));
			assert_string_equal(engine->ops->name, name);
			assert_computes_all(engine);
			assert_string_equal(ct_engine_version(engine), why);
			ct_engine_close(engine);
		} else {
			assert_fails(ct_engine_open(name, device, 1, &engine), CT_UNSUPPORTED, why);
			assert_non_null(strstr(ct_error_hint_text(), "ref"));
		}
	}
	assert_true(has_ref);
	assert_ok(ct_engine_open("auto", device, 1, &engine));
	ct_engine_close(engine);
	assert_fails(ct_engine_open("gpu9", device, 1, &engine), CT_UNSUPPORTED, "engine \"gpu9\" is not available");
	assert_fails(ct_engine_open("ref", device, 0, &engine), CT_CONFIG, "at least 1 thread");
	ct_engine_close(NULL);
	ct_device_close(device);
}

static void check_batches(const char *engine)
{
	struct rig r;
	struct data d;
	struct ct_metrics m = {0};
	struct ct_backward_opts back = {.scale = 1};
	struct ct_batch good = make_batch(&d), b = good;
	ct_program *eval;

	open_rig(&r, engine, true);
	assert_ok(ct_program_create(r.net, ROWS, CT_EVAL, &eval));
	b.n = ROWS - 1;
	assert_fails(forward_now(r.program, &b, &m), CT_BUG, "3 rows cannot run on a training program for 4");
	assert_ok(forward_now(eval, &b, &m));
	assert_int_equal(m.count, 3);
	b.n = ROWS + 1;
	assert_fails(forward_now(eval, &b, &m), CT_BUG, "5 rows");
	b = good;
	b.labels = NULL;
	assert_fails(forward_now(eval, &b, &m), CT_DATA, "class labels");
	b = good;
	d.labels[2] = 3;
	assert_fails(forward_now(r.program, &b, &m), CT_DATA,
		     "row 2 of the batch has label 3, but the model has 3 classes");
	d.labels[2] = -1;
	assert_fails(forward_now(r.program, &b, &m), CT_DATA, "label -1");
	d.labels[2] = 1;
	b.n = 0;
	assert_ok(forward_now(eval, &b, &m));
	assert_int_equal(m.count, 3);

	assert_fails(ct_program_backward(r.program, &back), CT_BUG, "backward must follow a forward");
	assert_ok(forward_now(r.program, &good, &m));
	assert_ok(ct_program_backward(r.program, &back));
	assert_fails(ct_program_backward(r.program, &back), CT_BUG, "backward must follow a forward");
	assert_ok(forward_now(eval, &good, &m));
	assert_fails(ct_program_backward(eval, &back), CT_BUG, "training program");
	ct_program_destroy(eval);
	rig_close(&r);
}

static void test_batches(void **state)
{
	(void)state;
	each_engine(check_batches);
}

static void check_opts(const char *engine)
{
	struct rig r;
	ct_program *p = NULL;
	ct_net *net = NULL;
	struct ct_net_opts opts = {.batch = 0, .input = CT_INPUT_F32_NCHW};

	open_rig(&r, engine, false);
	assert_fails(ct_program_create(r.net, ROWS, CT_TRAIN, &p), CT_BUG, "made for evaluation");
	assert_fails(ct_program_create(r.net, 0, CT_EVAL, &p), CT_CONFIG, "batch size 0");
	assert_null(on_host(ct_net_grads(r.net)));
	assert_fails(ct_net_create(r.engine, r.graph, &opts, &net), CT_CONFIG, "batch size 0");
	opts = (struct ct_net_opts){.batch = 2, .input = CT_INPUT_U8_NHWC, .std = {1, 0}};
	assert_fails(ct_net_create(r.engine, r.graph, &opts, &net), CT_CONFIG,
		     "channel 1: cannot normalize with mean 0 and standard deviation 0");
	rig_close(&r);

	ct_graph *wide = graph_make((struct ct_shape){5, 2, 2}, "linear 3", 3, CT_LOSS_MSE, 0);
	assert_ok(ct_device_open("cpu", 0, &r.device));
	assert_ok(ct_engine_open(engine, r.device, 1, &r.engine));
	assert_fails(ct_net_create(r.engine, wide, &opts, &net), CT_CONFIG,
		     "1 to 4 channels, but the model's input has 5");
	ct_graph_destroy(wide);

	ct_graph *norm = graph_make((struct ct_shape){6, 1, 1}, "linear 4;batch_norm;linear 3", 3, CT_LOSS_MSE, 0);
	opts = (struct ct_net_opts){.batch = 1, .input = CT_INPUT_F32_NCHW, .train = true};
	assert_ok(ct_net_create(r.engine, norm, &opts, &net));
	assert_fails(ct_program_create(net, 1, CT_TRAIN, &p), CT_CONFIG,
		     "bn1: batch norm has only one value per channel");
	ct_net_destroy(net);
	ct_graph_destroy(norm);
	ct_engine_close(r.engine);
	ct_device_close(r.device);
}

static void test_options(void **state)
{
	(void)state;
	each_engine(check_opts);
}

static void check_no_allocation(const char *engine)
{
	struct rig r;
	struct data d;
	struct ct_batch b = make_batch(&d);
	struct ct_metrics m = {0};
	struct ct_backward_opts first = {.scale = 0.5f}, second = {.scale = 0.5f, .accumulate = true};
	uint64_t before = 0;

	open_rig(&r, engine, true);
	for (int step = 0; step < 4; step++) {
		if (step == 1)
			before = ct_mem_count();
		set_step(r.net, (uint64_t)step);
		assert_ok(forward_now(r.program, &b, &m));
		assert_ok(ct_program_backward(r.program, &first));
		assert_ok(forward_now(r.program, &b, &m));
		assert_ok(ct_program_backward(r.program, &second));
	}
	assert_int_equal(ct_mem_count(), before);
	rig_close(&r);
}

static void test_a_step_allocates_nothing(void **state)
{
	(void)state;
	each_engine(check_no_allocation);
}

static void check_profile(const char *engine)
{
	struct rig r;
	struct data d;
	struct ct_batch b = make_batch(&d);
	struct ct_metrics m = {0};
	struct ct_backward_opts back = {.scale = 1};
	double forward = 0, backward = 0, f, w;

	open_rig(&r, engine, true);
	assert_fails(ct_program_times(r.program, 1, &f, &w), CT_BUG, "profiling is off");
	ct_program_profile(r.program, true);
	assert_ok(forward_now(r.program, &b, &m));
	assert_ok(ct_program_backward(r.program, &back));
	for (int id = 0; id < ct_graph_n_nodes(r.graph); id++) {
		assert_ok(ct_program_times(r.program, id, &f, &w));
		forward += f;
		backward += w;
	}
	assert_true(forward > 0 && backward > 0);
	rig_close(&r);
}

static void test_profile(void **state)
{
	(void)state;
	each_engine(check_profile);
}

/* Runs make() with its n-th allocation failing, for n = 1, 2, ... until it succeeds. */
static void check_out_of_memory(const char *engine)
{
	struct ct_net_opts opts = {.batch = ROWS, .input = CT_INPUT_F32_NCHW, .train = true};
	ct_graph *g = graph_make(shape, layers, 3, CT_LOSS_CROSS_ENTROPY, 0);
	struct rig r;
	int failures = 0;

	assert_ok(ct_device_open("cpu", 0, &r.device));
	assert_ok(ct_engine_open(engine, r.device, 1, &r.engine));
	for (uint64_t n = 1;; n++) {
		ct_net *net = NULL;
		ct_program *p = NULL;

		ct_mem_fail_after(n);
		enum ct_status st = ct_net_create(r.engine, g, &opts, &net);
		if (st == CT_OK)
			st = ct_program_create(net, ROWS, CT_TRAIN, &p);
		ct_mem_fail_after(0);
		ct_program_destroy(p);
		ct_net_destroy(net);
		if (st == CT_OK)
			break;
		assert_int_equal(st, CT_NOMEM);
		failures++;
	}
	assert_true(failures > 5);
	ct_engine_close(r.engine);
	ct_device_close(r.device);
	ct_graph_destroy(g);
}

static void test_out_of_memory_leaves_nothing(void **state)
{
	(void)state;
	each_engine(check_out_of_memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_registry),
		cmocka_unit_test(test_batches),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_a_step_allocates_nothing),
		cmocka_unit_test(test_profile),
		cmocka_unit_test(test_out_of_memory_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
