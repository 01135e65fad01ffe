#define CT_LOG_COMPONENT "train"
#include "trainer/loop/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define MAX_TAIL_PROGRAMS 8

struct ct_stepper {
	struct ct_session *s;
	ct_loader *loader;
	struct { /* programs for the row counts of an epoch's last, smaller step; compiled when first met */
		int n;
		ct_program *program;
	} tails[MAX_TAIL_PROGRAMS];
	int n_tails;
	int64_t begin_ns;
	uint64_t n_bad; /* of the epoch, on this rank; what was met before a resume counts on rank 0 */
	uint32_t n_own; /* rows of the step */
};

void ct_step_times_add(struct ct_step_times *to, const struct ct_step_times *t)
{
	to->data_ns += t->data_ns;
	to->forward_ns += t->forward_ns;
	to->backward_ns += t->backward_ns;
	to->exposed_ns += t->exposed_ns;
	to->optim_ns += t->optim_ns;
	to->step_ns += t->step_ns;
}

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
	/* Row counts of one rank differ by at most one between micro-batches, but for 0. */
	CT_ASSERT(p->n_tails < MAX_TAIL_PROGRAMS);
	const ct_graph *g = p->s->size_graph ? p->s->size_graph : p->s->graph;
	CT_TRY(ct_program_create_for(p->s->net, g, n, CT_TRAIN, out));
	p->tails[p->n_tails].n = n;
	p->tails[p->n_tails++].program = *out;
	return CT_OK;
}

/* Not every model can be trained on one row (batch norm after a linear layer): known now, not at the end of the first epoch. */
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

/* Progressive resizing: another program where images have another size from now on. */
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

enum ct_status ct_stepper_create(struct ct_session *s, ct_stepper **out)
{
	ct_stepper *p = NULL;
	CT_TRY_ALLOC(p = CT_NEW(ct_stepper));
	p->s = s;
	struct ct_loader_opts lo;
	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->train), true, (uint32_t)s->world.id.rank,
			    s->world.id.local_world, &lo);
	lo.device = s->device;
	lo.on_bad = note_bad;
	p->n_bad = ct_session_is_root(s) ? s->state.epoch_bad : 0;
	int64_t compile_ns = 0;
	enum ct_status st = fit_size(p, ct_plan_input_at(&s->plan, s->state.epoch), &compile_ns);
	if (st == CT_OK)
		st = check_tail(p, &lo.sampler);
	if (st == CT_OK)
		st = ct_loader_create(s->train, &lo, &p->loader);
	if (st == CT_OK)
		st = ct_loader_seek(p->loader, s->state.epoch, s->state.step_in_epoch);
	if (st < 0) {
		ct_stepper_destroy(p);
		return st;
	}
	*out = p;
	return CT_OK;
}

void ct_stepper_destroy(ct_stepper *p)
{
	if (!p)
		return;
	drop_tails(p);
	ct_loader_destroy(p->loader);
	ct_free(p);
}

static enum ct_status slice_ready(void *user, int slice)
{
	return ct_reducer_ready(user, slice);
}

/* A rank without rows in an epoch's last step contributes zeros. */
static enum ct_status empty_micro(ct_stepper *p, const struct ct_loader_batch *b)
{
	struct ct_session *s = p->s;
	if (b->micro == 0)
		memset(ct_net_grads(s->net), 0, ct_net_arena_elems(s->net) * sizeof(float));
	for (int i = 0; b->last_of_step && i < ct_net_n_slices(s->net); i++)
		CT_TRY(ct_reducer_ready(s->reducer, i));
	return CT_OK;
}

static void set_tail(const ct_stepper *p, const struct ct_step_request *req, const struct ct_metrics *m)
{
	struct ct_session *s = p->s;
	memset(s->tail, 0, CT_TAIL_N * sizeof(float));
	s->tail[CT_TAIL_LOSS] = (float)m->loss;
	s->tail[CT_TAIL_STOP] = req->stop ? 1 : 0;
	s->tail[CT_TAIL_SAVE] = req->save ? 1 : 0;
	s->tail[CT_TAIL_BAD] = (float)p->n_bad;
}

