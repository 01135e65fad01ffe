/* Everything about an optimizer except its formulas, which are in arena_ops.c and nn/cuda/kernels/update.cu. When it is
 * created, the arenas are divided once. Consecutive slices with the same settings are one segment; a weight with a
 * trust ratio has its own, because the sums of its segment are its norms. Frozen parameters are gaps between segments,
 * which no update reads or writes. Segments are divided into chunks of a fixed size. The division depends on the slices
 * only, so the order of additions is the same for every number of threads and, on the GPU, for every grid.
 *
 * The host counts the updates that were begun and passes the number and the learning rate through the step arguments.
 * The arguments of the posted work itself never change, so that an update can be recorded. */
#include "nn/optim/optim.h"

#include <float.h>
#include <math.h>

#include "base/mem.h"
#include "nn/engine_impl.h"
#include "nn/optim/update.h"

struct ct_optim {
	ct_net *net;
	uint64_t steps;
	struct ct_update update;
	struct ct_segment *segments;
	struct ct_chunk *chunks;
};

/* Options that only some optimizers have. */
enum { MOMENTUM = 1, NESTEROV = 2, BETAS = 4, EPS = 8, TRUST = 16 };

/* Everything about an optimizer except its formula, which is in nn/optim/arena_ops.c. */
static const struct kind {
	const char *title; /* in messages */
	double lr;         /* the default learning rate: PyTorch's for the Adam family */
	unsigned options;
	bool adapts; /* weights have a trust ratio, and other parameters have no weight decay */
	const char *states[CT_OPTIM_MAX_STATES]; /* their names; an optimizer with MOMENTUM has states only if it is
						    above 0 */
} kinds[] = {
	[CT_SGD] = {"SGD", 0.05, MOMENTUM | NESTEROV, false, {"momentum_buffer"}},
	[CT_ADAM] = {"Adam", 0.001, BETAS | EPS, false, {"exp_avg", "exp_avg_sq"}},
	[CT_ADAMW] = {"AdamW", 0.001, BETAS | EPS, false, {"exp_avg", "exp_avg_sq"}},
	[CT_LARS] = {"LARS", 0.05, MOMENTUM | TRUST, true, {"momentum_buffer"}},
	[CT_LAMB] = {"LAMB", 0.001, BETAS | EPS, true, {"exp_avg", "exp_avg_sq"}},
};
_Static_assert(CT_ARRAY_LEN(kinds) == CT_N_OPTIMIZERS, "one row for each optimizer");

double ct_optim_default_lr(enum ct_optim_kind kind)
{
	return kinds[kind].lr;
}

static enum ct_status check_momentum(const struct kind *k, const struct ct_optim_opts *o)
{
	if (!(o->momentum >= 0 && o->momentum < 1))
		return CT_FAIL(CT_CONFIG, "momentum %g must be in [0, 1)", o->momentum);
	if (o->nesterov && !(o->momentum > 0))
		return CT_FAIL(CT_CONFIG, "Nesterov momentum needs a momentum above 0");
	if (o->nesterov && !(k->options & NESTEROV))
		return CT_FAIL(CT_CONFIG, "%s does not support Nesterov momentum", k->title);
	return CT_OK;
}

static enum ct_status check_opts(const struct ct_optim_opts *o)
{
	const struct kind *k = &kinds[o->kind];

	if (!(o->weight_decay >= 0 && isfinite(o->weight_decay)))
		return CT_FAIL(CT_CONFIG, "weight decay %g must be at least 0", o->weight_decay);
	if (!(o->clip_norm >= 0))
		return CT_FAIL(CT_CONFIG, "clip norm %g must be at least 0 (0: off)", o->clip_norm);
	if (k->options & MOMENTUM)
		CT_TRY(check_momentum(k, o));
	if (k->options & TRUST && !(o->trust > 0 && isfinite(o->trust)))
		return CT_FAIL(CT_CONFIG, "%s's trust coefficient %g must be above 0", k->title, o->trust);
	if (k->options & BETAS && (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1)))
		return CT_FAIL(CT_CONFIG, "%s's betas (%g, %g) must be in [0, 1)", k->title, o->beta1, o->beta2);
	if (k->options & EPS && !(o->eps > 0 && isfinite(o->eps)))
		return CT_FAIL(CT_CONFIG, "%s's eps %g must be above 0", k->title, o->eps);
	return CT_OK;
}

