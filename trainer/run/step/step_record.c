/* Recordings of steps. A recorded step reads everything that changes from step to step from memory: its arguments and
 * scalars from the pinned memory of the slot, the batches from the input of the slot. */
#include <stdio.h>
#include <string.h>

#include "trainer/run/step/step_impl.h"

enum {
	MAX_MICROS = 8, /* more micro-batches would need much memory for their input and save little */
	/* Automatic choice of steps in one recording. Only steps with few and small images are short enough to profit.
	 */
	AUTO_STEPS = 8,
	SMALL_STEP = 1 << 20, /* bytes of the images of a step on each rank */
	GROUPS_PER_EPOCH = 4, /* at least; the last steps of an epoch, which do not fill a group, are not recorded */
};

static enum ct_status cannot(const char *why)
{
	CT_FAIL(CT_UNSUPPORTED, "train.cuda_graph=on: %s", why);
	return ct_error_hint("train.cuda_graph=auto records steps only where this is possible");
}

/* The lag depends on this number, so it must be the same on all ranks. */
static int steps_in_recording(const ct_stepper *p)
{
	const struct ct_run_plan *plan = &p->s->plan;
	const size_t bytes = ct__step_image_bytes(p) * plan->micro_rows * plan->accumulate;

	if (p->s->cfg->train.graph_steps > 0)
		return (int)p->s->cfg->train.graph_steps;
	return bytes <= SMALL_STEP && plan->steps_per_epoch >= GROUPS_PER_EPOCH * AUTO_STEPS ? AUTO_STEPS : 1;
}

bool ct__step_copies_fit(const ct_stepper *p)
{
	return p->s->plan.accumulate <= MAX_MICROS;
}

enum ct_status ct__step_plan_recording(const ct_stepper *p, bool *records, int *group)
{
	const struct ct_session *s = p->s;
	const bool recordable = ct_device_caps(s->device)->recordable;
	const bool on = s->cfg->train.cuda_graph == CT_CFG_GRAPH_ON;
	const bool few = ct__step_copies_fit(p);
	char why[96];

	snprintf(why, sizeof(why), "a %s device cannot record steps", ct_device_kind(s->device));
	if (on && !recordable)
		return cannot(why);
	snprintf(why, sizeof(why), "steps of more than %d batches (train.accumulate) are not recorded", MAX_MICROS);
	if (on && !few)
		return cannot(why);
	*records = recordable && few && s->cfg->train.cuda_graph != CT_CFG_GRAPH_OFF;
	*group = *records ? steps_in_recording(p) : 1;
	CT_ASSERT(*group <= CT_STEP_GROUP_MAX);
	return CT_OK;
}

void ct__step_drop_recordings(ct_stepper *p)
{
	for (int i = 0; i < CT_STEP_GROUPS; i++) {
		for (int k = 0; k < CT_STEP_COMMS; k++)
			ct_comm_recorded_destroy(p->recorder.groups[i].collectives[k]);
		ct_recording_destroy(p->recorder.groups[i].recording);
		p->recorder.groups[i] = (struct step_group){0};
	}
}

/* Returns whether all micro-batches of all steps have all their rows, on all ranks. */
static bool is_full(const ct_stepper *p, const struct step_slot *first)
{
	for (int k = 0; k < p->ring.group; k++)
		if (first[k].result.n_global != p->s->plan.global_batch)
			return false;
	return true;
}

/* Returns whether the work of the step has the same arguments as the recorded work. The arrays are at the same
 * addresses, because they are in the input of the slot. */
static bool is_recorded(const struct step_slot *slot)
{
	if (slot->n_micros != slot->n_recorded)
		return false;
	for (int i = 0; i < slot->n_micros; i++) {
		const struct step_micro *a = &slot->micros[i], *b = &slot->recorded[i];

		if (a->batch.n != b->batch.n || a->batch.first != b->batch.first || a->scale != b->scale ||
		    a->batch.labels_b != b->batch.labels_b)
			return false;
	}
	return true;
}

static bool all_recorded(const ct_stepper *p, const struct step_slot *first)
{
	for (int k = 0; k < p->ring.group; k++)
		if (!is_recorded(&first[k]))
			return false;
	return true;
}

/* The clock measures the first step only; the others do the same work. */
static enum ct_status post_works(ct_stepper *p, struct step_slot *first)
{
	for (int k = 0; k < p->ring.group; k++) {
		first[k].clock.paused = k > 0;
		CT_TRY(ct__step_post_work(p, &first[k]));
	}
	return CT_OK;
}

