/* Trains a small residual network with frozen parameters (ct_graph_freeze) and factors of the learning rate on an
 * engine, and compares it with the engine ref: gradients are reported for trained slices only, frozen parameters and
 * fixed statistics keep every bit, also in the EMA weights, and everything else is what ref computes. */
#ifndef CT_TESTS_NN_FREEZE_CHECK_H
#define CT_TESTS_NN_FREEZE_CHECK_H

#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tests/nn/train_rig.h"

#define FREEZE_LAYERS                                                                                                     \
	"conv2d 16 kernel=3 padding=1 bias=false;batch_norm;relu name=stem;conv2d 16 kernel=3 padding=1;batch_norm;relu;" \
	"conv2d 16 kernel=3 padding=1 bias=false;batch_norm;add from=stem;relu;conv2d 20 kernel=3 padding=1;batch_norm;"  \
	"relu;max_pool 2;global_avg_pool;flatten;linear 12;relu;linear 5"
/* Norms with one value per channel and row; the first one has a multiple of 16 channels. */
#define FREEZE_FLAT_LAYERS "linear 16;batch_norm;relu;linear 7;batch_norm;linear 5"
enum { FREEZE_ROWS = 6, FREEZE_STEPS = 3, FREEZE_CLASSES = 5 };

struct freeze_case {
	const char *patterns[3]; /* up to the first NULL */
	bool fix_stats;
	enum ct_recompute recompute;
	bool one_row; /* FREEZE_FLAT_LAYERS, and batches of one row, in which norms have no variance */
};

static const struct freeze_case freeze_cases[] = {
	{.patterns = {"backbone"}, .fix_stats = true, .recompute = CT_RECOMPUTE_NORMS},
	{.patterns = {"backbone"}},
	{.patterns = {"conv1.*", "bn1.*"}, .fix_stats = true},
	{.patterns = {"bn*"}, .fix_stats = true, .recompute = CT_RECOMPUTE_NORMS},
	{.patterns = {"bn*"}, .recompute = CT_RECOMPUTE_NORMS},
	{.patterns = {"conv[34].*", "bn3.*", "fc1.*"}, .fix_stats = true, .recompute = CT_RECOMPUTE_BLOCKS},
	{.patterns = {"*.bias"}, .fix_stats = true, .recompute = CT_RECOMPUTE_NORMS},
	{.patterns = {"conv2.weight", "fc2.bias"}, .fix_stats = true},
	{.patterns = {"conv1.*", "conv2.*", "bn2.*"}, .fix_stats = true, .recompute = CT_RECOMPUTE_NORMS},
	{.patterns = {"bn*"}, .fix_stats = true, .one_row = true},
};

/* Everything that training may change. */
struct freeze_outcome {
	int n_params, n_buffers;
	size_t *sizes;                          /* [n_params + n_buffers] */
	float **before, **after, **ema, **grad; /* grad: of the first step; NULL for frozen parameters */
};

/* Opens the device and the engine. */
typedef void (*freeze_open_fn)(const char *engine, ct_device **device, ct_engine **out);

static inline void freeze_open_cpu(const char *engine, ct_device **device, ct_engine **out)
{
	assert_ok(ct_device_open("cpu", 0, device));
	assert_ok(ct_engine_open(engine, *device, 1, out));
}

static inline void freeze_create(struct train_rig *r, freeze_open_fn open, const char *engine,
				 const struct freeze_case *c, const struct ct_optim_opts *optim)
{
	const bool one_row = c && c->one_row;
	const struct ct_net_opts opts = {.batch = one_row ? 1 : FREEZE_ROWS,
					 .input = CT_INPUT_F32_NCHW,
					 .train = true,
					 .recompute = c ? c->recompute : CT_RECOMPUTE_NONE};
	int n = 0;

	*r = (struct train_rig){.graph = graph_make(one_row ? (struct ct_shape){6, 1, 1} : (struct ct_shape){3, 8, 8},
						    one_row ? FREEZE_FLAT_LAYERS : FREEZE_LAYERS, FREEZE_CLASSES,
						    CT_LOSS_CROSS_ENTROPY, 0)};
	while (c && n < 3 && c->patterns[n])
		n++;
	if (c)
		assert_ok(ct_graph_freeze(r->graph, c->patterns, n, c->fix_stats));
	open(engine, &r->device, &r->engine);
	train_rig_create(r, &opts, optim, 0.9);
}

