/* A pass does for the sums what a training step does: kernels on the compute stream write each bucket, the reducer sums
 * it on its own stream as soon as it is written, and the compute stream then continues with the sums. The values are
 * small integers that depend on the rank and on the position, so that sums are exact in each type and in every order,
 * and their sums are known. With many ranks, only every second, third ... rank has values other than 0, so that the
 * sums stay small. A sum that was read too early contains values of the pass before, which are sums and therefore
 * larger than the values of a rank.
 *
 * The first passes are posted, as in the first steps of training. Then one pass is recorded and posted again and again,
 * if steps may be recorded. After each pass, the host compares the beginning, the middle and the end of each bucket,
 * and after the last posted and the last recorded pass all elements. The number of recorded passes is limited by time,
 * and in a short run to one for each 20 steps. Rank 0 chooses it, because clocks differ.
 *
 * All ranks do the same passes. If a rank cannot record, all ranks agree through a sum to leave the recorded passes
 * out; the first recorded step then reports the reason. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/diagnose/self_check.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum {
	POSTED = 2,
	MAX_RECORDED = 100,
	STEPS_PER_PASS = 20,
	SAMPLE = 4096,  /* elements at the beginning, in the middle and at the end of a bucket */
	PART = 1 << 20, /* elements that are copied at once; the values of a bucket are repeated after so many */
	N_VALUES = 4    /* a value is from 1 to this number */
};
#define BUDGET_NS (CT_SEC * 8 / 10)

struct check {
	struct ct_session *s;
	ct_stream *stream;
	void *source; /* [PART] fp32, device memory: the values of this rank */
	float *host;  /* [PART] pinned */
	float *sums;  /* [PART] over all ranks */
	int world, rank;
	int stride;      /* only ranks that are multiples of it have values other than 0 */
	const char *how; /* of the current pass */
	int pass, n_passes;
};

/* Returns the largest integer up to which all integers are exact. */
static uint32_t exact_integers(enum ct_dtype type)
{
	return type == CT_BF16 ? 1u << 8 : type == CT_F16 ? 1u << 11 : 1u << 24;
}

static float value_at(const struct check *c, size_t i, int rank)
{
	const size_t mixed = i * 2654435761u >> 16;

	return rank % c->stride > 0 ? 0 : (float)(1 + (mixed + (size_t)(rank / c->stride)) % N_VALUES);
}

/* The values of ranks repeat, so that not all of them need to be added one by one. */
static float sum_at(const struct check *c, size_t i)
{
	const int n = (c->world - 1) / c->stride + 1; /* ranks with values */
	float sum = 0;

	for (int r = 0; r < N_VALUES && r < n; r++)
		sum += value_at(c, i, r * c->stride) * (float)((n - 1 - r) / N_VALUES + 1);
	return sum;
}

/* ---- One pass ------------------------------------------------------------------------------------------ */

static enum ct_status write_bucket(const struct check *c, const struct ct_bucket *k)
{
	const struct ct_session_grad *g = &c->s->grad;
	const bool half = g->writes_half && k->dtype != CT_F32;

	for (size_t first = 0; first < k->n; first += PART) {
		const struct ct_conversion v = {.to = ct_arena_at(half ? g->half : g->arena, k->offset + first),
						.to_type = half ? k->dtype : CT_F32,
						.from = c->source,
						.from_type = CT_F32,
						.n = k->n - first < PART ? k->n - first : PART};

		CT_TRY(ct_net_post_conversion(c->s->net, &v, c->stream));
	}
	return CT_OK;
}

/* A bucket without slices is posted together with the one before it. */
static enum ct_status post_pass(const struct check *c)
{
	const struct ct_session_grad *g = &c->s->grad;

	ct_reducer_begin(g->reducer, true);
	for (int b = 0; b < g->n_buckets; b++) {
		const struct ct_bucket *k = &g->buckets[b];

		if (k->n_slices > 0)
			CT_TRY(write_bucket(c, k));
		if (b + 1 < g->n_buckets && k[1].n_slices == 0)
			CT_TRY(write_bucket(c, &k[1]));
		for (int i = 0; i < k->n_slices; i++)
			CT_TRY(ct_reducer_ready(g->reducer, k->first_slice + i));
	}
	return ct_reducer_finish(g->reducer);
}

static enum ct_status wrong_sum(const struct check *c, int b, size_t first, size_t n)
{
	const struct ct_bucket *k = &c->s->grad.buckets[b];
	size_t i = 0;

