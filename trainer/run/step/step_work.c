/* The pieces of a step: its batches, the forward and the backward pass of each, and the update. */
#include <string.h>

#include "trainer/run/session/resident.h"
#include "trainer/run/step/step_impl.h"

/* Sets the scalars that posted work reads. */
static void set_up(const ct_stepper *p, struct step_slot *slot)
{
	const struct ct_step_request *req = &slot->result.request;

	memset(slot->up, 0, CT_SCALAR_N * sizeof(float));
	slot->up[CT_SCALAR_STOP] = req->stop ? 1 : 0;
	slot->up[CT_SCALAR_SAVE] = req->save ? 1 : 0;
	slot->up[CT_SCALAR_REGROUP] = req->regroup ? 1 : 0;
	slot->up[CT_SCALAR_BAD] = (float)p->n_bad;
}

enum ct_status ct__step_load(ct_stepper *p, struct step_slot *slot, struct step_micro *out)
{
	struct ct_step_result *r = &slot->result;
	struct ct_loader_batch *b;
	int64_t compile_ns = 0;

	CT_TRY(ct_lent_next(&p->lent, &b));
	p->n_bad += ct_session_counts_samples(p->s) ? b->n_bad : 0;
	const struct ct_shape shape = {p->s->plan.input.c, b->h, b->w};
	if (!ct__step_fits_size(p, shape)) {
		CT_ASSERT(p->ring.n_gathered == 0); /* they need the programs of the previous size */
		CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_DATA));
		CT_TRY(ct__step_fit_size(p, shape, &compile_ns));
		CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_NONE));
		r->compile_ns += compile_ns;
	}
	r->n_own += b->n;
	r->n_global = b->n_global;
	r->last_of_epoch = b->last_of_epoch;
	if (b->last_of_step)
		set_up(p, slot);
	*out = (struct step_micro){
		.batch = ct_resident_batch(b),
		.scale = 1.0f / (float)b->n_global,
		.first = b->micro == 0,
		.last = b->last_of_step,
	};
	return CT_OK;
}

size_t ct__step_image_bytes(const ct_stepper *p)
{
	const struct ct_session *s = p->s;
	const ct_graph *g = ct_session_train_graph(&s->model);
	const struct ct_shape *x = &ct_graph_node(g, 0)->shape;
	const size_t element = s->plan.net.input == CT_INPUT_U8_NHWC ? 1 : sizeof(float);

	return element * (size_t)x->c * (size_t)x->h * (size_t)x->w;
}

static enum ct_status slice_ready(void *user, int slice)
{
	return ct_reducer_ready(user, slice);
}

enum ct_status ct__step_empty(ct_stepper *p, const struct step_micro *m)
{
	struct ct_session *s = p->s;

	if (m->first)
		CT_TRY(ct_arena_zero(ct_net_grads(s->net), p->stream));
	if (m->first && s->grad.writes_half)
		CT_TRY(ct_arena_zero(s->grad.half, p->stream));
	for (int i = 0; m->last && i < ct_net_n_trained(s->net); i++)
		CT_TRY(ct_reducer_ready(s->grad.reducer, i));
	return CT_OK;
}

/* The scalars are reduced with the gradients of the last bucket, unless there is a pipeline. A single rank does not
 * send its own scalars to the device. */
enum ct_status ct__step_post_scalars(ct_stepper *p, struct step_slot *slot)
{
	struct ct_session *s = p->s;

	if (s->world.id.world > 1)
		CT_TRY(ct_device_copy(s->device, ct_arena_at(s->grad.scalars, 0), slot->up, CT_SCALAR_N * sizeof(float),
				      p->stream));
	return ct_net_post_loss(s->net, s->grad.scalars, CT_SCALAR_LOSS);
}

enum ct_status ct__step_forward(ct_stepper *p, struct step_slot *slot, const struct step_micro *m, int context)
{
	ct_program *program;

