/* Compares optimizers and EMA weights on given gradients with formulas in double precision. tests/golden compares them
 * with PyTorch. */
#include "nn/optim/optim.h"

#include <math.h>

#include "tests/nn/optim_rig.h"

static const struct ct_optim_opts sgd = {.kind = CT_SGD, .momentum = 0.9, .weight_decay = 0.1, .decay_norm_bias = true};
static const struct ct_optim_opts adamw = {
	.kind = CT_ADAMW, .weight_decay = 0.1, .decay_norm_bias = true, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};

/* Options that are valid for every optimizer, so that tests of what all have in common include a new one. */
static struct ct_optim_opts usual(int kind)
{
	return (struct ct_optim_opts){.kind = (enum ct_optim_kind)kind,
				      .momentum = 0.9,
				      .weight_decay = 0.1,
				      .decay_norm_bias = true,
				      .beta1 = 0.9,
				      .beta2 = 0.999,
				      .eps = 1e-6,
				      .trust = 0.01};
}

static float *copy(const float *x, size_t n)
{
	float *out = CT_NEW_ARRAY(float, n);

	assert_non_null(out);
	memcpy(out, x, n * sizeof(float));
	return out;
}

static void test_option_errors(void **state)
{
	static const struct {
		struct ct_optim_opts opts;
		const char *part;
	} cases[] = {
		{{.kind = CT_SGD, .momentum = 1}, "momentum 1"},
		{{.kind = CT_SGD, .momentum = -0.1}, "momentum -0.1"},
		{{.kind = CT_SGD, .nesterov = true}, "Nesterov momentum needs"},
		{{.kind = CT_SGD, .weight_decay = -1}, "weight decay -1"},
		{{.kind = CT_SGD, .clip_norm = -1}, "clip norm -1"},
		{{.kind = CT_LARS, .momentum = 1, .trust = 1e-3}, "momentum 1"},
		{{.kind = CT_LARS, .momentum = 0.9, .nesterov = true, .trust = 1e-3}, "LARS does not support Nesterov"},
		{{.kind = CT_LARS, .momentum = 0.9}, "trust coefficient 0"},
		{{.kind = CT_LAMB, .beta1 = 1, .eps = 1e-6}, "LAMB's betas (1, 0)"},
		{{.kind = CT_LAMB, .beta1 = 0.9, .beta2 = 0.99}, "LAMB's eps 0"},
		{{.kind = CT_ADAMW, .beta1 = 1, .eps = 1e-8}, "betas (1, 0)"},
		{{.kind = CT_ADAMW, .beta2 = 1.5, .eps = 1e-8}, "betas (0, 1.5)"},
		{{.kind = CT_ADAMW, .beta1 = 0.9, .beta2 = 0.99}, "eps 0"},
	};
	struct rig r;
	ct_optim *o = NULL;
	ct_ema *e = NULL;

	(void)state;
	open_rig(&r);
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		assert_fails(ct_optim_create(r.net, &cases[i].opts, &o), CT_CONFIG, cases[i].part);
	assert_fails(ct_ema_create(r.net, 1, &e), CT_CONFIG, "decay of the EMA weights, 1");
	ct_optim_destroy(NULL);
	ct_ema_destroy(NULL);
	rig_close(&r);
}