/* Returns NULL if there is no such communicator. */
static ct_comm *comm_at(const ct_stepper *p, int k)
{
	return k == 0 ? p->s->group : p->s->norm_comm;
}

static enum ct_status record(ct_stepper *p, struct step_group *group, struct step_slot *first)
{
	int64_t n_collectives[CT_STEP_COMMS] = {0};
	int mark = first->clock.n;
	ct_recording *r = NULL;
	struct ct_error e;

	for (int k = 0; k < CT_STEP_COMMS; k++)
		n_collectives[k] = comm_at(p, k) ? ct_comm_seq(comm_at(p, k)) : 0;
	CT_TRY(ct_recording_begin(p->stream));
	if (post_works(p, first) < 0) {
		ct_error_save(&e);
		if (ct_recording_end(p->stream, &r) == CT_OK)
			ct_recording_destroy(r);
		return ct_error_restore(&e);
	}
	CT_TRY(ct_recording_end(p->stream, &group->recording));
	for (int k = 0; k < CT_STEP_COMMS && comm_at(p, k); k++)
		CT_TRY(ct_comm_recorded_create(comm_at(p, k), n_collectives[k], &group->collectives[k]));
	for (int k = 0; k < p->ring.group; k++) {
		memcpy(first[k].recorded, first[k].micros, (size_t)first[k].n_micros * sizeof(*first[k].recorded));
		first[k].n_recorded = first[k].n_micros;
	}
	ct_step_clock_keep(&first->clock, mark);
	return CT_OK;
}

/* Does what ct__step_post_work does on the host. */
static void note_replay(ct_stepper *p, struct step_slot *first)
{
	struct ct_session *s = p->s;

	p->recorder.n_replayed += (uint64_t)p->ring.group;
	ct_program_posted_again(s->model.full);
	ct_arena_touch(s->grad.scalars);
	ct_optim_posted_again(s->optim);
	if (s->ema)
		ct_ema_posted_again(s->ema);
	ct_step_clock_repeat(&first->clock);
}

/* Posts the recording, after recording it if there is none. */
static enum ct_status post_recording(ct_stepper *p, struct step_group *group, struct step_slot *first)
{
	/* The copies of all steps are posted to the same stream. */
	CT_TRY(ct_step_input_wait(&first->input, p->stream));
	CT_TRY(ct_step_clock_mark(&first->clock, CT_PHASE_DATA));
	if (group->recording) {
		note_replay(p, first);
	} else if (record(p, group, first) < 0) {
		ct_error_hint("train.cuda_graph=off trains without recorded steps");
		return ct_error_wrap("recording step %llu", (unsigned long long)first->result.request.step);
	}
	for (int k = 0; k < CT_STEP_COMMS; k++)
		ct_comm_recorded_count(group->collectives[k]);
	ct_stream_note(p->stream, "a recorded step");
	CT_TRY(ct_recording_post(group->recording, p->stream));
	ct_stream_note(p->stream, NULL);
	for (int k = 0; k < p->ring.group; k++) {
		first[k].head = first;
		first[k].n_same_end = p->ring.group - 1 - k;
	}
	return ct_event_record(first->done, p->stream);
}

/* Does the same as ct__step_post_each for all steps of a group, if possible by posting the recording of an earlier
 * group. */
static enum ct_status post_group(ct_stepper *p, struct step_slot *first)
{
	struct step_group *group = &p->recorder.groups[(first - p->ring.slots) / p->ring.group];
	/* Others than the previous step have changed the parameters. The engine may have to recompute values that
	 * depend on them, which is not part of the recordings. */
	const bool changed = ct_arena_generation(ct_net_params(p->s->net)) != p->recorder.weights;
	const bool full = is_full(p, first);

	if (p->recorder.n_programs != ct_net_programs_made(p->s->net)) {
		ct__step_drop_recordings(p);
		p->recorder.n_programs = ct_net_programs_made(p->s->net);
	}
	if (full && !changed && !ct_program_is_profiled(p->s->model.full) &&
	    (group->recording ? all_recorded(p, first) : group->warm))
		return post_recording(p, group, first);
	group->warm |= full;
	return ct__step_post_each(p, first, p->ring.group);
}

static enum ct_status post(ct_stepper *p, struct step_slot *first, int n)
{
	CT_TRY(n == p->ring.group ? post_group(p, first) : ct__step_post_each(p, first, n));
	p->recorder.weights = ct_arena_generation(ct_net_params(p->s->net));
	return CT_OK;
}

const struct step_way ct__step_recorded = {
	.load = ct__step_load_ahead,
	.post = post,
	.run = ct__step_run_ahead,
	.close = ct__step_drop_recordings,
};
