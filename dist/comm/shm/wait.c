/* Waiting in the shared-memory communicator. A rank spins for a short time if every rank has a CPU, and then sleeps in
 * intervals. After each interval it checks that its peers are alive.
 *
 * No wake-up is lost, because of the order on both sides. A rank that wants to sleep sets `sleeping`, reads its bell,
 * and looks for work once more before it waits for the bell to change. A rank that publishes does so first and looks at
 * `sleeping` afterwards. Full fences separate the two steps on each side, so at least one of the ranks sees what the
 * other one has done.
 *
 * A peer that has ended is an error only if something is missing: what it published before is complete, so a rank
 * advances once more before it fails. The process is checked before the state, because a rank that has closed the
 * communicator may end without error. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"
#include "dist/comm/shm/shm_impl.h"

#define SLICE_NS (50 * CT_MS)
#define SPIN_MIN_NS 2000
#define SPIN_MAX_NS 20000

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void wake_if(struct shm *s, int q, uint32_t at_least)
{
	struct shm_rank *r = &s->ranks[q];

	if (atomic_load_explicit(&r->sleeping, memory_order_relaxed) < at_least)
		return;
	if (atomic_exchange(&r->sleeping, 0) == 0)
		return;
	atomic_fetch_add(&r->bell, 1);
	syscall(SYS_futex, &r->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The fence pairs with the one in nap: either the sleeping rank sees what was published, or we see that it sleeps. */
void ct__shm_wake(struct shm *s, int q)
{
	atomic_thread_fence(memory_order_seq_cst);
	wake_if(s, q, 1);
}

static void wake_others(struct shm *s, uint32_t at_least)
{
	atomic_thread_fence(memory_order_seq_cst);
	for (int q = 0; q < s->base.size; q++) {
		if (q != s->base.rank)
			wake_if(s, q, at_least);
	}
}

void ct__shm_wake_all(struct shm *s)
{
	wake_others(s, 1);
}

void ct__shm_wake_for_done(struct shm *s)
{
	wake_others(s, 2);
}

enum ct_status ct__shm_advance(struct shm *s, bool greedy)
{
	if (s->head)
		CT_TRY(ct__shm_coll_advance(s, greedy));
	if (s->p2p_head)
		CT_TRY(ct__shm_p2p_advance(s));
	return CT_OK;
}

static bool is_done(const ct_work *w)
{
	return atomic_load_explicit(&w->status, memory_order_relaxed) == CT_OK;
}

/* Returns why rank q will publish nothing more, or NULL while it is alive. */
static const char *gone(struct shm *s, const ct_work *w, int q, bool look_at_process)
{
	struct pollfd p = {.fd = s->pidfd[q], .events = POLLIN};
	bool ended;

	if (q == s->base.rank)
		return NULL;
	ended = look_at_process && p.fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
	/* Check the state after the process: a rank that closed the communicator before its process ended is no error,
	 * and the others may continue without it. */
	switch (atomic_load_explicit(&s->ranks[q].state, memory_order_acquire)) {
	case SHM_DEAD:
		return "gave up";
	case SHM_CLOSED:
		return !ct__comm_is_p2p(w->kind) || w->root == q ? "closed the communicator" : NULL;
	default:
		return ended ? "ended" : NULL;
	}
}

/* Rank q has ended the communicator. If ranks disagree, that is the error of all of them. */
static enum ct_status gave_up(const struct shm *s, const ct_work *w, int q)
{
	const struct shm_rank *r = &s->ranks[q];
	const int len = (int)sizeof(r->reason) - 1;
	char who[128], what[224];

	if (r->status == CT_MISMATCH) {
		CT_FAIL(CT_MISMATCH, "%.*s", len, r->reason);
		return ct_error_hint(CT_COMM_MISMATCH_HINT);
	}
	ct__comm_peer_text(&s->base, q, who, sizeof(who));
	ct__work_text(w, what, sizeof(what));
	CT_FAIL(CT_PEER_LOST, "%s gave up: %.*s (while this rank waited in %s, operation %lld)", who, len, r->reason,
		what, (long long)w->seq);
	return ct__comm_caused_by(&s->base, q, CT_PEER_LOST);
}

