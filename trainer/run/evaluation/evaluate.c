/* The sampler gives each replica its own part of the samples, without padding. Up to EVAL_AHEAD batches are posted
 * before the host waits for one. On an asynchronous device, the logits are copied by posted work to a buffer of the
 * batch's slot, and are read when the batch is finished. Ranks exchange nothing while batches run, except the stages of
 * a replica; afterwards, two all-reduces add up the predictions and the metrics.
 *
 * Each sample must be counted exactly once: counted and unreadable samples together must be all samples, and no row of
 * the summed predictions may have been written twice, otherwise the evaluation fails with CT_BUG. The EMA weights are
 * swapped in for the batches. If something fails in between, they are not swapped back, so the session must not be
 * used for training any more. */
#define CT_LOG_COMPONENT "eval"
#include "trainer/run/evaluation/evaluate.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "trainer/run/session/resident.h"
#include "trainer/run/step/lent.h"

static enum ct_status sum_over_ranks(struct ct_session *s, struct ct_metrics *m, uint64_t *n_bad)
{
	if (!ct_session_counts_samples(s))
		*n_bad = 0;
	double v[5] = {m->loss, (double)m->count, (double)m->top1, (double)m->top5, (double)*n_bad};
	ct_work *w = NULL;
	CT_TRY(ct_comm_allreduce(s->comm, v, CT_ARRAY_LEN(v), CT_F64, CT_SUM, &w));
	CT_TRY(ct_work_wait(w));
	*m = (struct ct_metrics){v[0], (int64_t)v[1], (int64_t)v[2], (int64_t)v[3]};
	*n_bad = (uint64_t)v[4];
	return CT_OK;
}

/* Runs a batch on a stage of a pipeline. *t is the transfer of the output of the previous batch. */
static enum ct_status run_stage(struct ct_session *s, struct ct_batch *b, struct ct_transfer *t)
{
	if (!ct_pipeline_is_first(s->pipe))
		b->x = ct_pipeline_input(s->pipe, 0);
	b->y = s->pipe->y;
	CT_TRY(ct_pipeline_receive_input(s->pipe, 0, b->n, t));
	CT_TRY(ct_pipeline_wait(t));
	CT_TRY(ct_program_forward(s->model.eval, b));
	CT_TRY(ct_stream_sync(ct_engine_stream(s->engine), CT_FOREVER));
	return ct_pipeline_send_output(s->pipe, b->n, t);
}

enum { EVAL_AHEAD = 3 }; /* batches that are posted before the host waits for one */

/* The predictions of this rank. */
struct keeper {
	struct ct_session *s;
	struct ct_predictions *all; /* NULL: not requested */
	float *logits;              /* [eval_rows, n_classes]; NULL: this rank has no logits */
	/* Posted copies of the logits of the lent batches. NULL: the host waits for each batch. */
	void *copies[EVAL_AHEAD + 1];
	int node;
};

bool ct_evaluate_predicts(const struct ct_session *s)
{
	return !s->plan.regression && s->plan.val.n <= CT_PREDICTIONS_MAX;
}

static enum ct_status keeper_init(struct keeper *k, struct ct_session *s)
{
	const ct_graph *g = ct_session_eval_graph(&s->model), *whole = ct_session_whole(s);
	const struct ct_node *loss = ct_graph_node(whole, ct_graph_loss(whole));

	if (!k->all || !ct_evaluate_predicts(s))
		return CT_OK;
	k->node = ct_graph_node(g, ct_graph_loss(g))->in[0];
	CT_TRY(ct_predictions_create(s->plan.val.n, ct_graph_node(whole, loss->in[0])->shape.c, k->all));
	if (!s->pipe || ct_pipeline_is_last(s->pipe))
		CT_TRY_ALLOC(k->logits = CT_NEW_ARRAY(float, (size_t)s->plan.eval_rows *(size_t)k->all->n_classes));
	const size_t bytes = k->logits && ct_device_caps(s->device)->async ? ct_program_logits_bytes(s->model.eval) : 0;
	for (size_t i = 0; bytes > 0 && i < CT_ARRAY_LEN(k->copies); i++)
		CT_TRY(ct_device_host_alloc(s->device, bytes, &k->copies[i]));
	return CT_OK;
}

