#include "dist/comm/comm.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "dist/comm/comm_impl.h"
#include "dist/store/failure.h"

#define WORKS_PER_BLOCK 32
#define DEFAULT_SCOPE "comm"
/* How long to wait for the final error of a lost peer from the store before we report our own error. */
#define FINAL_ERROR_NS (300 * CT_MS)

struct ct_work_block {
	struct ct_work_block *next;
	ct_work works[WORKS_PER_BLOCK];
};

enum ct_status ct__comm_open_with(const struct ct_comm_ops *ops, struct ct_world *world,
				  const struct ct_comm_opts *opts, ct_comm **out)
{
	*out = NULL;
	CT_TRY(ops->supports(world));
	CT_TRY(ops->open(world, opts, out));
	return CT_OK;
}

/* Makes the prefix of this communicator's keys. It contains the number of communicators that this rank has opened with
 * the same prefix so far, which is the same on all ranks. */
static enum ct_status choose_scope(ct_comm *c, const char *prefix)
{
	char key[128];
	int64_t n;

	if (!prefix)
		prefix = DEFAULT_SCOPE;
	if (strlen(prefix) > 48)
		return CT_FAIL(CT_BUG, "communicator scope \"%s\" is longer than 48 bytes", prefix);
	if (c->size == 1 || !c->world->store)
		return CT_OK;
	snprintf(key, sizeof(key), "%s/%d/opened/%d", prefix, c->world->id.restart, ct__comm_world_rank(c, c->rank));
	CT_TRY(ct_store_add(c->world->store, key, 1, &n));
	snprintf(c->scope, sizeof(c->scope), "%s/%d/%lld", prefix, c->world->id.restart, (long long)n);
	return CT_OK;
}

static enum ct_status add_works(ct_comm *c)
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

enum ct_status ct__comm_init(ct_comm *c, const struct ct_comm_ops *ops, struct ct_world *world,
			     const struct ct_comm_opts *opts)
{
	c->ops = ops;
	c->world = world;
	c->size = world->id.world > 1 ? world->id.world : 1;
	c->rank = c->size > 1 ? world->id.rank : 0;
	pthread_mutex_init(&c->lock, NULL);
	ct_cond_init(&c->died);
	c->opts = *opts;
	if (c->opts.timeout_ns <= 0)
		c->opts.timeout_ns = CT_FOREVER;
	if (opts->iface && strlen(opts->iface) >= sizeof(c->iface))
		return CT_FAIL(CT_CONFIG, "dist.iface has more than %zu characters", sizeof(c->iface) - 1);
	if (opts->iface)
		snprintf(c->iface, sizeof(c->iface), "%s", opts->iface);
	c->opts.iface = c->iface[0] ? c->iface : NULL;
	CT_TRY(choose_scope(c, opts->scope));
	c->opts.scope = c->scope;
	CT_TRY_ALLOC(c->flight = opts->outer ? CT_NEW(struct ct_flight) : ct__flight_create());
	snprintf(c->flight->scope, sizeof(c->flight->scope), "%s", c->scope);
	snprintf(c->flight->backend, sizeof(c->flight->backend), "%s", ops->name);
	return add_works(c);
}

void ct__comm_release(ct_comm *c)
{
	if (!c->ops)
		return;
	while (c->blocks) {
		struct ct_work_block *b = c->blocks;

		c->blocks = b->next;
		ct_free(b);
	}
	for (size_t i = 0; i < c->n_mem; i++)
		ct_free_aligned(c->mem[i]);
	ct_free(c->mem);
	ct__flight_destroy(c->flight);
	ct__comm_stage_release(c);
	pthread_cond_destroy(&c->died);
	pthread_mutex_destroy(&c->lock);
	c->ops = NULL;
}

void ct_comm_close(ct_comm *c)
{
	if (c)
		c->ops->close(c);
}

const char *ct_comm_name(const ct_comm *c)
{
	return c->ops->name;
}

int ct_comm_rank(const ct_comm *c)
{
	return c->rank;
}

int ct_comm_size(const ct_comm *c)
{
	return c->size;
}

