/* The communicator for several hosts of which some have several ranks. Collectives use shm among the ranks of a host
 * and gloo among the first ranks of all hosts, and run one by one on a worker thread. Messages use a gloo context of
 * all ranks.
 *
 * A collective consists of up to three collectives: within the host, between the first ranks, and within the host
 * again. The worker runs one operation at a time, and only the thread that runs it uses the two communicators for
 * collectives. Therefore mem_alloc, which is a collective of the host's ranks, refuses to run while an operation is
 * pending. Ranks compare the operation that was posted (`whole`), because the inner ones of different operations may be
 * the same. If one of the inner communicators fails, its error ends this one, and abort ends the other two with the
 * same error. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "dist/comm/worker_impl.h"

/* An operation has three stages: within the host, between hosts, within the host. The timeout of each stage is longer
 * by this much than that of the stage before it. The rank that is closest to the cause then times out first, and all
 * ranks report its message. */
#define LEG_NS (2 * CT_SEC)
enum leg { GATHER_UP, ACROSS, HAND_DOWN, N_LEGS };

struct hier {
	struct ct_comm base;
	struct ct_world local_world, leader_world;
	ct_comm *local;   /* the ranks of this host; its rank 0 is the leader */
	ct_comm *leaders; /* the first ranks of all hosts; NULL on other ranks */
	ct_comm *messages;
	int *host;         /* [size] index of the rank's host; hosts are in the order of their first ranks */
	int *place;        /* [size] rank within the host */
	int n_hosts, most; /* most: the largest number of ranks on one host */
	struct ct_comm_worker worker;
	char *scratch;
	size_t scratch_bytes;
};

static enum ct_status supports(const struct ct_world *w)
{
	if (!w->store)
		return CT_FAIL(CT_BUG, "communicator \"hier\" needs a store");
	return CT_OK;
}

/* ---- opening */

static enum ct_status find_hosts(struct hier *h)
{
	const struct ct_world *w = h->base.world;

	CT_TRY_ALLOC(h->host = CT_NEW_ARRAY(int, (size_t)h->base.size));
	CT_TRY_ALLOC(h->place = CT_NEW_ARRAY(int, (size_t)h->base.size));
	for (int q = 0; q < h->base.size; q++) {
		h->host[q] = -1;
		for (int r = 0; r < q; r++) {
			if (w->peers[r].node != w->peers[q].node)
				continue;
			h->host[q] = h->host[r];
			h->place[q] = h->place[r] + 1;
		}
		if (h->host[q] < 0)
			h->host[q] = h->n_hosts++;
		if (h->place[q] >= h->most)
			h->most = h->place[q] + 1;
	}
	return CT_OK;
}

static enum ct_status open_part(struct hier *h, const struct ct_comm_ops *ops, struct ct_world *w, const char *name,
				ct_comm **out)
{
	struct ct_comm_opts o = h->base.opts;
	char scope[128];

	snprintf(scope, sizeof(scope), "%s/%s", h->base.scope, name);
	o.scope = scope;
	o.outer = &h->base;
	return ct__comm_open_with(w->id.world > 1 ? ops : &ct__comm_ops_self, w, &o, out);
}

static enum ct_status open_parts(struct hier *h)
{
	char name[32];

	CT_TRY(ct_world_part(h->base.world, h->host, h->host[h->base.rank], &h->local_world));
	snprintf(name, sizeof(name), "host%d", h->host[h->base.rank]);
	CT_TRY(open_part(h, &ct__comm_ops_shm, &h->local_world, name, &h->local));
	if (h->place[h->base.rank] == 0) {
		CT_TRY(ct_world_part(h->base.world, h->place, 0, &h->leader_world));
		CT_TRY(open_part(h, &ct__comm_ops_gloo, &h->leader_world, "leaders", &h->leaders));
	}
	return open_part(h, &ct__comm_ops_gloo, h->base.world, "messages", &h->messages);
}