static inline float *freeze_export(struct train_rig *r, ct_arena *a, int param)
{
	float *out = CT_NEW_ARRAY(float, ct_graph_param(r->graph, param)->n);
	struct ct_mirror m;

	assert_non_null(out);
	assert_ok(ct_mirror_open(a, CT_MIRROR_READ, ct_engine_stream(r->engine), &m));
	assert_ok(ct_net_export(r->net, &m, param, out));
	ct_mirror_drop(&m);
	return out;
}

/* The values of all parameters, followed by the running statistics. */
static inline void freeze_values(struct train_rig *r, ct_arena *params, ct_arena *buffers, float **out)
{
	const int n = ct_graph_n_params(r->graph);
	size_t at = 0;

	for (int i = 0; i < n; i++)
		out[i] = freeze_export(r, params, i);
	for (int i = 0; i < ct_graph_n_buffers(r->graph); at += ct_graph_buffer(r->graph, i++)->n) {
		const size_t elems = ct_graph_buffer(r->graph, i)->n;

		out[n + i] = CT_NEW_ARRAY(float, elems);
		assert_ok(ct_arena_read(buffers, at, elems, out[n + i], ct_engine_stream(r->engine)));
	}
}

static inline enum ct_status freeze_slice(void *user, int slice)
{
	int *n = user;

	assert_int_equal(slice, *n);
	++*n;
	return CT_OK;
}

/* Two micro-batches of the same images: gradients are accumulated. */
static inline void freeze_step(struct train_rig *r, double lr)
{
	const struct ct_batch b = train_rig_batch(r);

	train_rig_begin(r, lr);
	for (int micro = 0; micro < 2; micro++) {
		int n = 0;
		const struct ct_backward_opts back = {
			.scale = 0.5f / FREEZE_ROWS, .accumulate = micro > 0, .grad_ready = freeze_slice, .user = &n};

		assert_ok(ct_program_forward(r->program, &b));
		assert_ok(ct_program_backward(r->program, &back));
		assert_int_equal(n, ct_net_n_trained(r->net));
	}
	assert_ok(ct_optim_post(r->optim));
	assert_ok(ct_ema_update(r->ema));
	assert_ok(ct_stream_sync(ct_engine_stream(r->engine), CT_FOREVER));
}

static inline void freeze_train(freeze_open_fn open, const char *engine, const struct freeze_case *c,
				const struct ct_optim_opts *optim, struct freeze_outcome *o)
{
	struct train_rig r;

	freeze_create(&r, open, engine, c, optim);
	*o = (struct freeze_outcome){.n_params = ct_graph_n_params(r.graph), .n_buffers = ct_graph_n_buffers(r.graph)};
	const size_t n = (size_t)(o->n_params + o->n_buffers);
	float ***lists[] = {&o->before, &o->after, &o->ema, &o->grad};
	for (size_t k = 0; k < CT_ARRAY_LEN(lists); k++)
		assert_non_null(*lists[k] = CT_NEW_ARRAY(float *, n));
	assert_non_null(o->sizes = CT_NEW_ARRAY(size_t, n));
	for (int i = 0; i < o->n_params + o->n_buffers; i++)
		o->sizes[i] =
			i < o->n_params ? ct_graph_param(r.graph, i)->n : ct_graph_buffer(r.graph, i - o->n_params)->n;
	freeze_values(&r, ct_net_params(r.net), ct_net_buffers(r.net), o->before);
	for (int step = 0; step < FREEZE_STEPS; step++) {
		freeze_step(&r, 0.05);
		for (int i = 0; step == 0 && i < o->n_params; i++) {
			if (ct_graph_trains(r.graph, ct_graph_param(r.graph, i)->node))
				o->grad[i] = freeze_export(&r, ct_net_grads(r.net), i);
		}
	}
	freeze_values(&r, ct_net_params(r.net), ct_net_buffers(r.net), o->after);
	freeze_values(&r, ct_ema_params(r.ema), ct_ema_buffers(r.ema), o->ema);
	for (int i = 0; i < o->n_params + o->n_buffers; i++) {
		const bool param = i < o->n_params;
		const bool keeps =
			param ? ct_graph_param(r.graph, i)->frozen
			      : ct_graph_node(r.graph, ct_graph_buffer(r.graph, i - o->n_params)->node)->fixed_stats;
		const size_t bytes = o->sizes[i] * sizeof(float);

		assert_int_equal(memcmp(o->before[i], o->after[i], bytes) == 0, keeps);
		assert_int_equal(memcmp(o->before[i], o->ema[i], bytes) == 0, keeps);
	}
	train_rig_destroy(&r);
}

