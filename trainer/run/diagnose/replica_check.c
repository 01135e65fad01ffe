/* The fingerprint of each tensor is computed in the compute threads, and one fingerprint over all of them is
 * exchanged. Only if the ranks differ, those of all tensors are exchanged. The first difference is searched from the
 * input of the model to its output, since slices are stored in the order of the backward pass. The value that most
 * ranks have is taken as right. With two ranks this is unknown, so the error then names both and blames none. No
 * posted step may be left, or ranks would compare different steps. */
#define CT_LOG_COMPONENT "train"
#include "trainer/run/diagnose/replica_check.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/hash/fingerprint.h"
#include "base/log.h"
#include "base/parallel.h"

enum { MAX_STATES = 8 };

/* An arena whose contents should be the same on all ranks. */
struct state {
	const char *name;
	ct_arena *arena;
	bool buffers; /* in the layout of the graph's buffers, not of the slices */
	int first;    /* index of its first fingerprint */
};

struct ct_replica_check {
	struct ct_session *s;
	uint64_t every, agreed; /* agreed: the last step at which all ranks had the same state */
	struct state states[MAX_STATES];
	int n_states, n, n_ranks, threads; /* n: number of fingerprints */
	int64_t *own;                      /* [n] of each parameter in each arena */
	int64_t *overall;                  /* [n_ranks] of the complete state */
	uint64_t n_checks;
	double seconds;
};

static int n_parts(const ct_replica_check *c, bool buffers)
{
	return buffers ? ct_graph_n_buffers(c->s->model.graph) : ct_net_n_slices(c->s->net);
}

static void add(ct_replica_check *c, const char *name, ct_arena *a, bool buffers)
{
	CT_ASSERT(c->n_states < MAX_STATES);
	c->states[c->n_states++] = (struct state){.name = name, .arena = a, .buffers = buffers, .first = c->n};
	c->n += n_parts(c, buffers);
}

/* With other kinds of batch norm, each rank has the statistics of its own rows. */
static bool compares_buffers(const struct ct_session *s)
{
	return ct_graph_n_buffers(s->model.graph) > 0 && s->cfg->model.bn == CT_CFG_BN_SYNC;
}

static void list_states(ct_replica_check *c)
{
	struct ct_session *s = c->s;

	add(c, "weights", ct_net_params(s->net), false);
	for (int i = 0; ct_optim_state_name(s->optim, i); i++)
		add(c, ct_optim_state_name(s->optim, i), ct_optim_state(s->optim, i), false);
	if (s->ema)
		add(c, "EMA weights", ct_ema_params(s->ema), false);
	if (compares_buffers(s))
		add(c, "running statistics", ct_net_buffers(s->net), true);
	if (compares_buffers(s) && s->ema)
		add(c, "EMA running statistics", ct_ema_buffers(s->ema), true);
}

enum ct_status ct_replica_check_create(struct ct_session *s, ct_replica_check **out)
{
	ct_replica_check *c;

	*out = NULL;
	if (s->cfg->dist.check_weights == 0 || ct_comm_size(s->group) == 1)
		return CT_OK;
	CT_TRY_ALLOC(c = CT_NEW(ct_replica_check));
	c->s = s;
	c->every = (uint64_t)s->cfg->dist.check_weights;
	c->agreed = s->state.step;
	c->n_ranks = ct_comm_size(s->group);
	c->threads = ct_plan_threads(s->cfg, ct_session_local_world(s));
	list_states(c);
	c->own = CT_NEW_ARRAY(int64_t, (size_t)c->n);
	c->overall = CT_NEW_ARRAY(int64_t, (size_t)c->n_ranks);
	if (!c->own || !c->overall) {
		ct_replica_check_destroy(c);
		return CT_NOMEM;
	}
	*out = c;
	return CT_OK;
}

void ct_replica_check_destroy(ct_replica_check *c)
{
	if (!c)
		return;
	if (c->n_checks > 0)
		CT_INFO("compared the state of all ranks %llu time%s, in %.3f s", (unsigned long long)c->n_checks,
			ct_plural((int64_t)c->n_checks), c->seconds);
	ct_free(c->own);
	ct_free(c->overall);
	ct_free(c);
}

bool ct_replica_check_due(const ct_replica_check *c, uint64_t step)
{
	return c && step % c->every == 0;
}

/* ---- fingerprints */

struct hashing {
	const ct_replica_check *c;
	const struct state *state;
	const float *data;
};

static void hash_slices(void *arg, int64_t begin, int64_t end)
{
	const struct hashing *h = arg;

	for (int64_t i = begin; i < end; i++) {
		const struct ct_slice *k = ct_net_slice(h->c->s->net, (int)i);

		h->c->own[h->state->first + i] = (int64_t)ct_fingerprint(h->data + k->offset, k->n);
	}
}

static void hash_buffers(const struct hashing *h)
{
	const float *p = h->data;

	for (int i = 0; i < n_parts(h->c, true); i++) {
		const size_t n = ct_graph_buffer(h->c->s->model.graph, i)->n;

		h->c->own[h->state->first + i] = (int64_t)ct_fingerprint(p, n);
		p += n;
	}
}

static enum ct_status hash(ct_replica_check *c, int64_t *overall)
{
	uint64_t sum = 0;