static void close_comm(ct_comm *c)
{
	struct hier *h = (struct hier *)c;
	struct ct_error closed = {.status = CT_CANCELLED, .message = "communicator was closed"};

	if (ct__comm_worker_busy(&h->worker))
		ct__comm_die_of(c, &closed);
	ct__comm_worker_stop(&h->worker);
	ct_comm_close(h->messages);
	ct_comm_close(h->leaders);
	ct_comm_close(h->local);
	ct__comm_release(c);
	ct_free(h->local_world.peers);
	ct_free(h->leader_world.peers);
	ct_free(h->host);
	ct_free(h->place);
	ct_free(h->scratch);
	ct_free(h);
}

static enum ct_status run(ct_comm *c, ct_work *w);
static enum ct_status look(ct_comm *c, const ct_work *w, bool final);

static enum ct_status open_comm(struct ct_world *world, const struct ct_comm_opts *opts, ct_comm **out)
{
	enum ct_status st;
	struct hier *h;

	CT_TRY_ALLOC(h = CT_NEW(struct hier));
	CT_TRY_GOTO(ct__comm_init(&h->base, &ct__comm_ops_hier, world, opts), st, fail);
	CT_TRY_GOTO(find_hosts(h), st, fail);
	CT_TRY_GOTO(open_parts(h), st, fail);
	CT_TRY_GOTO(ct__comm_worker_start(&h->worker, &h->base, "ct-hier", run, NULL, look), st, fail);
	*out = &h->base;
	return CT_OK;

fail:
	close_comm(&h->base);
	return st;
}

/* ---- collectives, on the worker thread */

static int64_t patience(const struct hier *h, int leg)
{
	int64_t t = h->base.opts.timeout_ns, more = leg * LEG_NS;

	return t > CT_FOREVER - more ? CT_FOREVER : t + more;
}

static enum ct_status now(const struct hier *h, enum leg leg, enum ct_status posted, ct_work **w)
{
	CT_TRY(posted);
	(*w)->comm->opts.timeout_ns = patience(h, leg);
	return ct_work_wait(*w);
}

static enum ct_status need_scratch(struct hier *h, size_t bytes)
{
	char *p;

	if (bytes <= h->scratch_bytes)
		return CT_OK;
	CT_TRY_ALLOC(p = ct_realloc(h->scratch, 1, bytes));
	h->scratch = p;
	h->scratch_bytes = bytes;
	return CT_OK;
}

static enum ct_status allreduce(struct hier *h, void *buf, size_t n, enum ct_dtype t, enum ct_redop op)
{
	enum ct_redop part = op == CT_AVG ? CT_SUM : op;
	ct_work *w;

	CT_TRY(now(h, GATHER_UP, ct_comm_reduce(h->local, buf, n, t, part, 0, &w), &w));
	if (h->leaders) {
		CT_TRY(now(h, ACROSS, ct_comm_allreduce(h->leaders, buf, n, t, part, &w), &w));
		if (op == CT_AVG && n > 0)
			ct__reduce_scale(buf, n, t, h->base.size);
	}
	return now(h, HAND_DOWN, ct_comm_broadcast(h->local, buf, n, t, 0, &w), &w);
}

static enum ct_status broadcast(struct hier *h, void *buf, size_t n, enum ct_dtype t, int root)
{
	bool at_home = h->host[h->base.rank] == h->host[root];
	ct_work *w;

	if (at_home)
		CT_TRY(now(h, GATHER_UP, ct_comm_broadcast(h->local, buf, n, t, h->place[root], &w), &w));
	if (h->leaders)
		CT_TRY(now(h, ACROSS, ct_comm_broadcast(h->leaders, buf, n, t, h->host[root], &w), &w));
	if (!at_home)
		CT_TRY(now(h, HAND_DOWN, ct_comm_broadcast(h->local, buf, n, t, 0, &w), &w));
	return CT_OK;
}