static void test_sgd(void **state)
{
	struct rig r;
	ct_optim *o;

	(void)state;
	open_rig(&r);
	size_t n = ct_net_arena_elems(r.net);
	for (int nesterov = 0; nesterov < 2; nesterov++) {
		struct ct_optim_opts opts = sgd;

		opts.nesterov = nesterov;
		assert_ok(ct_optim_create(r.net, &opts, &o));
		float *before = copy(on_host(ct_net_params(r.net)), n);
		double *p = CT_NEW_ARRAY(double, n), *m = CT_NEW_ARRAY(double, n);
		for (size_t i = 0; i < n; i++)
			p[i] = (double)before[i];
		for (int step = 0; step < 6; step++) {
			double lr = 0.1 / (step + 1);

			fill_floats((uint32_t)step, on_host(ct_net_grads(r.net)), n);
			assert_ok(update_now(o, lr, NULL));
			for (size_t i = 0; i < n; i++) {
				double d = (double)on_host(ct_net_grads(r.net))[i] + 0.1 * p[i];

				m[i] = step ? 0.9 * m[i] + d : d;
				p[i] -= lr * (nesterov ? d + 0.9 * m[i] : m[i]);
			}
		}
		assert_int_equal(ct_optim_steps(o), 6);
		for (size_t i = 0; i < n; i++)
			assert_float_equal(on_host(ct_net_params(r.net))[i], p[i], 1e-6);
		ct_free(m);
		ct_free(p);
		ct_free(before);
		ct_optim_destroy(o);
	}
	rig_close(&r);
}

static void test_no_decay_on_norms_and_biases(void **state)
{
	struct rig r;
	ct_optim *o;

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		struct ct_optim_opts opts = kind ? adamw : sgd;

		opts.decay_norm_bias = false;
		open_rig(&r);
		size_t n = ct_net_arena_elems(r.net);
		for (size_t i = 0; i < n; i++)
			on_host(ct_net_params(r.net))[i] = 1; /* the gradient is 0: only decay moves a value */
		assert_ok(ct_optim_create(r.net, &opts, &o));
		assert_ok(update_now(o, 0.5, NULL));
		for (int i = 0; i < ct_graph_n_params(r.graph); i++) {
			const struct ct_param *p = ct_graph_param(r.graph, i);
			float *x = export_param(r.net, on_host(ct_net_params(r.net)), i),
			      want = p->kind == CT_PARAM_WEIGHT ? 0.95f : 1.0f;

			for (size_t k = 0; k < p->n; k++)
				assert_float_equal(x[k], want, 1e-7);
			ct_free(x);
		}
		ct_optim_destroy(o);
		rig_close(&r);
	}
}

static void test_clipping(void **state)
{
	struct rig r;
	ct_optim *o;
	double norm = 0, want = 0;
	struct ct_optim_opts opts = {.kind = CT_SGD, .clip_norm = 0.5};

	(void)state;
	open_rig(&r);
	size_t n = ct_net_arena_elems(r.net);
	float *params = on_host(ct_net_params(r.net)), *grads = on_host(ct_net_grads(r.net)), *before = copy(params, n);
	fill_floats(1, grads, n);
	for (size_t i = 0; i < n; i++)
		want += (double)grads[i] * (double)grads[i];
	want = sqrt(want);
	assert_ok(ct_optim_create(r.net, &opts, &o));
	assert_ok(update_now(o, 1, &norm));
	assert_float_equal(norm, want, 1e-6 * want);
	for (size_t i = 0; i < n; i++)
		assert_float_equal(params[i], before[i] - grads[i] * (float)(0.5 / (want + 1e-6)), 1e-6);

	memcpy(before, params, n * sizeof(float));
	for (size_t i = 0; i < n; i++)
		grads[i] *= 1e-3f; /* below the limit: nothing is clipped */
	assert_ok(update_now(o, 1, NULL));
	for (size_t i = 0; i < n; i++)
		assert_true(params[i] == before[i] - grads[i]);

	memcpy(before, params, n * sizeof(float));
	grads[5] = INFINITY;
	assert_fails(update_now(o, 1, &norm), CT_NUMERIC, "outcome 2, norm inf");
	assert_memory_equal(params, before, n * sizeof(float));
	grads[5] = 0; /* updates have stopped for good */
	assert_fails(update_now(o, 1, &norm), CT_NUMERIC, "outcome 2, norm -1");
	assert_memory_equal(params, before, n * sizeof(float));
	assert_int_equal(ct_optim_steps(o), 4);
	ct_optim_destroy(o);
	ct_free(before);
	rig_close(&r);
}