static enum ct_status run_micro(ct_stepper *p, const struct ct_step_request *req, const struct ct_loader_batch *b,
				struct ct_metrics *m, struct ct_step_times *t)
{
	struct ct_session *s = p->s;
	ct_program *program = NULL;
	int64_t t0 = ct_now_ns(), t1 = t0;
	if (b->n > 0) {
		CT_TRY(program_for(p, (int)b->n, &program));
		struct ct_batch in = {.n = (int)b->n,
				      .x = b->x,
				      .labels = b->labels,
				      .labels_b = b->labels_b,
				      .mix = b->mix,
				      .targets = b->targets,
				      .step = req->step,
				      .first = b->in_batch};
		CT_TRY(ct_program_forward(program, &in, m));
		t1 = ct_now_ns();
		t->forward_ns += t1 - t0;
	}
	if (b->last_of_step)
		set_tail(p, req, m);
	if (b->n == 0)
		return empty_micro(p, b);
	struct ct_backward_opts bo = {.scale = 1.0f / (float)b->n_global,
				      .accumulate = b->micro > 0,
				      .grad_ready = b->last_of_step ? slice_ready : NULL,
				      .user = s->reducer};
	CT_TRY(ct_program_backward(program, &bo));
	t->backward_ns += ct_now_ns() - t1;
	return CT_OK;
}

/* As DDP's broadcast_buffers: everybody starts the step with rank 0's running statistics. */
static enum ct_status share_statistics(ct_stepper *p, struct ct_step_times *t)
{
	struct ct_session *s = p->s;
	size_t bytes = ct_net_buffers_elems(s->net) * sizeof(float);
	if (s->cfg->model.bn != CT_CFG_BN_BROADCAST || s->world.id.world == 1 || bytes == 0)
		return CT_OK;
	int64_t t0 = ct_now_ns();
	CT_TRY(ct_session_broadcast(s, ct_net_buffers(s->net), bytes));
	t->exposed_ns += ct_now_ns() - t0;
	return CT_OK;
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
		"%s/log names each of them; `ctrain data check` finds all there are; data.max_bad=N lets more pass",
		s->run_dir);
	return CT_DATA;
}

static enum ct_status run_micros(ct_stepper *p, const struct ct_step_request *req, struct ct_loader_batch *b,
				 struct ct_step_times *t, int64_t *compile_ns)
{
	struct ct_metrics m = {0};
	p->n_own = 0;
	do {
		int64_t t0 = ct_now_ns();
		CT_TRY(ct_loader_next(p->loader, CT_FOREVER, b));
		t->data_ns += ct_now_ns() - t0;
		p->n_bad += b->n_bad;
		CT_TRY(fit_size(p, (struct ct_shape){p->s->plan.input.c, b->h, b->w}, compile_ns));
		CT_TRY(run_micro(p, req, b, &m, t));
		ct_loader_release(p->loader, b);
		p->n_own += b->n;
	} while (!b->last_of_step);
	return CT_OK;
}

enum ct_status ct_stepper_gradients(ct_stepper *p, const struct ct_step_request *req, struct ct_step_result *out,
				    struct ct_step_times *times)
{
	struct ct_session *s = p->s;
	struct ct_step_times t = {0};
	struct ct_loader_batch b;
	int64_t compile_ns = 0;
	const float *tail = s->tail;
	p->begin_ns = ct_now_ns();
	CT_TRY(share_statistics(p, &t));
	ct_reducer_begin(s->reducer, true);
	CT_TRY(run_micros(p, req, &b, &t, &compile_ns));
	CT_TRY(ct_reducer_finish(s->reducer)); /* the step's one wait for the other ranks */
	t.exposed_ns += ct_reducer_take_exposed_ns(s->reducer);
	p->begin_ns += compile_ns;
	ct_step_times_add(times, &t);
	*out = (struct ct_step_result){.loss_sum = tail[CT_TAIL_LOSS],
				       .n_global = b.n_global,
				       .stop = tail[CT_TAIL_STOP] > 0,
				       .save = tail[CT_TAIL_SAVE] > 0,
				       .last_of_epoch = b.last_of_epoch,
				       .compile_ns = compile_ns,
				       .bad = (uint64_t)tail[CT_TAIL_BAD],
				       .n_own = p->n_own};
	if (b.last_of_epoch)
		p->n_bad = 0;
	return check_bad(p, out->bad);
}

void ct_stepper_loader_stats(ct_stepper *p, struct ct_loader_stats *out)
{
	ct_loader_stats(p->loader, out);
}

enum ct_status ct_stepper_update(ct_stepper *p, double lr, double *grad_norm, struct ct_step_times *times)
{
	int64_t t0 = ct_now_ns();
	CT_TRY(ct_optim_step(p->s->optim, lr, grad_norm));
	if (p->s->ema)
		ct_ema_update(p->s->ema);
	int64_t t1 = ct_now_ns();
	times->optim_ns += t1 - t0;
	times->step_ns += t1 - p->begin_ns;
	return CT_OK;
}
