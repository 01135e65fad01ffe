/* Recordings of steps. A recorded step reads everything that changes from step to step from memory: its arguments and
 * scalars from the pinned memory of the slot, the batches from the input of the slot.
 *
 * NCCL requires that a collective is part of a CUDA graph on all ranks or on none, and that all ranks launch graphs of
 * the same capture. So every decision depends only on what all ranks know:
 *
 * - A group of steps is recorded, or its recording is posted, if all its steps are full. The number of samples of a
 *   step over all ranks is known to each of them.
 * - Recordings become outdated when a program is created. An evaluation and a resize create programs on all ranks. A
 *   smaller step creates them only on ranks whose rows it changes, so all ranks drop their recordings at the first
 *   smaller step. Later ones need no other programs.
 * - One rank only may be unable to record. A group is therefore recorded and then posted as usual, and one of its step
 *   scalars counts the ranks that cannot record. The host takes the sum before it uses the slots of the group again. So
 *   all ranks post the recording only if all of them have it; otherwise, they stop recording at the same step. */
#define CT_LOG_COMPONENT "train"
#include <stdio.h>
#include <string.h>

#include "base/log.h"
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

enum ct_status ct__step_plan_recording(ct_stepper *p, bool *records, int *group)
{
	const struct ct_session *s = p->s;
	struct step_recorder *r = &p->recorder;
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
	if (!ct_comm_is_recordable(s->group, r->why, sizeof(r->why)) && on)
		return cannot(r->why);
	*records = recordable && few && s->cfg->train.cuda_graph != CT_CFG_GRAPH_OFF;
	*group = *records ? steps_in_recording(p) : 1;
	CT_ASSERT(*group <= CT_STEP_GROUP_MAX);
	return CT_OK;
}

/* Returns NULL if there is no such communicator. */
static ct_comm *comm_at(const ct_stepper *p, int k)
{
	return k == 0 ? p->s->group : p->s->norm_comm;
}

static void drop(struct step_group *group)
{
	for (int k = 0; k < CT_STEP_COMMS; k++)
		ct_comm_recorded_destroy(group->collectives[k]);
	ct_recording_destroy(group->recording);
	*group = (struct step_group){.warm = group->warm};
}

void ct__step_drop_recordings(ct_stepper *p)
{
	for (int i = 0; i < CT_STEP_GROUPS; i++) {
		drop(&p->recorder.groups[i]);
		p->recorder.groups[i].warm = false;
	}
	p->recorder.smaller = false;
}

/* Returns whether all micro-batches of n steps have all their rows, on all ranks. */
static bool are_full(const ct_stepper *p, const struct step_slot *first, int n)
{
	for (int k = 0; k < n; k++)
		if (first[k].result.n_global != p->s->plan.global_batch)
			return false;
	return true;
}

