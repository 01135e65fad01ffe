/* Posting operations, and waiting for them. Every operation passes through ct__comm_post, except for those that a back
 * end posts to a stream itself. It is numbered in the order of posting. The numbers of collectives agree between ranks
 * because all ranks post the same collectives in the same order; messages are numbered separately, per peer, kind and
 * tag, because their order may differ. Failure messages and the comparison of ranks depend on these numbers.
 *
 * Operations come from a free list that grows in blocks, so that a step allocates nothing once the list is long enough.
 * Waiting returns a posted operation to the list, even if it has failed; testing never does. The list has no lock,
 * because only one thread at a time posts and waits. Wrong arguments fail only the call. A failure of the back end ends
 * the communicator, because the peers would otherwise wait for an operation that never comes. */
#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "base/process/rank_page.h"
#include "dist/comm/comm_impl.h"
#include "dist/comm/diagnose_impl.h"

#define WORKS_PER_BLOCK 32

struct ct_work_block {
	struct ct_work_block *next;
	ct_work works[WORKS_PER_BLOCK];
};

enum ct_status ct__comm_add_works(ct_comm *c)
{
	struct ct_work_block *b;

	CT_TRY_ALLOC(b = CT_NEW(struct ct_work_block));
	b->next = c->blocks;
	c->blocks = b;
	for (int i = WORKS_PER_BLOCK - 1; i >= 0; i--) {
		b->works[i].next = c->free_works;
		c->free_works = &b->works[i];
	}
	return CT_OK;
}

void ct__comm_free_works(ct_comm *c)
{
	while (c->blocks) {
		struct ct_work_block *b = c->blocks;

		c->blocks = b->next;
		ct_free(b);
	}
}

static ct_work *take_work(ct_comm *c)
{
	ct_work *w;

	if (!c->free_works && ct__comm_add_works(c) < 0)
		return NULL;
	w = c->free_works;
	c->free_works = w->next;
	return w;
}

static void put_work(ct_comm *c, ct_work *w)
{
	w->next = c->free_works;
	c->free_works = w;
}

/* Wrong arguments are bugs in ctrain itself. They fail the call, but must not end the communicator for the peers. */
static enum ct_status check(const ct_comm *c, const struct ct_request *w)
{
	bool rooted = w->kind == CT_COMM_REDUCE || w->kind == CT_COMM_BROADCAST || w->kind == CT_COMM_GATHER ||
		      w->kind == CT_COMM_SCATTER;
	bool needs_src = w->kind != CT_COMM_RECV && (w->kind != CT_COMM_SCATTER || w->root == c->rank);
	bool needs_dst = w->kind != CT_COMM_SEND && (w->kind != CT_COMM_GATHER || w->root == c->rank);

	if ((unsigned)w->dtype >= CT_N_DTYPES || (unsigned)w->op > CT_AVG)
		return CT_FAIL(CT_BUG, "%s with unknown element type %d or reduction %d", ct__comm_kind_name(w->kind),
			       (int)w->dtype, (int)w->op);
	if (w->n > (size_t)(INT64_MAX / 16 / c->size))
		return CT_FAIL(CT_BUG, "%s of %zu elements is too large", ct__comm_kind_name(w->kind), w->n);
	if ((rooted || ct__comm_is_p2p(w->kind)) && (w->root < 0 || w->root >= c->size))
		return CT_FAIL(CT_BUG, "%s with rank %d, but the communicator has %d ranks",
			       ct__comm_kind_name(w->kind), w->root, c->size);
	if (ct__comm_is_p2p(w->kind) && w->root == c->rank)
		return CT_FAIL(CT_BUG, "%s of rank %d with itself", ct__comm_kind_name(w->kind), w->root);
	if (w->n > 0 && ((needs_src && !w->src) || (needs_dst && !w->dst)))
		return CT_FAIL(CT_BUG, "%s without a buffer", ct__comm_kind_name(w->kind));
	return CT_OK;
}

