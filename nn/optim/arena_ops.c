/* Passes over arenas in the form of host functions that are posted to the engine's stream. They are the default for
 * every engine on a device with host_code. Threads take chunks of a fixed size. A sum is computed as one or two partial
 * sums per chunk (u->sums), which are added in order, so results do not depend on the number of threads. The partial
 * sums are used before the next pass overwrites them.
 *
 * An update first decides: the loss, then the norm of the gradient. `stopped` in the state of the net, once set, makes
 * this update, all later ones and updates of EMA weights change nothing. Then coefficients are computed in double for
 * each segment, after the passes that compute norms of parameters (LARS, LAMB), and one pass changes parameters and
 * states. All formulas keep the padding zero. nn/cuda/kernels/update.cu has the same formulas in the same order. */
#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "nn/engine_impl.h"
#include "nn/optim/optim_kernels_impl.h"
#include "nn/optim/update.h"

#define LARS_EPS 1e-8

struct update_args {
	ct_net *net;
	const struct ct_update *u;
};

/* The state of an update while it runs. */
struct pass {
	const struct update_args *args;
	const struct ct_step_args *step;
	const struct ct_update *u;
	const struct ct_optim_kernels *kernels;
	float *params, *grads, *state[CT_OPTIM_MAX_STATES];
	struct ct_sgd_coefs sgd;
	struct ct_adam_coefs adam;
	struct ct_lamb_coefs lamb;
};

static float *f32_at(const ct_arena *a, size_t i)
{
	return ct_arena_at(a, i);
}

static void for_chunks(struct pass *p, ct_range_fn run)
{
	ct_parallel_for(p->args->net->engine->threads, p->u->n_chunks, 1, run, p);
}

/* Adds up one of the two sums of each chunk (u->sums) over the chunks [first, first + n). */
static double add_sums(const struct ct_update *u, int64_t first, int64_t n, int which)
{
	double sum = 0;

	for (int64_t i = first; i < first + n; i++)
		sum += u->sums[2 * i + which];
	return sum;
}

static double segment_sum(const struct ct_update *u, const struct ct_segment *s, int which)
{
	return add_sums(u, s->first_chunk, s->n_chunks, which);
}

static void square_gradients(void *arg, int64_t begin, int64_t end)
{
	const struct pass *p = arg;

	for (int64_t i = begin; i < end; i++)
		p->u->sums[2 * i] = p->kernels->sum_squares(p->u->chunks[i].n, p->grads + p->u->chunks[i].offset);
}

static void square_weights(void *arg, int64_t begin, int64_t end)
{
	const struct pass *p = arg;

	for (int64_t i = begin; i < end; i++)
		p->u->sums[2 * i] = p->kernels->sum_squares(p->u->chunks[i].n, p->params + p->u->chunks[i].offset);
}

static void lars_sums(void *arg, int64_t begin, int64_t end)
{
	const struct pass *p = arg;

	for (int64_t i = begin; i < end; i++) {
		const struct ct_chunk *c = &p->u->chunks[i];

		if (!p->u->segments[c->segment].adapt)
			continue;
		p->u->sums[2 * i] = p->kernels->sum_squares(c->n, p->params + c->offset);
		p->u->sums[2 * i + 1] = p->kernels->sum_squares(c->n, p->grads + c->offset);
	}
}

/* LARS: sets the factor of the gradient and the weight decay, from the norms of the parameters and of the clipped
 * gradient of a segment. */
static void adapt_lars(const struct ct_update *u, const struct ct_segment *s, float clip, struct ct_factors *f)
{
	double w = sqrt(segment_sum(u, s, 0)), g = (double)clip * sqrt(segment_sum(u, s, 1));
	double decay = u->opts.weight_decay, q = u->opts.trust * w / (g + decay * w + LARS_EPS);

	f->weight_decay = 0;
	if (w > 0 && g > 0) {
		f->clip = (float)(q * (double)clip);
		f->weight_decay = (float)(q * decay);
	}
}

static void sgd_chunks(void *arg, int64_t begin, int64_t end)
{
	const struct pass *p = arg;

	for (int64_t i = begin; i < end; i++) {
		const struct ct_chunk *k = &p->u->chunks[i];
		struct ct_sgd_coefs c = p->sgd;

		c.lr = p->u->of[k->segment].step;
		c.weight_decay = p->u->of[k->segment].weight_decay;
		c.clip = p->u->of[k->segment].clip;
		p->kernels->sgd(k->n, p->params + k->offset, p->grads + k->offset,
				p->state[0] ? p->state[0] + k->offset : NULL, &c);
	}
}