/* What a peer published before it ended is complete. It is an error only if something is missing. */
static enum ct_status check_peers(struct shm *s, ct_work *w, bool look_at_process)
{
	char who[128], what[224];

	for (int q = 0; q < s->base.size; q++) {
		const char *why = gone(s, w, q, look_at_process);

		if (!why)
			continue;
		CT_TRY(ct__shm_advance(s, true));
		if (is_done(w))
			return CT_OK;
		if (atomic_load_explicit(&s->ranks[q].state, memory_order_acquire) == SHM_DEAD)
			return gave_up(s, w, q);
		ct__comm_peer_text(&s->base, q, who, sizeof(who));
		ct__work_text(w, what, sizeof(what));
		CT_FAIL(CT_PEER_LOST, "%s %s while this rank waited in %s (operation %lld)", who, why, what,
			(long long)w->seq);
		return ct__comm_caused_by(&s->base, q, CT_PEER_LOST);
	}
	return CT_OK;
}

/* Returns true if rank q keeps w from completing, because it has not reached w or has stopped inside it. */
static bool is_late(const struct shm *s, const ct_work *w, int q, bool *inside)
{
	const struct shm_rank *r = &s->ranks[q];
	uint64_t seq = w->scratch[0];

	*inside = false;
	if (q == s->base.rank)
		return false;
	if (ct__comm_is_p2p(w->kind))
		return q == w->root;
	if (atomic_load(&r->posted) <= seq)
		return true;
	*inside = true;
	return atomic_load(&r->done) <= seq &&
	       (atomic_load(&r->busy) == seq + 1 || atomic_load(&r->staged_in) < atomic_load(&shm_me(s)->staged_in) ||
		atomic_load(&r->staged_out) < atomic_load(&shm_me(s)->staged_out));
}

static enum ct_status timed_out(struct shm *s, ct_work *w)
{
	char names[512] = "its peers", who[128], what[224];
	bool inside = false, any_inside = false;
	size_t len = 0;
	int n = 0, first = 0;

	if (!ct__comm_is_p2p(w->kind))
		CT_TRY(ct__shm_coll_compare(s, w->scratch[0]));
	for (int q = 0; q < s->base.size; q++) {
		if (!is_late(s, w, q, &inside) || len >= sizeof(names) - 160)
			continue;
		any_inside |= inside;
		first = n == 0 ? q : first;
		ct__comm_peer_text(&s->base, q, who, sizeof(who));
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", n++ ? ", " : "", who);
	}
	ct__work_text(w, what, sizeof(what));
	CT_FAIL(CT_TIMEOUT, "%s (operation %lld) has waited %.1f s for %s, which %s", what, (long long)w->seq,
		(double)s->base.opts.timeout_ns / 1e9, names,
		any_inside || n == 0 ? "stopped inside it"
		: n > 1              ? "have not reached it"
				     : "has not reached it");
	ct_error_hint("check whether that process is stopped, swapping, or busy for longer than dist.timeout");
	if (n > 0)
		(void)ct__comm_caused_by(&s->base, first, CT_TIMEOUT);
	ct__comm_attribute_failure(&s->base, w);
	return CT_TIMEOUT;
}

/* Looks at the peers once per interval. */
static enum ct_status check_peers_sometimes(struct shm *s, ct_work *w, int64_t now)
{
	if (now - s->checked_ns < SLICE_NS)
		return CT_OK;
	s->checked_ns = now;
	return check_peers(s, w, true);
}

/* Sleeps until something is published, but at most for one interval. */
static enum ct_status nap(struct shm *s, ct_work *w, int64_t deadline_ns)
{
	struct shm_rank *me = shm_me(s);
	uint32_t bell;
	int64_t now;

