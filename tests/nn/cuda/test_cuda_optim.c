/* Updates of optimizers and EMA weights on the software GPU against nn/optim on the CPU, to the bit: the kernels have
 * the same formulas and the same order of fp32 operations. The layouts of the arenas differ, so values are compared in
 * the logical layout. */
#include <math.h>

#include "base/clock.h"
#include "nn/engine_impl.h"
#include "nn/optim/optim.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { UPDATES = 4 };

struct side {
	ct_device *device;
	ct_engine *engine;
	ct_net *net;
	ct_optim *optim;
	ct_ema *ema;
	struct ct_step_args *args; /* memory of ct_device_host_alloc */
};

static void open_side(struct side *s, bool cuda, const ct_graph *g, const struct ct_optim_opts *opts)
{
	const struct ct_net_opts net = {.batch = 2, .input = CT_INPUT_F32_NCHW, .train = true};
	void *args;

	*s = (struct side){0};
	open_engine(cuda, &s->device, &s->engine);
	assert_ok(ct_net_create(s->engine, g, &net, &s->net));
	assert_ok(ct_net_init(s->net, CT_INIT_PYTORCH, 1));
	assert_ok(ct_optim_create(s->net, opts, &s->optim));
	assert_ok(ct_ema_create(s->net, 0.9, &s->ema));
	assert_ok(ct_device_host_alloc(s->device, sizeof(*s->args), &args));
	s->args = args;
}

static void close_side(struct side *s)
{
	ct_device_host_free(s->device, s->args);
	ct_ema_destroy(s->ema);
	ct_optim_destroy(s->optim);
	ct_net_destroy(s->net);
	ct_engine_close(s->engine);
	ct_device_close(s->device);
}

/* The same gradients on every engine. */
static void set_gradients(struct side *s, uint32_t update)
{
	const ct_graph *g = ct_net_graph(s->net);
	struct ct_mirror m;

	assert_ok(ct_mirror_open(ct_net_grads(s->net), CT_MIRROR_WRITE, ct_engine_stream(s->engine), &m));
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const size_t n = ct_graph_param(g, i)->n;
		float *x = test_malloc(n * sizeof(*x));

		fill_floats(100 * update + (uint32_t)i, x, n);
		assert_ok(ct_net_import(s->net, &m, i, x));
		test_free(x);
	}
	assert_ok(ct_mirror_close(&m));
}

static void update(struct side *s, uint32_t n)
{
	set_gradients(s, n);
	ct_optim_begin(s->optim, 0.05 / (n + 1), s->args);
	assert_ok(ct_net_post_step_args(s->net, s->args));
	assert_ok(ct_optim_post(s->optim));
	assert_ok(ct_ema_update(s->ema));
	assert_ok(ct_stream_sync(ct_engine_stream(s->engine), CT_FOREVER));
}

static void expect_same(const char *optimizer, const char *what, struct side *a, ct_arena *x, struct side *b,
			ct_arena *y)
{
	const ct_graph *g = ct_net_graph(a->net);
	struct ct_mirror m, k;

	assert_ok(ct_mirror_open(x, CT_MIRROR_READ, ct_engine_stream(a->engine), &m));
	assert_ok(ct_mirror_open(y, CT_MIRROR_READ, ct_engine_stream(b->engine), &k));
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);
		float *u = test_malloc(p->n * sizeof(*u)), *v = test_malloc(p->n * sizeof(*v));

		assert_ok(ct_net_export(a->net, &m, i, u));
		assert_ok(ct_net_export(b->net, &k, i, v));
		for (size_t j = 0; j < p->n; j++) {
			if (memcmp(&u[j], &v[j], sizeof(*u)) != 0)
				fail_msg("%s: %s of %s: element %zu is %.9g and should be %.9g", optimizer, what,
					 p->name, j, (double)u[j], (double)v[j]);
		}
		test_free(v);
		test_free(u);
	}
	assert_ok(ct_mirror_close(&k));
	assert_ok(ct_mirror_close(&m));
}

static void expect_same_norm(struct side *a, struct side *b)
{
	float x, y;

	assert_ok(ct_arena_read(ct_optim_result(a->optim), CT_UPDATE_NORM, 1, &x, ct_engine_stream(a->engine)));
	assert_ok(ct_arena_read(ct_optim_result(b->optim), CT_UPDATE_NORM, 1, &y, ct_engine_stream(b->engine)));
	assert_true(x == y);
}

