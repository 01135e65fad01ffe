/* Slots hold what one posted step owns: scalars in host memory, its clock, its event and, if steps are loaded ahead,
 * its input. What the work of a step is depends on the way of stepping (step_impl.h), which is chosen once. Slots form
 * groups of train.graph_steps. Posting fills the next slot; the work of a group is posted with its last step, as a
 * recording if there is one, or earlier if results are needed. Taking waits for the event of the slot or, after a
 * recording, that of its first slot. A slot is not used again before its results were taken, which the limit of lag + 1
 * pending steps ensures; nothing else protects its memory.
 *
 * A wait for results needs all ranks. Its timeout is longer than that of the collectives, which fail first and name the
 * rank. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/step/step.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "trainer/run/session/resident.h"
#include "trainer/run/step/step_impl.h"

static void note_bad(void *user, uint32_t sample, const char *text)
{
	(void)user;
	CT_WARN("unreadable sample %u is replaced by another one: %s", sample, text);
}

/* Synchronized batch norm has one collective in each pass, with a mark before and after it. */
static int n_norm_marks(const ct_stepper *p)
{
	const ct_graph *g = p->s->model.graph;
	int n = 0;

	for (int i = 0; i < ct_graph_n_nodes(g); i++)
		n += 4 * (ct_graph_node(g, i)->op == CT_OP_BATCH_NORM);
	return p->s->plan.net.sync ? n : 0;
}

static enum ct_status create_slot(ct_stepper *p, struct step_slot *slot)
{
	ct_device *d = p->s->device;
	const size_t n_micros = p->s->plan.accumulate;
	void *up, *down, *args;

	CT_TRY(ct_device_host_alloc(d, CT_SCALAR_N * sizeof(float), &up));
	slot->up = up;
	CT_TRY(ct_device_host_alloc(d, CT_SCALAR_N * sizeof(float), &down));
	slot->down = down;
	CT_TRY(ct_device_host_alloc(d, sizeof(*slot->args), &args));
	slot->args = args;
	CT_TRY(ct_event_create(d, true, &slot->done));
	/* Data, forward and backward of each micro-batch, and waits for batch norm within them, or for the neighbors of
	 * a stage before them; data and compiling before a resize; statistics, buckets and update once. */
	CT_TRY(ct_step_clock_init(&slot->clock, p->stream,
				  ((p->s->pipe ? 5 : 3) + n_norm_marks(p)) * (int)n_micros + 6));
	if (!p->copies)
		return CT_OK;
	CT_TRY_ALLOC(slot->micros = CT_NEW_ARRAY(struct step_micro, n_micros));
	CT_TRY_ALLOC(slot->recorded = CT_NEW_ARRAY(struct step_micro, n_micros));
	return ct_step_input_init(&slot->input, p->copies);
}

/* A stage waits for its messages, so it has nothing to do ahead. */
static enum ct_status choose_way(ct_stepper *p)
{
	const bool async = ct_device_caps(p->s->device)->async;
	bool records;

	p->ring.group = p->ring.n_groups = 1;
	if (p->s->pipe) {
		p->way = &ct__step_stage;
		return CT_OK;
	}
	CT_TRY(ct__step_plan_recording(p, &records, &p->ring.group));
	p->lag = async ? CT_STEP_LAG * p->ring.group : 0;
	p->ring.n_groups = async ? CT_STEP_GROUPS : 1;
	if (!async || !ct__step_copies_fit(p)) {
		p->way = &ct__step_plain;
		return CT_OK;
	}
	p->way = records ? &ct__step_recorded : &ct__step_ahead;
	return ct_stream_create(p->s->device, false, &p->copies);
}

static enum ct_status create_slots(ct_stepper *p)
{
	struct step_ring *r = &p->ring;

	r->n = r->n_groups * r->group;
	CT_TRY_ALLOC(r->slots = CT_NEW_ARRAY(struct step_slot, (size_t)r->n));
	CT_TRY_ALLOC(r->pending = CT_NEW_ARRAY(struct step_slot *, (size_t)r->n));
	for (int i = 0; i < r->n; i++)
		CT_TRY(create_slot(p, &r->slots[i]));
	return CT_OK;
}

static void destroy_slots(ct_stepper *p)
{
	for (int i = 0; p->ring.slots && i < p->ring.n; i++) {
		struct step_slot *slot = &p->ring.slots[i];

		ct_step_input_release(&slot->input);
		ct_free(slot->recorded);
		ct_free(slot->micros);
		ct_step_clock_release(&slot->clock);
		ct_event_destroy(slot->done);
		ct_device_host_free(p->s->device, slot->args);
		ct_device_host_free(p->s->device, slot->down);
		ct_device_host_free(p->s->device, slot->up);
	}
	ct_free(p->ring.pending);
	ct_free(p->ring.slots);
}

