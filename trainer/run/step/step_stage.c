/* The work of a step on a stage of a pipeline: the micro-batches of the step in the order of
 * trainer/run/pipeline/pass_schedule.h, and the messages between them. The messages are in host memory, so the host
 * waits for each pass. */
#include <string.h>

#include "trainer/run/pipeline/pass_schedule.h"
#include "trainer/run/step/step_impl.h"

/* A step allocates nothing, so the programs of all contexts are compiled now. */
static enum ct_status open_stage(ct_stepper *p)
{
	ct_program *program;

	CT_TRY_ALLOC(p->in_flight = CT_NEW_ARRAY(struct step_micro, (size_t)p->s->pipe->n_contexts));
	for (int i = 1; i < p->s->pipe->n_contexts; i++)
		CT_TRY(ct__step_program(p, (int)p->s->plan.micro_rows, i, &program));
	return CT_OK;
}

static void close_stage(ct_stepper *p)
{
	ct_free(p->in_flight);
}

/* Returns the number of micro-batches of the step that have rows. They come before those without. */
static int n_with_rows(const ct_stepper *p)
{
	struct ct_sampler sampler = p->s->plan.train;
	int n = 0;

	sampler.rank = (uint32_t)ct_session_replica(p->s);
	while (n < (int)sampler.accumulate &&
	       ct_sampler_slice(&sampler, p->s->state.step_in_epoch, (uint32_t)n).count > 0)
		n++;
	return n;
}

/* Loads the batch of a forward pass. The values of the previous stage replace its images. */
static enum ct_status load(ct_stepper *p, struct step_slot *slot, int context)
{
	const struct ct_session *s = p->s;
	struct step_micro *m = &p->in_flight[context];

	CT_TRY(ct__step_load(p, slot, m));
	CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_DATA));
	float *x = ct_pipeline_input(s->pipe, context); /* larger images may have moved it */
	m->batch.y = s->pipe->y;
	if (!ct_pipeline_is_first(s->pipe)) {
		m->batch.x = x;
	} else if (x && s->plan.net.input == CT_INPUT_F32_NCHW) {
		memcpy(x, m->batch.x, (size_t)m->batch.n * s->pipe->in_elems * sizeof(*x));
		m->batch.x = x;
	}
	return CT_OK;
}

/* The next message needs what the pass has written, or the memory that it has read. */
static enum ct_status wait_pass(ct_stepper *p)
{
	return ct__step_sync(p, "the pass of a micro-batch");
}

/* Runs one pass. The results of the pass before it are being sent in *t. */
static enum ct_status run_pass(ct_stepper *p, struct step_slot *slot, const struct ct_pipe_task *task,
			       struct ct_transfer *t)
{
	struct ct_pipeline *pipe = p->s->pipe;
	const int context = task->micro % pipe->n_contexts;
	const struct step_micro *m = &p->in_flight[context];

	if (task->backward)
		CT_TRY(ct_pipeline_receive_gradient(pipe, m->batch.n, t));
	else
		CT_TRY(load(p, slot, context));
	if (!task->backward)
		CT_TRY(ct_pipeline_receive_input(pipe, context, m->batch.n, t));
	CT_TRY(ct_pipeline_wait(t));
	CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_EXPOSED));
	if (!task->backward) {
		CT_TRY(ct__step_forward(p, slot, m, context));
		CT_TRY(ct_lent_posted(&p->lent));
		CT_TRY(wait_pass(p));
		return ct_pipeline_send_output(pipe, m->batch.n, t);
	}
	CT_TRY(ct__step_backward(p, slot, m, context, ct_pipeline_is_last(pipe) ? NULL : pipe->dy,
				 ct_pipeline_is_first(pipe) ? NULL : pipe->dx));
	CT_TRY(wait_pass(p));
	return ct_pipeline_send_gradient(pipe, m->batch.n, t);
}

static enum ct_status run_stage(ct_stepper *p, struct step_slot *slot)
{
	struct ct_session *s = p->s;
	const ct_graph *g = ct_session_train_graph(&s->model);
	const int n = n_with_rows(p);
	struct ct_pipe_schedule schedule = ct_pipe_begin(s->pipe->stages.n, s->pipe->stages.stage, n);
	struct ct_transfer t = {0};
	struct ct_pipe_task task;
	struct step_micro m;

	/* An evaluation may have used other sizes. */
	CT_TRY(ct_pipeline_reserve(s->pipe, g, (int)s->plan.micro_rows));
	while (ct_pipe_next(&schedule, &task))
		CT_TRY(run_pass(p, slot, &task, &t));
	CT_TRY(ct_pipeline_wait(&t));
	CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_EXPOSED));
	for (int i = n; i < (int)s->plan.accumulate; i++) {
		CT_TRY(ct__step_load(p, slot, &m));
		CT_TRY(ct__step_empty(p, &m));
		CT_TRY(ct_lent_posted(&p->lent));
	}
	return ct__step_post_scalars(p, slot);
}

/* Sums the scalars over all ranks, whose update has to agree. Only the last stage has a loss. The next operation of
 * this communicator is a message of the host. */
static enum ct_status sum_scalars(ct_stepper *p)
{
	struct ct_session *s = p->s;

	CT_TRY(ct_comm_post_allreduce(s->comm, ct_arena_at(s->grad.scalars, 0), CT_SCALAR_UPDATE, CT_F32, CT_SUM,
				      p->stream));
	return ct__step_sync(p, "the sums of a step");
}

const struct step_way ct__step_stage = {
	.open = open_stage,
	.post = ct__step_post_each,
	.run = run_stage,
	.sum = sum_scalars,
	.close = close_stage,
};
