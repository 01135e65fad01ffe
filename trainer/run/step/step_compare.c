/* The self check of recordings (train.self_check). The first time that a group of steps would be posted as a recording,
 * it is posted twice from the same state: as the recording, and then without it. Both must leave the same bits. A
 * driver or a library with a defect may run recorded work with outdated arguments or in a wrong order, which no
 * comparison of ranks and no loss reveals.
 *
 * The state is read before, after the recording, and after the other work; in between, it is written back. So training
 * goes on as if only the unrecorded work had been posted, and nothing of it depends on a recording that was not
 * compared. Gradients and scalars are not part of the state of training, but they show first what is wrong. The 16-bit
 * copies of the weights follow from the weights, and the engine makes them again.
 *
 * Whether to compare depends on the config, the step and the size of the state, so all ranks decide alike. But a rank
 * may lack the memory. It is allocated when a group is recorded for the first time. One of the scalars of that group
 * counts the ranks that have none. The host takes the sum before a recording can be posted. So all ranks compare at the
 * same step, or none does. */
#define CT_LOG_COMPONENT "train"
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/run/step/step_impl.h"

enum {
	MAX_PARTS = 10,
	CHUNK = 1 << 20, /* elements that are copied at once */
};
#define MAX_BYTES ((size_t)1 << 30) /* for larger states, the check is assumed to take too long and too much memory */

struct part {
	const char *name;
	ct_arena *arena; /* fp32 */
	bool slices;     /* in the layout of the parameters */
};

struct step_compare {
	ct_stepper *p;
	struct part parts[MAX_PARTS];
	int n_parts;
	size_t n;                 /* elements of all parts */
	float *before, *recorded; /* [n] */
	float *chunk;             /* [CHUNK] pinned */
	uint64_t step;            /* that is compared */
};

static void add(struct step_compare *c, const char *name, ct_arena *a, bool slices)
{
	CT_ASSERT(c->n_parts < MAX_PARTS && ct_arena_dtype(a) == CT_F32);
	c->parts[c->n_parts++] = (struct part){name, a, slices};
	c->n += ct_arena_elems(a);
}

static void list_parts(struct step_compare *c)
{
	struct ct_session *s = c->p->s;

	add(c, "the gradient", s->grad.arena, true);
	add(c, "the scalars of the step", s->grad.scalars, false);
	add(c, "the running statistics", ct_net_buffers(s->net), false);
	add(c, "the weights", ct_net_params(s->net), true);
	for (int i = 0; ct_optim_state_name(s->optim, i); i++)
		add(c, ct_optim_state_name(s->optim, i), ct_optim_state(s->optim, i), true);
	if (!s->ema)
		return;
	add(c, "the EMA weights", ct_ema_params(s->ema), true);
	add(c, "the EMA running statistics", ct_ema_buffers(s->ema), false);
}

/* ---- Copies -------------------------------------------------------------------------------------------- */

static enum ct_status wait(const struct step_compare *c)
{
	return ct__step_sync(c->p, "the self check of a recorded step");
}

static size_t chunk_at(const struct part *part, size_t first)
{
	const size_t n = ct_arena_elems(part->arena) - first;

	return n < CHUNK ? n : CHUNK;
}

static enum ct_status read_chunk(const struct step_compare *c, const struct part *part, size_t first, size_t n)
{
	CT_TRY(ct_device_copy(c->p->s->device, c->chunk, ct_arena_at(part->arena, first), n * sizeof(float),
			      c->p->stream));
	return wait(c);
}

static enum ct_status save(const struct step_compare *c, float *to)
{
	for (const struct part *part = c->parts; part < c->parts + c->n_parts; part++) {
		for (size_t first = 0, n; (n = chunk_at(part, first)) > 0; first += n, to += n) {
			CT_TRY(read_chunk(c, part, first, n));
			memcpy(to, c->chunk, n * sizeof(float));
		}
	}
	return CT_OK;
}

/* The loss scale is among the results of the update, but the update reads it elsewhere. */
static enum ct_status restore_loss_scale(const struct step_compare *c)
{
	const float *results = c->before + ct_arena_elems(c->parts[0].arena) + CT_SCALAR_UPDATE;

	if (!ct_optim_scales_loss(c->p->s->optim) || (double)results[CT_UPDATE_SCALE] < CT_LOSS_SCALE_MIN)
		return CT_OK;
	return ct_optim_set_loss_scale(c->p->s->optim, (double)results[CT_UPDATE_SCALE],
				       (uint32_t)results[CT_UPDATE_SCALE_STEPS],
				       (uint64_t)results[CT_UPDATE_N_SKIPPED]);
}

static enum ct_status restore(const struct step_compare *c)
{
	const float *from = c->before;

	for (const struct part *part = c->parts; part < c->parts + c->n_parts; part++) {
		ct_arena_touch(part->arena);
		for (size_t first = 0, n; (n = chunk_at(part, first)) > 0; first += n, from += n) {
			memcpy(c->chunk, from, n * sizeof(float));
			CT_TRY(ct_device_copy(c->p->s->device, ct_arena_at(part->arena, first), c->chunk,
					      n * sizeof(float), c->p->stream));
			CT_TRY(wait(c));
		}
	}
	return restore_loss_scale(c);
}