static void keeper_release(struct keeper *k)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(k->copies); i++)
		if (k->copies[i])
			ct_device_host_free(k->s->device, k->copies[i]);
	ct_free(k->logits);
}

static enum ct_status keep(struct keeper *k, int slot, const struct ct_loader_batch *b)
{
	if (!k->logits)
		return CT_OK;
	if (k->copies[0])
		return ct_program_post_logits(k->s->model.eval, k->copies[slot]);
	CT_TRY(ct_program_read(k->s->model.eval, k->node, false, k->logits));
	ct_predictions_add(k->all, b->samples, b->labels, k->logits, b->n);
	return CT_OK;
}

/* Keeps the predictions of a batch whose logits have been copied. */
static void keep_copied(void *user, int slot, const struct ct_loader_batch *b)
{
	struct keeper *k = user;

	if (!k->copies[0] || b->n == 0)
		return;
	ct_program_take_logits(k->s->model.eval, (int)b->n, k->copies[slot], k->logits);
	ct_predictions_add(k->all, b->samples, b->labels, k->logits, b->n);
}

static enum ct_status run_batches(struct ct_session *s, struct ct_lent *lent, struct keeper *k, uint64_t steps,
				  void (*progress)(void *, double), void *user)
{
	struct ct_transfer t = {0};

	for (uint64_t i = 0; i < steps; i++) {
		struct ct_loader_batch *b;

		CT_TRY(ct_lent_next(lent, &b));
		struct ct_batch in = ct_resident_batch(b);
		if (b->n > 0)
			CT_TRY(s->pipe ? run_stage(s, &in, &t) : ct_program_forward(s->model.eval, &in));
		if (b->n > 0)
			CT_TRY(keep(k, ct_lent_slot(lent), b));
		CT_TRY(ct_lent_posted(lent));
		ct_failpoint("eval");
		if (progress)
			progress(user, (double)(i + 1) / (double)steps);
	}
	CT_TRY(ct_lent_finish(lent));
	return ct_pipeline_wait(&t);
}

/* Every evaluation finds the same unreadable samples, so only the first one logs them. */
struct bad {
	bool known;
	uint64_t n;
};

static void note_bad(void *user, uint32_t sample, const char *text)
{
	struct bad *b = user;

	b->n++;
	if (!b->known)
		CT_WARN("evaluation sample %u is skipped, because it is unreadable: %s", sample, text);
}

/* Compiles the program once: all images of an evaluation have the same size. */
static enum ct_status prepare(struct ct_session *s)
{
	const struct ct_shape *in = &s->plan.val_input, *have = &ct_graph_node(ct_session_whole(s), 0)->shape;
	const bool other = in->h != have->h || in->w != have->w;

	if (other && !s->model.val_graph)
		CT_TRY(ct_session_graph(s, *in, &s->model.val_graph));
	const ct_graph *g = ct_session_eval_graph(&s->model);
	if (s->pipe)
		CT_TRY(ct_pipeline_reserve(s->pipe, g, (int)s->plan.eval_rows));
	if (s->model.eval)
		return CT_OK;
	return ct_program_create_for(s->net, g, (int)s->plan.eval_rows, CT_EVAL, &s->model.eval);
}

static enum ct_status count_all(const struct ct_session *s, const struct ct_metrics *m, uint64_t n_bad)
{
	if (n_bad > s->plan.max_bad_val) {
		CT_FAIL(CT_DATA,
			"%llu of %u evaluation samples could not be read or decoded, but data.max_bad allows %llu",
			(unsigned long long)n_bad, s->plan.val.n, (unsigned long long)s->plan.max_bad_val);
		return ct_error_hint("the log names each of them; data.max_bad=N accepts more");
	}
	if (m->count == 0)
		return CT_FAIL(CT_DATA, "none of the %u evaluation samples could be read and decoded", s->plan.val.n);
	if ((uint64_t)m->count + n_bad != s->plan.val.n)
		return CT_FAIL(CT_BUG, "evaluation counted %lld of %u samples, %llu were bad", (long long)m->count,
			       s->plan.val.n, (unsigned long long)n_bad);
	return CT_OK;
}

