#define CT_LOG_COMPONENT "train"
#include "trainer/loop/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "trainer/loop/lent.h"

#define MAX_TAIL_PROGRAMS 8

/* A posted step whose results are not yet taken. */
struct slot {
	/* Pinned host memory. up: the scalars before the reduction; down: the reduced scalars and the results of the
	 * update. */
	float *up, *down;
	struct ct_step_args *args; /* pinned, too */
	ct_event *done;
	struct ct_step_clock clock;
	struct ct_step_result result;
};
enum { DOWN_N = CT_SCALAR_N + CT_UPDATE_RESULTS };

struct ct_stepper {
	struct ct_session *s;
	ct_loader *loader;
	ct_stream *stream;
	int lag;
	struct slot slots[CT_STEP_LAG + 1];
	uint64_t posted, taken;
	struct ct_lent lent;
	int64_t timeout_ns; /* of waits for work that needs other ranks */
	/* Remainder programs, for the row counts of an epoch's last, smaller step; compiled when first needed. */
	struct {
		int n;
		ct_program *program;
	} tails[MAX_TAIL_PROGRAMS];
	int n_tails;
	uint64_t n_bad; /* bad samples of the epoch on this rank; rank 0 also counts those from before a resume */
	uint32_t n_own; /* rows of this rank in the step */
};

static enum ct_status program_for(ct_stepper *p, int n, ct_program **out)
{
	*out = p->s->full;
	if (n == (int)p->s->plan.micro_rows)
		return CT_OK;
	for (int i = 0; i < p->n_tails; i++)
		if (p->tails[i].n == n) {
			*out = p->tails[i].program;
			return CT_OK;
		}
	/* There are few: row counts other than 0 of one rank differ by at most one between micro-batches. */
	CT_ASSERT(p->n_tails < MAX_TAIL_PROGRAMS);
	const ct_graph *g = p->s->size_graph ? p->s->size_graph : p->s->graph;
	CT_TRY(ct_program_create_for(p->s->net, g, n, CT_TRAIN, out));
	p->tails[p->n_tails].n = n;
	p->tails[p->n_tails++].program = *out;
	return CT_OK;
}

/* Not every model can be trained on one row (batch norm after a linear layer). Fails at the start, not at the end of an
 * epoch. */
static enum ct_status check_tail(ct_stepper *p, const struct ct_sampler *sampler)
{
	const struct ct_run_plan *plan = &p->s->plan;
	ct_program *program;
	for (uint32_t i = 0; i < plan->accumulate && plan->total_steps >= plan->steps_per_epoch; i++) {
		if (ct_sampler_slice(sampler, plan->steps_per_epoch - 1, i).count != 1 ||
		    program_for(p, 1, &program) == CT_OK)
			continue;
		ct_error_hint("or leave the last, smaller batch of an epoch out: data.drop_last=true");
		return ct_error_wrap("the last step of an epoch has one sample for rank %u", sampler->rank);
	}
	return CT_OK;
}

static void drop_tails(ct_stepper *p)
{
	for (int i = 0; i < p->n_tails; i++)
		ct_program_destroy(p->tails[i].program);
	p->n_tails = 0;
}

/* Progressive resizing: compiles another program if images have another size from now on. */
static enum ct_status fit_size(ct_stepper *p, struct ct_shape shape, int64_t *compile_ns)
{
	struct ct_session *s = p->s;
	if (!s->plan.encoded || (shape.h == s->full_shape.h && shape.w == s->full_shape.w))
		return CT_OK;
	int64_t t0 = ct_now_ns();
	drop_tails(p);
	CT_TRY(ct_session_resize(s, shape));
	*compile_ns = ct_now_ns() - t0;
	CT_INFO("training images are %dx%d from now on (compiled in %.2f s)", shape.w, shape.h,
		(double)*compile_ns * 1e-9);
	return CT_OK;
}

static void note_bad(void *user, uint32_t sample, const char *text)
{
	(void)user;
	CT_WARN("bad sample %u, another takes its place: %s", sample, text);
}

static enum ct_status create_slot(ct_stepper *p, struct slot *slot)
{
	ct_device *d = p->s->device;
	void *up, *down, *args;

