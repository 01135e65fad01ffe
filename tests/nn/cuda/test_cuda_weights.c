/* The copy of the weights in a 16-bit type, which convolutions read: it must equal the parameters after everything that changes them.
 * Updates and swaps must write it themselves, because recorded steps do nothing else. */
#include <math.h>

#include "base/clock.h"
#include "base/half.h"
#include "nn/cuda/program/program.h"
#include "nn/optim/optim.h"
#include "tests/nn/nn_check.h"
#include "tests/soft_gpu/soft_gpu.h"

extern const struct ct_device_ops ct__device_cuda_ops;

enum { ROWS = 3, FEATURES = 5, CLASSES = 4 };

struct fixture {
	ct_device *device;
	ct_engine *engine;
	ct_graph *graph;
	ct_net *net;
	ct_program *program;
	ct_optim *optim;
	ct_ema *ema;
	ct_arena *scalars;
	struct ct_step_args *args;
	void *x, *labels;
	enum ct_dtype type;
};

static ct_stream *stream_of(struct fixture *f)
{
	return ct_engine_stream(f->engine);
}

static void open_fixture(struct fixture *f, enum ct_precision precision)
{
	const struct ct_net_opts opts = {
		.batch = ROWS, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true, .precision = precision};
	const struct ct_optim_opts optim = {.kind = CT_SGD};
	void *args;

	*f = (struct fixture){.type = cuda_type(precision)};
	assert_ok(ct__device_cuda_ops.open(0, &f->device));
	assert_ok(ct__engine_open_with(&ct__engine_ops_cuda, f->device, 1, &f->engine));
	f->graph = graph_make((struct ct_shape){FEATURES, 1, 1}, "linear 9;relu;linear 4", CLASSES,
			      CT_LOSS_CROSS_ENTROPY, 0);
	assert_ok(ct_net_create(f->engine, f->graph, &opts, &f->net));
	assert_ok(ct_optim_create(f->net, &optim, &f->optim));
	assert_ok(ct_net_init(f->net, CT_INIT_PYTORCH, 1));
	assert_ok(ct_ema_create(f->net, 0.5, &f->ema));
	assert_ok(ct_program_create(f->net, ROWS, CT_TRAIN, &f->program));
	assert_ok(ct_arena_create(f->device, CT_F32, 1, &f->scalars));
	ct_optim_watch_loss(f->optim, f->scalars, 0);
	assert_ok(ct_device_host_alloc(f->device, sizeof(*f->args), &args));
	f->args = args;
	assert_ok(ct_device_host_alloc(f->device, ROWS * FEATURES * sizeof(float), &f->x));
	assert_ok(ct_device_host_alloc(f->device, ROWS * sizeof(int32_t), &f->labels));
	fill_floats(1, f->x, (size_t)ROWS * FEATURES);
	fill_labels(2, f->labels, ROWS, CLASSES);
}

static void close_fixture(struct fixture *f)
{
	ct_device_host_free(f->device, f->labels);
	ct_device_host_free(f->device, f->x);
	ct_device_host_free(f->device, f->args);
	ct_arena_destroy(f->scalars);
	ct_program_destroy(f->program);
	ct_ema_destroy(f->ema);
	ct_optim_destroy(f->optim);
	ct_net_destroy(f->net);
	ct_graph_destroy(f->graph);
	ct_engine_close(f->engine);
	ct_device_close(f->device);
	assert_int_equal(soft_gpu_live(), 0);
}

static void forward(struct fixture *f)
{
	const struct ct_batch b = {.n = ROWS, .x = f->x, .labels = f->labels};

	assert_ok(ct_program_forward(f->program, &b));
}

static void backward(struct fixture *f)
{
	assert_ok(ct_program_backward(f->program, &(struct ct_backward_opts){.scale = 1.0f / ROWS}));
}

static void update(struct fixture *f)
{
	ct_optim_begin(f->optim, 0.5, f->args);
	assert_ok(ct_net_post_step_args(f->net, f->args));
	assert_ok(ct_optim_post(f->optim));
	assert_ok(ct_stream_sync(stream_of(f), CT_FOREVER));
}

/* Changes the parameters as a load of a checkpoint does. */
static void import(struct fixture *f, uint32_t seed)
{
	const size_t n = ct_graph_param(f->graph, 0)->n;
	float *values = test_malloc(n * sizeof(*values));
	struct ct_mirror m;

	fill_floats(seed, values, n);
	assert_ok(ct_mirror_open(ct_net_params(f->net), CT_MIRROR_WRITE, stream_of(f), &m));
	assert_ok(ct_net_import(f->net, &m, 0, values));
	assert_ok(ct_mirror_close(&m));
	test_free(values);
}

/* The copy in device memory, and the parameters that it should equal. */
static void expect_copy(struct fixture *f, const char *after)
{
	const struct cuda_net *cn = f->net->impl;
	const size_t n = ct_net_arena_elems(f->net);
	struct ct_mirror m;
	void *copy;

	assert_ok(ct_device_host_alloc(f->device, n * sizeof(uint16_t), &copy));
	assert_ok(ct_device_copy(f->device, copy, cn->weights, n * sizeof(uint16_t), stream_of(f)));
	assert_ok(ct_mirror_open(ct_net_params(f->net), CT_MIRROR_READ, stream_of(f), &m));
	for (size_t i = 0; i < n; i++) {
		const float p = ((const float *)m.data)[i];
		const uint16_t want = f->type == CT_F16 ? ct_f16_from_f32(p) : ct_bf16_from_f32(p);

		if (((const uint16_t *)copy)[i] != want)
			fail_msg("after %s: the copy of element %zu is 0x%04x and should be 0x%04x", after, i,
				 ((const uint16_t *)copy)[i], want);
	}
	assert_ok(ct_mirror_close(&m));
	ct_device_host_free(f->device, copy);
}

static void check_copy(enum ct_precision precision)
{
	struct fixture f;

	open_fixture(&f, precision);
	forward(&f);
	expect_copy(&f, "the initialization and a forward pass");
	backward(&f);
	update(&f);
	expect_copy(&f, "an update");
	assert_ok(ct_ema_swap(f.ema));
	expect_copy(&f, "a swap with the EMA weights");
	assert_ok(ct_ema_swap(f.ema));
	expect_copy(&f, "a second swap");
	import(&f, 7);
	forward(&f);
	expect_copy(&f, "an import and a forward pass");
	import(&f, 8);
	update(&f);
	expect_copy(&f, "an import and an update");
	import(&f, 9);
	assert_ok(ct_arena_write(f.scalars, 0, 1, &(float){NAN}, stream_of(&f)));
	update(&f);
	expect_copy(&f, "an import and an update that does nothing");
	close_fixture(&f);
}

static void test_copy_of_weights(void **state)
{
	(void)state;
	check_copy(CT_PRECISION_BF16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy_of_weights)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