/* Each sample was evaluated by one rank, so the sum of the rows of all ranks has the predictions of all samples. */
static enum ct_status gather_predictions(struct ct_session *s, struct ct_predictions *p)
{
	ct_work *w = NULL;

	if (!p || p->n == 0)
		return CT_OK;
	CT_TRY(ct_comm_allreduce(s->comm, p->rows, (size_t)p->n * CT_PREDICTION_COLUMNS, CT_F32, CT_SUM, &w));
	CT_TRY(ct_work_wait(w));
	p->step = s->state.step;
	for (uint32_t i = 0; i < p->n; i++) {
		if (ct_predictions_row(p, i)[CT_PREDICTION_COUNT] > 1)
			return CT_FAIL(CT_BUG, "evaluation sample %u was evaluated more than once", i);
	}
	return CT_OK;
}

enum ct_status ct_evaluate(struct ct_session *s, void (*progress)(void *user, double done), void *user,
			   struct ct_predictions *predictions, struct ct_eval_result *out)
{
	int64_t t0 = ct_now_ns();
	struct ct_metrics m = {0};
	struct ct_loader_opts lo;
	struct bad bad = {.known = s->model.eval != NULL};
	ct_loader *loader = NULL;
	struct ct_lent lent = {0};
	struct keeper keeper = {.s = s, .all = predictions};
	enum ct_status st;

	if (predictions)
		*predictions = (struct ct_predictions){0};
	CT_TRY(ct_session_broadcast_arena(s, ct_net_buffers(s->net)));
	if (s->ema)
		CT_TRY(ct_session_broadcast_arena(s, ct_ema_buffers(s->ema)));
	CT_TRY(prepare(s));
	if (!s->data.val_bad)
		CT_TRY_ALLOC(s->data.val_bad =
				     CT_NEW_ARRAY(_Atomic uint32_t, ct_dataset_info(s->data.val)->n / 32 + 1));
	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->data.val), false, (uint32_t)ct_session_replica(s),
			    s->world.id.local_world, &lo);
	lo.device = s->device;
	ct_resident_set_opts(s, CT_EVAL, &lo);
	lo.max_out = ct_lent_max(s->device, EVAL_AHEAD);
	lo.known_bad = s->data.val_bad;
	lo.on_bad = note_bad;
	lo.user = &bad;
	CT_TRY(ct_loader_create(s->data.val, &lo, &loader));
	/* Ranks exchange nothing while they evaluate batches. */
	st = ct_lent_init(&lent, loader, ct_engine_stream(s->engine), lo.max_out, CT_FOREVER);
	if (st == CT_OK && s->ema)
		st = ct_ema_swap(s->ema);
	if (st == CT_OK)
		st = keeper_init(&keeper, s);
	lent.finished = keep_copied;
	lent.user = &keeper;
	if (st == CT_OK)
		st = run_batches(s, &lent, &keeper, ct_sampler_steps(&lo.sampler), progress, user);
	if (st == CT_OK)
		st = ct_net_take_metrics(s->net, &m);
	if (st == CT_OK && s->ema)
		st = ct_ema_swap(s->ema);
	ct_lent_release(&lent);
	ct_loader_destroy(loader);
	keeper_release(&keeper);
	if (st == CT_OK)
		st = gather_predictions(s, predictions);
	if (st == CT_OK)
		st = sum_over_ranks(s, &m, &bad.n);
	CT_TRY(st);
	CT_TRY(count_all(s, &m, bad.n));
	double n = (double)m.count;
	*out = (struct ct_eval_result){.loss = m.loss / n,
				       .top1 = s->plan.regression ? -1 : (double)m.top1 / n,
				       .top5 = s->plan.regression ? -1 : (double)m.top5 / n,
				       .count = (uint64_t)m.count,
				       .bad = bad.n,
				       .seconds = ct_seconds_since(t0)};
	return CT_OK;
}
