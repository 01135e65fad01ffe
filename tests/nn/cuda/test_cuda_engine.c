/* The CUDA engine, in each precision, without and with fusion, against the engine "ref" in fp32, in the cases of
 * tests/nn/op_cases.c: a training step with and without accumulation, running statistics, an update of the optimizer
 * and an evaluation. Runs on the software GPU with the stand-in of cuDNN, and on a real GPU. */
#include <math.h>

#include "base/clock.h"
#include "nn/engine_impl.h"
#include "nn/optim/optim.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/nn/op_cases.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { TRAINING_STEPS = 2, LOSS_SCALE = 1024 };

/* Tolerances relative to the norm of a tensor, and in fp32 of each element to the largest one. Nine of ten gradients
 * must be within `gradients`. The others may differ by `far`: where the input of a ReLU is nearly 0, or two elements of
 * a pool are nearly equal, rounding sends the gradient another way. */
static const struct precision {
	enum ct_precision id;
	double tolerance, gradients, far;
} precisions[] = {
	{CT_PRECISION_FP32, 3e-4, 3e-4, 3e-4},
	{CT_PRECISION_TF32, 1e-2, 1e-2, 0.25},
	{CT_PRECISION_FP16, 1e-2, 2e-2, 0.25},
	{CT_PRECISION_BF16, 3e-2, 8e-2, 0.5},
};

struct check {
	const struct op_case *c;
	const struct precision *p;
	int n_gradients, n_far;
};

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
static enum ct_status open_side(struct side *s, bool cuda, const ct_graph *g, const struct op_case *c, bool bytes,
				enum ct_precision precision)
{
	const struct ct_net_opts opts = {.batch = c->batch,
					 .input = bytes ? CT_INPUT_U8_NHWC : CT_INPUT_F32_NCHW,
					 .mean = {0.4f, 0.5f, 0.6f, 0.7f},
					 .std = {0.2f, 0.3f, 0.4f, 0.5f},
					 .seed = 5,
					 .class_weights = op_case_weights(c),
					 .n_class_weights = op_case_weights(c) ? c->n_outputs : 0,
					 .train = true,
					 .precision = precision};
	const struct ct_optim_opts optim = {.kind = CT_SGD,
					    .momentum = 0.9,
					    .weight_decay = 0.01,
					    .clip_norm = 1,
					    .decay_norm_bias = true,
					    .loss_scale = LOSS_SCALE,
					    .loss_scale_interval = 100};
	void *args;

	*s = (struct side){0};
	open_engine(cuda, &s->device, &s->engine);
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

/* The gradients of parameters are final in the order of the slices. */
static enum ct_status count_slice(void *user, int slice)
{
	int *n = user;