	while (i + 1 < n && c->host[i] == c->sums[(first + i) % PART])
		i++;
	CT_FAIL(CT_COMM,
		"the self check found a wrong sum: element %zu of bucket %d (%zu elements of %s) is %g instead of %g on "
		"rank %d, in %s pass %d of %d",
		first + i, b, k->n, ct_dtype_name(k->dtype), (double)c->host[i], (double)c->sums[(first + i) % PART],
		c->rank, c->how, c->pass + 1, c->n_passes);
	return ct_error_hint(
		"training would compute wrong gradients here; try dist.nccl_windows=false, train.cuda_graph=off, the "
		"environment variable NCCL_NVLS_ENABLE=0, or another version of NCCL (docs/GPU.md)");
}

/* Compares n elements of bucket b, from `first` on. */
static enum ct_status compare(const struct check *c, int b, size_t first, size_t n)
{
	const size_t at = first % PART, head = n < PART - at ? n : PART - at;
	const void *from = ct_arena_at(c->s->grad.arena, c->s->grad.buckets[b].offset + first);

	CT_TRY(ct_device_copy(c->s->device, c->host, from, n * sizeof(float), c->stream));
	CT_TRY(ct_stream_sync(c->stream, CT_FOREVER));
	if (memcmp(c->host, c->sums + at, head * sizeof(float)) != 0 ||
	    memcmp(c->host + head, c->sums, (n - head) * sizeof(float)) != 0)
		return wrong_sum(c, b, first, n);
	return CT_OK;
}

static enum ct_status compare_part(const struct check *c, int b)
{
	const size_t n = c->s->grad.buckets[b].n, some = n < SAMPLE ? n : SAMPLE;

	CT_TRY(compare(c, b, 0, some));
	CT_TRY(compare(c, b, (n - some) / 2, some));
	return compare(c, b, n - some, some);
}

static enum ct_status compare_all(const struct check *c, int b)
{
	const size_t n = c->s->grad.buckets[b].n;

	for (size_t first = 0; first < n; first += PART)
		CT_TRY(compare(c, b, first, n - first < PART ? n - first : PART));
	return CT_OK;
}

static enum ct_status compare_buckets(const struct check *c, bool all)
{
	for (int b = 0; b < c->s->grad.n_buckets; b++)
		CT_TRY(all ? compare_all(c, b) : compare_part(c, b));
	return CT_OK;
}

/* ---- Recorded passes ----------------------------------------------------------------------------------- */

static enum ct_status record(const struct check *c, ct_recording **out, ct_comm_recorded **collectives)
{
	const int64_t first = ct_comm_seq(c->s->group);
	struct ct_error e;

	*out = NULL;
	*collectives = NULL;
	CT_TRY(ct_recording_begin(c->stream));
	const enum ct_status st = post_pass(c);
	if (st < 0)
		ct_error_save(&e);
	const enum ct_status end = ct_recording_end(c->stream, out);
	CT_TRY(ct_comm_recorded_create(c->s->group, first, collectives));
	return st < 0 ? ct_error_restore(&e) : end;
}

/* Returns in *all whether `own` is true on all ranks of the group. */
static enum ct_status agree(const struct check *c, bool own, bool *all)
{
	float *scalar = ct_arena_at(c->s->grad.scalars, 0);

	c->host[0] = own ? 1 : 0;
	CT_TRY(ct_device_copy(c->s->device, scalar, c->host, sizeof(float), c->stream));
	CT_TRY(ct_comm_post_allreduce(c->s->group, scalar, 1, CT_F32, CT_SUM, c->stream));
	CT_TRY(ct_device_copy(c->s->device, c->host, scalar, sizeof(float), c->stream));
	CT_TRY(ct_stream_sync(c->stream, CT_FOREVER));
	*all = c->host[0] == (float)c->world;
	return CT_OK;
}

static enum ct_status run_recorded(struct check *c)
{
	ct_comm_recorded *collectives = NULL;
	ct_recording *r = NULL;
	char why[256];
	bool all;

	c->how = "recorded";
	c->pass = 0;
	CT_TRY(agree(c, ct_comm_is_recordable(c->s->group, why, sizeof(why)), &all));
	if (!all)
		return CT_OK;
	const bool recorded = record(c, &r, &collectives) == CT_OK;
	if (!recorded) {
		CT_INFO("the self check does without recorded passes: %s", ct_error_message());
		ct_error_clear();
	}
	enum ct_status st = agree(c, recorded, &all);
	for (; st == CT_OK && all && c->pass < c->n_passes; c->pass++) {
		ct_comm_recorded_count(collectives);
		st = ct_recording_post(r, c->stream);
		if (st == CT_OK)
			st = compare_buckets(c, c->pass + 1 == c->n_passes);
	}
	ct_comm_recorded_destroy(collectives);
	ct_recording_destroy(r);
	return st;
}

/* ---- The check ----------------------------------------------------------------------------------------- */

