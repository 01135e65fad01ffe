/* The CUDA engine against the engine "ref" in the cases of tests/nn/op_cases.c: a training step with and without accumulation, running
 * statistics, an update of the optimizer and an evaluation. On the software GPU, with the stand-in of cuDNN. */
#include <math.h>

#include "base/clock.h"
#include "nn/engine_impl.h"
#include "nn/optim/optim.h"
#include "tests/nn/nn_check.h"
#include "tests/nn/op_cases.h"
#include "tests/soft_gpu/soft_gpu.h"

extern const struct ct_device_ops ct__device_cuda_ops;

enum { TRAINING_STEPS = 2 };

struct side {
	ct_device *device;
	ct_engine *engine;
	ct_net *net;
	ct_program *train, *eval;
	ct_optim *optim;
	ct_arena *scalars;
	void *x, *labels, *labels_b, *mix, *targets; /* memory of ct_device_host_alloc */
	struct ct_step_args *args;
};

static void *pinned(ct_device *d, const void *from, size_t n)
{
	void *p;

	assert_ok(ct_device_host_alloc(d, n, &p));
	memcpy(p, from, n);
	return p;
}

static size_t row_elems(const struct op_case *c)
{
	return (size_t)c->input.c * (size_t)c->input.h * (size_t)c->input.w;
}

static void fill_batch(struct side *s, const struct op_case *c, bool bytes)
{
	const size_t n = row_elems(c) * (size_t)c->batch, rows = (size_t)c->batch;
	float *x = CT_NEW_ARRAY(float, n), *targets = CT_NEW_ARRAY(float, rows *(size_t)c->n_outputs),
	      *mix = CT_NEW_ARRAY(float, rows);
	uint8_t *u8 = CT_NEW_ARRAY(uint8_t, n);
	int32_t *labels = CT_NEW_ARRAY(int32_t, rows), *labels_b = CT_NEW_ARRAY(int32_t, rows);

	fill_floats(1, x, n);
	fill_bytes(2, u8, n);
	fill_labels(3, labels, rows, c->n_outputs);
	fill_labels(4, labels_b, rows, c->n_outputs);
	fill_shares(5, mix, rows);
	fill_floats(6, targets, rows * (size_t)c->n_outputs);
	s->x = bytes ? pinned(s->device, u8, n) : pinned(s->device, x, n * sizeof(*x));
	s->labels = pinned(s->device, labels, rows * sizeof(*labels));
	s->labels_b = pinned(s->device, labels_b, rows * sizeof(*labels_b));
	s->mix = pinned(s->device, mix, rows * sizeof(*mix));
	s->targets = pinned(s->device, targets, rows * (size_t)c->n_outputs * sizeof(*targets));
	ct_free(labels_b);
	ct_free(labels);
	ct_free(u8);
	ct_free(mix);
	ct_free(targets);
	ct_free(x);
}

/* CT_UNSUPPORTED from a program leaves the side open. */
static enum ct_status open_side(struct side *s, bool cuda, const ct_graph *g, const struct op_case *c, bool bytes)
{
	const struct ct_net_opts opts = {.batch = c->batch,
					 .input = bytes ? CT_INPUT_U8_NHWC : CT_INPUT_F32_NCHW,
					 .mean = {0.4f, 0.5f, 0.6f, 0.7f},
					 .std = {0.2f, 0.3f, 0.4f, 0.5f},
					 .seed = 5,
					 .train = true};
	const struct ct_optim_opts optim = {
		.kind = CT_SGD, .momentum = 0.9, .weight_decay = 0.01, .clip_norm = 1, .decay_norm_bias = true};
	void *args;

	*s = (struct side){0};
	if (cuda) {
		assert_ok(ct__device_cuda_ops.open(0, &s->device));
		assert_ok(ct__engine_open_with(&ct__engine_ops_cuda, s->device, 1, &s->engine));
	} else {
		assert_ok(ct_device_open("cpu", 0, &s->device));
		assert_ok(ct_engine_open("ref", s->device, 1, &s->engine));
	}
	assert_ok(ct_net_create(s->engine, g, &opts, &s->net));
	assert_ok(ct_net_init(s->net, CT_INIT_PYTORCH, 1));
	fill_batch(s, c, bytes);
	assert_ok(ct_device_host_alloc(s->device, sizeof(*s->args), &args));
	s->args = args;
	assert_ok(ct_arena_create(s->device, CT_F32, 1, &s->scalars));
	assert_ok(ct_optim_create(s->net, &optim, &s->optim));
	ct_optim_watch_loss(s->optim, s->scalars, 0);
	CT_TRY(ct_program_create(s->net, c->batch, CT_TRAIN, &s->train));
	return ct_program_create(s->net, c->batch, CT_EVAL, &s->eval);
}