/* Without clipping: only the outcome depends on the norm. */
static void test_check_norm(void **state)
{
	const struct ct_optim_opts opts = {.kind = CT_SGD, .check_norm = true};
	struct rig r;
	ct_optim *o;
	double norm = 0;

	(void)state;
	open_rig(&r);
	size_t n = ct_net_arena_elems(r.net);
	float *params = on_host(ct_net_params(r.net)), *grads = on_host(ct_net_grads(r.net)), *before = copy(params, n);
	fill_floats(1, grads, n);
	assert_ok(ct_optim_create(r.net, &opts, &o));
	assert_ok(update_now(o, 1, &norm));
	assert_true(norm > 1);
	for (size_t i = 0; i < n; i++)
		assert_true(params[i] == before[i] - grads[i]);
	memcpy(before, params, n * sizeof(float));
	grads[5] = -INFINITY;
	assert_fails(update_now(o, 1, &norm), CT_NUMERIC, "outcome 2, norm inf");
	assert_memory_equal(params, before, n * sizeof(float));
	ct_optim_destroy(o);
	ct_free(before);
	rig_close(&r);
}

static void test_state_by_name(void **state)
{
	struct rig r;
	ct_optim *o;
	struct ct_optim_opts plain = {.kind = CT_SGD};

	(void)state;
	open_rig(&r);
	assert_ok(ct_optim_create(r.net, &plain, &o));
	assert_null(ct_optim_state_name(o, 0));
	assert_null(on_host(ct_optim_state(o, 0)));
	ct_optim_destroy(o);
	assert_ok(ct_optim_create(r.net, &sgd, &o));
	assert_string_equal(ct_optim_state_name(o, 0), "momentum_buffer");
	assert_null(ct_optim_state_name(o, 1));
	ct_optim_destroy(o);
	assert_ok(ct_optim_create(r.net, &adamw, &o));
	assert_string_equal(ct_optim_state_name(o, 0), "exp_avg");
	assert_string_equal(ct_optim_state_name(o, 1), "exp_avg_sq");
	assert_null(ct_optim_state_name(o, 2));
	ct_optim_destroy(o);
	assert_ok(ct_optim_create(r.net, &lars, &o));
	assert_string_equal(ct_optim_state_name(o, 0), "momentum_buffer");
	assert_null(ct_optim_state_name(o, 1));
	ct_optim_destroy(o);
	assert_ok(ct_optim_create(r.net, &lamb, &o));
	assert_string_equal(ct_optim_state_name(o, 1), "exp_avg_sq");
	ct_optim_destroy(o);
	rig_close(&r);
}

/* An optimizer that receives the parameters, states and step count of another one continues with the same bits. */
static void check_resume(int kind)
{
	const struct ct_optim_opts opts = usual(kind);
	struct rig a, b;
	ct_optim *oa, *ob;

	open_rig(&a);
	open_rig(&b);
	size_t n = ct_net_arena_elems(a.net);
	assert_ok(ct_optim_create(a.net, &opts, &oa));
	assert_ok(ct_optim_create(b.net, &opts, &ob));
	for (uint32_t step = 0; step < 6; step++) {
		if (step == 3) {
			memcpy(on_host(ct_net_params(b.net)), on_host(ct_net_params(a.net)), n * sizeof(float));
			for (int i = 0; on_host(ct_optim_state(oa, i)); i++)
				memcpy(on_host(ct_optim_state(ob, i)), on_host(ct_optim_state(oa, i)),
				       n * sizeof(float));
			ct_optim_set_steps(ob, ct_optim_steps(oa));
		}
		fill_floats(step, on_host(ct_net_grads(a.net)), n);
		fill_floats(step, on_host(ct_net_grads(b.net)), n);
		float *before = copy(on_host(ct_net_params(a.net)), n);
		assert_ok(update_now(oa, 1e-2, NULL));
		assert_memory_not_equal(on_host(ct_net_params(a.net)), before, n * sizeof(float));
		ct_free(before);
		if (step >= 3)
			assert_ok(update_now(ob, 1e-2, NULL));
	}
	assert_memory_equal(on_host(ct_net_params(a.net)), on_host(ct_net_params(b.net)), n * sizeof(float));
	ct_optim_destroy(ob);
	ct_optim_destroy(oa);
	rig_close(&b);
	rig_close(&a);
}