	CT_TRY(ct_device_host_alloc(d, CT_SCALAR_N * sizeof(float), &up));
	slot->up = up;
	CT_TRY(ct_device_host_alloc(d, DOWN_N * sizeof(float), &down));
	slot->down = down;
	CT_TRY(ct_device_host_alloc(d, sizeof(*slot->args), &args));
	slot->args = args;
	CT_TRY(ct_event_create(d, true, &slot->done));
	/* Data, resize, forward and backward of each micro-batch, and statistics, buckets and update once. */
	return ct_step_clock_init(&slot->clock, p->stream, 4 * (int)p->s->plan.accumulate + 3);
}

static enum ct_status create_slots(ct_stepper *p)
{
	bool async = ct_device_caps(p->s->device)->async;

	p->stream = ct_engine_stream(p->s->engine);
	p->lag = async ? CT_STEP_LAG : 0;
	for (int i = 0; i <= p->lag; i++)
		CT_TRY(create_slot(p, &p->slots[i]));
	return CT_OK;
}

static void destroy_slots(ct_stepper *p)
{
	for (int i = 0; i <= CT_STEP_LAG; i++) {
		struct slot *slot = &p->slots[i];
		ct_step_clock_release(&slot->clock);
		ct_event_destroy(slot->done);
		ct_device_host_free(p->s->device, slot->args);
		ct_device_host_free(p->s->device, slot->down);
		ct_device_host_free(p->s->device, slot->up);
	}
}

static enum ct_status create_loader(ct_stepper *p)
{
	struct ct_session *s = p->s;
	struct ct_loader_opts lo;
	int64_t compile_ns = 0;

	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->train), true, (uint32_t)s->world.id.rank,
			    s->world.id.local_world, &lo);
	lo.device = s->device;
	/* With the batches of all steps that may be posted, the host does not wait for one in the middle of a step. */
	lo.max_out = ct_lent_max(s->device, (uint64_t)(p->lag + 1) * s->plan.accumulate);
	lo.on_bad = note_bad;
	CT_TRY(fit_size(p, ct_plan_input_at(&s->plan, s->state.epoch), &compile_ns));
	CT_TRY(check_tail(p, &lo.sampler));
	CT_TRY(ct_loader_create(s->train, &lo, &p->loader));
	CT_TRY(ct_lent_init(&p->lent, p->loader, p->stream, lo.max_out, p->timeout_ns));
	return ct_loader_seek(p->loader, s->state.epoch, s->state.step_in_epoch);
}

/* A collective that waits for another rank fails after dist.timeout and names the rank. The host waits twice as long for the work that
 * contains it: a device that cannot stop a collective reports at least which step was not done. */
static int64_t patience(const struct ct_session *s)
{
	return s->world.id.world > 1 ? (int64_t)(2 * s->cfg->dist.timeout * 1e9) : CT_FOREVER;
}

enum ct_status ct_stepper_create(struct ct_session *s, ct_stepper **out)
{
	ct_stepper *p = NULL;
	CT_TRY_ALLOC(p = CT_NEW(ct_stepper));
	p->s = s;
	p->timeout_ns = patience(s);
	p->n_bad = ct_session_is_root(s) ? s->state.epoch_bad : 0;
	enum ct_status st = create_slots(p);
	if (st == CT_OK)
		st = create_loader(p);
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
	/* After a failure work may still be posted that reads batches and scalars. */
	if (ct_device_caps(p->s->device)->async && ct_device_sync(p->s->device, ct_deadline_in(CT_SEC)) < 0)
		ct_error_clear();
	ct_lent_release(&p->lent);
	ct_loader_destroy(p->loader);
	destroy_slots(p);
	drop_tails(p);
	ct_free(p);
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}

int ct_stepper_lag(const ct_stepper *p)
{
	return p->lag;
}

int ct_stepper_pending(const ct_stepper *p)
{
	return (int)(p->posted - p->taken);
}

void ct_stepper_loader_stats(ct_stepper *p, struct ct_loader_stats *out)
{
	ct_loader_stats(p->loader, out);
}

static enum ct_status slice_ready(void *user, int slice)
{
	return ct_reducer_ready(user, slice);
}