static void close_side(struct side *s)
{
	void *host[] = {s->x, s->labels, s->labels_b, s->mix, s->targets, s->args};

	ct_program_destroy(s->eval);
	ct_program_destroy(s->train);
	ct_optim_destroy(s->optim);
	ct_arena_destroy(s->scalars);
	for (size_t i = 0; i < CT_ARRAY_LEN(host); i++)
		ct_device_host_free(s->device, host[i]);
	ct_net_destroy(s->net);
	ct_engine_close(s->engine);
	ct_device_close(s->device);
}

static struct ct_batch batch_of(const struct side *s, const struct op_case *c, int n)
{
	return (struct ct_batch){.n = n,
				 .x = s->x,
				 .labels = s->labels,
				 .labels_b = c->mixed ? s->labels_b : NULL,
				 .mix = c->mixed ? s->mix : NULL,
				 .targets = s->targets,
				 .first = 100};
}

static void train(struct side *s, const struct op_case *c, int step)
{
	const struct ct_batch b = batch_of(s, c, c->batch);

	s->args->step = (uint64_t)step;
	ct_optim_begin(s->optim, 0.05, s->args);
	assert_ok(ct_net_post_step_args(s->net, s->args));
	for (int micro = 0; micro < 2; micro++) {
		const struct ct_backward_opts back = {.scale = 0.5f / (float)c->batch, .accumulate = micro > 0};

		assert_ok(ct_program_forward(s->train, &b));
		if (micro == 1)
			assert_ok(ct_net_post_loss(s->net, s->scalars, 0));
		assert_ok(ct_program_backward(s->train, &back));
	}
	assert_ok(ct_optim_post(s->optim));
	assert_ok(ct_stream_sync(ct_engine_stream(s->engine), CT_FOREVER));
}

static double largest(const float *x, size_t n)
{
	double max = 0;

	for (size_t i = 0; i < n; i++)
		max = fabs((double)x[i]) > max ? fabs((double)x[i]) : max;
	return max;
}

static void compare(const struct op_case *c, const char *what, const float *got, const float *want, size_t n,
		    double floor)
{
	const double limit = 3e-4 * (largest(want, n) + floor);

	for (size_t i = 0; i < n; i++) {
		if (!(fabs((double)got[i] - (double)want[i]) <= limit))
			fail_msg("%s: %s: element %zu of %zu is %g and should be %g", c->name, what, i, n,
				 (double)got[i], (double)want[i]);
	}
}

/* The logical values of a parameter, owned. */
static float *export_one(struct side *s, ct_arena *a, int param)
{
	float *out = CT_NEW_ARRAY(float, ct_graph_param(ct_net_graph(s->net), param)->n);
	struct ct_mirror m;

	assert_non_null(out);
	assert_ok(ct_mirror_open(a, CT_MIRROR_READ, ct_engine_stream(s->engine), &m));
	assert_ok(ct_net_export(s->net, &m, param, out));
	assert_ok(ct_mirror_close(&m));
	return out;
}

static void compare_params(const struct op_case *c, struct side *a, struct side *b, bool gradients)
{
	const ct_graph *g = ct_net_graph(a->net);

	for (int i = 0; i < ct_graph_n_params(g); i++) {
		char what[160];
		float *x = export_one(a, gradients ? ct_net_grads(a->net) : ct_net_params(a->net), i),
		      *y = export_one(b, gradients ? ct_net_grads(b->net) : ct_net_params(b->net), i);

		snprintf(what, sizeof(what), "%s of %s", gradients ? "gradient" : "value", ct_graph_param(g, i)->name);
		compare(c, what, x, y, ct_graph_param(g, i)->n, 1e-2);
		ct_free(y);
		ct_free(x);
	}
}