static void step_sgd(struct pass *p, float clip)
{
	const struct ct_update *u = p->u;

	p->sgd = (struct ct_sgd_coefs){.momentum = (float)u->opts.momentum, .nesterov = u->opts.nesterov};
	if (u->opts.kind == CT_LARS)
		for_chunks(p, lars_sums);
	for (int i = 0; i < u->n_segments; i++) {
		const struct ct_segment *s = &u->segments[i];

		u->of[i] = (struct ct_factors){.clip = clip,
					       .weight_decay = s->decay ? (float)u->opts.weight_decay : 0.0f,
					       .step = (float)(p->step->lr * s->lr_factor)};
		if (s->adapt)
			adapt_lars(u, s, clip, &u->of[i]);
	}
	for_chunks(p, sgd_chunks);
}

static void lamb_moments(void *arg, int64_t begin, int64_t end)
{
	const struct pass *p = arg;

	for (int64_t i = begin; i < end; i++) {
		const struct ct_chunk *k = &p->u->chunks[i];

		if (p->u->segments[k->segment].adapt)
			p->kernels->lamb_moments(k->n, p->params + k->offset, p->grads + k->offset,
						 p->state[0] + k->offset, p->state[1] + k->offset, &p->lamb,
						 &p->u->sums[2 * i]);
	}
}

static void adam_chunks(void *arg, int64_t begin, int64_t end)
{
	const struct pass *p = arg;

	for (int64_t i = begin; i < end; i++) {
		const struct ct_chunk *k = &p->u->chunks[i];
		float *w = p->params + k->offset, *m = p->state[0] + k->offset, *v = p->state[1] + k->offset;
		struct ct_adam_coefs c = p->adam;
		struct ct_lamb_coefs l = p->lamb;

		if (p->u->segments[k->segment].adapt) {
			l.step = p->u->of[k->segment].step;
			p->kernels->lamb_apply(k->n, w, m, v, &l);
			continue;
		}
		c.shrink = p->u->of[k->segment].shrink;
		c.l2 = p->u->of[k->segment].weight_decay;
		c.step = p->u->of[k->segment].step;
		p->kernels->adam(k->n, w, p->grads + k->offset, m, v, &c);
	}
}

static void adam_coefs(struct pass *p, float clip)
{
	const struct ct_optim_opts *o = &p->u->opts;
	double t = (double)p->step->update;

	p->adam = (struct ct_adam_coefs){
		.one_minus_beta1 = (float)(1 - o->beta1),
		.beta2 = (float)o->beta2,
		.one_minus_beta2 = (float)(1 - o->beta2),
		.inverse_sqrt_bias2 = (float)(1 / sqrt(1 - pow(o->beta2, t))),
		.eps = (float)o->eps,
		.clip = clip,
	};
	p->lamb = (struct ct_lamb_coefs){
		.inverse_bias1 = (float)(1 / (1 - pow(o->beta1, t))),
		.one_minus_beta1 = p->adam.one_minus_beta1,
		.beta2 = p->adam.beta2,
		.one_minus_beta2 = p->adam.one_minus_beta2,
		.inverse_sqrt_bias2 = p->adam.inverse_sqrt_bias2,
		.eps = p->adam.eps,
		.clip = clip,
		.weight_decay = (float)o->weight_decay,
	};
}

/* Adam, AdamW, and also LAMB, which is plain Adam for segments without a trust ratio. */
static void step_adam(struct pass *p, float clip)
{
	const struct ct_update *u = p->u;
	const double bias1 = 1 - pow(u->opts.beta1, (double)p->step->update);
	const bool l2 = u->opts.kind == CT_ADAM;

	adam_coefs(p, clip);
	if (u->opts.kind == CT_LAMB)
		for_chunks(p, lamb_moments);
	for (int i = 0; i < u->n_segments; i++) {
		const struct ct_segment *s = &u->segments[i];
		const double lr = p->step->lr * s->lr_factor;

		u->of[i] =
			(struct ct_factors){.weight_decay = s->decay && l2 ? (float)u->opts.weight_decay : 0.0f,
					    .shrink = s->decay && !l2 ? (float)(1 - lr * u->opts.weight_decay) : 1.0f,
					    .step = (float)(lr / bias1)};
		if (s->adapt) {
			double w2 = segment_sum(u, s, 0), u2 = segment_sum(u, s, 1);

			u->of[i].step = (float)(lr * (w2 > 0 && u2 > 0 ? sqrt(w2 / u2) : 1));
		}
	}
	for_chunks(p, adam_chunks);
}

