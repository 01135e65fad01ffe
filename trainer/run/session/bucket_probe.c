/* All-reduces of growing size are timed: each size is four times the last one, from 64 KiB to the gradients or 64 MiB.
 * The shortest of up to five repetitions counts, after one that warms up. How often a size is repeated, or whether the
 * measurement ends, is predicted from the size before, so that the total stays within BUDGET_NS. Clocks differ between
 * ranks, and they must post the same collectives: rank 0 decides each number of repetitions, and at the end the size,
 * and broadcasts it. A time that is shorter than that of a smaller size is noise, and is raised to it. The gradients
 * are zero and stay zero. */
#include "trainer/run/session/bucket_probe.h"

enum { FIRST_BYTES = 64 << 10, GROWTH = 4, LAST_BYTES = 64 << 20, REPEATS = 5 };
#define BUDGET_NS (CT_SEC * 15 / 100)

struct probe {
	struct ct_session *s;
	ct_stream *stream;
	ct_event *from, *to;
	int64_t patience_ns;
};

/* Measures one all-reduce of the gradients. The sums of zeros are zeros. */
static enum ct_status time_one(const struct probe *p, size_t bytes, int64_t *ns)
{
	struct ct_session *s = p->s;

	CT_TRY(ct_event_record(p->from, p->stream));
	CT_TRY(ct_comm_post_allreduce(s->comm, ct_arena_at(s->grad.arena, 0), bytes / sizeof(float), CT_F32, CT_SUM,
				      p->stream));
	CT_TRY(ct_event_record(p->to, p->stream));
	CT_TRY(ct_event_wait(p->to, ct_deadline_in(p->patience_ns)));
	return ct_event_elapsed(p->from, p->to, ns);
}

/* Measures the shortest of `repeats` all-reduces, after one that is not measured. */
static enum ct_status time_size(const struct probe *p, size_t bytes, int repeats, int64_t *ns)
{
	int64_t one;

	CT_TRY(time_one(p, bytes, ns));
	*ns = INT64_MAX;
	for (int i = 0; i < repeats; i++) {
		CT_TRY(time_one(p, bytes, &one));
		*ns = one < *ns ? one : *ns;
	}
	return CT_OK;
}

/* Returns how often an all-reduce of this size is measured in the time that is left; 0: not at all. */
static int32_t plan_repeats(const struct ct_bucket_choice *c, size_t bytes, int64_t left_ns)
{
	double one;

	if (c->n_times == 0)
		return REPEATS;
	one = (double)c->times[c->n_times - 1].ns * (double)bytes / (double)c->times[c->n_times - 1].bytes;
	/* Half of the time is left for larger sizes. */
	const double fit = 0.5 * (double)left_ns / (one + 1) - 1;
	return fit >= REPEATS ? REPEATS : fit >= 1 ? (int32_t)fit : 0;
}

static enum ct_status measure(const struct probe *p, struct ct_bucket_choice *c)
{
	struct ct_session *s = p->s;
	const size_t all = ct_arena_elems(s->grad.arena) * sizeof(float), most = all < LAST_BYTES ? all : LAST_BYTES;
	size_t bytes = FIRST_BYTES < most ? FIRST_BYTES : most;
	ct_work *w = NULL;

	/* The ranks may arrive at very different times. */
	CT_TRY(ct_comm_barrier(s->comm, &w));
	CT_TRY(ct_work_wait(w));
	const int64_t start = ct_now_ns();
	while (c->n_times < CT_BUCKET_TIMES) {
		struct ct_allreduce_time *t = &c->times[c->n_times];
		int32_t repeats = plan_repeats(c, bytes, start + BUDGET_NS - ct_now_ns());

		CT_TRY(ct_session_broadcast(s, &repeats, sizeof(repeats)));
		if (repeats == 0)
			break;
		t->bytes = bytes;
		CT_TRY(time_size(p, bytes, repeats, &t->ns));
		if (c->n_times > 0 && t->ns < t[-1].ns)
			t->ns = t[-1].ns;
		c->n_times++;
		if (bytes == most)
			break;
		bytes = bytes * GROWTH < most ? bytes * GROWTH : most;
	}
	c->seconds = ct_seconds_since(start);
	return CT_OK;
}

static enum ct_status measure_and_choose(struct probe *p, struct ct_bucket_choice *c)
{
	struct ct_session *s = p->s;

	CT_TRY(ct_event_create(s->device, true, &p->from));
	CT_TRY(ct_event_create(s->device, true, &p->to));
	CT_TRY(measure(p, c));
	CT_TRY(ct_plan_choose_buckets(s->cfg, s->net, c->times, c->n_times, &c->bytes));
	return ct_session_broadcast(s, c, sizeof(*c));
}

enum ct_status ct_bucket_probe(struct ct_session *s, struct ct_bucket_choice *out)
{
	struct probe p = {.s = s,
			  .stream = ct_engine_stream(s->engine),
			  .patience_ns = (int64_t)((2 * s->cfg->dist.timeout + 10) * 1e9)};
	enum ct_status st;

	*out = (struct ct_bucket_choice){.bytes = ct_plan_bucket_bytes(s->cfg)};
	if (s->cfg->dist.bucket_mib != CT_CFG_AUTO || s->world.id.world == 1)
		return CT_OK;
	st = measure_and_choose(&p, out);
	ct_event_destroy(p.to);
	ct_event_destroy(p.from);
	return st;
}