/* Drops the recordings if a rank may have created programs since the last posted step. */
static void drop_outdated(ct_stepper *p, const struct step_slot *first, int n)
{
	struct step_recorder *r = &p->recorder;
	const uint64_t made = ct_net_programs_made(p->s->net);
	const bool smaller = !are_full(p, first, n);

	if (made != r->n_programs || (smaller && !r->smaller)) {
		for (int i = 0; i < CT_STEP_GROUPS; i++)
			drop(&r->groups[i]);
	}
	r->n_programs = made;
	r->smaller |= smaller;
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

static enum ct_status capture(ct_stepper *p, struct step_group *group, struct step_slot *first)
{
	ct_recording *r = NULL;
	struct ct_error e;

	CT_TRY(ct_recording_begin(p->stream));
	if (post_works(p, first) < 0) {
		ct_error_save(&e);
		if (ct_recording_end(p->stream, &r) == CT_OK)
			ct_recording_destroy(r);
		return ct_error_restore(&e);
	}
	return ct_recording_end(p->stream, &group->recording);
}

/* Records the work of a group, which does not run yet. */
static enum ct_status record(ct_stepper *p, struct step_group *group, struct step_slot *first)
{
	int64_t n_collectives[CT_STEP_COMMS] = {0};
	enum ct_status st;

	for (int k = 0; k < CT_STEP_COMMS && comm_at(p, k); k++)
		n_collectives[k] = ct_comm_seq(comm_at(p, k));
	/* The same mark precedes those of the recording when it is posted. */
	CT_TRY(ct_step_clock_mark(&first->clock, CT_PHASE_DATA));
	const int mark = first->clock.n;
	st = capture(p, group, first);
	ct_step_clock_keep(&first->clock, mark);
	for (int k = 0; k < CT_STEP_COMMS && comm_at(p, k); k++)
		CT_TRY(ct_comm_recorded_create(comm_at(p, k), n_collectives[k], &group->collectives[k]));
	for (int k = 0; st == CT_OK && k < p->ring.group; k++) {
		memcpy(first[k].recorded, first[k].micros, (size_t)first[k].n_micros * sizeof(*first[k].recorded));
		first[k].n_recorded = first[k].n_micros;
	}
	return st;
}

/* A failure is no error: the ranks agree by a scalar not to compare. */
static void prepare_compare(ct_stepper *p, struct step_slot *first)
{
	if (p->recorder.prepared)
		return;
	p->recorder.prepared = true;
	if (ct__step_prepare_compare(p, first->result.request.step) == CT_OK)
		return;
	CT_DEBUG("self check: %s", ct_error_message());
	ct_error_clear();
	first->up[CT_SCALAR_UNCOMPARED] = 1;
}

/* Records the work of a group, or notes why this rank cannot. */
static enum ct_status try_record(ct_stepper *p, struct step_group *group, struct step_slot *first)
{
	if (record(p, group, first) == CT_OK) {
		prepare_compare(p, first);
		return CT_OK;
	}
	drop(group);
	if (p->s->cfg->train.cuda_graph == CT_CFG_GRAPH_ON || ct_error_status() == CT_BUG) {
		ct_error_hint("train.cuda_graph=off trains without recorded steps");
		return ct_error_wrap("recording step %llu", (unsigned long long)first->result.request.step);
	}
	snprintf(p->recorder.why, sizeof(p->recorder.why), "%.250s", ct_error_message());
	ct_error_clear();
	return CT_OK;
}

static void close_recorded(ct_stepper *p)
{
	ct__step_drop_recordings(p);
	ct__step_free_compare(p);
}

void ct__step_stop_recording(ct_stepper *p)
{
	struct step_recorder *r = &p->recorder;

	if (r->off)
		return;
	r->off = true;
	close_recorded(p);
	CT_WARN("training goes on without recorded steps (train.cuda_graph), because %s%s",
		r->why[0] ? "this rank cannot record them: " : "another rank cannot record them", r->why);
}

/* Does what ct__step_post_work does on the host. */
static void note_replay(ct_stepper *p, const struct step_group *group, struct step_slot *first)
{
	struct ct_session *s = p->s;

	for (int k = 0; k < CT_STEP_COMMS; k++)
		ct_comm_recorded_count(group->collectives[k]);
	p->recorder.n_replayed += (uint64_t)p->ring.group;
	ct_program_posted_again(s->model.full);
	ct_arena_touch(s->grad.scalars);
	ct_optim_posted_again(s->optim);
	if (s->ema)
		ct_ema_posted_again(s->ema);
	ct_step_clock_repeat(&first->clock);
}

static enum ct_status post_recording(ct_stepper *p, const struct step_group *group, struct step_slot *first)
{
	/* The copies of all steps are posted to the same stream. */
	CT_TRY(ct_step_input_wait(&first->input, p->stream));
	CT_TRY(ct_step_clock_mark(&first->clock, CT_PHASE_DATA));
	note_replay(p, group, first);
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
	const bool full = are_full(p, first, p->ring.group);
	const bool may = full && group->warm && !changed && !ct_program_is_profiled(p->s->model.full);

	if (may && group->recording && all_recorded(p, first))
		return p->recorder.compare ? ct__step_compare(p, group, first) : post_recording(p, group, first);
	if (may && !group->recording && !p->recorder.off && !p->recorder.why[0])
		CT_TRY(try_record(p, group, first));
	first->up[CT_SCALAR_UNRECORDED] = p->recorder.why[0] ? 1 : 0;
	group->warm |= full;
	return ct__step_post_each(p, first, p->ring.group);
}

static enum ct_status post(ct_stepper *p, struct step_slot *first, int n)
{
	drop_outdated(p, first, n);
	CT_TRY(n == p->ring.group ? post_group(p, first) : ct__step_post_each(p, first, n));
	p->recorder.weights = ct_arena_generation(ct_net_params(p->s->net));
	return CT_OK;
}

const struct step_way ct__step_recorded = {
	.load = ct__step_load_ahead,
	.post = post,
	.run = ct__step_run_ahead,
	.close = close_recorded,
};
