/* Failure attribution: when a collective has timed out, finds the rank that is late from the heartbeats in the store.
 * The states in the store are some seconds old at that time, so the rank first sends its own position and waits until
 * all others have sent a heartbeat after it, or until a live one must have done so. Then every member is classified,
 * from gone to merely behind; the worst class counts, and within it the rank that has posted the fewest collectives. If
 * the store itself does not answer, its owner is the rank that is late. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/process/rank_page.h"
#include "dist/rendezvous/rendezvous.h"
#include "dist/store/failure.h"
#include "dist/store/wire.h"

#define FRESH_NS \
	(2500 * CT_MS) /* heartbeats come every second: a live rank has sent one by then, even on a busy machine */
#define POLL_MS 50
#define ON_ITS_WAY_S 0.2
#define ANSWER_NS (3 * CT_SEC)

/* A larger value is a more likely cause. */
enum lateness { LATE_NOT, LATE_BEHIND, LATE_SILENT, LATE_LEFT, LATE_GONE };

/* Returns true if the member has sent a heartbeat since our first request, `asked_s` seconds ago. A heartbeat that may
 * have been on its way at that time does not count. A member that has never sent one counts as alive if the ranks have
 * no watchdogs. */
static bool has_new_heartbeat(const struct ct_world *w, const struct ct_member_state *m, double asked_s)
{
	return m->beat_age_s < 0 ? !w->watched : m->beat_age_s < asked_s - ON_ITS_WAY_S;
}

static enum lateness lateness(const struct ct_world *w, const struct ct_member_state *m, int64_t seq, double asked_s)
{
	if (m->left)
		return LATE_LEFT;
	if (!m->connected)
		return LATE_GONE;
	if (!has_new_heartbeat(w, m, asked_s))
		return LATE_SILENT;
	return m->at.collective >= 0 && m->at.collective < seq ? LATE_BEHIND : LATE_NOT;
}

static bool all_have_new_heartbeats(const struct ct_world *w, const struct ct_member_state *m, int n, int own,
				    double asked_s)
{
	for (int i = 0; i < n; i++) {
		if (m[i].rank != own && m[i].connected && !has_new_heartbeat(w, &m[i], asked_s))
			return false;
	}
	return true;
}

/* Gets the members' states when all have sent a new heartbeat, or after FRESH_NS. *asked_s is the time from the first
 * request to the last one. */
static enum ct_status states_now(struct ct_world *w, int own, struct ct_member_state **m, int *n, double *asked_s)
{
	int64_t start = ct_now_ns();

	for (;;) {
		*asked_s = ct_seconds_since(start);
		CT_TRY(ct_store_members_by(w->store, ct_store_patience(w->store, ANSWER_NS), m, n));
		if (all_have_new_heartbeats(w, *m, *n, own, *asked_s) || *asked_s * 1e9 > (double)FRESH_NS)
			return CT_OK;
		ct_free(*m);
		(void)poll(NULL, 0, POLL_MS);
	}
}

/* Adds "NAME, 2, 3". Names at most 8 ranks. */
static void add_rank(struct ct_str *b, int rank, int named, const char *name)
{
	if (named < 8)
		ct_str_addf(b, "%s%d", named == 0 ? name : ", ", rank);
	else if (named == 8)
		ct_str_add(b, ", ...");
}

/* Adds the other ranks that are late in the same way: " (and so rank 2, 3)". */
static void name_others(struct ct_str *b, const struct ct_world *w, const struct ct_member_state *m, int n,
			const struct ct_member_state *worst, enum lateness how, int own, int64_t seq, double asked_s)
{
	int named = 0;

	for (int i = 0; i < n; i++) {
		if (&m[i] != worst && m[i].rank != own && lateness(w, &m[i], seq, asked_s) == how &&
		    (how != LATE_BEHIND || m[i].at.collective == worst->at.collective))
			add_rank(b, m[i].rank, named++, " (and so rank ");
	}
	if (named > 0)
		ct_str_add(b, ")");
}

/* Adds the ranks that have posted collective seq: "; ranks waiting in it: 0, 1". */
static void name_waiting(struct ct_str *b, const struct ct_member_state *m, int n, const struct ct_member_state *worst,
			 int64_t seq, const char *what)
{
	char text[200];
	int named = 0;

	snprintf(text, sizeof(text), "; ranks waiting in %.160s: ", what);
	for (int i = 0; i < n; i++) {
		if (&m[i] != worst && m[i].connected && seq > 0 && m[i].at.collective >= seq)
			add_rank(b, m[i].rank, named++, text);
	}
}