void ct__comm_count_collectives(ct_comm *c, int64_t n)
{
	atomic_store_explicit(&c->n_collectives, n, memory_order_relaxed);
	if (c->on_page)
		ct_rank_page_count_collectives(n);
}

void ct__comm_record(ct_comm *c, ct_work *w)
{
	const ct_work *d;

	w->comm = c;
	d = ct__work_whole(w);
	w->seq = atomic_load_explicit(&c->seq, memory_order_relaxed);
	atomic_store_explicit(&c->seq, w->seq + 1, memory_order_relaxed);
	w->posted_ns = ct_now_ns();
	if (!ct__comm_is_p2p(w->kind)) {
		w->number = ct_comm_seq(c);
		ct__comm_count_collectives(c, w->number + 1);
	}
	ct__flight_add(c->flight, &(struct ct_flight_record){.seq = w->seq,
							     .number = d->number,
							     .step = ct_rank_page_posted_step(),
							     .bucket = d->bucket - 1,
							     .kind = d->kind,
							     .dtype = d->dtype,
							     .op = d->op,
							     .root = d->root,
							     .tag = d->tag,
							     .n = d->n,
							     .posted_ns = w->posted_ns,
							     .begun_ns = 0,
							     .done_ns = 0});
}

void ct__work_init(ct_work *w, ct_comm *c, const struct ct_request *want)
{
	w->comm = c;
	w->kind = want->kind;
	w->src = want->src;
	w->dst = want->dst;
	w->n = want->n;
	w->dtype = want->dtype;
	w->op = want->op;
	w->root = want->root;
	w->tag = want->tag;
	w->bucket = want->bucket;
	w->number = w->seq = w->posted_ns = 0;
	atomic_init(&w->status, CT_INPROGRESS);
	w->next = NULL;
	memset(w->scratch, 0, sizeof(w->scratch));
}

enum ct_status ct__comm_post(ct_comm *c, const struct ct_request *want, ct_work **out)
{
	int64_t message = 0;
	enum ct_status st;
	ct_work *w;

	*out = NULL;
	if (atomic_load_explicit(&c->dead, memory_order_acquire))
		return ct_error_restore(&c->error);
	CT_TRY(want->kind == CT_COMM_BARRIER ? CT_OK : check(c, want));
	if (ct__comm_is_p2p(want->kind))
		CT_TRY(ct__comm_number_message(c, want, &message));
	CT_TRY_ALLOC(w = take_work(c));
	ct__work_init(w, c, want);
	w->number = message;
	if (!c->ops->records)
		ct__comm_record(c, w);
	st = c->ops->post(c, w);
	if (st < 0) {
		st = ct__comm_die(c);
		put_work(c, w);
		ct_error_frame(__FILE__, __LINE__, __func__);
		return st;
	}
	*out = w;
	return CT_OK;
}

struct ct_request ct__comm_allreduce_of(const ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op)
{
	return (struct ct_request){
		.kind = CT_COMM_ALLREDUCE, .src = buf, .dst = buf, .n = n, .dtype = t, .op = op, .bucket = c->bucket};
}

enum ct_status ct_comm_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op, ct_work **out)
{
	const struct ct_request r = ct__comm_allreduce_of(c, buf, n, t, op);

	return ct__comm_post(c, &r, out);
}

enum ct_status ct_comm_reduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op, int root,
			      ct_work **out)
{
	return ct__comm_post(
		c,
		&(struct ct_request){
			.kind = CT_COMM_REDUCE, .src = buf, .dst = buf, .n = n, .dtype = t, .op = op, .root = root},
		out);
}

enum ct_status ct_comm_broadcast(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int root, ct_work **out)
{
	return ct__comm_post(
		c,
		&(struct ct_request){
			.kind = CT_COMM_BROADCAST, .src = buf, .dst = buf, .n = n, .dtype = t, .root = root},
		out);
}

