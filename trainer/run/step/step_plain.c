/* Steps of a rank that has the whole model, in two ways.
 *
 * plain: each micro-batch is posted when the loader has delivered it, and its work reads the memory of the loader,
 * which gets this memory back when the work is done (lent.h). This is the way of CPUs, and of asynchronous devices if a
 * step has many micro-batches.
 *
 * ahead: all micro-batches of a step are loaded and copied to device memory by a stream of their own, while the device
 * still computes earlier steps. The work of the step waits for these copies. Since the copies of a slot are always at
 * the same addresses, the work can also be recorded (step_record.c). */
#include "trainer/run/step/step_impl.h"

static enum ct_status post_micro(ct_stepper *p, struct step_slot *slot, const struct step_micro *m)
{
	if (m->batch.n > 0)
		CT_TRY(ct__step_forward(p, slot, m, 0));
	if (m->last)
		CT_TRY(ct__step_post_scalars(p, slot));
	return m->batch.n > 0 ? ct__step_backward(p, slot, m, 0, NULL, NULL) : ct__step_empty(p, m);
}

/* Posts work that reads the batches of the loader. */
static enum ct_status run_lent(ct_stepper *p, struct step_slot *slot)
{
	struct step_micro m;

	do {
		CT_TRY(ct__step_load(p, slot, &m));
		CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_DATA));
		CT_TRY(post_micro(p, slot, &m));
		CT_TRY(ct_lent_posted(&p->lent));
	} while (!m.last);
	return CT_OK;
}

const struct step_way ct__step_plain = {.post = ct__step_post_each, .run = run_lent};

static struct ct_step_input_size input_size(const ct_stepper *p)
{
	const struct ct_session *s = p->s;
	const ct_graph *g = ct_session_train_graph(&s->model);
	const struct ct_node *loss = ct_graph_node(g, ct_graph_loss(g));

	return (struct ct_step_input_size){
		.n_micros = (int)s->plan.accumulate,
		.n_rows = s->plan.micro_rows,
		.x_bytes = s->data.samples[CT_TRAIN] ? sizeof(struct ct_image_row) : ct__step_image_bytes(p),
		.targets = loss->op == CT_OP_MSE ? (size_t)ct_graph_node(g, loss->in[0])->shape.c : 0,
	};
}

/* Copies a batch to the device. */
static enum ct_status copy_batch(ct_stepper *p, struct step_slot *slot, int i)
{
	struct ct_batch *b = &slot->micros[i].batch;
	const struct ct_step_input_size size = input_size(p);
	ct_program *program;

	if (b->n > 0) {
		CT_TRY(ct__step_program(p, b->n, 0, &program));
		CT_TRY(ct_program_check_batch(program, b));
		CT_TRY(ct_step_input_copy(&slot->input, i, &size, b));
	}
	return ct_lent_posted(&p->lent);
}

enum ct_status ct__step_load_ahead(ct_stepper *p, struct step_slot *slot)
{
	int n = 0;

	do {
		CT_ASSERT(n < (int)p->s->plan.accumulate);
		CT_TRY(ct__step_load(p, slot, &slot->micros[n]));
		CT_TRY(copy_batch(p, slot, n));
	} while (!slot->micros[n++].last);
	slot->n_micros = n;
	return CT_OK;
}

enum ct_status ct__step_run_ahead(ct_stepper *p, struct step_slot *slot)
{
	for (int i = 0; i < slot->n_micros; i++)
		CT_TRY(post_micro(p, slot, &slot->micros[i]));
	return CT_OK;
}

const struct step_way ct__step_ahead = {
	.load = ct__step_load_ahead,
	.post = ct__step_post_each,
	.run = ct__step_run_ahead,
};