static enum ct_status create_loader(ct_stepper *p)
{
	struct ct_session *s = p->s;
	struct ct_loader_opts lo;
	int64_t compile_ns = 0;

	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->data.train), true, (uint32_t)ct_session_replica(s),
			    s->world.id.local_world, &lo);
	lo.device = s->device;
	ct_resident_set_opts(s, CT_TRAIN, &lo);
	/* With the batches of all steps that may be posted, the host does not wait for one in the middle of a step. */
	lo.max_out = ct_lent_max(s->device, (uint64_t)(p->lag + 1) * s->plan.accumulate);
	lo.on_bad = note_bad;
	CT_TRY(ct__step_fit_size(p, ct_plan_input_at(&s->plan, s->state.epoch), &compile_ns));
	CT_TRY(ct__step_check_tail(p, &lo.sampler));
	CT_TRY(ct_loader_create(s->data.train, &lo, &p->loader));
	CT_TRY(ct_lent_init(&p->lent, p->loader, p->copies ? p->copies : p->stream, lo.max_out, p->timeout_ns));
	return ct_loader_seek(p->loader, s->state.epoch, s->state.step_in_epoch);
}

/* A collective that waits for another rank fails after dist.timeout and names the rank. The host waits twice as long
 * for the work that contains it: a device that cannot stop a collective reports at least which step was not done. On a
 * GPU, another thread finds out meanwhile which rank it is. */
static int64_t patience(const struct ct_session *s)
{
	const double find_s = ct_device_caps(s->device)->host_code ? 0 : 10;

	return s->world.id.world > 1 ? (int64_t)((2 * s->cfg->dist.timeout + find_s) * 1e9) : CT_FOREVER;
}

enum ct_status ct_stepper_create(struct ct_session *s, ct_stepper **out)
{
	ct_stepper *p = NULL;

	CT_TRY_ALLOC(p = CT_NEW(ct_stepper));
	p->s = s;
	p->stream = ct_engine_stream(s->engine);
	p->timeout_ns = patience(s);
	p->n_bad = ct_session_is_root(s) ? s->state.epoch_bad : 0;
	enum ct_status st = choose_way(p);
	if (st == CT_OK)
		st = create_slots(p);
	if (st == CT_OK)
		st = create_loader(p);
	if (st == CT_OK && p->way->open)
		st = p->way->open(p);
	if (st < 0) {
		ct_stepper_destroy(p);
		return st;
	}
	*out = p;
	return CT_OK;
}

void ct_stepper_destroy(ct_stepper *p)
{
	struct ct_error keep;

	if (!p)
		return;
	ct_error_save(&keep);
	ct_session_drain(p->s);
	if (p->way && p->way->close)
		p->way->close(p);
	ct_lent_release(&p->lent);
	ct_loader_destroy(p->loader);
	destroy_slots(p);
	ct__step_drop_tails(p);
	ct_stream_destroy(p->copies);
	ct_free(p);
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}

int ct_stepper_lag(const ct_stepper *p)
{
	return p->lag;
}

int ct_stepper_group(const ct_stepper *p)
{
	return p->ring.group;
}

int ct_stepper_pending(const ct_stepper *p)
{
	return (int)(p->ring.posted - p->ring.taken);
}

uint64_t ct_stepper_replayed(const ct_stepper *p)
{
	return p->recorder.n_replayed;
}

void ct_stepper_on_phase(ct_stepper *p, ct_phase_fn fn, void *user)
{
	p->on_phase = fn;
	p->phase_user = user;
}

void ct_stepper_loader_stats(ct_stepper *p, struct ct_loader_stats *out)
{
	ct_loader_stats(p->loader, out);
}

static enum ct_status check_bad(const ct_stepper *p, uint64_t bad)
{
	const struct ct_session *s = p->s;

	if (bad <= s->plan.max_bad)
		return CT_OK;
	CT_FAIL(CT_DATA, "%llu samples of this epoch could not be read or decoded, data.max_bad allows %llu",
		(unsigned long long)bad, (unsigned long long)s->plan.max_bad);
	return ct_error_hint(
		"%s/log names each of them; run `ctrain data check` to list all of them, or raise data.max_bad",
		s->run.dir);
}

/* Posts the work of the gathered steps. The next step is the first one of a group. */
static enum ct_status post_gathered(ct_stepper *p)
{
	struct step_ring *r = &p->ring;
	const int n = r->n_gathered;
	struct step_slot *first = &r->slots[r->next - n];

	r->n_gathered = 0;
	r->next = (r->next + r->group - 1) / r->group * r->group % r->n;
	return p->way->post(p, first, n);
}