static void check_optimizer(const char *name, const struct ct_optim_opts *opts)
{
	ct_graph *g =
		graph_make((struct ct_shape){3, 6, 5}, "conv2d 5 kernel=3;batch_norm;relu;flatten;linear 37;linear 3",
			   3, CT_LOSS_CROSS_ENTROPY, 0);
	struct side cuda, cpu;

	open_side(&cuda, true, g, opts);
	open_side(&cpu, false, g, opts);
	for (uint32_t n = 0; n < UPDATES; n++) {
		update(&cuda, n);
		update(&cpu, n);
		expect_same_norm(&cuda, &cpu);
		expect_same(name, "values", &cuda, ct_net_params(cuda.net), &cpu, ct_net_params(cpu.net));
		expect_same(name, "EMA weights", &cuda, ct_ema_params(cuda.ema), &cpu, ct_ema_params(cpu.ema));
		for (int i = 0; i < ct_optim_n_states(opts); i++)
			expect_same(name, ct_optim_state_name(cpu.optim, i), &cuda, ct_optim_state(cuda.optim, i), &cpu,
				    ct_optim_state(cpu.optim, i));
	}
	close_side(&cpu);
	close_side(&cuda);
	ct_graph_destroy(g);
	assert_int_equal(soft_gpu_live(), 0);
}

static void test_optimizers(void **state)
{
	const struct {
		const char *name;
		struct ct_optim_opts opts;
	} cases[] = {
		{"sgd", {.kind = CT_SGD, .weight_decay = 0.01}},
		{"sgd with momentum", {.kind = CT_SGD, .momentum = 0.9, .weight_decay = 0.01, .decay_norm_bias = true}},
		{"sgd with Nesterov momentum, clipped",
		 {.kind = CT_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01, .clip_norm = 0.7}},
		{"adam", {.kind = CT_ADAM, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1}},
		{"adamw", {.kind = CT_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1}},
		{"adamw, clipped", {.kind = CT_ADAMW, .beta1 = 0.8, .beta2 = 0.999, .eps = 1e-6, .clip_norm = 0.3}},
		{"lars", {.kind = CT_LARS, .momentum = 0.9, .weight_decay = 0.01, .trust = 0.02}},
		{"lars, clipped",
		 {.kind = CT_LARS, .momentum = 0.9, .weight_decay = 0.01, .trust = 0.02, .clip_norm = 0.5}},
		{"lamb", {.kind = CT_LAMB, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1}},
		{"lamb, clipped",
		 {.kind = CT_LAMB, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1, .clip_norm = 1}},
	};
	static const char *const names[] = {CT_OPTIMIZERS(CT_CHOICE_NAME) NULL};
	bool found[CT_N_OPTIMIZERS] = {false};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		check_optimizer(cases[i].name, &cases[i].opts);
		found[cases[i].opts.kind] = true;
	}
	for (int kind = 0; kind < CT_N_OPTIMIZERS; kind++) {
		if (!found[kind])
			fail_msg("no case for the optimizer %s", names[kind]);
	}
}

/* The update of an MLP with 784 inputs, whose weights are two chunks, occupies as many multiprocessors as it has
 * thousands of parameters. */
static void test_small_models_use_many_blocks(void **state)
{
	const struct ct_optim_opts opts = {.kind = CT_SGD, .momentum = 0.9};
	uint64_t blocks = soft_gpu_blocks(); /* a real GPU skips the test */
	struct side s;

	(void)state;
	ct_graph *g = graph_make((struct ct_shape){4, 14, 14}, "flatten;linear 128;relu;linear 10", 10,
				 CT_LOSS_CROSS_ENTROPY, 0);
	open_side(&s, true, g, &opts);
	set_gradients(&s, 1);
	ct_optim_begin(s.optim, 0.1, s.args);
	assert_ok(ct_net_post_step_args(s.net, s.args));
	blocks = soft_gpu_blocks();
	assert_ok(ct_optim_post(s.optim));
	assert_in_range(soft_gpu_blocks() - blocks, 100, 120);
	assert_ok(ct_stream_sync(ct_engine_stream(s.engine), CT_FOREVER));
	close_side(&s);
	ct_graph_destroy(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_optimizers),
		cmocka_unit_test(test_small_models_use_many_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