enum ct_status ct_comm_allgather(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, ct_work **out)
{
	return ct__comm_post(
		c, &(struct ct_request){.kind = CT_COMM_ALLGATHER, .src = src, .dst = dst, .n = n, .dtype = t}, out);
}

enum ct_status ct_comm_gather(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, int root,
			      ct_work **out)
{
	return ct__comm_post(
		c,
		&(struct ct_request){.kind = CT_COMM_GATHER, .src = src, .dst = dst, .n = n, .dtype = t, .root = root},
		out);
}

enum ct_status ct_comm_scatter(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, int root,
			       ct_work **out)
{
	return ct__comm_post(
		c,
		&(struct ct_request){.kind = CT_COMM_SCATTER, .src = src, .dst = dst, .n = n, .dtype = t, .root = root},
		out);
}

enum ct_status ct_comm_reduce_scatter(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t,
				      enum ct_redop op, ct_work **out)
{
	return ct__comm_post(
		c,
		&(struct ct_request){
			.kind = CT_COMM_REDUCE_SCATTER, .src = src, .dst = dst, .n = n, .dtype = t, .op = op},
		out);
}

enum ct_status ct_comm_barrier(ct_comm *c, ct_work **out)
{
	return ct__comm_post(c, &(struct ct_request){.kind = CT_COMM_BARRIER, .dtype = CT_U8}, out);
}

enum ct_status ct_comm_send(ct_comm *c, const void *buf, size_t n, enum ct_dtype t, int peer, int tag, ct_work **out)
{
	return ct__comm_post(
		c, &(struct ct_request){.kind = CT_COMM_SEND, .src = buf, .n = n, .dtype = t, .root = peer, .tag = tag},
		out);
}

enum ct_status ct_comm_recv(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int peer, int tag, ct_work **out)
{
	return ct__comm_post(
		c, &(struct ct_request){.kind = CT_COMM_RECV, .dst = buf, .n = n, .dtype = t, .root = peer, .tag = tag},
		out);
}

/* Ends the communicator with the chain of a failed test or wait. */
static enum ct_status end_of(ct_comm *c, enum ct_status st)
{
	if (st == CT_PEER_LOST)
		ct__comm_await_final_error(c);
	return ct__comm_die(c);
}

enum ct_status ct_work_test(ct_work *w)
{
	ct_comm *c = w->comm;
	enum ct_status st = atomic_load_explicit(&w->status, memory_order_acquire);

	if (st == CT_OK)
		return CT_OK;
	if (atomic_load_explicit(&c->dead, memory_order_acquire))
		return ct_error_restore(&c->error);
	st = c->ops->test(c, w);
	return st < 0 ? end_of(c, st) : st;
}

/* An operation that is done needs no deadline, and reading the clock takes a considerable part of the time of the
 * fastest operations. */
enum ct_status ct_work_wait(ct_work *w)
{
	if (!w)
		return CT_OK;
	if (atomic_load_explicit(&w->status, memory_order_acquire) != CT_INPROGRESS)
		return ct__work_wait_until(w, CT_FOREVER);
	return ct__work_wait_until(w, ct_deadline_in(w->comm->opts.timeout_ns));
}

enum ct_status ct__work_wait_until(ct_work *w, int64_t deadline_ns)
{
	ct_comm *c = w->comm;
	enum ct_status st = atomic_load_explicit(&w->status, memory_order_acquire);

	if (st == CT_INPROGRESS)
		st = c->ops->wait(c, w, deadline_ns);
	if (st < 0)
		st = end_of(c, st);
	else
		ct__flight_done(c->flight, w->seq);
	put_work(c, w);
	return st;
}

enum ct_status ct_comm_progress(ct_comm *c)
{
	if (atomic_load_explicit(&c->dead, memory_order_acquire))
		return ct_error_restore(&c->error);
	if (c->ops->progress && c->ops->progress(c) < 0)
		return ct__comm_die(c);
	return CT_OK;
}
