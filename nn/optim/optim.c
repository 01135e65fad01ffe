#include "nn/optim/optim.h"

#include <math.h>

#include "base/mem.h"
#include "nn/engine_impl.h"
#include "nn/host/optim_kernels.h"

#define MAX_STATES 2

#define LARS_EPS 1e-8

/* A run of neighbouring slices that are treated alike, or one slice with a trust ratio of its own. */
struct segment {
	size_t offset, n;
	bool decay, adapt;
};

struct ct_optim {
	ct_net *net;
	struct ct_optim_opts opts;
	const struct ct_optim_kernels *kernels;
	uint64_t steps;
	int n_states;
	float *state[MAX_STATES]; /* arenas */
	int n_segments;
	struct segment *segments;
};

static enum ct_status check_opts(const struct ct_optim_opts *o)
{
	if (!(o->weight_decay >= 0 && isfinite(o->weight_decay)))
		return CT_FAIL(CT_CONFIG, "weight decay %g must be at least 0", o->weight_decay);
	if (!(o->clip_norm >= 0))
		return CT_FAIL(CT_CONFIG, "clip norm %g must be at least 0 (0: off)", o->clip_norm);
	if (o->kind == CT_SGD || o->kind == CT_LARS) {
		if (!(o->momentum >= 0 && o->momentum < 1))
			return CT_FAIL(CT_CONFIG, "momentum %g must lie in [0, 1)", o->momentum);
		if (o->nesterov && !(o->momentum > 0))
			return CT_FAIL(CT_CONFIG, "Nesterov needs a momentum above 0");
		if (o->nesterov && o->kind == CT_LARS)
			return CT_FAIL(CT_CONFIG, "LARS has no Nesterov momentum");
		if (o->kind == CT_LARS && !(o->trust > 0 && isfinite(o->trust)))
			return CT_FAIL(CT_CONFIG, "LARS's trust coefficient %g must be above 0", o->trust);
		return CT_OK;
	}
	const char *name = o->kind == CT_LAMB ? "LAMB" : "AdamW";
	if (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1))
		return CT_FAIL(CT_CONFIG, "%s's betas (%g, %g) must lie in [0, 1)", name, o->beta1, o->beta2);
	if (!(o->eps > 0 && isfinite(o->eps)))
		return CT_FAIL(CT_CONFIG, "%s's eps %g must be above 0", name, o->eps);
	return CT_OK;
}

/* Segments cover the padding between slices as well: it is zero and stays zero. */
static void plan_segments(ct_optim *o)
{
	const ct_net *net = o->net;
	bool adaptive = o->opts.kind == CT_LARS || o->opts.kind == CT_LAMB;

	for (int i = 0; i < net->n_slices; i++) {
		const struct ct_slice *s = &net->slices[i];
		size_t end = i + 1 < net->n_slices ? net->slices[i + 1].offset : net->arena_elems;
		bool weight = ct_graph_param(net->graph, s->param)->kind == CT_PARAM_WEIGHT;
		bool decay = weight || (!adaptive && o->opts.decay_norm_bias), adapt = weight && adaptive;
		struct segment *last = o->n_segments ? &o->segments[o->n_segments - 1] : NULL;
		if (last && !adapt && !last->adapt && last->decay == decay)
			last->n += end - s->offset;
		else
			o->segments[o->n_segments++] = (struct segment){s->offset, end - s->offset, decay, adapt};
	}
}

static enum ct_status alloc_optim(ct_optim *o)
{
	size_t bytes = (o->net->arena_elems ? o->net->arena_elems : 1) * sizeof(float);

	CT_TRY_ALLOC(o->segments = CT_NEW_ARRAY(struct segment, (size_t)o->net->n_slices));
	for (int i = 0; i < o->n_states; i++) {
		void *p;
		CT_TRY(ct_device_mem_alloc(o->net->engine->device, bytes, true, &p));
		o->state[i] = p;
	}
	return CT_OK;
}

int ct_optim_n_states(const struct ct_optim_opts *opts)
{
	return opts->kind == CT_ADAMW || opts->kind == CT_LAMB ? 2 : opts->momentum > 0;
}

enum ct_status ct_optim_create(ct_net *net, const struct ct_optim_opts *opts, ct_optim **out)
{
	ct_optim *o;

	CT_TRY(check_opts(opts));
	if (!net->opts.train)
		return CT_FAIL(CT_BUG, "an optimizer for a net made for evaluation");
	CT_TRY_ALLOC(o = CT_NEW(ct_optim));
	o->net = net;
	o->opts = *opts;
	o->kernels = ct_optim_kernels_at(0);
	o->n_states = ct_optim_n_states(opts);
	enum ct_status st = alloc_optim(o);
	if (st < 0) {
		ct_optim_destroy(o);
		return st;
	}
	plan_segments(o);
	*out = o;
	return CT_OK;
}

void ct_optim_destroy(ct_optim *o)
{
	if (!o)
		return;
	for (int i = 0; i < o->n_states; i++) {
		if (o->state[i])
			ct_device_mem_free(o->net->engine->device, o->state[i]);
	}
	ct_free(o->segments);
	ct_free(o);
}