/* Hosts exchange blocks of `most` parts. If a host has fewer ranks, the last parts of its block are unused. */
static enum ct_status allgather(struct hier *h, const void *src, void *dst, size_t n, enum ct_dtype t)
{
	size_t part = n * ct_dtype_bytes(t), block = part * (size_t)h->most;
	char *mine, *all;
	ct_work *w;

	CT_TRY(need_scratch(h, block * (size_t)(h->n_hosts + 1)));
	mine = h->scratch;
	all = mine + block;
	CT_TRY(now(h, GATHER_UP, ct_comm_gather(h->local, src, mine, n, t, 0, &w), &w));
	if (h->leaders) {
		CT_TRY(now(h, ACROSS, ct_comm_allgather(h->leaders, mine, all, n * (size_t)h->most, t, &w), &w));
		for (int q = 0; part > 0 && q < h->base.size; q++)
			memcpy((char *)dst + (size_t)q * part,
			       all + (size_t)h->host[q] * block + (size_t)h->place[q] * part, part);
	}
	return now(h, HAND_DOWN, ct_comm_broadcast(h->local, dst, n * (size_t)h->base.size, t, 0, &w), &w);
}

/* The next three functions move more data than necessary, because training does not use them. */
static enum ct_status gather(struct hier *h, const ct_work *w)
{
	size_t all = w->n * ct_dtype_bytes(w->dtype) * (size_t)h->base.size;
	void *dst = w->dst, *own = NULL;
	enum ct_status st;

	if (w->root != h->base.rank) {
		CT_TRY_ALLOC(own = ct_calloc(1, all));
		dst = own;
	}
	st = allgather(h, w->src, dst, w->n, w->dtype);
	ct_free(own);
	return st;
}

static enum ct_status scatter(struct hier *h, const ct_work *w)
{
	size_t part = w->n * ct_dtype_bytes(w->dtype), all = part * (size_t)h->base.size;

	CT_TRY(need_scratch(h, all));
	if (w->root == h->base.rank && part > 0)
		memcpy(h->scratch, w->src, all);
	CT_TRY(broadcast(h, h->scratch, w->n * (size_t)h->base.size, w->dtype, w->root));
	if (part > 0)
		memcpy(w->dst, h->scratch + (size_t)h->base.rank * part, part);
	return CT_OK;
}

static enum ct_status reduce_scatter(struct hier *h, const ct_work *w)
{
	size_t part = w->n * ct_dtype_bytes(w->dtype), all = part * (size_t)h->base.size;

	CT_TRY(need_scratch(h, all));
	if (part > 0)
		memcpy(h->scratch, w->src, all);
	CT_TRY(allreduce(h, h->scratch, w->n * (size_t)h->base.size, w->dtype, w->op));
	if (part > 0)
		memcpy(w->dst, h->scratch + (size_t)h->base.rank * part, part);
	return CT_OK;
}

static enum ct_status barrier(struct hier *h)
{
	ct_work *w;

	CT_TRY(now(h, GATHER_UP, ct_comm_barrier(h->local, &w), &w));
	if (h->leaders)
		CT_TRY(now(h, ACROSS, ct_comm_barrier(h->leaders, &w), &w));
	return now(h, HAND_DOWN, ct_comm_barrier(h->local, &w), &w);
}

static enum ct_status run_parts(struct hier *h, const ct_work *w)
{
	switch (w->kind) {
	case CT_COMM_ALLREDUCE:
	case CT_COMM_REDUCE:
		return allreduce(h, w->dst, w->n, w->dtype, w->op);
	case CT_COMM_BROADCAST:
		return broadcast(h, w->dst, w->n, w->dtype, w->root);
	case CT_COMM_ALLGATHER:
		return allgather(h, w->src, w->dst, w->n, w->dtype);
	case CT_COMM_GATHER:
		return gather(h, w);
	case CT_COMM_SCATTER:
		return scatter(h, w);
	case CT_COMM_REDUCE_SCATTER:
		return reduce_scatter(h, w);
	case CT_COMM_BARRIER:
	case CT_COMM_SEND:
	case CT_COMM_RECV:
		break;
	}
	return barrier(h);
}

