/* Exchanging times costs a collective, so it happens about every 0.3 s, or after 200 short steps. The number of steps
 * until the next exchange follows from the slowest rank's step time, which all ranks have received, so all of them
 * exchange after the same step. Rank 0 sums the values up and compares ranks once per second. A rank is reported when
 * it was the same one three times in succession, and again only when the rank or its phase changes, so a single delay
 * or two ranks that alternate cause no report. Busy time is what remains of the time until the last bucket without the
 * waits for others. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/diagnose/straggler_watch.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "trainer/run/metrics/straggler.h"

enum { FIRST_STEPS = 10, MAX_STEPS = 200, IN_SUCCESSION = 3 };
#define EXCHANGE_S 0.3  /* the interval at which ranks exchange their times, unless steps are very short */
#define JUDGE_NS CT_SEC /* the shortest time over which ranks are compared, so that single delays do not matter */

struct ct_straggler_watch {
	struct ct_session *s;
	int n_ranks, n_values;
	double *own, *all, *scratch; /* [n_values], [n_ranks, n_values], [n_ranks] */
	double *sums;                /* [n_ranks, n_values] since judged_ns: sums over n_judged steps */
	uint64_t n_judged;
	int64_t judged_ns;
	struct ct_step_times times; /* since the last exchange */
	uint64_t n_steps, next;     /* the next exchange is after `next` steps; the same on all ranks */
	int suspect, n_late;        /* the rank that was late in the last n_late comparisons; -1: none */
	int reported;               /* the straggler that has been reported; -1: none */
	enum ct_pace phase;         /* that was reported */
};

enum ct_status ct_straggler_watch_create(struct ct_session *s, ct_straggler_watch **out)
{
	ct_straggler_watch *w;

	*out = NULL;
	if (s->cfg->dist.straggler_factor == 0 || s->world.id.world == 1 || s->pipe || ct_device_caps(s->device)->async)
		return CT_OK;
	CT_TRY_ALLOC(w = CT_NEW(ct_straggler_watch));
	w->s = s;
	w->n_ranks = s->world.id.world;
	w->n_values = CT_PACE_BUCKETS + s->grad.n_buckets;
	w->next = FIRST_STEPS;
	w->suspect = w->reported = -1;
	w->judged_ns = ct_now_ns();
	w->own = CT_NEW_ARRAY(double, (size_t)w->n_values);
	w->all = CT_NEW_ARRAY(double, (size_t)w->n_values *(size_t)w->n_ranks);
	w->sums = CT_NEW_ARRAY(double, (size_t)w->n_values *(size_t)w->n_ranks);
	w->scratch = CT_NEW_ARRAY(double, (size_t)w->n_ranks);
	if (!w->own || !w->all || !w->sums || !w->scratch) {
		ct_straggler_watch_destroy(w);
		return CT_NOMEM;
	}
	*out = w;
	return CT_OK;
}

void ct_straggler_watch_destroy(ct_straggler_watch *w)
{
	if (!w)
		return;
	ct_free(w->own);
	ct_free(w->all);
	ct_free(w->sums);
	ct_free(w->scratch);
	ct_free(w);
}

/* Fills in the values of this rank. Returns false if there are none, which is the same on all ranks. */
static bool measure(ct_straggler_watch *w)
{
	const struct ct_step_times *t = &w->times;
	const double per_step = 1e-9 / (double)w->n_steps;
	double *v = w->own, wait_s;
	const uint64_t n = ct_reducer_take_times(w->s->grad.reducer, v + CT_PACE_BUCKETS, &wait_s);

	if (n == 0)
		return false;
	for (int i = CT_PACE_BUCKETS; i < w->n_values; i++)
		v[i] /= (double)n;
	v[CT_PACE_DATA] = (double)t->data_ns * per_step;
	v[CT_PACE_FORWARD] = (double)t->forward_ns * per_step;
	v[CT_PACE_BACKWARD] = (double)t->backward_ns * per_step;
	v[CT_PACE_OPTIM] = (double)t->optim_ns * per_step;
	v[CT_PACE_STEP] = (double)t->step_ns * per_step;
	/* Synchronized batch norm waits for others before the last bucket is reached. */
	const double waits = fmax(0, (double)t->exposed_ns * per_step - wait_s / (double)n);
	v[CT_PACE_BUSY] = fmax(0, v[w->n_values - 1] - waits);
	v[CT_PACE_OTHER] = fmax(0, v[CT_PACE_BUSY] - v[CT_PACE_DATA] - v[CT_PACE_FORWARD] - v[CT_PACE_BACKWARD] -
					   v[CT_PACE_OPTIM]);
	return true;
}