/* A rank without rows in an epoch's last step contributes zero gradients. */
static enum ct_status empty_micro(ct_stepper *p, const struct ct_loader_batch *b)
{
	struct ct_session *s = p->s;
	if (b->micro == 0)
		CT_TRY(ct_arena_zero(ct_net_grads(s->net), p->stream));
	for (int i = 0; b->last_of_step && i < ct_net_n_slices(s->net); i++)
		CT_TRY(ct_reducer_ready(s->reducer, i));
	return CT_OK;
}

/* Posts the step scalars, which are reduced with the gradients of the last bucket. */
static enum ct_status post_scalars(ct_stepper *p, struct slot *slot, const struct ct_step_request *req)
{
	struct ct_session *s = p->s;
	memset(slot->up, 0, CT_SCALAR_N * sizeof(float));
	slot->up[CT_SCALAR_STOP] = req->stop ? 1 : 0;
	slot->up[CT_SCALAR_SAVE] = req->save ? 1 : 0;
	slot->up[CT_SCALAR_BAD] = (float)p->n_bad;
	CT_TRY(ct_device_copy(s->device, ct_arena_at(s->scalars, 0), slot->up, CT_SCALAR_N * sizeof(float), p->stream));
	return ct_net_post_loss(s->net, s->scalars, CT_SCALAR_LOSS);
}

static enum ct_status post_micro(ct_stepper *p, struct slot *slot, const struct ct_step_request *req,
				 const struct ct_loader_batch *b)
{
	struct ct_session *s = p->s;
	ct_program *program = NULL;
	if (b->n > 0) {
		CT_TRY(program_for(p, (int)b->n, &program));
		struct ct_batch in = {.n = (int)b->n,
				      .x = b->x,
				      .labels = b->labels,
				      .labels_b = b->labels_b,
				      .mix = b->mix,
				      .targets = b->targets,
				      .first = b->in_batch};
		CT_TRY(ct_program_forward(program, &in));
		CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_FORWARD));
	}
	if (b->last_of_step)
		CT_TRY(post_scalars(p, slot, req));
	if (b->n == 0)
		return empty_micro(p, b);
	struct ct_backward_opts bo = {.scale = 1.0f / (float)b->n_global,
				      .accumulate = b->micro > 0,
				      .grad_ready = b->last_of_step ? slice_ready : NULL,
				      .user = s->reducer};
	CT_TRY(ct_program_backward(program, &bo));
	return ct_step_clock_mark(&slot->clock, CT_PHASE_BACKWARD);
}

/* Like broadcast_buffers of DDP: every rank starts the step with the running statistics of rank 0. */
static enum ct_status share_statistics(ct_stepper *p, struct slot *slot)
{
	struct ct_session *s = p->s;
	ct_arena *buffers = ct_net_buffers(s->net);
	if (s->cfg->model.bn != CT_CFG_BN_BROADCAST || s->world.id.world == 1 || ct_arena_elems(buffers) == 0)
		return CT_OK;
	ct_arena_touch(buffers);
	CT_TRY(ct_comm_post_broadcast(s->comm, ct_arena_at(buffers, 0), ct_arena_elems(buffers), CT_F32, 0, p->stream));
	return ct_step_clock_mark(&slot->clock, CT_PHASE_EXPOSED);
}

static enum ct_status check_bad(const ct_stepper *p, uint64_t bad)
{
	const struct ct_session *s = p->s;
	if (bad <= s->plan.max_bad)
		return CT_OK;
	ct_error_set(CT_DATA, __FILE__, __LINE__,
		     "%llu samples of this epoch could not be read or decoded, data.max_bad allows %llu",
		     (unsigned long long)bad, (unsigned long long)s->plan.max_bad);
	ct_error_hint(
		"%s/log names each of them; run `ctrain data check` to list all bad samples, or raise data.max_bad",
		s->run_dir);
	return CT_DATA;
}

static enum ct_status post_args(ct_stepper *p, struct slot *slot, const struct ct_step_request *req)
{
	slot->args->step = req->step;
	ct_optim_begin(p->s->optim, req->lr, slot->args);
	return ct_net_post_step_args(p->s->net, slot->args);
}