static bool is_loss_scale(double x)
{
	return x >= CT_LOSS_SCALE_MIN && x <= (double)FLT_MAX;
}

static enum ct_status check_loss_scale(const struct ct_optim_opts *o)
{
	if (!is_loss_scale(o->loss_scale))
		return CT_FAIL(CT_CONFIG, "the loss scale %g must be at least %g", o->loss_scale, CT_LOSS_SCALE_MIN);
	if (o->loss_scale_interval < 1)
		return CT_FAIL(CT_CONFIG, "the loss scale needs an interval of at least 1 update");
	return CT_OK;
}

static void plan_segments(ct_optim *o)
{
	const ct_net *net = o->net;
	const struct ct_optim_opts *opts = &o->update.opts;
	bool adaptive = kinds[opts->kind].adapts;
	int n = 0;

	for (int i = 0; i < net->n_slices; i++) {
		const struct ct_slice *s = &net->slices[i];
		const struct ct_param *param = ct_graph_param(net->graph, s->param);
		size_t end = i + 1 < net->n_slices ? net->slices[i + 1].offset : net->arena_elems;
		bool weight = param->kind == CT_PARAM_WEIGHT;
		bool decay = weight || (!adaptive && opts->decay_norm_bias), adapt = weight && adaptive;
		double factor = ct_lr_factor_of(opts->lr_factors, opts->n_lr_factors, net->graph, s->param);
		struct ct_segment *last = n ? &o->segments[n - 1] : NULL;

		if (param->frozen)
			continue;
		if (last && last->offset + last->n == s->offset && !adapt && !last->adapt && last->decay == decay &&
		    last->lr_factor == factor)
			last->n += end - s->offset;
		else
			o->segments[n++] = (struct ct_segment){.offset = s->offset,
							       .n = end - s->offset,
							       .decay = decay,
							       .adapt = adapt,
							       .lr_factor = factor};
	}
	o->update.n_segments = n;
	o->update.segments = o->segments;
}

static enum ct_status plan_chunks(ct_optim *o)
{
	struct ct_update *u = &o->update;

	for (int i = 0; i < u->n_segments; i++) {
		struct ct_segment *s = &o->segments[i];

		s->first_chunk = u->n_chunks;
		s->n_chunks = (int64_t)((s->n + CT_CHUNK_ELEMS - 1) / CT_CHUNK_ELEMS);
		u->n_chunks += s->n_chunks;
	}
	CT_TRY_ALLOC(o->chunks = CT_NEW_ARRAY(struct ct_chunk, (size_t)u->n_chunks));
	CT_TRY_ALLOC(u->sums = CT_NEW_ARRAY(double, 2 * (size_t)u->n_chunks));
	CT_TRY_ALLOC(u->of = CT_NEW_ARRAY(struct ct_factors, (size_t)u->n_segments));
	for (int i = 0; i < u->n_segments; i++) {
		const struct ct_segment *s = &u->segments[i];
		struct ct_chunk *c = o->chunks + s->first_chunk;

		for (size_t at = 0; at < s->n; at += CT_CHUNK_ELEMS)
			*c++ = (struct ct_chunk){s->offset + at,
						 s->n - at < CT_CHUNK_ELEMS ? s->n - at : CT_CHUNK_ELEMS, i};
	}
	u->chunks = o->chunks;
	return CT_OK;
}

static enum ct_status plan(ct_optim *o)
{
	struct ct_update *u = &o->update;
	ct_device *d = o->net->engine->device;

	CT_TRY_ALLOC(o->segments = CT_NEW_ARRAY(struct ct_segment, (size_t)o->net->n_slices));
	plan_segments(o);
	CT_TRY(plan_chunks(o));
	CT_TRY(ct_arena_create(d, CT_F32, CT_UPDATE_RESULTS, &u->result));
	for (int i = 0; i < u->n_states; i++)
		CT_TRY(ct_arena_create(d, CT_F32, o->net->arena_elems, &u->state[i]));
	return CT_OK;
}

int ct_optim_n_states(const struct ct_optim_opts *opts)
{
	const struct kind *k = &kinds[opts->kind];
	int n = 0;

	if (k->options & MOMENTUM && !(opts->momentum > 0))
		return 0;
	while (n < CT_OPTIM_MAX_STATES && k->states[n])
		n++;
	return n;
}

enum ct_status ct_optim_create(ct_net *net, const struct ct_optim_opts *opts, ct_optim **out)
{
	ct_optim *o;