static enum ct_status exchange(ct_straggler_watch *w)
{
	ct_work *work;
	double step_s = 0;

	CT_TRY(ct_comm_allgather(w->s->comm, w->own, w->all, (size_t)w->n_values, CT_F64, &work));
	CT_TRY(ct_work_wait(work));
	for (int r = 0; r < w->n_ranks; r++)
		step_s = fmax(step_s, w->all[(size_t)r * (size_t)w->n_values + CT_PACE_STEP]);
	w->next = (uint64_t)fmin(fmax(EXCHANGE_S / fmax(step_s, 1e-9), 1), MAX_STEPS);
	return CT_OK;
}

static enum ct_status report(const ct_straggler_watch *w, const struct ct_straggler *f, ct_metrics_log *m)
{
	const struct ct_peer *p = &w->s->world.peers[f->rank];
	const char *phase = ct_pace_name(f->phase);
	struct ct_str text = {0};
	ct_json *j = ct_json_object();

	ct_str_addf(
		&text,
		"rank %d (pid %d on %s) is a straggler: all others wait for it, %.1f ms per step, from bucket %d of %d on; "
		"it needs %.2f times as long as they do, mostly in %s (%.1f ms, the others %.1f ms)",
		p->rank, p->pid, p->host, 1e3 * f->late_s, f->bucket, w->s->grad.n_buckets, f->ratio, phase,
		1e3 * f->phase_s, 1e3 * f->others_s);
	CT_INFO("%s", ct_str_text(&text));
	ct_metrics_say(m, "step %llu  %s", (unsigned long long)w->s->state.step + 1, ct_str_text(&text));
	ct_str_release(&text);
	ct_json_set_i64(j, "step", (int64_t)w->s->state.step + 1);
	ct_json_set_i64(j, "rank", p->rank);
	ct_json_set_str(j, "host", p->host);
	ct_json_set_i64(j, "bucket", f->bucket);
	ct_json_set_f64(j, "late_ms", 1e3 * f->late_s);
	ct_json_set_f64(j, "ratio", f->ratio);
	ct_json_set_str(j, "phase", phase);
	ct_json_set_f64(j, "phase_ms", 1e3 * f->phase_s);
	ct_json_set_f64(j, "others_ms", 1e3 * f->others_s);
	return ct_metrics_straggler(m, j);
}

/* On rank 0: reports a straggler when it is found, and when it or its phase changes. */
static enum ct_status judge(ct_straggler_watch *w, ct_metrics_log *m)
{
	struct ct_straggler f;
	const bool found = ct_straggler_find(w->sums, w->n_ranks, w->s->grad.n_buckets,
					     w->s->cfg->dist.straggler_factor, w->scratch, &f);
	const int who = found ? f.rank : -1;

	w->n_late = who == w->suspect ? w->n_late + 1 : 1;
	w->suspect = who;
	if (w->n_late < IN_SUCCESSION || (who == w->reported && (who < 0 || f.phase == w->phase)))
		return CT_OK;
	if (!found)
		ct_metrics_say(m, "step %llu  rank %d is no longer a straggler",
			       (unsigned long long)w->s->state.step + 1, w->reported);
	w->reported = who;
	w->phase = f.phase;
	return found ? report(w, &f, m) : CT_OK;
}

/* On rank 0: compares the ranks when enough time has passed. */
static enum ct_status collect(ct_straggler_watch *w, ct_metrics_log *m)
{
	const size_t n = (size_t)w->n_ranks * (size_t)w->n_values;

	for (size_t i = 0; i < n; i++)
		w->sums[i] += w->all[i] * (double)w->n_steps;
	w->n_judged += w->n_steps;
	if (ct_now_ns() - w->judged_ns < JUDGE_NS)
		return CT_OK;
	for (size_t i = 0; i < n; i++)
		w->sums[i] /= (double)w->n_judged;
	enum ct_status st = judge(w, m);
	memset(w->sums, 0, n * sizeof(*w->sums));
	w->n_judged = 0;
	w->judged_ns = ct_now_ns();
	return st;
}

enum ct_status ct_straggler_watch_step(ct_straggler_watch *w, const struct ct_step_times *t, ct_metrics_log *m)
{
	if (!w)
		return CT_OK;
	ct_step_times_add(&w->times, t);
	if (++w->n_steps < w->next)
		return CT_OK;
	if (measure(w)) {
		CT_TRY(exchange(w));
		if (m)
			CT_TRY(collect(w, m));
	}
	memset(&w->times, 0, sizeof(w->times));
	w->n_steps = 0;
	return CT_OK;
}
