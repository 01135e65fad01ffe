/* The gloo communicator. A queue runs gloo's blocking collectives in the order in which they are posted; messages start
 * when they are posted. gloo uses connections that the ranks have proved to each other (mesh.c). The loop thread of its
 * transport runs with SCHED_BATCH, so that it does not preempt compute threads when it wakes up (docs/DISTRIBUTED.md),
 * and blocks all signals. Abort shuts down the connections. */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"
#include "base/mem.h"
#include "dist/comm/diagnose_impl.h"
#include "dist/comm/gloo/gloo_engine.h"
#include "dist/comm/gloo/mesh.h"
#include "dist/comm/worker_impl.h"
#include "dist/net/net.h"

/* gloo's own timeout is longer than ours by this much, because our message has more detail. */
#define BEHIND_NS (10 * CT_SEC)

/* Indexes of ct_work.scratch. */
enum { TAG, MESSAGE };

struct comm_gloo {
	struct ct_comm base;
	ct_gloo *engine;
	struct ct_mesh mesh;
	struct ct_comm_worker worker;
};

static enum ct_status supports(const struct ct_world *w)
{
	if (!w->store)
		return CT_FAIL(CT_BUG, "communicator \"gloo\" needs a store");
	return CT_OK;
}

/* ---- opening */

/* The loop thread inherits the scheduling policy of the thread that creates it. */
static enum ct_status open_engine(struct comm_gloo *g, const struct ct_gloo_opts *o)
{
	struct sched_param param, batch = {0};
	sigset_t all, old;
	enum ct_status st;
	int policy = sched_getscheduler(0);
	bool changed = false;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (policy == SCHED_OTHER && sched_getparam(0, &param) == 0)
		changed = sched_setscheduler(0, SCHED_BATCH, &batch) == 0;
	st = ct__gloo_open(o, &g->engine);
	if (changed && sched_setscheduler(0, policy, &param) != 0)
		CT_WARN("cannot restore this thread's scheduling policy: it remains SCHED_BATCH");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return st;
}

/* The environment variable by which PyTorch chooses the interface, if dist.iface is not set. PyTorch accepts a list,
 * and uses several connections; the first interface is used here. */
static enum ct_status choose_address(const ct_comm *c, char buf[CT_ADDR_LEN])
{
	static const char key[] = "GLOO_SOCKET_IFNAME";
	const char *value = getenv(key), *default_addr = c->world->peers[c->rank].addr;
	char first[64];

	snprintf(buf, CT_ADDR_LEN, "%s", default_addr);
	if (c->opts.iface)
		return ct_net_choose("dist.iface", c->opts.iface, default_addr, buf);
	if (!value || !*value)
		return CT_OK;
	snprintf(first, sizeof(first), "%.*s", (int)strcspn(value, ","), value);
	return ct_net_choose(key, first, default_addr, buf);
}

static enum ct_status connect_ranks(struct comm_gloo *g)
{
	const struct ct_comm *c = &g->base;
	const int64_t timeout = c->opts.timeout_ns;
	char addr[CT_ADDR_LEN];

	CT_TRY(choose_address(c, addr));
	CT_TRY(ct__mesh_connect(c, addr, &g->mesh));
	return open_engine(g, &(struct ct_gloo_opts){
				      .rank = c->rank,
				      .size = c->size,
				      .fds = g->mesh.fd,
				      .timeout_ns = timeout > CT_FOREVER - BEHIND_NS ? timeout : timeout + BEHIND_NS});
}

static void close_comm(ct_comm *c)
{
	struct comm_gloo *g = (struct comm_gloo *)c;
	struct ct_error closed = {.status = CT_CANCELLED, .message = "communicator was closed"};

	/* The worker would wait for an unfinished operation. */
	if (ct__comm_worker_busy(&g->worker))
		ct__comm_die_of(c, &closed);
	ct__comm_worker_stop(&g->worker);
	ct__gloo_close(g->engine);
	ct__mesh_release(&g->mesh);
	ct__comm_release(c);
	ct_free(g);
}

static enum ct_status run(ct_comm *c, ct_work *w);
static void drop(ct_comm *c, ct_work *w);

static enum ct_status open_comm(struct ct_world *world, const struct ct_comm_opts *opts, ct_comm **out)
{
	struct comm_gloo *g;
	enum ct_status st;