int64_t ct_comm_seq(const ct_comm *c)
{
	return atomic_load_explicit(&c->n_collectives, memory_order_relaxed);
}

void ct_comm_set_step(ct_comm *c, int64_t step)
{
	atomic_store_explicit(&c->step, step + 1, memory_order_relaxed);
}

void ct_comm_set_bucket(ct_comm *c, int bucket)
{
	c->bucket = bucket + 1;
}

bool ct_comm_mem_is_on_device(const ct_comm *c)
{
	return c->ops->mem_on_device;
}

enum ct_status ct_comm_mem_alloc(ct_comm *c, size_t bytes, void **out)
{
	void **mem, *p;

	*out = NULL;
	if (c->ops->mem_alloc) {
		CT_TRY(c->ops->mem_alloc(c, bytes, out));
		return CT_OK;
	}
	CT_TRY_ALLOC(mem = ct_realloc(c->mem, c->n_mem + 1, sizeof(*mem)));
	c->mem = mem;
	CT_TRY_ALLOC(p = ct_calloc_aligned(4096, bytes ? bytes : 1));
	c->mem[c->n_mem++] = p;
	*out = p;
	return CT_OK;
}

/* ---- the end of a communicator */

void ct__comm_die_of(ct_comm *c, const struct ct_error *e)
{
	bool first;

	pthread_mutex_lock(&c->lock);
	first = !atomic_load(&c->dead);
	if (first) {
		c->error = *e;
		atomic_store(&c->dead, true);
		pthread_cond_broadcast(&c->died);
	}
	pthread_mutex_unlock(&c->lock);
	if (first)
		c->ops->abort(c);
}

enum ct_status ct__comm_die(ct_comm *c)
{
	struct ct_error e;

	ct_error_save(&e);
	if (e.status >= 0) {
		(void)CT_FAIL(CT_COMM, "%s communicator failed", c->ops->name);
		ct_error_save(&e);
	}
	ct__comm_die_of(c, &e);
	return ct_error_restore(&c->error);
}

void ct_comm_abort(ct_comm *c, const struct ct_failure *why)
{
	struct ct_error keep, e = {.status = CT_CANCELLED, .message = "communicator was aborted"};

	if (atomic_load(&c->dead))
		return;
	if (why) {
		char phase[64] = "", who[CT_MEMBER_TEXT], here[256] = "", what[224];
		struct ct_flight_record r;

		ct_member_text(who, sizeof(who), why->rank, why->pid, why->host);
		if (why->phase[0])
			snprintf(phase, sizeof(phase), " in %s", why->phase);
		if (ct__flight_pending(c->flight, atomic_load(&c->seq), &r)) {
			ct__flight_name(c, &r, what, sizeof(what));
			snprintf(here, sizeof(here), "; this rank waited in %s", what);
		}
		/* Preserve the error chain of the caller's thread. */
		ct_error_save(&keep);
		(void)CT_FAIL(why->status < 0 ? (enum ct_status)why->status : CT_PEER_LOST, "%s failed%s: %s%s", who,
			      phase, why->message, here);
		if (why->hint[0])
			ct_error_hint("%s", why->hint);
		ct_error_save(&e);
		ct_error_clear();
		if (keep.status < 0)
			(void)ct_error_restore(&keep);
	}
	ct__comm_die_of(c, &e);
}

void ct_comm_poll(ct_comm *c)
{
	struct ct_error before;

	if (!c->ops->poll || atomic_load(&c->dead))
		return;
	ct_error_save(&before);
	if (c->ops->poll(c) < 0)
		(void)ct__comm_die(c);
	ct_error_clear();
	if (before.status < 0)
		(void)ct_error_restore(&before);
}

void ct__comm_await_final_error(ct_comm *c)
{
	int64_t deadline = ct_deadline_in(FINAL_ERROR_NS);

	if (!c->scope[0] || c->opts.outer)
		return; /* there is no watchdog, or it notifies the outer communicator */
	pthread_mutex_lock(&c->lock);
	while (!atomic_load(&c->dead) && ct_cond_wait_until(&c->died, &c->lock, deadline) == 0)
		;
	pthread_mutex_unlock(&c->lock);
}