static inline void freeze_release(struct freeze_outcome *o)
{
	for (int i = 0; i < o->n_params + o->n_buffers; i++) {
		ct_free(o->before[i]);
		ct_free(o->after[i]);
		ct_free(o->ema[i]);
		ct_free(o->grad[i]);
	}
	ct_free(o->before);
	ct_free(o->after);
	ct_free(o->ema);
	ct_free(o->grad);
	ct_free(o->sizes);
}

static inline void freeze_compare(const char *what, int i, const float *want, const float *got, size_t n,
				  double tolerance, double floor)
{
	double scale = floor;

	for (size_t k = 0; k < n; k++)
		scale = fmax(scale, fabs((double)want[k]));
	for (size_t k = 0; k < n; k++) {
		if (!(fabs((double)want[k] - (double)got[k]) <= tolerance * scale))
			fail_msg("%s %d[%zu] is %.9g, expected %.9g", what, i, k, (double)got[k], (double)want[k]);
	}
}

/* Compares an engine with ref in all cases. */
static inline void freeze_check(freeze_open_fn open, const char *engine)
{
	static const char *const factors[] = {"backbone=0.5", "fc2.*=3"};
	static const struct ct_optim_opts optims[] = {
		{.kind = CT_SGD, .momentum = 0.9, .weight_decay = 0.1, .decay_norm_bias = true, .clip_norm = 1},
		{.kind = CT_ADAM,
		 .weight_decay = 0.1,
		 .decay_norm_bias = true,
		 .beta1 = 0.9,
		 .beta2 = 0.99,
		 .eps = 0.1,
		 .lr_factors = factors,
		 .n_lr_factors = 2}};

	for (size_t k = 0; k < CT_ARRAY_LEN(freeze_cases); k++) {
		const struct ct_optim_opts *optim = &optims[k % CT_ARRAY_LEN(optims)];
		struct freeze_outcome want, got, free_run;

		freeze_train(freeze_open_cpu, "ref", &freeze_cases[k], optim, &want);
		freeze_train(open, engine, &freeze_cases[k], optim, &got);
		freeze_train(open, engine, NULL, optim, &free_run);
		for (int i = 0; i < want.n_params + want.n_buffers; i++) {
			freeze_compare("value", i, want.after[i], got.after[i], want.sizes[i], 3e-4, 0.01);
			freeze_compare("EMA weight", i, want.ema[i], got.ema[i], want.sizes[i], 3e-4, 0.01);
			assert_int_equal(!want.grad[i], !got.grad[i]);
			if (got.grad[i])
				freeze_compare("gradient", i, want.grad[i], got.grad[i], want.sizes[i], 3e-4, 0.01);
			if (got.grad[i] && !freeze_cases[k].fix_stats)
				freeze_compare("gradient without frozen parameters", i, free_run.grad[i], got.grad[i],
					       want.sizes[i], 1e-6, 0.01);
		}
		freeze_release(&free_run);
		freeze_release(&got);
		freeze_release(&want);
	}
}

#endif