/* Norms of a segment of the parameters and of the clipped gradient -> factor on the latter and on the decay. */
static void adapt_lars(const ct_optim *o, const struct segment *s, float clip, struct ct_sgd_coefs *c)
{
	double w = sqrt(o->kernels->sum_squares(s->n, o->net->params + s->offset));
	double g = (double)clip * sqrt(o->kernels->sum_squares(s->n, o->net->grads + s->offset));
	double decay = o->opts.weight_decay, q = o->opts.trust * w / (g + decay * w + LARS_EPS);

	c->clip = clip;
	c->weight_decay = 0;
	if (w > 0 && g > 0) {
		c->clip = (float)(q * (double)clip);
		c->weight_decay = (float)(q * decay);
	}
}

static void step_sgd(ct_optim *o, double lr, float clip)
{
	struct ct_sgd_coefs c = {
		.lr = (float)lr, .momentum = (float)o->opts.momentum, .clip = clip, .nesterov = o->opts.nesterov};
	const ct_net *net = o->net;

	for (int i = 0; i < o->n_segments; i++) {
		const struct segment *s = &o->segments[i];
		c.weight_decay = s->decay ? (float)o->opts.weight_decay : 0.0f;
		c.clip = clip;
		if (s->adapt)
			adapt_lars(o, s, clip, &c);
		o->kernels->sgd(s->n, net->params + s->offset, net->grads + s->offset,
				o->n_states ? o->state[0] + s->offset : NULL, &c);
	}
}

static void lamb_segment(ct_optim *o, const struct segment *s, double lr, const struct ct_adamw_coefs *a)
{
	float *p = o->net->params + s->offset, *m = o->state[0] + s->offset, *v = o->state[1] + s->offset;
	struct ct_lamb_coefs c = {
		.inverse_bias1 = (float)(1 / (1 - pow(o->opts.beta1, (double)(o->steps + 1)))),
		.one_minus_beta1 = a->one_minus_beta1,
		.beta2 = a->beta2,
		.one_minus_beta2 = a->one_minus_beta2,
		.inverse_sqrt_bias2 = a->inverse_sqrt_bias2,
		.eps = a->eps,
		.clip = a->clip,
		.weight_decay = (float)o->opts.weight_decay,
	};
	double sums[2];

	o->kernels->lamb_moments(s->n, p, o->net->grads + s->offset, m, v, &c, sums);
	double ratio = sums[0] > 0 && sums[1] > 0 ? sqrt(sums[0] / sums[1]) : 1;
	c.step = (float)(lr * ratio);
	o->kernels->lamb_apply(s->n, p, m, v, &c);
}

/* AdamW, and LAMB, which is Adam where it does not adapt. */
static void step_adamw(ct_optim *o, double lr, float clip)
{
	const struct ct_optim_opts *opts = &o->opts;
	const ct_net *net = o->net;
	double t = (double)(o->steps + 1);
	struct ct_adamw_coefs c = {
		.step = (float)(lr / (1 - pow(opts->beta1, t))),
		.one_minus_beta1 = (float)(1 - opts->beta1),
		.beta2 = (float)opts->beta2,
		.one_minus_beta2 = (float)(1 - opts->beta2),
		.inverse_sqrt_bias2 = (float)(1 / sqrt(1 - pow(opts->beta2, t))),
		.eps = (float)opts->eps,
		.clip = clip,
	};

	for (int i = 0; i < o->n_segments; i++) {
		const struct segment *s = &o->segments[i];
		if (s->adapt) {
			lamb_segment(o, s, lr, &c);
			continue;
		}
		c.shrink = s->decay ? (float)(1 - lr * opts->weight_decay) : 1.0f;
		o->kernels->adamw(s->n, net->params + s->offset, net->grads + s->offset, o->state[0] + s->offset,
				  o->state[1] + s->offset, &c);
	}
}

enum ct_status ct_optim_step(ct_optim *o, double lr, double *grad_norm)
{
	float clip = 1.0f;

	if (grad_norm || o->opts.clip_norm > 0) {
		double norm = sqrt(o->kernels->sum_squares(o->net->arena_elems, o->net->grads));
		if (grad_norm)
			*grad_norm = norm;
		if (o->opts.clip_norm > 0) {
			if (!isfinite(norm))
				return CT_FAIL(CT_NUMERIC, "the gradient's norm is %g in update %llu", norm,
					       (unsigned long long)(o->steps + 1));
			double factor = o->opts.clip_norm / (norm + 1e-6);
			clip = factor < 1 ? (float)factor : 1.0f;
		}
	}
	if (o->opts.kind == CT_SGD || o->opts.kind == CT_LARS)
		step_sgd(o, lr, clip);
	else
		step_adamw(o, lr, clip);
	o->steps++;
	return CT_OK;
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
	static const char *const sgd[] = {"momentum_buffer"}, *const adamw[] = {"exp_avg", "exp_avg_sq"};

	if (i < 0 || i >= o->n_states)
		return NULL;
	return o->opts.kind == CT_SGD || o->opts.kind == CT_LARS ? sgd[i] : adamw[i];
}

float *ct_optim_state(ct_optim *o, int i)
{
	return i < 0 || i >= o->n_states ? NULL : o->state[i];
}