/* Chooses the number of recorded passes from the time that one pass takes. */
static enum ct_status plan_passes(struct check *c, int64_t pass_ns)
{
	const struct ct_session *s = c->s;
	const uint64_t steps = s->plan.total_steps - s->state.step, most = BUDGET_NS / (uint64_t)(pass_ns + 1);
	uint64_t n = steps / STEPS_PER_PASS;

	n = n < most ? n : most;
	if (s->cfg->train.self_check == CT_CFG_SELF_CHECK_ON)
		n = MAX_RECORDED;
	c->n_passes = n < 1 ? 1 : n > MAX_RECORDED ? MAX_RECORDED : (int)n;
	return ct_session_broadcast(c->s, &c->n_passes, sizeof(c->n_passes));
}

static enum ct_status run_posted(struct check *c, int64_t *pass_ns)
{
	c->how = "posted";
	c->n_passes = POSTED;
	for (c->pass = 0; c->pass < POSTED; c->pass++) {
		const int64_t t0 = ct_now_ns(); /* the first pass connects the ranks, so the last one counts */

		CT_TRY(post_pass(c));
		CT_TRY(compare_buckets(c, false));
		*pass_ns = ct_now_ns() - t0;
	}
	c->pass = POSTED - 1;
	return compare_buckets(c, true);
}

static enum ct_status prepare(struct check *c)
{
	for (size_t i = 0; i < PART; i++) {
		c->host[i] = value_at(c, i, c->rank);
		c->sums[i] = sum_at(c, i);
	}
	CT_TRY(ct_device_copy(c->s->device, c->source, c->host, PART * sizeof(float), c->stream));
	return ct_stream_sync(c->stream, CT_FOREVER);
}

static enum ct_status clear(const struct check *c, ct_arena *a)
{
	ct_arena_touch(a);
	return ct_device_fill(c->s->device, ct_arena_at(a, 0), 0, ct_arena_bytes(a), c->stream);
}

static enum ct_status clear_all(const struct check *c)
{
	const struct ct_session_grad *g = &c->s->grad;

	CT_TRY(clear(c, g->arena));
	CT_TRY(clear(c, g->scalars));
	if (g->half)
		CT_TRY(clear(c, g->half));
	return ct_stream_sync(c->stream, CT_FOREVER);
}

static enum ct_status run(struct check *c)
{
	const int64_t t0 = ct_now_ns();
	const bool records = ct_device_caps(c->s->device)->recordable &&
			     c->s->cfg->train.cuda_graph != CT_CFG_GRAPH_OFF && !c->s->pipe;
	int64_t pass_ns = 0;

	CT_TRY(prepare(c));
	CT_TRY(run_posted(c, &pass_ns));
	CT_TRY(plan_passes(c, pass_ns));
	if (records)
		CT_TRY(run_recorded(c));
	CT_TRY(clear_all(c));
	CT_INFO("self check: the sums of %d bucket%s over %d ranks are right in %d posted and %d recorded passes, %.3f s",
		c->s->grad.n_buckets, ct_plural(c->s->grad.n_buckets), c->world, POSTED, records ? c->pass : 0,
		ct_seconds_since(t0));
	return CT_OK;
}

/* Chooses the ranks that have values, so that all sums are exact. */
static int choose_stride(const struct ct_session_grad *g, int world)
{
	uint32_t exact = exact_integers(CT_F32);
	int stride = 1;

	for (int b = 0; b < g->n_buckets; b++) {
		const uint32_t one = exact_integers(g->buckets[b].dtype);

		exact = one < exact ? one : exact;
	}
	while ((uint32_t)((world - 1) / stride + 1) * N_VALUES > exact)
		stride++;
	return stride;
}

enum ct_status ct_self_check(struct ct_session *s)
{
	struct check c = {.s = s, .stream = ct_engine_stream(s->engine)};

	if (s->cfg->train.self_check == CT_CFG_SELF_CHECK_OFF || !ct_device_caps(s->device)->async || !s->grad.reducer)
		return CT_OK;
	c.world = ct_comm_size(s->group);
	c.rank = ct_comm_rank(s->group);
	if (c.world == 1)
		return CT_OK;
	c.stride = choose_stride(&s->grad, c.world);
	enum ct_status st = (c.sums = CT_NEW_ARRAY(float, PART)) ? CT_OK : CT_NOMEM;
	if (st == CT_OK)
		st = ct_device_mem_alloc(s->device, PART * sizeof(float), false, &c.source);
	if (st == CT_OK)
		st = ct_device_host_alloc(s->device, PART * sizeof(float), (void **)&c.host);
	if (st == CT_OK)
		st = run(&c);
	if (st < 0)
		ct_session_drain(s); /* posted work may use the memory */
	ct_device_host_free(s->device, c.host);
	ct_device_mem_free(s->device, c.source);
	ct_free(c.sums);
	return st;
}