static void test_resume(void **state)
{
	(void)state;
	for (int kind = 0; kind < CT_N_OPTIMIZERS; kind++)
		check_resume(kind);
}

/* Norms that are only requested change nothing, not even if they are not finite. */
static void test_requested_norms(void **state)
{
	const struct ct_optim_opts opts = {.kind = CT_SGD};
	struct rig r;
	ct_optim *o;
	double norm;

	(void)state;
	open_rig(&r);
	const size_t n = ct_net_arena_elems(r.net);
	float *params = on_host(ct_net_params(r.net)), *grads = on_host(ct_net_grads(r.net));
	const float *result;
	assert_ok(ct_optim_create(r.net, &opts, &o));
	for (int on = 0; on < 2; on++) {
		double weights = 0, gradient = 0;

		fill_floats(1, params, n);
		fill_floats(2, grads, n);
		for (size_t i = 0; i < n; i++) {
			weights += (double)params[i] * (double)params[i];
			gradient += (double)grads[i] * (double)grads[i];
		}
		float *before = copy(params, n);
		r.net->state->step.norms = (uint64_t)on;
		assert_ok(update_now(o, 0.5, &norm));
		result = on_host(ct_optim_result(o));
		assert_float_equal(norm, on ? sqrt(gradient) : -1, 1e-5);
		assert_float_equal(result[CT_UPDATE_WEIGHT_NORM], on ? sqrt(weights) : -1, 1e-5);
		for (size_t i = 0; i < n; i++)
			assert_true(params[i] == before[i] - 0.5f * grads[i]);
		ct_free(before);
	}
	grads[0] = INFINITY;
	assert_ok(update_now(o, 0.5, &norm));
	assert_true(isinf(norm) && isinf(params[0]));
	ct_optim_destroy(o);
	rig_close(&r);
}

static void test_average(void **state)
{
	struct rig r;
	ct_ema *e;

	(void)state;
	open_rig(&r);
	size_t n = ct_net_arena_elems(r.net), nb = ct_arena_elems(ct_net_buffers(r.net));
	float *params = on_host(ct_net_params(r.net)), *buffers = on_host(ct_net_buffers(r.net));
	float *first = copy(params, n), *last = CT_NEW_ARRAY(float, n);
	assert_ok(ct_ema_create(r.net, 0.75, &e));
	assert_memory_equal(on_host(ct_ema_params(e)), first, n * sizeof(float));
	assert_memory_equal(on_host(ct_ema_buffers(e)), buffers, nb * sizeof(float));
	fill_floats(5, params, n);
	fill_floats(6, buffers, nb);
	assert_ok(ct_ema_update(e));
	assert_ok(ct_ema_update(e));
	for (size_t i = 0; i < n; i++)
		assert_float_equal(on_host(ct_ema_params(e))[i], 0.5625f * first[i] + 0.4375f * params[i], 1e-6);
	for (size_t i = 0; i < nb; i++)
		assert_float_equal(on_host(ct_ema_buffers(e))[i], (i < 7 ? 0 : 0.5625f) + 0.4375f * buffers[i], 1e-6);
	memcpy(last, params, n * sizeof(float));
	float *average = copy(on_host(ct_ema_params(e)), n);
	assert_ok(ct_ema_swap(e));
	assert_memory_equal(params, average, n * sizeof(float));
	assert_memory_equal(on_host(ct_ema_params(e)), last, n * sizeof(float));
	assert_ok(ct_ema_swap(e));
	assert_memory_equal(params, last, n * sizeof(float));
	ct_free(average);
	ct_ema_destroy(e);
	ct_free(last);
	ct_free(first);
	rig_close(&r);
}

