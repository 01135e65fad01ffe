/* Recordings of steps. A recorded step reads everything that changes from step to step from memory: its arguments and
 * scalars from the pinned memory of the slot, the batches from the input of the slot. */
#include <stdio.h>
#include <string.h>

#include "trainer/loop/step_impl.h"

/* A recording of more micro-batches needs much memory for their input and saves little. */
enum { MAX_MICROS = 8 };

static enum ct_status cannot(const char *why)
{
	return CT_FAIL_HINT(CT_UNSUPPORTED, "train.cuda_graph=auto records steps only where this is possible",
			    "train.cuda_graph=on: %s", why);
}

enum ct_status ct__step_choose_recording(ct_stepper *p)
{
	const struct ct_session *s = p->s;
	const struct ct_device_caps *caps = ct_device_caps(s->device);
	const bool on = s->cfg->train.cuda_graph == CT_CFG_GRAPH_ON;
	const bool few = s->plan.accumulate <= MAX_MICROS;
	char why[96];

	snprintf(why, sizeof(why), "a %s device cannot record steps", ct_device_kind(s->device));
	if (on && !caps->recordable)
		return cannot(why);
	snprintf(why, sizeof(why), "steps of more than %d batches (train.accumulate) are not recorded", MAX_MICROS);
	if (on && !few)
		return cannot(why);
	p->records = caps->recordable && few && s->cfg->train.cuda_graph != CT_CFG_GRAPH_OFF;
	return few && caps->async ? ct_stream_create(s->device, false, &p->copies) : CT_OK;
}

void ct__step_drop_recordings(ct_stepper *p)
{
	for (int i = 0; i <= p->lag; i++) {
		ct_recording_destroy(p->slots[i].recording);
		p->slots[i].recording = NULL;
		p->slots[i].warm = false;
	}
}

/* Returns whether all micro-batches have all their rows. */
static bool is_full(const ct_stepper *p, const struct step_slot *slot)
{
	for (int i = 0; i < slot->n_micros; i++)
		if (slot->micros[i].batch.n != (int)p->s->plan.micro_rows)
			return false;
	return true;
}

/* Returns whether the work of the step has the same arguments as the recorded work. The arrays are at the same
 * addresses, because they are in the input of the slot. */
static bool is_recorded(const struct step_slot *slot)
{
	if (!slot->recording || slot->n_micros != slot->n_recorded)
		return false;
	for (int i = 0; i < slot->n_micros; i++) {
		const struct step_micro *a = &slot->micros[i], *b = &slot->recorded[i];

		if (a->batch.n != b->batch.n || a->batch.first != b->batch.first || a->scale != b->scale ||
		    a->batch.labels_b != b->batch.labels_b)
			return false;
	}
	return true;
}

static enum ct_status record(ct_stepper *p, struct step_slot *slot)
{
	int first = slot->clock.n;
	ct_recording *r = NULL;
	struct ct_error e;

	CT_TRY(ct_recording_begin(p->stream));
	if (ct__step_post_work(p, slot) < 0) {
		ct_error_save(&e);
		if (ct_recording_end(p->stream, &r) == CT_OK)
			ct_recording_destroy(r);
		return ct_error_restore(&e);
	}
	CT_TRY(ct_recording_end(p->stream, &slot->recording));
	memcpy(slot->recorded, slot->micros, (size_t)slot->n_micros * sizeof(*slot->recorded));
	slot->n_recorded = slot->n_micros;
	ct_step_clock_keep(&slot->clock, first, &slot->phases);
	return ct_recording_post(slot->recording, p->stream);
}

/* Does what ct__step_post_work does on the host. */
static enum ct_status replay(ct_stepper *p, struct step_slot *slot)
{
	struct ct_session *s = p->s;

	p->n_replayed++;
	ct_program_posted_again(s->full);
	ct_arena_touch(s->scalars);
	ct_optim_posted_again(s->optim);
	if (s->ema)
		ct_ema_posted_again(s->ema);
	ct_step_clock_repeat(&slot->clock, &slot->phases);
	return ct_recording_post(slot->recording, p->stream);
}

static enum ct_status post(ct_stepper *p, struct step_slot *slot)
{
	/* Others than the previous step have changed the parameters. The engine may have to recompute values that
	 * depend on them, which is not part of the recordings. */
	const bool changed = ct_arena_generation(ct_net_params(p->s->net)) != p->weights;

	if (p->n_programs != ct_net_programs_made(p->s->net)) {
		ct__step_drop_recordings(p);
		p->n_programs = ct_net_programs_made(p->s->net);
	}
	if (is_recorded(slot) && !changed)
		return replay(p, slot);
	if (slot->recording || changed || !slot->warm || !is_full(p, slot)) {
		slot->warm |= is_full(p, slot);
		return ct__step_post_work(p, slot);
	}
	if (record(p, slot) < 0) {
		ct_error_hint("train.cuda_graph=off trains without recorded steps");
		return ct_error_wrap("recording step %llu", (unsigned long long)slot->result.request.step);
	}
	return CT_OK;
}

enum ct_status ct__step_post_recorded(ct_stepper *p, struct step_slot *slot)
{
	CT_TRY(post(p, slot));
	p->weights = ct_arena_generation(ct_net_params(p->s->net));
	return CT_OK;
}