	CT_TRY(check_opts(opts));
	CT_TRY(ct_lr_factors_check(opts->lr_factors, opts->n_lr_factors, NULL));
	if (!net->opts.train)
		return CT_FAIL(CT_BUG, "an optimizer needs a net that was made for training");
	if (net->opts.precision == CT_PRECISION_FP16)
		CT_TRY(check_loss_scale(opts));
	CT_TRY_ALLOC(o = CT_NEW(ct_optim));
	o->net = net;
	o->update.opts = *opts;
	o->update.n_states = ct_optim_n_states(opts);
	enum ct_status st = plan(o);
	if (st == CT_OK && net->engine->arenas->update_open)
		st = net->engine->arenas->update_open(net, &o->update);
	if (st == CT_OK && ct_optim_scales_loss(o))
		st = ct_optim_set_loss_scale(o, opts->loss_scale, 0, 0);
	if (st < 0) {
		ct_optim_destroy(o);
		return st;
	}
	*out = o;
	return CT_OK;
}

void ct_optim_destroy(ct_optim *o)
{
	if (!o)
		return;
	if (o->net->engine->arenas->update_close)
		o->net->engine->arenas->update_close(o->net, &o->update);
	for (int i = 0; i < o->update.n_states; i++)
		ct_arena_destroy(o->update.state[i]);
	ct_arena_destroy(o->update.result);
	ct_free(o->update.of);
	ct_free(o->update.sums);
	ct_free(o->chunks);
	ct_free(o->segments);
	ct_free(o);
}

void ct_optim_watch_loss(ct_optim *o, const ct_arena *scalars, size_t i)
{
	CT_ASSERT(ct_arena_dtype(scalars) == CT_F32 && i < ct_arena_elems(scalars));
	o->update.loss = scalars;
	o->update.loss_at = i;
}

void ct_optim_sum_stages(ct_optim *o, enum ct_status (*sum)(void *user, double *s), void *user)
{
	o->update.sum_stages = sum;
	o->update.sum_stages_user = user;
}

ct_net *ct_optim_net(const ct_optim *o)
{
	return o->net;
}

void ct_optim_begin(ct_optim *o, double lr, struct ct_step_args *args)
{
	args->update = ++o->steps;
	args->lr = lr;
}

static void touch(const ct_optim *o)
{
	ct_arena_touch(o->net->params);
	for (int i = 0; i < o->update.n_states; i++)
		ct_arena_touch(o->update.state[i]);
}

static void note_update(const ct_optim *o)
{
	if (o->net->engine->arenas->updated)
		o->net->engine->arenas->updated(o->net);
}

void ct_optim_posted_again(ct_optim *o)
{
	touch(o);
	note_update(o);
}

enum ct_status ct_optim_post(ct_optim *o)
{
	touch(o);
	CT_TRY(o->net->engine->arenas->update(o->net, &o->update));
	note_update(o);
	return CT_OK;
}

ct_arena *ct_optim_result(ct_optim *o)
{
	return o->update.result;
}

enum ct_status ct_optim_place_result(ct_optim *o, float *memory)
{
	ct_arena *result;

	CT_TRY(ct_arena_wrap(o->net->engine->device, CT_F32, CT_UPDATE_RESULTS, memory, &result));
	ct_arena_destroy(o->update.result);
	o->update.result = result;
	return CT_OK;
}

bool ct_optim_scales_loss(const ct_optim *o)
{
	return o->net->opts.precision == CT_PRECISION_FP16;
}

enum ct_status ct_optim_set_loss_scale(ct_optim *o, double scale, uint32_t steps, uint64_t n_skipped)
{
	const struct ct_loss_scale s = {.scale = (float)scale, .steps = steps, .skipped = n_skipped};

	if (!is_loss_scale(scale))
		return CT_FAIL(CT_DATA, "%g is not a loss scale", scale);
	return ct__net_set_loss_scale(o->net, &s);
}

uint64_t ct_optim_steps(const ct_optim *o)
{
	return o->steps;
}

void ct_optim_set_steps(ct_optim *o, uint64_t n)
{
	o->steps = n;
}

const char *ct_optim_state_name(const ct_optim *o, int i)
{
	return i < 0 || i >= o->update.n_states ? NULL : kinds[o->update.opts.kind].states[i];
}

ct_arena *ct_optim_state(ct_optim *o, int i)
{
	return i < 0 || i >= o->update.n_states ? NULL : o->update.state[i];
}