/* Computes the factor of the gradient; stops all updates if the norm is not finite while clipping or its check is on.
 */
static enum ct_status clip_gradient(struct pass *p, float *norm_out, float *factor_out)
{
	const struct ct_optim_opts *o = &p->u->opts;
	const bool decides = o->clip_norm > 0 || o->check_norm;

	*factor_out = 1.0f;
	if (!decides && !p->step->norms)
		return CT_OK;
	for_chunks(p, square_gradients);
	double squares = add_sums(p->u, 0, p->u->n_chunks, 0);
	if (p->u->sum_stages)
		CT_TRY(p->u->sum_stages(p->u->sum_stages_user, &squares));
	double norm = sqrt(squares);
	*norm_out = (float)norm;
	if (decides && !isfinite(norm))
		p->args->net->state->stopped = CT_UPDATE_BAD_NORM;
	double factor = o->clip_norm / (norm + 1e-6);
	*factor_out = o->clip_norm > 0 && factor < 1 ? (float)factor : 1.0f;
	return CT_OK;
}

static enum ct_status weight_norm(struct pass *p, float *out)
{
	for_chunks(p, square_weights);
	double squares = add_sums(p->u, 0, p->u->n_chunks, 0);
	if (p->u->sum_stages)
		CT_TRY(p->u->sum_stages(p->u->sum_stages_user, &squares));
	*out = (float)sqrt(squares);
	return CT_OK;
}

static enum ct_status run_update(const void *args)
{
	const struct update_args *a = args;
	const struct ct_update *u = a->u;
	struct ct_net_state *state = a->net->state;
	float *result = f32_at(u->result, 0), clip = 1.0f;
	struct pass p = {.args = a, .step = &state->step, .u = u, .kernels = ct__optim_kernels_at(0)};

	p.params = f32_at(a->net->params, 0);
	p.grads = f32_at(a->net->grads, 0);
	for (int i = 0; i < u->n_states; i++)
		p.state[i] = f32_at(u->state[i], 0);
	result[CT_UPDATE_NORM] = result[CT_UPDATE_WEIGHT_NORM] = -1;
	if (state->step.norms)
		CT_TRY(weight_norm(&p, &result[CT_UPDATE_WEIGHT_NORM]));
	if (!state->stopped && u->loss && !isfinite(*f32_at(u->loss, u->loss_at)))
		state->stopped = CT_UPDATE_BAD_LOSS;
	if (!state->stopped)
		CT_TRY(clip_gradient(&p, &result[CT_UPDATE_NORM], &clip));
	result[CT_UPDATE_OUTCOME] = (float)state->stopped;
	if (state->stopped)
		return CT_OK;
	switch (u->opts.kind) {
	case CT_SGD:
	case CT_LARS:
		step_sgd(&p, clip);
		break;
	case CT_ADAM:
	case CT_ADAMW:
	case CT_LAMB:
		step_adam(&p, clip);
		break;
	}
	return CT_OK;
}

static enum ct_status post_update(ct_net *net, const struct ct_update *u)
{
	const struct update_args a = {net, u};

	return ct_stream_run(net->engine->stream, run_update, &a, sizeof(a));
}

/* The arguments of an operation on two ranges of n fp32 elements. */
struct pair {
	const ct_net *net;
	float *a, *b;
	size_t n;
	float decay, rest;
};

static enum ct_status each_chunk(const struct pair *p, ct_range_fn run)
{
	int64_t n = (int64_t)((p->n + CT_CHUNK_ELEMS - 1) / CT_CHUNK_ELEMS);

	ct_parallel_for(p->net->engine->threads, n, 1, run, (void *)p);
	return CT_OK;
}

/* Returns the number of elements in the chunks [begin, end); *first is the index of the first one. */
static size_t chunk_range(const struct pair *p, int64_t begin, int64_t end, size_t *first)
{
	size_t last = (size_t)end * CT_CHUNK_ELEMS;

	*first = (size_t)begin * CT_CHUNK_ELEMS;
	return (last < p->n ? last : p->n) - *first;
}

static void add_chunks(void *arg, int64_t begin, int64_t end)
{
	const struct pair *p = arg;
	size_t first, n = chunk_range(p, begin, end, &first);
	float *restrict a = p->a + first;
	const float *restrict b = p->b + first;

	for (size_t i = 0; i < n; i++)
		a[i] += b[i];
}