/* Writes what collective `number`, counted from 1, is on this rank. */
static void name_collective(void *user, int64_t number, char *buf, size_t len)
{
	const ct_comm *c = user;
	struct ct_flight_record r;

	if (ct__flight_find(c->flight, atomic_load(&c->seq), number - 1, &r))
		ct__flight_name(c, &r, buf, len);
}

void ct__comm_attribute_failure(ct_comm *c, const ct_work *w)
{
	/* Heartbeats contain the position in the first communicator only. */
	const bool in_heartbeats = strncmp(c->scope, DEFAULT_SCOPE "/", strlen(DEFAULT_SCOPE "/")) == 0;
	const struct ct_waiting at = {
		.seq = w->number < 0 || !in_heartbeats ? -1 : w->number + 1, .name = name_collective, .user = c};
	struct ct_failure f;
	struct ct_error e;

	if (!c->scope[0] || c->opts.outer)
		return;
	ct_error_save(&e);
	if (ct_world_attribute_failure(c->world, &at, &f) != CT_OK) {
		(void)ct_error_restore(&e);
		return;
	}
	(void)CT_FAIL(CT_TIMEOUT, "%s; %s", e.message, f.message);
	ct_error_hint("%s", f.hint[0] ? f.hint : e.hint);
}

/* ---- posting */

static ct_work *take_work(ct_comm *c)
{
	ct_work *w;

	if (!c->free_works && add_works(c) < 0)
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
static enum ct_status check(const ct_comm *c, const ct_work *w)
{
	const char *name = ct__comm_kind_name(w->kind);
	bool rooted = w->kind == CT_COMM_REDUCE || w->kind == CT_COMM_BROADCAST || w->kind == CT_COMM_GATHER ||
		      w->kind == CT_COMM_SCATTER;
	bool needs_src = w->kind != CT_COMM_RECV && (w->kind != CT_COMM_SCATTER || w->root == c->rank);
	bool needs_dst = w->kind != CT_COMM_SEND && (w->kind != CT_COMM_GATHER || w->root == c->rank);

	if ((unsigned)w->dtype >= CT_N_DTYPES || (unsigned)w->op > CT_AVG)
		return CT_FAIL(CT_BUG, "%s with unknown element type %d or reduction %d", name, (int)w->dtype,
			       (int)w->op);
	if (w->n > (size_t)(INT64_MAX / 16 / c->size))
		return CT_FAIL(CT_BUG, "%s of %zu elements is too large", name, w->n);
	if ((rooted || ct__comm_is_p2p(w->kind)) && (w->root < 0 || w->root >= c->size))
		return CT_FAIL(CT_BUG, "%s with rank %d, but the communicator has %d ranks", name, w->root, c->size);
	if (ct__comm_is_p2p(w->kind) && w->root == c->rank)
		return CT_FAIL(CT_BUG, "%s of rank %d with itself", name, w->root);
	if (w->n > 0 && ((needs_src && !w->src) || (needs_dst && !w->dst)))
		return CT_FAIL(CT_BUG, "%s without a buffer", name);
	return CT_OK;
}

/* Only the thread that posts counts, so an atomic addition, which is slower, is not necessary. */
static int64_t next_of(_Atomic int64_t *counter)
{
	const int64_t n = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, n + 1, memory_order_relaxed);
	return n;
}

void ct__comm_record(ct_comm *c, ct_work *w)
{
	const ct_work *d;

	w->comm = c;
	d = ct__work_whole(w);
	w->seq = next_of(&c->seq);
	w->posted_ns = ct_now_ns();
	w->number = ct__comm_is_p2p(w->kind) ? -1 - c->n_messages++ : next_of(&c->n_collectives);
	ct__flight_add(c->flight,
		       &(struct ct_flight_record){.seq = w->seq,
						  .number = d->number,
						  .step = atomic_load_explicit(&c->step, memory_order_relaxed) - 1,
						  .bucket = d->bucket - 1,
						  .kind = d->kind,
						  .dtype = d->dtype,
						  .op = d->op,
						  .root = d->root,
						  .tag = d->tag,
						  .n = d->n,
						  .posted_ns = w->posted_ns});
}