	CT_TRY_ALLOC(g = CT_NEW(struct comm_gloo));
	CT_TRY_GOTO(ct__comm_init(&g->base, &ct__comm_ops_gloo, world, opts), st, fail);
	CT_TRY_GOTO(connect_ranks(g), st, fail);
	CT_TRY_GOTO(ct__comm_worker_start(&g->worker, &g->base, "ct-gloo", run, drop, ct__comm_diagnose), st, fail);
	*out = &g->base;
	return CT_OK;

fail:
	close_comm(&g->base);
	return st;
}

/* ---- operations */

static struct ct_gloo_op describe(const ct_work *w)
{
	return (struct ct_gloo_op){.kind = w->kind,
				   .src = w->src,
				   .dst = w->dst,
				   .n = w->n,
				   .dtype = w->dtype,
				   .op = w->op,
				   .root = w->root,
				   .tag = (uint32_t)w->scratch[TAG]};
}

/* Explains why a connection broke. The peer may have ended because this rank has issued another operation, or the store
 * may know which rank failed. */
static enum ct_status explain_loss(struct comm_gloo *g, const ct_work *w)
{
	int q = ct__mesh_lost(&g->mesh);
	char who[128], what[224];
	struct ct_error e;

	ct_error_save(&e);
	if (!atomic_load(&g->base.dead))
		CT_TRY(ct__comm_diagnose(&g->base, w, false));
	(void)ct_error_restore(&e);
	ct__work_text(w, what, sizeof(what));
	if (q < 0)
		return ct_error_wrap("%s (operation %lld)", what, (long long)w->seq);
	ct__comm_peer_text(&g->base, q, who, sizeof(who));
	return ct__comm_caused_by(
		&g->base, q,
		ct_error_wrap("%s closed its connection during %s (operation %lld)", who, what, (long long)w->seq));
}

static enum ct_status run(ct_comm *c, ct_work *w)
{
	struct comm_gloo *g = (struct comm_gloo *)c;
	struct ct_gloo_op op = describe(w);
	enum ct_status st;

	if (ct__comm_is_p2p(w->kind))
		st = ct__gloo_finish(g->engine, (ct_gloo_message *)(uintptr_t)w->scratch[MESSAGE]);
	else
		st = ct__gloo_run(g->engine, &op);
	if (st == CT_TIMEOUT && !atomic_load(&c->dead)) /* gloo's own timeout came first: find the rank */
		return ct__comm_diagnose(c, w, true);
	return st == CT_PEER_LOST ? explain_loss(g, w) : st;
}

/* A message that has been started uses memory of the caller until it is finished, which is soon, because the
 * connections have been shut down. */
static void drop(ct_comm *c, ct_work *w)
{
	ct_gloo_message *m = (ct_gloo_message *)(uintptr_t)w->scratch[MESSAGE];

	if (ct__comm_is_p2p(w->kind) && ct__gloo_finish(((struct comm_gloo *)c)->engine, m) < 0)
		ct_error_clear();
}

static enum ct_status post(ct_comm *c, ct_work *w)
{
	struct comm_gloo *g = (struct comm_gloo *)c;
	ct_gloo_message *m;
	struct ct_gloo_op op;
	enum ct_status st;

	w->scratch[TAG] = ct__comm_tag(w);
	if (ct__comm_is_p2p(w->kind)) {
		op = describe(w);
		st = ct__gloo_start(g->engine, &op, &m);
		if (st == CT_PEER_LOST)
			return explain_loss(g, w);
		CT_TRY(st);
		w->scratch[MESSAGE] = (uint64_t)(uintptr_t)m;
	}
	ct__comm_worker_post(&g->worker, w);
	return CT_OK;
}

static enum ct_status test(ct_comm *c, ct_work *w)
{
	return ct__comm_worker_test(&((struct comm_gloo *)c)->worker, w);
}

static enum ct_status wait(ct_comm *c, ct_work *w, int64_t deadline_ns)
{
	return ct__comm_worker_wait(&((struct comm_gloo *)c)->worker, w, deadline_ns);
}

static enum ct_status progress(ct_comm *c)
{
	ct__comm_worker_progress(&((struct comm_gloo *)c)->worker);
	return CT_OK;
}

static void abort_comm(ct_comm *c)
{
	ct__mesh_shut(&((struct comm_gloo *)c)->mesh);
}

const struct ct_comm_ops ct__comm_ops_gloo = {
	.name = "gloo",
	.supports = supports,
	.open = open_comm,
	.close = close_comm,
	.post = post,
	.test = test,
	.wait = wait,
	.progress = progress,
	.abort = abort_comm,
};