	assert_int_equal(slice, *n);
	++*n;
	return CT_OK;
}

static void train(struct side *s, const struct op_case *c, int step)
{
	const struct ct_batch b = batch_of(s, c, c->batch);

	s->args->step = (uint64_t)step;
	ct_optim_begin(s->optim, 0.05, s->args);
	assert_ok(ct_net_post_step_args(s->net, s->args));
	for (int micro = 0; micro < 2; micro++) {
		int n_slices = 0;
		const struct ct_backward_opts back = {.scale = 0.5f / (float)c->batch,
						      .accumulate = micro > 0,
						      .grad_ready = count_slice,
						      .user = &n_slices};

		assert_ok(ct_program_forward(s->train, &b));
		if (micro == 1)
			assert_ok(ct_net_post_loss(s->net, s->scalars, 0));
		assert_ok(ct_program_backward(s->train, &back));
		assert_int_equal(n_slices, ct_net_n_slices(s->net));
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

static double norm_of_difference(const float *x, const float *y, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
	return sqrt(sum);
}

static void compare_elements(const struct check *k, const char *what, const float *got, const float *want, size_t n,
			     double floor)
{
	const double limit = k->p->tolerance * (largest(want, n) + floor);

	for (size_t i = 0; i < n; i++) {
		if (!(fabs((double)got[i] - (double)want[i]) <= limit))
			fail_msg("%s: %s: element %zu of %zu is %g and should be %g", k->c->name, what, i, n,
				 (double)got[i], (double)want[i]);
	}
}

/* floor: a value below which differences do not matter. Returns the norm of the error relative to that of the tensor.
 */
static double compare_within(const struct check *k, double tolerance, const char *what, const float *got,
			     const float *want, size_t n, double floor)
{
	const float zero = 0;
	double norm = floor * sqrt((double)n);

	if (k->p->id == CT_PRECISION_FP32)
		compare_elements(k, what, got, want, n, floor);
	for (size_t i = 0; i < n; i++)
		norm = hypot(norm, norm_of_difference(&want[i], &zero, 1));
	const double error = norm > 0 ? norm_of_difference(got, want, n) / norm : norm_of_difference(got, want, n);
	if (!(error <= tolerance))
		fail_msg("%s in %s: %s: the relative error is %g, above %g", k->c->name, ct_precision_name(k->p->id),
			 what, error, tolerance);
	return error;
}

static void compare(const struct check *k, const char *what, const float *got, const float *want, size_t n,
		    double floor)
{
	(void)compare_within(k, k->p->tolerance, what, got, want, n, floor);
}

static void compare_gradient(struct check *k, const char *what, const float *got, const float *want, size_t n)
{
	const double error = compare_within(k, k->p->far, what, got, want, n, 1e-2);

	k->n_gradients++;
	k->n_far += error > k->p->gradients;
}

/* The logical values of a parameter, divided by `scale`; owned. */
static float *export_one(struct side *s, ct_arena *a, int param, float scale)
{
	float *out = CT_NEW_ARRAY(float, ct_graph_param(ct_net_graph(s->net), param)->n);
	struct ct_mirror m;

	assert_non_null(out);
	assert_ok(ct_mirror_open(a, CT_MIRROR_READ, ct_engine_stream(s->engine), &m));
	assert_ok(ct_net_export(s->net, &m, param, out));
	assert_ok(ct_mirror_close(&m));
	for (size_t i = 0; i < ct_graph_param(ct_net_graph(s->net), param)->n; i++)
		out[i] /= scale;
	return out;
}

static void compare_params(struct check *k, struct side *a, struct side *b, bool gradients)
{
	const ct_graph *g = ct_net_graph(a->net);
	const float scale = gradients && k->p->id == CT_PRECISION_FP16 ? LOSS_SCALE : 1;

	for (int i = 0; i < ct_graph_n_params(g); i++) {
		char what[160];
		float *x = export_one(a, gradients ? ct_net_grads(a->net) : ct_net_params(a->net), i, scale),
		      *y = export_one(b, gradients ? ct_net_grads(b->net) : ct_net_params(b->net), i, 1);

		snprintf(what, sizeof(what), "%s of %s", gradients ? "gradient" : "value", ct_graph_param(g, i)->name);
		if (gradients)
			compare_gradient(k, what, x, y, ct_graph_param(g, i)->n);
		else
			compare(k, what, x, y, ct_graph_param(g, i)->n, 1e-2);
		ct_free(y);
		ct_free(x);
	}
}

static void compare_buffers(const struct check *k, struct side *a, struct side *b)
{
	ct_arena *x = ct_net_buffers(a->net), *y = ct_net_buffers(b->net);
	struct ct_mirror m, n;

	if (ct_arena_elems(x) == 0)
		return;
	assert_ok(ct_mirror_open(x, CT_MIRROR_READ, ct_engine_stream(a->engine), &m));
	assert_ok(ct_mirror_open(y, CT_MIRROR_READ, ct_engine_stream(b->engine), &n));
	compare(k, "running statistics", m.data, n.data, ct_arena_elems(x), 1e-2);
	assert_ok(ct_mirror_close(&n));
	assert_ok(ct_mirror_close(&m));
}

static void compare_scalar(const struct check *k, const char *what, ct_arena *x, struct side *a, ct_arena *y,
			   struct side *b)
{
	float u, v;

	assert_ok(ct_arena_read(x, 0, 1, &u, ct_engine_stream(a->engine)));
	assert_ok(ct_arena_read(y, 0, 1, &v, ct_engine_stream(b->engine)));
	compare(k, what, &u, &v, 1, 0);
}

static void compare_logits(const struct check *k, ct_program *a, ct_program *b, const ct_graph *g)
{
	const int logits = ct_graph_node(g, ct_graph_loss(g))->in[0];
	const size_t n = (size_t)k->c->batch * (size_t)k->c->n_outputs;
	float *x = CT_NEW_ARRAY(float, n), *y = CT_NEW_ARRAY(float, n);

	assert_ok(ct_program_read(a, logits, false, x));
	assert_ok(ct_program_read(b, logits, false, y));
	compare(k, "logits", x, y, n, 1e-2);
	ct_free(y);
	ct_free(x);
}

static void compare_evaluation(const struct check *k, struct side *a, struct side *b)
{
	const int n = k->c->batch > 1 ? k->c->batch - 1 : 1; /* not full */
	struct ct_batch x = batch_of(a, k->c, n), y = batch_of(b, k->c, n);
	struct ct_metrics m, want;

	x.labels_b = y.labels_b = NULL;
	assert_ok(ct_program_forward(a->eval, &x));
	assert_ok(ct_program_forward(b->eval, &y));
	assert_ok(ct_net_take_metrics(a->net, &m));
	assert_ok(ct_net_take_metrics(b->net, &want));
	assert_true(fabs(m.loss - want.loss) <= k->p->tolerance * (fabs(want.loss) + 1e-2));
	assert_int_equal(m.count, want.count);
	if (k->p->id != CT_PRECISION_FP32) /* rounding may change the order of equal logits */
		return;
	assert_int_equal(m.top1, want.top1);
	assert_int_equal(m.top5, want.top5);
}

static bool run_case(struct check *k, bool bytes)
{
	const struct op_case *c = k->c;
	ct_graph *g = graph_make(c->input, c->layers, c->n_outputs, c->loss, c->smoothing);
	struct side cuda, ref;
	bool supported;

	assert_ok(open_side(&ref, false, g, c, bytes, CT_PRECISION_FP32));
	const enum ct_status st = open_side(&cuda, true, g, c, bytes, k->p->id);
	supported = st == CT_OK;
	if (!supported && st != CT_UNSUPPORTED)
		fail_msg("%s: %s", c->name, ct_error_message());
	for (int step = 0; supported && step < TRAINING_STEPS; step++) {
		train(&cuda, c, step);
		train(&ref, c, step);
		compare_logits(k, cuda.train, ref.train, g);
		compare_params(k, &cuda, &ref, true);
		compare_params(k, &cuda, &ref, false);
		compare_buffers(k, &cuda, &ref);
		compare_scalar(k, "loss", cuda.scalars, &cuda, ref.scalars, &ref);
		compare_scalar(k, "norm", ct_optim_result(cuda.optim), &cuda, ct_optim_result(ref.optim), &ref);
	}
	if (supported)
		compare_evaluation(k, &cuda, &ref);
	else
		printf("%s: %s\n", c->name, ct_error_message());
	close_side(&cuda);
	close_side(&ref);
	ct_graph_destroy(g);
	assert_int_equal(soft_gpu_live(), 0);
	return supported;
}

static void check_cases(const struct precision *p, const char *level)
{
	struct check k = {.p = p};
	int n_unsupported = 0;

	assert_int_equal(setenv("CTRAIN_CUDA_LEVEL", level, 1), 0);
	for (size_t i = 0; i < n_op_cases; i++) {
		k.c = &op_cases[i];
		soft_gpu_set_seed(i + 1);
		n_unsupported += !run_case(&k, false);
		if (k.c->input.c <= 4 && p->id == CT_PRECISION_FP32)
			(void)run_case(&k, true);
	}
	printf("%s: %zu cases, %d unsupported; %d of %d gradients differ more\n", ct_precision_name(p->id), n_op_cases,
	       n_unsupported, k.n_far, k.n_gradients);
	assert_true(k.n_far * 10 <= k.n_gradients);
	assert_int_equal(n_unsupported, 0);
}

static void test_unfused(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(precisions); i++)
		check_cases(&precisions[i], "0");
}

static void test_fused(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(precisions); i++)
		check_cases(&precisions[i], "1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_unfused), cmocka_unit_test(test_fused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