	CT_TRY(ct__step_program(p, m->batch.n, context, &program));
	slot->clock.phase = CT_PHASE_FORWARD;
	CT_TRY(ct_program_forward(program, &m->batch));
	return ct_step_clock_mark(&slot->clock, CT_PHASE_FORWARD);
}

enum ct_status ct__step_backward(ct_stepper *p, struct step_slot *slot, const struct step_micro *m, int context,
				 const float *dy, float *dx)
{
	const struct ct_backward_opts bo = {.scale = m->scale,
					    .accumulate = !m->first,
					    .dy = dy,
					    .dx = dx,
					    .grad_ready = m->last ? slice_ready : NULL,
					    .user = p->s->grad.reducer};
	ct_program *program;

	CT_TRY(ct__step_program(p, m->batch.n, context, &program));
	slot->clock.phase = CT_PHASE_BACKWARD;
	CT_TRY(ct_program_backward(program, &bo));
	return ct_step_clock_mark(&slot->clock, CT_PHASE_BACKWARD);
}

/* Like broadcast_buffers of DDP: every rank starts the step with the running statistics of rank 0. */
static enum ct_status share_statistics(ct_stepper *p, struct step_slot *slot)
{
	struct ct_session *s = p->s;
	ct_arena *buffers = ct_net_buffers(s->net);

	if (s->cfg->model.bn != CT_CFG_BN_BROADCAST || ct_session_n_replicas(s) == 1 || ct_arena_elems(buffers) == 0)
		return CT_OK;
	ct_arena_touch(buffers);
	CT_TRY(ct_comm_post_broadcast(s->group, ct_arena_at(buffers, 0), ct_arena_elems(buffers), CT_F32, 0,
				      p->stream));
	return ct_step_clock_mark(&slot->clock, CT_PHASE_EXPOSED);
}

static enum ct_status post_update(ct_stepper *p, struct step_slot *slot)
{
	struct ct_session *s = p->s;

	CT_TRY(ct_optim_post(s->optim));
	if (s->ema)
		CT_TRY(ct_ema_update(s->ema));
	CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_OPTIM));
	return ct_device_copy(s->device, slot->down, ct_arena_at(s->grad.scalars, 0), CT_SCALAR_N * sizeof(float),
			      p->stream);
}

static enum ct_status post_work(ct_stepper *p, struct step_slot *slot)
{
	CT_TRY(ct_net_post_step_args(p->s->net, slot->args));
	CT_TRY(share_statistics(p, slot));
	ct_reducer_begin(p->s->grad.reducer, true);
	CT_TRY(p->way->run(p, slot));
	/* Where posting is doing, the collectives of the gradients are waited for here. Those of the statistics, and of
	 * synchronized batch norm, are waited for when they are posted. */
	CT_TRY(ct_reducer_finish(p->s->grad.reducer));
	if (p->way->sum)
		CT_TRY(p->way->sum(p));
	if (p->s->world.id.world > 1)
		CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_EXPOSED));
	return post_update(p, slot);
}

enum ct_status ct__step_post_work(ct_stepper *p, struct step_slot *slot)
{
	p->s->clock = &slot->clock;
	enum ct_status st = post_work(p, slot);
	p->s->clock = NULL;
	return st;
}

enum ct_status ct__step_post_each(ct_stepper *p, struct step_slot *first, int n)
{
	for (int i = 0; i < n; i++) {
		struct step_slot *slot = &first[i];

		if (i > 0)
			CT_TRY(ct_step_clock_begin(&slot->clock));
		if (p->copies) {
			CT_TRY(ct_step_input_wait(&slot->input, p->stream));
			CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_DATA));
		}
		CT_TRY(ct__step_post_work(p, slot));
		CT_TRY(ct_event_record(slot->done, p->stream));
		slot->head = slot;
		slot->n_same_end = 0;
	}
	return CT_OK;
}