static void swap_chunks(void *arg, int64_t begin, int64_t end)
{
	const struct pair *p = arg;
	size_t first, n = chunk_range(p, begin, end, &first);
	float *restrict a = p->a + first, *restrict b = p->b + first;

	for (size_t i = 0; i < n; i++) {
		float t = a[i];

		a[i] = b[i];
		b[i] = t;
	}
}

static void average_chunks(void *arg, int64_t begin, int64_t end)
{
	const struct pair *p = arg;
	size_t first, n = chunk_range(p, begin, end, &first);

	ct__optim_kernels_at(0)->average(n, p->a + first, p->b + first, p->decay, p->rest);
}

static enum ct_status run_add(const void *args)
{
	return each_chunk(args, add_chunks);
}

static enum ct_status run_swap(const void *args)
{
	return each_chunk(args, swap_chunks);
}

static enum ct_status run_average(const void *args)
{
	const struct pair *p = args;

	return p->net->state->stopped ? CT_OK : each_chunk(p, average_chunks);
}

static enum ct_status post_add(const ct_net *net, const struct ct_span *dst, const struct ct_span *src)
{
	const struct pair p = {
		.net = net, .a = f32_at(dst->arena, dst->first), .b = f32_at(src->arena, src->first), .n = dst->n};

	return ct_stream_run(net->engine->stream, run_add, &p, sizeof(p));
}

static enum ct_status post_swap(ct_net *net, ct_arena *a, ct_arena *b)
{
	const struct pair p = {.net = net, .a = f32_at(a, 0), .b = f32_at(b, 0), .n = ct_arena_elems(a)};

	return ct_stream_run(net->engine->stream, run_swap, &p, sizeof(p));
}

static enum ct_status post_average(ct_net *net, const struct ct_span *average, const ct_arena *x, double decay)
{
	const struct pair p = {.net = net,
			       .a = f32_at(average->arena, average->first),
			       .b = f32_at(x, average->first),
			       .n = average->n,
			       .decay = (float)decay,
			       .rest = (float)(1 - decay)};

	return ct_stream_run(net->engine->stream, run_average, &p, sizeof(p));
}

struct convert_args {
	struct ct_conversion what;
	int threads;
};

static void convert_chunks(void *arg, int64_t begin, int64_t end)
{
	const struct convert_args *a = arg;
	const struct ct_conversion *c = &a->what;
	const size_t first = (size_t)begin * CT_CHUNK_ELEMS, last = (size_t)end * CT_CHUNK_ELEMS,
		     n = (last < c->n ? last : c->n) - first;
	const struct ct_optim_kernels *k = ct__optim_kernels_at(0);

	if (c->to_type == c->from_type)
		memcpy((float *)c->to + first, (const float *)c->from + first, n * sizeof(float));
	else if (c->to_type == CT_F32)
		k->from_half(n, (float *)c->to + first, (const uint16_t *)c->from + first, c->from_type);
	else
		k->to_half(n, (uint16_t *)c->to + first, (const float *)c->from + first, c->to_type);
}

static enum ct_status run_convert(const void *args)
{
	const struct convert_args *a = args;

	ct_parallel_for(a->threads, (int64_t)((a->what.n + CT_CHUNK_ELEMS - 1) / CT_CHUNK_ELEMS), 1, convert_chunks,
			(void *)a);
	return CT_OK;
}

static enum ct_status post_convert(const ct_net *net, const struct ct_conversion *c, ct_stream *s)
{
	struct convert_args a;

	CT_ASSERT(c->to_type == CT_F32 || c->from_type == CT_F32);
	memset(&a, 0, sizeof(a)); /* padding, too: ct_stream_run */
	a.what = *c;
	a.threads = net->engine->threads;
	return ct_stream_run(s, run_convert, &a, sizeof(a));
}

struct loss_args {
	struct ct_net_state *state;
	float *loss;
};

static enum ct_status run_loss(const void *args)
{
	const struct loss_args *a = args;

	*a->loss = (float)a->state->metrics.loss;
	a->state->metrics = (struct ct_metrics){0};
	return CT_OK;
}

static enum ct_status post_loss(ct_net *net, float *loss)
{
	const struct loss_args a = {net->state, loss};

	return ct_stream_run(net->engine->stream, run_loss, &a, sizeof(a));
}

const struct ct_arena_ops ct__arena_ops_host = {
	.add = post_add,
	.update = post_update,
	.average = post_average,
	.swap = post_swap,
	.loss = post_loss,
	.convert = post_convert,
};