static enum ct_status post_micros(ct_stepper *p, struct slot *slot, const struct ct_step_request *req)
{
	struct ct_step_result *r = &slot->result;
	struct ct_loader_batch *b;
	do {
		CT_TRY(ct_lent_next(&p->lent, &b));
		CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_DATA));
		p->n_bad += b->n_bad;
		int64_t compile_ns = 0;
		CT_TRY(fit_size(p, (struct ct_shape){p->s->plan.input.c, b->h, b->w}, &compile_ns));
		if (compile_ns > 0)
			CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_NONE));
		r->compile_ns += compile_ns;
		CT_TRY(post_micro(p, slot, req, b));
		CT_TRY(ct_lent_posted(&p->lent));
		r->n_own += b->n;
	} while (!b->last_of_step);
	r->n_global = b->n_global;
	r->last_of_epoch = b->last_of_epoch;
	return CT_OK;
}

static enum ct_status post_update(ct_stepper *p, struct slot *slot)
{
	struct ct_session *s = p->s;
	CT_TRY(ct_optim_post(s->optim));
	if (s->ema)
		CT_TRY(ct_ema_update(s->ema));
	CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_OPTIM));
	CT_TRY(ct_device_copy(s->device, slot->down, ct_arena_at(s->scalars, 0), CT_SCALAR_N * sizeof(float),
			      p->stream));
	CT_TRY(ct_device_copy(s->device, slot->down + CT_SCALAR_N, ct_arena_at(ct_optim_result(s->optim), 0),
			      CT_UPDATE_RESULTS * sizeof(float), p->stream));
	return ct_event_record(slot->done, p->stream);
}

enum ct_status ct_stepper_post(ct_stepper *p, const struct ct_step_request *req, bool *last_of_epoch)
{
	struct slot *slot = &p->slots[p->posted % (uint64_t)(p->lag + 1)];
	CT_ASSERT(ct_stepper_pending(p) <= p->lag);
	slot->result = (struct ct_step_result){.request = *req};
	CT_TRY(ct_step_clock_begin(&slot->clock));
	CT_TRY(post_args(p, slot, req));
	CT_TRY(share_statistics(p, slot));
	ct_reducer_begin(p->s->reducer, true);
	CT_TRY(post_micros(p, slot, req));
	/* Where posting is doing, the collectives of the gradients are waited for here. Those of the statistics, and of
	 * synchronized batch norm, are waited for when they are posted. */
	CT_TRY(ct_reducer_finish(p->s->reducer));
	CT_TRY(ct_step_clock_mark(&slot->clock, CT_PHASE_EXPOSED));
	CT_TRY(post_update(p, slot));
	if (slot->result.last_of_epoch)
		p->n_bad = 0;
	*last_of_epoch = slot->result.last_of_epoch;
	p->posted++;
	return CT_OK;
}

/* The results need the collectives of all ranks. */
static enum ct_status wait_done(const struct ct_stepper *p, const struct slot *slot)
{
	int64_t deadline = ct_deadline_in(p->timeout_ns);
	enum ct_status st = ct_event_wait(slot->done, deadline);

	if (st != CT_TIMEOUT || ct_now_ns() < deadline)
		return st;
	(void)ct_error_wrap("waited %g s for the results of step %llu, which need the gradients of all ranks",
			    (double)p->timeout_ns * 1e-9, (unsigned long long)slot->result.request.step);
	ct_error_hint("check whether the process of another rank is stopped or busy; dist.timeout sets half of this time");
	return st;
}

enum ct_status ct_stepper_take(ct_stepper *p, struct ct_step_result *out)
{
	struct slot *slot = &p->slots[p->taken % (uint64_t)(p->lag + 1)];
	CT_ASSERT(ct_stepper_pending(p) > 0);
	CT_TRY(wait_done(p, slot));
	p->taken++;
	CT_TRY(ct_step_clock_read(&slot->clock, &slot->result.times));
	*out = slot->result;
	out->loss_sum = (double)slot->down[CT_SCALAR_LOSS];
	out->stop = slot->down[CT_SCALAR_STOP] > 0;
	out->save = slot->down[CT_SCALAR_SAVE] > 0;
	out->bad = (uint64_t)slot->down[CT_SCALAR_BAD];
	out->grad_norm = (double)slot->down[CT_SCALAR_N + CT_UPDATE_NORM];
	out->outcome = (enum ct_update_outcome)slot->down[CT_SCALAR_N + CT_UPDATE_OUTCOME];
	return check_bad(p, out->bad);
}