/* Writes what collective seq is: "bucket 2 of step 118 (allreduce sum f32[1024])", or "collective 9" if that is not
 * known. */
static void name_collective(const struct ct_waiting *at, int64_t seq, char *buf, size_t len)
{
	buf[0] = '\0';
	if (at->name)
		at->name(at->user, seq, buf, len);
	if (!buf[0])
		snprintf(buf, len, "collective %" PRId64, seq);
}

static void describe(const struct ct_world *w, const struct ct_waiting *at, const struct ct_member_state *m, int n,
		     const struct ct_member_state *worst, enum lateness how, double asked_s, int own,
		     struct ct_failure *out)
{
	/* What the rank should have posted next, or else what the others wait for. */
	const int64_t seq = how == LATE_BEHIND ? worst->at.collective + 1 : at->seq;
	struct ct_str others = {0};
	char what[200];

	name_collective(at, seq, what, sizeof(what));
	name_others(&others, w, m, n, worst, how, own, at->seq, asked_s);
	name_waiting(&others, m, n, worst, seq, how == LATE_BEHIND ? "it" : what);
	switch (how) {
	case LATE_GONE:
		ct_failure_set(out, worst, CT_TIMEOUT, "is gone%s", ct_str_text(&others));
		break;
	case LATE_LEFT:
		ct_failure_set(out, worst, CT_TIMEOUT, "has left the run%s", ct_str_text(&others));
		break;
	case LATE_SILENT:
		if (worst->beat_age_s < 0)
			ct_failure_set(out, worst, CT_TIMEOUT, "has joined, but has sent no heartbeat since%s",
				       ct_str_text(&others));
		else
			ct_failure_set(out, worst, CT_TIMEOUT, "has not answered for %.0f s%s", worst->beat_age_s,
				       ct_str_text(&others));
		snprintf(out->hint, sizeof(out->hint),
			 "check whether the process or its host is stopped: `ps -o stat,wchan -p %d` on %s", worst->pid,
			 worst->host);
		break;
	default:
		ct_failure_set(out, worst, CT_TIMEOUT, "is alive but has never posted %s%s", what,
			       ct_str_text(&others));
		snprintf(out->hint, sizeof(out->hint),
			 "see what it is doing: `gdb -p %d -batch -ex 'thread apply all bt'` on %s; if it is "
			 "only slow, raise dist.timeout",
			 worst->pid, worst->host);
		break;
	}
	ct_str_release(&others);
}

/* The store does not answer, so its owner is stopped or its host is unreachable. */
static enum ct_status attribute_to_owner(struct ct_world *w, struct ct_failure *out)
{
	struct ct_member_state m = {.at = CT_POSITION_UNKNOWN};
	struct ct_failure f;

	if (ct_store_watch(w->store, 0, &f) == CT_OK) {
		*out = f;
		return CT_OK;
	}
	ct_store_owner(w->store, &m.rank, &m.pid, m.host);
	ct_failure_set(out, &m, CT_TIMEOUT, "serves the store of this run and has not answered for %.0f s",
		       ct_store_silent_s(w->store));
	snprintf(out->hint, sizeof(out->hint),
		 "check whether the process or its host is stopped: `ps -o stat,wchan -p %d` on %s", m.pid, m.host);
	ct_error_clear();
	return CT_OK;
}

enum ct_status ct_world_attribute_failure(struct ct_world *w, const struct ct_waiting *at, struct ct_failure *out)
{
	const int own = w->peers ? w->peers[w->id.rank].rank : w->id.rank; /* w may be a part of the world */
	const struct ct_member_state *worst = NULL;
	enum lateness how = LATE_NOT;
	struct ct_member_state *m;
	struct ct_position here = ct_rank_page_position(ct_rank_page_own());
	double asked_s;
	int n;

	if (!w->store)
		return CT_NOT_FOUND;
	if (at->seq >= 0)
		here.collective = at->seq;
	if (ct_store_beat(w->store, &here) != CT_OK || states_now(w, own, &m, &n, &asked_s) != CT_OK)
		return attribute_to_owner(w, out);
	for (int i = 0; i < n; i++) {
		enum lateness l = m[i].rank == own ? LATE_NOT : lateness(w, &m[i], at->seq, asked_s);

		if (l > how || (l == how && l != LATE_NOT && m[i].at.collective < worst->at.collective)) {
			worst = &m[i];
			how = l;
		}
	}
	if (worst)
		describe(w, at, m, n, worst, how, asked_s, own, out);
	ct_free(m);
	return worst ? CT_OK : CT_NOT_FOUND;
}