/* The parts of different operations may be equal, so ranks compare w itself. */
static void set_whole(struct hier *h, const ct_work *w)
{
	h->local->whole = w;
	if (h->leaders)
		h->leaders->whole = w;
}

static enum ct_status run(ct_comm *c, ct_work *w)
{
	struct hier *h = (struct hier *)c;
	enum ct_status st;

	set_whole(h, w);
	st = run_parts(h, w);
	set_whole(h, NULL);
	return st;
}

/* The parts of a collective look for the reason themselves. */
static enum ct_status look(ct_comm *c, const ct_work *w, bool final)
{
	char what[224];

	if (!final)
		return CT_OK;
	ct__work_text(w, what, sizeof(what));
	return CT_FAIL(CT_TIMEOUT, "%s (operation %lld) has waited %.1f s", what, (long long)w->seq,
		       (double)c->opts.timeout_ns / 1e9);
}

/* ---- the caller's side */

static ct_work **message_of(ct_work *w)
{
	return (ct_work **)(void *)&w->scratch[0];
}

static enum ct_status post(ct_comm *c, ct_work *w)
{
	struct hier *h = (struct hier *)c;

	if (w->kind == CT_COMM_SEND)
		return ct_comm_send(h->messages, w->src, w->n, w->dtype, w->root, w->tag, message_of(w));
	if (w->kind == CT_COMM_RECV)
		return ct_comm_recv(h->messages, w->dst, w->n, w->dtype, w->root, w->tag, message_of(w));
	ct__comm_worker_post(&h->worker, w);
	return CT_OK;
}

static enum ct_status test(ct_comm *c, ct_work *w)
{
	if (ct__comm_is_p2p(w->kind))
		return ct_work_test(*message_of(w));
	return ct__comm_worker_test(&((struct hier *)c)->worker, w);
}

static enum ct_status progress(ct_comm *c)
{
	ct__comm_worker_progress(&((struct hier *)c)->worker);
	return CT_OK;
}

static enum ct_status wait(ct_comm *c, ct_work *w, int64_t deadline_ns)
{
	struct hier *h = (struct hier *)c;
	enum ct_status st;

	if (ct__comm_is_p2p(w->kind)) {
		st = ct__work_wait_until(*message_of(w), deadline_ns);
		if (st == CT_TIMEOUT)
			ct__comm_attribute_failure(c, w);
		return st;
	}
	/* The deadline of a collective is later than that of its stages. */
	return ct__comm_worker_wait(&h->worker, w, ct_deadline_in(patience(h, N_LEGS)));
}

static enum ct_status mem_alloc(ct_comm *c, size_t bytes, void **out)
{
	struct hier *h = (struct hier *)c;

	/* While operations are pending, only the worker may use the local communicator. */
	if (ct__comm_worker_busy(&h->worker))
		return CT_FAIL(CT_BUG, "a communicator can only allocate memory while no operation is pending");
	return ct_comm_mem_alloc(h->local, bytes, out);
}

static void abort_comm(ct_comm *c)
{
	struct hier *h = (struct hier *)c;
	ct_comm *parts[] = {h->local, h->leaders, h->messages};

	for (size_t i = 0; i < CT_ARRAY_LEN(parts); i++) {
		if (parts[i])
			ct__comm_die_of(parts[i], &c->error);
	}
}

const struct ct_comm_ops ct__comm_ops_hier = {
	.name = "hier",
	.supports = supports,
	.open = open_comm,
	.close = close_comm,
	.mem_alloc = mem_alloc,
	.post = post,
	.test = test,
	.wait = wait,
	.progress = progress,
	.abort = abort_comm,
};