/* ---- The comparison ------------------------------------------------------------------------------------ */

/* Names element i of a part. */
static void describe(const struct step_compare *c, const struct part *part, size_t i, char *buf, size_t len)
{
	const struct ct_session *s = c->p->s;

	for (int k = 0; part->slices && k < ct_net_n_slices(s->net); k++) {
		const struct ct_slice *slice = ct_net_slice(s->net, k);

		if (i >= slice->offset && i < slice->offset + slice->n) {
			snprintf(buf, len, "element %zu of %s of %s", i - slice->offset, part->name,
				 ct_session_slice_name(s, k));
			return;
		}
	}
	snprintf(buf, len, "element %zu of %s", i, part->name);
}

static enum ct_status differs(const struct step_compare *c, const struct part *part, size_t first,
			      const float *recorded)
{
	char what[256];
	size_t i = 0;

	while (memcmp(&recorded[i], &c->chunk[i], sizeof(float)) == 0)
		i++;
	describe(c, part, first + i, what, sizeof(what));
	CT_FAIL(CT_DEVICE,
		"the self check found a difference: %s is %.9g after the recording of step %llu, and %.9g after the same work without a recording",
		what, (double)recorded[i], (unsigned long long)c->step, (double)c->chunk[i]);
	return ct_error_hint(
		"train.cuda_graph=off trains without recorded steps, and the GPU's driver, cuDNN or NCCL may have a defect; with several ranks, also try NCCL_GRAPH_REGISTER=0, because NCCL may sum registered buffers of recorded steps in another order; if the environment sets NCCL_NVLS_ENABLE, unset it (docs/GPU.md)");
}

static enum ct_status compare(const struct step_compare *c)
{
	const float *recorded = c->recorded;

	for (const struct part *part = c->parts; part < c->parts + c->n_parts; part++) {
		for (size_t first = 0, n; (n = chunk_at(part, first)) > 0; first += n, recorded += n) {
			CT_TRY(read_chunk(c, part, first, n));
			if (memcmp(recorded, c->chunk, n * sizeof(float)) != 0)
				return differs(c, part, first, recorded);
		}
	}
	return CT_OK;
}

static enum ct_status run(const struct step_compare *c, const struct step_group *group, struct step_slot *first)
{
	ct_stepper *p = c->p;

	CT_TRY(save(c, c->before));
	CT_TRY(ct_step_input_wait(&first->input, p->stream));
	for (int k = 0; k < CT_STEP_COMMS; k++)
		ct_comm_recorded_count(group->collectives[k]);
	ct_stream_note(p->stream, "a recorded step");
	CT_TRY(ct_recording_post(group->recording, p->stream));
	ct_stream_note(p->stream, NULL);
	CT_TRY(save(c, c->recorded));
	CT_TRY(restore(c));
	CT_TRY(ct__step_post_each(p, first, p->ring.group));
	return compare(c);
}

void ct__step_free_compare(ct_stepper *p)
{
	struct step_compare *c = p->recorder.compare;

	if (!c)
		return;
	ct_device_host_free(p->s->device, c->chunk);
	ct_free(c->recorded);
	ct_free(c->before);
	ct_free(c);
	p->recorder.compare = NULL;
}

static enum ct_status alloc(struct step_compare *c)
{
	void *chunk = NULL;

	CT_TRY_ALLOC(c->before = CT_NEW_ARRAY(float, c->n));
	CT_TRY_ALLOC(c->recorded = CT_NEW_ARRAY(float, c->n));
	CT_TRY(ct_device_host_alloc(c->p->s->device, CHUNK * sizeof(float), &chunk));
	c->chunk = chunk;
	return CT_OK;
}

enum ct_status ct__step_prepare_compare(ct_stepper *p, uint64_t step)
{
	const struct ct_config *cfg = p->s->cfg;
	struct step_compare *c;

	/* Without train.deterministic, the same work may add in another order each time. */
	if (!cfg->train.deterministic ||
	    !ct_plan_self_checks(cfg, (uint64_t)p->ring.group, p->s->plan.total_steps - step))
		return CT_OK;
	CT_TRY_ALLOC(c = p->recorder.compare = CT_NEW(struct step_compare));
	c->p = p;
	list_parts(c);
	if (c->n * sizeof(float) <= MAX_BYTES || cfg->train.self_check == CT_CFG_SELF_CHECK_ON)
		return alloc(c);
	ct__step_free_compare(p);
	return CT_OK;
}

void ct__step_skip_compare(ct_stepper *p, int n)
{
	ct__step_free_compare(p);
	CT_INFO("self check: no recorded step is compared with a step that is not recorded, because %s not enough memory for it",
		n == 1 ? "a rank has" : "several ranks have");
}

enum ct_status ct__step_compare(ct_stepper *p, const struct step_group *group, struct step_slot *first)
{
	struct step_compare *c = p->recorder.compare;
	const int64_t t0 = ct_now_ns();

	c->step = first->result.request.step;
	enum ct_status st = run(c, group, first);
	if (st < 0)
		ct_session_drain(p->s); /* posted work may use the memory */
	else
		CT_INFO("self check: the recording of step %llu computes the same %zu values as the step without it, %.3f s",
			(unsigned long long)c->step, c->n, ct_seconds_since(t0));
	ct__step_free_compare(p);
	return st;
}
