/* Opening, ending and closing the shared-memory communicator. Rank 0 creates the segment, the others open it, and all
 * ranks meet at a barrier, which is the first collective in the segment. After it, every rank has mapped the segment,
 * and can read the CPUs of all ranks. A rank that closes the communicator sets its state to SHM_CLOSED. A rank whose
 * communicator dies writes the reason, then sets SHM_DEAD, and wakes all ranks; the others read the reason only after
 * they have seen that state. Both leave the contents as they are, because what a rank has published remains valid, and
 * other ranks may still need it. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "dist/comm/shm/shm_impl.h"

static enum ct_status supports(const struct ct_world *w)
{
	if (w->id.world > SHM_MAX_RANKS)
		return CT_FAIL(CT_UNSUPPORTED, "communicator \"shm\" supports at most %d ranks, but this run has %d",
			       SHM_MAX_RANKS, w->id.world);
	for (int q = 1; q < w->id.world; q++) {
		if (w->peers[q].node == w->peers[0].node)
			continue;
		CT_FAIL(CT_UNSUPPORTED,
			"communicator \"shm\" needs all ranks on one host, but rank %d is on %s and rank %d on %s",
			w->peers[0].rank, w->peers[0].host, w->peers[q].rank, w->peers[q].host);
		return ct_error_hint("set dist.backend=auto");
	}
	return CT_OK;
}

static void close_comm(ct_comm *c)
{
	struct shm *s = (struct shm *)c;

	if (s->segment.map && !atomic_load(&c->dead)) {
		atomic_store_explicit(&shm_me(s)->state, SHM_CLOSED, memory_order_release);
		ct__shm_wake_all(s);
	}
	ct__shm_watch_close(s);
	ct__shm_segment_close(s);
	ct__comm_release(c);
	ct_free(s->pidfd);
	ct_free(s->p2p);
	ct_free(s->in);
	ct_free(s->out);
	ct_free_aligned(s);
}

/* Publishes the CPUs on which this rank may run, and waits at the first barrier. After it, all ranks have mapped the
 * segment, and its name is no longer needed. */
static enum ct_status meet(struct shm *s)
{
	struct shm_rank *me = shm_me(s);
	ct_work *w;

	ct__comm_get_cpus(&me->cpus);
	CT_TRY(ct_comm_barrier(&s->base, &w));
	CT_TRY(ct_work_wait(w));
	CT_TRY(ct__shm_watch_open(s));
	return CT_OK;
}

static enum ct_status alloc_arrays(struct shm *s)
{
	size_t n = (size_t)s->base.size;

	CT_TRY_ALLOC(s->pidfd = CT_NEW_ARRAY(int, n));
	for (size_t q = 0; q < n; q++)
		s->pidfd[q] = -1;
	CT_TRY_ALLOC(s->p2p = CT_NEW_ARRAY(struct shm_p2p, n));
	CT_TRY_ALLOC(s->in = CT_NEW_ARRAY(char *, n));
	CT_TRY_ALLOC(s->out = CT_NEW_ARRAY(char *, n));
	return CT_OK;
}

static enum ct_status open_comm(struct ct_world *world, const struct ct_comm_opts *opts, ct_comm **out)
{
	enum ct_status st;
	struct shm *s;

	CT_TRY_ALLOC(s = ct_calloc_aligned(SHM_LINE, sizeof(*s)));
	s->segment.fd = -1;
	s->p2p_tail = &s->p2p_head;
	CT_TRY_GOTO(ct__comm_init(&s->base, &ct__comm_ops_shm, world, opts), st, fail);
	CT_TRY_GOTO(alloc_arrays(s), st, fail);
	CT_TRY_GOTO(ct__shm_segment_open(s), st, fail);
	CT_TRY_GOTO(meet(s), st, fail);
	*out = &s->base;
	return CT_OK;

fail:
	close_comm(&s->base);
	return st;
}

static enum ct_status post(ct_comm *c, ct_work *w)
{
	struct shm *s = (struct shm *)c;

	if (ct__comm_is_p2p(w->kind))
		ct__shm_p2p_post(s, w);
	else
		ct__shm_coll_post(s, w);
	return CT_OK;
}

static enum ct_status progress(ct_comm *c)
{
	return ct__shm_advance((struct shm *)c, false);
}

static void abort_comm(ct_comm *c)
{
	struct shm *s = (struct shm *)c;
	struct shm_rank *me;

	if (!s->segment.map)
		return;
	me = shm_me(s);
	me->status = c->error.status;
	snprintf(me->reason, sizeof(me->reason), "%.*s", (int)sizeof(me->reason) - 1, c->error.message);
	atomic_store_explicit(&me->state, SHM_DEAD, memory_order_release);
	ct__shm_wake(s, c->rank); /* abort may come from another thread */
	ct__shm_wake_all(s);
}

const struct ct_comm_ops ct__comm_ops_shm = {
	.name = "shm",
	.cooperative = true,
	.supports = supports,
	.open = open_comm,
	.close = close_comm,
	.mem_alloc = ct__shm_mem_alloc,
	.post = post,
	.test = ct__shm_test,
	.wait = ct__shm_wait,
	.progress = progress,
	.abort = abort_comm,
};
