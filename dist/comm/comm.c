/* The life of a communicator: its scope, its memory, and its end. The scope is the prefix of its keys in the store. It
 * contains how many communicators this rank has opened with the same prefix; each rank counts for itself, so the ranks
 * meet under the same keys only if all of them open their communicators in the same order.
 *
 * A communicator ends once. ct__comm_die_of, which any thread may call, stores the error under the lock, sets `dead`,
 * and then calls the back end's abort without the lock. The error does not change after `dead` is set, so a thread that
 * has seen `dead` reads it without the lock. The first error wins. A rank that notices a broken connection therefore
 * waits a short time before it reports this (ct__comm_await_final_error): the watchdog may end the communicator with
 * the error of the rank that failed first. ct_comm_abort and ct_comm_poll leave the error chain of the calling thread
 * as it was. */
#include "dist/comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "dist/comm/comm_impl.h"

/* How long to wait for the final error of a lost peer from the store before we report our own error. */
#define FINAL_ERROR_NS (300 * CT_MS)

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
		prefix = CT_COMM_DEFAULT_SCOPE;
	if (strlen(prefix) > 48)
		return CT_FAIL(CT_BUG, "communicator scope \"%s\" is longer than 48 bytes", prefix);
	if (c->size == 1 || !c->world->store)
		return CT_OK;
	snprintf(key, sizeof(key), "%s/%d/opened/%d", prefix, c->world->id.restart, ct__comm_world_rank(c, c->rank));
	CT_TRY(ct_store_add(c->world->store, key, 1, &n));
	snprintf(c->scope, sizeof(c->scope), "%s/%d/%lld", prefix, c->world->id.restart, (long long)n);
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
	if (c->opts.connect_ns <= 0)
		c->opts.connect_ns = c->opts.timeout_ns;
	if (opts->iface && strlen(opts->iface) >= sizeof(c->iface))
		return CT_FAIL(CT_CONFIG, "dist.iface has more than %zu characters", sizeof(c->iface) - 1);
	if (opts->iface)
		snprintf(c->iface, sizeof(c->iface), "%s", opts->iface);
	c->opts.iface = c->iface[0] ? c->iface : NULL;
	CT_TRY(choose_scope(c, opts->scope));
	c->opts.scope = c->scope;
	c->on_page = c->scope[0] && !opts->scope;
	ct__comm_count_collectives(c, 0);
	CT_TRY_ALLOC(c->flight = opts->outer ? CT_NEW(struct ct_flight) : ct__flight_create());
	snprintf(c->flight->scope, sizeof(c->flight->scope), "%s", c->scope);
	snprintf(c->flight->backend, sizeof(c->flight->backend), "%s", ops->name);
	return ct__comm_add_works(c);
}

void ct__comm_release(ct_comm *c)
{
	if (!c->ops)
		return;
	ct__comm_free_works(c);
	for (size_t i = 0; i < c->n_mem; i++)
		ct_free_aligned(c->mem[i]);
	ct_free(c->mem);
	ct_free(c->counts);
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
		CT_FAIL(CT_COMM, "%s communicator failed", c->ops->name);
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
		char here[256] = "", what[224];
		struct ct_flight_record r;

		if (ct__flight_pending(c->flight, atomic_load(&c->seq), &r)) {
			ct__flight_name(c, &r, what, sizeof(what));
			snprintf(here, sizeof(here), "; this rank waited in %s", what);
		}
		/* Preserve the error chain of the caller's thread. */
		ct_error_save(&keep);
		CT_FAIL(why->status < 0 ? (enum ct_status)why->status : CT_PEER_LOST, "%s%s", why->message, here);
		if (why->hint[0])
			ct_error_hint("%s", why->hint);
		ct_error_caused_by(why->rank, why->pid);
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
	/* Heartbeats contain the position in one communicator only. */
	const struct ct_waiting at = {
		.seq = w->number < 0 || !c->on_page ? -1 : w->number + 1, .name = name_collective, .user = c};
	struct ct_failure f;
	struct ct_error e;

	if (!c->scope[0] || c->opts.outer)
		return;
	ct_error_save(&e);
	if (ct_world_attribute_failure(c->world, &at, &f) != CT_OK) {
		(void)ct_error_restore(&e);
		return;
	}
	CT_FAIL(CT_TIMEOUT, "%s; %s", e.message, f.message);
	ct_error_caused_by(f.rank, f.pid);
	ct_error_hint("%s", f.hint[0] ? f.hint : e.hint);
}