enum ct_status ct__comm_post(ct_comm *c, const ct_work *want, ct_work **out)
{
	enum ct_status st;
	ct_work *w;

	*out = NULL;
	if (atomic_load_explicit(&c->dead, memory_order_acquire))
		return ct_error_restore(&c->error);
	CT_TRY(want->kind == CT_COMM_BARRIER ? CT_OK : check(c, want));
	CT_TRY_ALLOC(w = take_work(c));
	*w = *want;
	ct__comm_record(c, w);
	atomic_store_explicit(&w->status, CT_INPROGRESS, memory_order_relaxed);
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

ct_work ct__comm_allreduce_of(const ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op)
{
	return (ct_work){
		.kind = CT_COMM_ALLREDUCE, .src = buf, .dst = buf, .n = n, .dtype = t, .op = op, .bucket = c->bucket};
}

enum ct_status ct_comm_allreduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op, ct_work **out)
{
	const ct_work w = ct__comm_allreduce_of(c, buf, n, t, op);

	return ct__comm_post(c, &w, out);
}

enum ct_status ct_comm_reduce(ct_comm *c, void *buf, size_t n, enum ct_dtype t, enum ct_redop op, int root,
			      ct_work **out)
{
	return ct__comm_post(
		c,
		&(ct_work){.kind = CT_COMM_REDUCE, .src = buf, .dst = buf, .n = n, .dtype = t, .op = op, .root = root},
		out);
}

enum ct_status ct_comm_broadcast(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int root, ct_work **out)
{
	return ct__comm_post(
		c, &(ct_work){.kind = CT_COMM_BROADCAST, .src = buf, .dst = buf, .n = n, .dtype = t, .root = root},
		out);
}

enum ct_status ct_comm_allgather(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, ct_work **out)
{
	return ct__comm_post(c, &(ct_work){.kind = CT_COMM_ALLGATHER, .src = src, .dst = dst, .n = n, .dtype = t}, out);
}

enum ct_status ct_comm_gather(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, int root,
			      ct_work **out)
{
	return ct__comm_post(
		c, &(ct_work){.kind = CT_COMM_GATHER, .src = src, .dst = dst, .n = n, .dtype = t, .root = root}, out);
}

enum ct_status ct_comm_scatter(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t, int root,
			       ct_work **out)
{
	return ct__comm_post(
		c, &(ct_work){.kind = CT_COMM_SCATTER, .src = src, .dst = dst, .n = n, .dtype = t, .root = root}, out);
}

enum ct_status ct_comm_reduce_scatter(ct_comm *c, const void *src, void *dst, size_t n, enum ct_dtype t,
				      enum ct_redop op, ct_work **out)
{
	return ct__comm_post(
		c, &(ct_work){.kind = CT_COMM_REDUCE_SCATTER, .src = src, .dst = dst, .n = n, .dtype = t, .op = op},
		out);
}

enum ct_status ct_comm_barrier(ct_comm *c, ct_work **out)
{
	return ct__comm_post(c, &(ct_work){.kind = CT_COMM_BARRIER, .dtype = CT_U8}, out);
}

enum ct_status ct_comm_send(ct_comm *c, const void *buf, size_t n, enum ct_dtype t, int peer, int tag, ct_work **out)
{
	return ct__comm_post(
		c, &(ct_work){.kind = CT_COMM_SEND, .src = buf, .n = n, .dtype = t, .root = peer, .tag = tag}, out);
}

enum ct_status ct_comm_recv(ct_comm *c, void *buf, size_t n, enum ct_dtype t, int peer, int tag, ct_work **out)
{
	return ct__comm_post(
		c, &(ct_work){.kind = CT_COMM_RECV, .dst = buf, .n = n, .dtype = t, .root = peer, .tag = tag}, out);
}

/* ---- waiting */

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