/* A loss that is not finite: neither weights nor EMA weights change, then or later. */
static void test_watched_loss(void **state)
{
	const struct ct_optim_opts opts = {.kind = CT_SGD, .momentum = 0.9};
	ct_arena *scalars;
	struct rig r;
	ct_optim *o;
	ct_ema *e;

	(void)state;
	open_rig(&r);
	size_t n = ct_net_arena_elems(r.net);
	assert_ok(ct_optim_create(r.net, &opts, &o));
	assert_ok(ct_ema_create(r.net, 0.5, &e));
	assert_ok(ct_arena_create(r.device, CT_F32, 4, &scalars));
	ct_optim_watch_loss(o, scalars, 2);
	fill_floats(1, on_host(ct_net_grads(r.net)), n);
	on_host(scalars)[1] = NAN; /* not watched */
	assert_ok(update_now(o, 1, NULL));
	assert_ok(ct_ema_update(e));
	float *params = copy(on_host(ct_net_params(r.net)), n), *average = copy(on_host(ct_ema_params(e)), n),
	      *momentum = copy(on_host(ct_optim_state(o, 0)), n);
	on_host(scalars)[2] = NAN;
	assert_fails(update_now(o, 1, NULL), CT_NUMERIC, "outcome 1");
	on_host(scalars)[2] = 1;
	assert_fails(update_now(o, 1, NULL), CT_NUMERIC, "outcome 1");
	assert_ok(ct_ema_update(e));
	assert_memory_equal(params, on_host(ct_net_params(r.net)), n * sizeof(float));
	assert_memory_equal(momentum, on_host(ct_optim_state(o, 0)), n * sizeof(float));
	assert_memory_equal(average, on_host(ct_ema_params(e)), n * sizeof(float));
	ct_free(momentum);
	ct_free(average);
	ct_free(params);
	ct_arena_destroy(scalars);
	ct_ema_destroy(e);
	ct_optim_destroy(o);
	rig_close(&r);
}

/* Segments of several chunks: the same bits for any number of threads. */
static void test_threads(void **state)
{
	struct ct_net_opts opts = {.batch = 2, .input = CT_INPUT_F32_NCHW, .train = true};
	float *first = NULL;

	(void)state;
	for (int kind = 0; kind < CT_N_OPTIMIZERS; kind++) {
		for (int threads = 1; threads <= 4; threads += 3) {
			struct ct_optim_opts clipped = usual(kind);
			struct rig r = {0};
			ct_optim *o;

			clipped.clip_norm = 0.1;
			r.graph = graph_make((struct ct_shape){300, 1, 1}, "linear 500;relu;linear 3", 3,
					     CT_LOSS_CROSS_ENTROPY, 0);
			assert_ok(ct_device_open("cpu", 0, &r.device));
			assert_ok(ct_engine_open("ref", r.device, threads, &r.engine));
			assert_ok(ct_net_create(r.engine, r.graph, &opts, &r.net));
			assert_ok(ct_net_init(r.net, CT_INIT_PYTORCH, 1));
			size_t n = ct_net_arena_elems(r.net);
			assert_true(n > 2 * 65536);
			assert_ok(ct_optim_create(r.net, &clipped, &o));
			for (uint32_t step = 0; step < 3; step++) {
				fill_floats(step, on_host(ct_net_grads(r.net)), n);
				assert_ok(update_now(o, 0.1, NULL));
			}
			if (threads == 1)
				first = copy(on_host(ct_net_params(r.net)), n);
			else
				assert_memory_equal(first, on_host(ct_net_params(r.net)), n * sizeof(float));
			ct_optim_destroy(o);
			rig_close(&r);
		}
		ct_free(first);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_option_errors),
		cmocka_unit_test(test_watched_loss),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_sgd),
		cmocka_unit_test(test_no_decay_on_norms_and_biases),
		cmocka_unit_test(test_clipping),
		cmocka_unit_test(test_check_norm),
		cmocka_unit_test(test_state_by_name),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_requested_norms),
		cmocka_unit_test(test_average),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