enum ct_status ct_stepper_post(ct_stepper *p, const struct ct_step_request *req, bool *last_of_epoch)
{
	struct step_ring *r = &p->ring;
	struct step_slot *slot = &r->slots[r->next];

	CT_ASSERT(ct_stepper_pending(p) <= p->lag);
	slot->result = (struct ct_step_result){.request = *req};
	if (r->n_gathered == 0)
		CT_TRY(ct_step_clock_begin(&slot->clock));
	slot->args->step = req->step;
	slot->args->norms = req->norms;
	ct_optim_begin(p->s->optim, req->lr, slot->args);
	if (p->way->load)
		CT_TRY(p->way->load(p, slot));
	r->next++;
	if (++r->n_gathered == r->group)
		CT_TRY(post_gathered(p));
	if (slot->result.last_of_epoch)
		p->n_bad = 0;
	*last_of_epoch = slot->result.last_of_epoch;
	r->pending[r->posted++ % (uint64_t)r->n] = slot;
	return CT_OK;
}

/* Explains the result st of a wait for `what`, posted work that needs other ranks, if the deadline has passed. */
static enum ct_status explain_wait(const ct_stepper *p, enum ct_status st, int64_t deadline, const char *what)
{
	if (st != CT_TIMEOUT || ct_now_ns() < deadline)
		return st;
	ct_error_wrap("waited %g s for %s, for which all ranks are needed", (double)p->timeout_ns * 1e-9, what);
	ct_error_hint(
		"check whether the process of another rank is stopped or busy; dist.timeout determines this time");
	return st;
}

enum ct_status ct__step_sync(const ct_stepper *p, const char *what)
{
	const int64_t deadline = ct_deadline_in(p->timeout_ns);

	return explain_wait(p, ct_stream_sync(p->stream, deadline), deadline, what);
}

/* The results need the collectives of all ranks. */
static enum ct_status wait_done(const struct ct_stepper *p, const struct step_slot *slot)
{
	int64_t deadline = ct_deadline_in(p->timeout_ns);
	char what[64];

	snprintf(what, sizeof(what), "the results of step %llu", (unsigned long long)slot->result.request.step);
	return explain_wait(p, ct_event_wait(slot->head->done, deadline), deadline, what);
}

static enum ct_status read_clock(const struct step_slot *slot, struct ct_step_times *out)
{
	if (slot->head == slot)
		return ct_step_clock_read(&slot->clock, out);
	/* The first step of the group was measured; it has waited for the data of all steps. */
	*out = slot->head->result.times;
	out->step_ns -= out->data_ns;
	out->data_ns = 0;
	return CT_OK;
}

static void take_update(const float *results, struct ct_step_result *out)
{
	out->grad_norm = (double)results[CT_UPDATE_NORM];
	out->weight_norm = (double)results[CT_UPDATE_WEIGHT_NORM];
	out->outcome = (enum ct_update_outcome)results[CT_UPDATE_OUTCOME];
	out->loss_scale = (double)results[CT_UPDATE_SCALE];
	out->loss_scale_steps = (uint32_t)results[CT_UPDATE_SCALE_STEPS];
	out->skipped_updates = (uint64_t)results[CT_UPDATE_N_SKIPPED];
}

enum ct_status ct_stepper_take(ct_stepper *p, struct ct_step_result *out)
{
	struct step_slot *slot = p->ring.pending[p->ring.taken % (uint64_t)p->ring.n];
	const float *requests = p->s->world.id.world > 1 ? slot->down : slot->up;

	CT_ASSERT(ct_stepper_pending(p) > 0);
	if (ct_stepper_pending(p) <= p->ring.n_gathered)
		CT_TRY(post_gathered(p));
	CT_TRY(wait_done(p, slot));
	p->ring.taken++;
	CT_TRY(read_clock(slot, &slot->result.times));
	if (p->on_phase && slot->head == slot)
		CT_TRY(ct_step_clock_each(&slot->clock, p->on_phase, p->phase_user));
	*out = slot->result;
	out->same_end = slot->n_same_end;
	out->loss_sum = (double)slot->down[CT_SCALAR_LOSS];
	out->stop = requests[CT_SCALAR_STOP] > 0;
	out->save = requests[CT_SCALAR_SAVE] > 0;
	out->regroup = requests[CT_SCALAR_REGROUP] > 0;
	out->bad = (uint64_t)requests[CT_SCALAR_BAD];
	take_update(slot->down + CT_SCALAR_UPDATE, out);
	if (requests[CT_SCALAR_UNRECORDED] > 0)
		ct__step_stop_recording(p);
	if (requests[CT_SCALAR_UNCOMPARED] > 0)
		ct__step_skip_compare(p, (int)requests[CT_SCALAR_UNCOMPARED]);
	return check_bad(p, out->bad);
}