static void compare_buffers(const struct op_case *c, struct side *a, struct side *b)
{
	ct_arena *x = ct_net_buffers(a->net), *y = ct_net_buffers(b->net);
	struct ct_mirror m, n;

	if (ct_arena_elems(x) == 0)
		return;
	assert_ok(ct_mirror_open(x, CT_MIRROR_READ, ct_engine_stream(a->engine), &m));
	assert_ok(ct_mirror_open(y, CT_MIRROR_READ, ct_engine_stream(b->engine), &n));
	compare(c, "running statistics", m.data, n.data, ct_arena_elems(x), 1e-2);
	assert_ok(ct_mirror_close(&n));
	assert_ok(ct_mirror_close(&m));
}

static void compare_scalar(const struct op_case *c, const char *what, ct_arena *x, struct side *a, ct_arena *y,
			   struct side *b)
{
	float u, v;

	assert_ok(ct_arena_read(x, 0, 1, &u, ct_engine_stream(a->engine)));
	assert_ok(ct_arena_read(y, 0, 1, &v, ct_engine_stream(b->engine)));
	compare(c, what, &u, &v, 1, 0);
}

static void compare_logits(const struct op_case *c, ct_program *a, ct_program *b, const ct_graph *g)
{
	const int logits = ct_graph_node(g, ct_graph_loss(g))->in[0];
	const size_t n = (size_t)c->batch * (size_t)c->n_outputs;
	float *x = CT_NEW_ARRAY(float, n), *y = CT_NEW_ARRAY(float, n);

	assert_ok(ct_program_read(a, logits, false, x));
	assert_ok(ct_program_read(b, logits, false, y));
	compare(c, "logits", x, y, n, 1e-2);
	ct_free(y);
	ct_free(x);
}

static void compare_evaluation(const struct op_case *c, struct side *a, struct side *b)
{
	const int n = c->batch > 1 ? c->batch - 1 : 1; /* not full */
	struct ct_batch x = batch_of(a, c, n), y = batch_of(b, c, n);
	struct ct_metrics m, k;

	x.labels_b = y.labels_b = NULL;
	assert_ok(ct_program_forward(a->eval, &x));
	assert_ok(ct_program_forward(b->eval, &y));
	assert_ok(ct_net_take_metrics(a->net, &m));
	assert_ok(ct_net_take_metrics(b->net, &k));
	assert_true(fabs(m.loss - k.loss) <= 3e-4 * (fabs(k.loss) + 1e-2));
	assert_int_equal(m.count, k.count);
	assert_int_equal(m.top1, k.top1);
	assert_int_equal(m.top5, k.top5);
}

static bool run_case(const struct op_case *c, bool bytes)
{
	ct_graph *g = graph_make(c->input, c->layers, c->n_outputs, c->loss, c->smoothing);
	struct side cuda, ref;
	bool supported;

	assert_ok(open_side(&ref, false, g, c, bytes));
	const enum ct_status st = open_side(&cuda, true, g, c, bytes);
	supported = st == CT_OK;
	if (!supported && st != CT_UNSUPPORTED)
		fail_msg("%s: %s", c->name, ct_error_message());
	for (int step = 0; supported && step < TRAINING_STEPS; step++) {
		train(&cuda, c, step);
		train(&ref, c, step);
		compare_logits(c, cuda.train, ref.train, g);
		compare_params(c, &cuda, &ref, true);
		compare_params(c, &cuda, &ref, false);
		compare_buffers(c, &cuda, &ref);
		compare_scalar(c, "loss", cuda.scalars, &cuda, ref.scalars, &ref);
		compare_scalar(c, "norm", ct_optim_result(cuda.optim), &cuda, ct_optim_result(ref.optim), &ref);
	}
	if (supported)
		compare_evaluation(c, &cuda, &ref);
	else
		printf("%s: %s\n", c->name, ct_error_message());
	close_side(&cuda);
	close_side(&ref);
	ct_graph_destroy(g);
	assert_int_equal(soft_gpu_live(), 0);
	return supported;
}

static void test_cases(void **state)
{
	int n_unsupported = 0;

	(void)state;
	for (size_t i = 0; i < n_op_cases; i++) {
		const struct op_case *c = &op_cases[i];

		soft_gpu_set_seed(i + 1);
		n_unsupported += !run_case(c, false);
		if (c->input.c <= 4)
			(void)run_case(c, true);
	}
	printf("%zu cases, %d unsupported\n", n_op_cases, n_unsupported);
	assert_true(n_unsupported <= 4); /* grouped convolutions of few channels */
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