	atomic_store(&me->sleeping, s->unpublished ? 2 : 1);
	bell = atomic_load(&me->bell);
	atomic_thread_fence(memory_order_seq_cst);
	s->moved = false;
	CT_TRY(ct__shm_advance(s, true));
	if (s->moved || is_done(w) || atomic_load(&s->base.dead)) {
		atomic_store(&me->sleeping, 0);
		return CT_OK;
	}
	CT_TRY(check_peers(s, w, false));
	now = ct_now_ns();
	if (!is_done(w) && now < deadline_ns) {
		int64_t span = deadline_ns - now < SLICE_NS ? deadline_ns - now : SLICE_NS;
		struct timespec ts = {.tv_sec = span / CT_SEC, .tv_nsec = span % CT_SEC};

		syscall(SYS_futex, &me->bell, FUTEX_WAIT, bell, &ts, NULL, 0);
		now = ct_now_ns();
	}
	atomic_store(&me->sleeping, 0);
	CT_TRY(check_peers_sometimes(s, w, now));
	if (now >= deadline_ns) {
		CT_TRY(ct__shm_advance(s, true));
		return is_done(w) ? CT_OK : timed_out(s, w);
	}
	return CT_OK;
}

/* Spins; *moved is set if there was progress. If spinning helped, it may take longer the next time, else it is
 * shortened. */
static enum ct_status spin(struct shm *s, bool *moved)
{
	int64_t end = ct_now_ns() + s->spin_ns;

	s->moved = false;
	do {
		for (int i = 0; i < 16; i++)
			relax();
		CT_TRY(ct__shm_advance(s, true));
	} while (!s->moved && ct_now_ns() < end);
	*moved = s->moved;
	if (s->moved)
		s->spin_ns = s->spin_ns * 2 < SPIN_MAX_NS ? s->spin_ns * 2 : SPIN_MAX_NS;
	else
		s->spin_ns = s->spin_ns / 2 > SPIN_MIN_NS ? s->spin_ns / 2 : SPIN_MIN_NS;
	return CT_OK;
}

enum ct_status ct__shm_test(ct_comm *c, ct_work *w)
{
	struct shm *s = (struct shm *)c;

	CT_TRY(ct__shm_advance(s, false));
	if (!is_done(w))
		CT_TRY(check_peers_sometimes(s, w, ct_now_ns()));
	return (enum ct_status)atomic_load_explicit(&w->status, memory_order_relaxed);
}

enum ct_status ct__shm_wait(ct_comm *c, ct_work *w, int64_t deadline_ns)
{
	struct shm *s = (struct shm *)c;

	CT_TRY(ct__shm_advance(s, true));
	while (!is_done(w)) {
		bool moved = false;

		if (atomic_load_explicit(&c->dead, memory_order_acquire))
			return ct_error_restore(&c->error);
		if (s->spins)
			CT_TRY(spin(s, &moved));
		if (!moved)
			CT_TRY(nap(s, w, deadline_ns));
	}
	return CT_OK;
}

/* Spinning makes sense only if every rank has a CPU of its own. A helper thread must not spin, because it would take
 * the CPU from a compute thread. */
static bool may_spin(const struct shm *s)
{
	struct ct_rank_cpus all = {.quota = 0};

	for (int q = 0; q < s->base.size; q++)
		ct__comm_add_cpus(&all, &s->ranks[q].cpus);
	return !s->base.opts.outer && ct__comm_has_cpus(&all, s->base.size);
}

enum ct_status ct__shm_watch_open(struct shm *s)
{
	char who[128];

	for (int q = 0; q < s->base.size; q++) {
		int pid = s->base.world->peers[q].pid;

		if (pid <= 0 || pid == getpid())
			continue;
		/* If the kernel has no pidfds, only the store detects that a process has ended. */
		s->pidfd[q] = (int)syscall(SYS_pidfd_open, pid, 0);
		if (s->pidfd[q] < 0 && errno == ESRCH) {
			/* All ranks have opened the communicator, so this one may have finished already. */
			if (atomic_load_explicit(&s->ranks[q].state, memory_order_acquire) == SHM_CLOSED)
				continue;
			ct__comm_peer_text(&s->base, q, who, sizeof(who));
			CT_FAIL(CT_PEER_LOST, "%s ended while the communicator was being opened", who);
			return ct__comm_caused_by(&s->base, q, CT_PEER_LOST);
		}
	}
	s->spins = may_spin(s);
	s->spin_ns = SPIN_MAX_NS;
	return CT_OK;
}

void ct__shm_watch_close(struct shm *s)
{
	for (int q = 0; s->pidfd && q < s->base.size; q++) {
		if (s->pidfd[q] >= 0)
			close(s->pidfd[q]);
	}
}