	for (int k = 0; k < c->n_states; k++) {
		struct hashing h = {.c = c, .state = &c->states[k]};
		struct ct_mirror m;

		CT_TRY(ct_mirror_open(h.state->arena, CT_MIRROR_READ, ct_engine_stream(c->s->engine), &m));
		h.data = m.data;
		if (h.state->buffers)
			hash_buffers(&h);
		else
			ct_parallel_for(c->threads, n_parts(c, false), 1, hash_slices, &h);
		ct_mirror_drop(&m);
	}
	for (int i = 0; i < c->n; i++)
		sum = ct_fingerprint_mix(sum, (uint64_t)c->own[i]);
	*overall = (int64_t)sum;
	return CT_OK;
}

/* ---- comparison */

/* Returns a rank whose value most ranks have. all: [n_ranks], `stride` apart. *n_others: how many ranks have another
 * value. */
static int majority(const int64_t *all, int n_ranks, size_t stride, int *n_others)
{
	int best = 0, best_n = 0;

	for (int q = 0; q < n_ranks; q++) {
		int n = 0;

		for (int r = 0; r < n_ranks; r++)
			n += all[(size_t)r * stride] == all[(size_t)q * stride];
		if (n > best_n) {
			best = q;
			best_n = n;
		}
	}
	*n_others = n_ranks - best_n;
	return best;
}

struct difference {
	const struct state *state; /* NULL: there is none */
	int part;                  /* index of the parameter or buffer in the state */
	int n;                     /* number of tensors that differ */
};

/* Finds the first parameter, from the input of the model to its output, that is not the same on all ranks.
 * all: [n_ranks, n] */
static struct difference find_first(const ct_replica_check *c, const int64_t *all)
{
	struct difference d = {0};

	for (int k = 0; k < c->n_states; k++) {
		const struct state *st = &c->states[k];
		const int n = n_parts(c, st->buffers);

		for (int j = 0; j < n; j++) {
			const int i = st->buffers ? j : n - 1 - j; /* slices are in the order of the backward pass */
			int n_others;

			(void)majority(all + st->first + i, c->n_ranks, (size_t)c->n, &n_others);
			if (n_others > 0 && d.n++ == 0) {
				d.state = st;
				d.part = i;
			}
		}
	}
	return d;
}

/* Sets the error. Usually one rank differs from all others; with two ranks, it is not known which one is wrong. */
static enum ct_status describe(const ct_replica_check *c, const int64_t *all, uint64_t step)
{
	const struct ct_peer *peers = c->s->pipe ? c->s->pipe->part.peers : c->s->world.peers;
	const struct difference d = find_first(c, all);
	int n_others, odd = 0, normal;
	char rest[160] = "all other ranks";

	CT_ASSERT(d.state);
	all += d.state->first + d.part;
	normal = majority(all, c->n_ranks, (size_t)c->n, &n_others);
	while (all[(size_t)odd * (size_t)c->n] == all[(size_t)normal * (size_t)c->n])
		odd++;
	if (n_others > 1 || c->n_ranks == 2)
		snprintf(rest, sizeof(rest), "rank %d (pid %d on %s)", peers[normal].rank, peers[normal].pid,
			 peers[normal].host);
	CT_FAIL(CT_MISMATCH,
		"rank %d (pid %d on %s) differs from %s after step %llu: the first difference is in %s of %s; %d of %d tensors differ",
		peers[odd].rank, peers[odd].pid, peers[odd].host, rest, (unsigned long long)step, d.state->name,
		d.state->buffers ? ct_graph_buffer(c->s->model.graph, d.part)->name
				 : ct_session_slice_name(c->s, d.part),
		d.n, c->n);
	ct_error_hint(
		"all ranks agreed after step %llu: continue from a checkpoint of that step or an earlier one (train.resume). "
		"The cause may be faulty memory, or different kinds of CPUs; dist.check_weights=0 turns this check off",
		(unsigned long long)c->agreed);
	if (c->n_ranks > 2)
		ct_error_caused_by(peers[odd].rank, peers[odd].pid);
	return CT_MISMATCH;
}

static enum ct_status find_difference(ct_replica_check *c, uint64_t step)
{
	int64_t *all;
	ct_work *w;
	enum ct_status st;

	CT_TRY_ALLOC(all = CT_NEW_ARRAY(int64_t, (size_t)c->n_ranks *(size_t)c->n));
	st = ct_comm_allgather(c->s->group, c->own, all, (size_t)c->n, CT_I64, &w);
	if (st == CT_OK)
		st = ct_work_wait(w);
	if (st == CT_OK)
		st = describe(c, all, step);
	ct_free(all);
	return st;
}

enum ct_status ct_replica_check_run(ct_replica_check *c, uint64_t step)
{
	const int64_t start = ct_now_ns();
	int64_t overall;
	ct_work *w;
	int n_others;

	CT_TRY(hash(c, &overall));
	CT_TRY(ct_comm_allgather(c->s->group, &overall, c->overall, 1, CT_I64, &w));
	CT_TRY(ct_work_wait(w));
	(void)majority(c->overall, c->n_ranks, 1, &n_others);
	if (n_others > 0)
		return find_difference(c, step);
	c->agreed = step;
	c->n_checks++;
	c->seconds += ct_seconds_since(start);
	return CT_OK;
}
