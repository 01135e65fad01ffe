/* Three keys of the store carry the protocol: the attempt with its number and ranks, the end of the job with its error,
 * and a counter of the launchers that have read the end. The leader waits for this counter for a limited time, and then
 * leaves in any case. A follower tries connections one after the other. A spare node stays connected, since the leader
 * counts nodes by their connections, and sees an attempt with ranks for it, the end, or a failure. It takes part only
 * in an attempt that it has not seen: another process of the leader, another host or another number. The timeout runs
 * only while there is no store, so a job may run for days while a spare node waits. Values come from the network and
 * are checked. Each call blocks for at most a fraction of a second, so that stop signals are noticed. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/rejoin.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/output.h"
#include "dist/store/wire.h"
#include "trainer/job/signals.h"
#include "trainer/launch/form.h"

#define ATTEMPT_KEY "attempt" /* u32 number of the attempt, u32 ranks */
#define END_KEY "end"         /* u32 status, str message, str hint */
#define READ_KEY "end/read"
#define CALL_NS (100 * CT_MS) /* limit of a single call, between two looks at the signals */
#define CONNECT_NS (500 * CT_MS)
#define RETRY_NS (100 * CT_MS)
#define READ_NS (6 * CT_SEC) /* longer than launchers need to end their ranks after a failure */

static enum ct_status connect_once(const struct ct_rejoin_at *at, ct_store **out)
{
	struct ct_store_opts opts = *at->opts;

	opts.member = CT_STORE_LAUNCHER;
	return ct_store_connect(at->host, at->port, &opts, ct_deadline_in(CONNECT_NS), out);
}

/* Releases text. */
static enum ct_status set_key(ct_store *s, const char *key, struct ct_str *text)
{
	enum ct_status st = ct_str_status(text);

	if (st == CT_OK)
		st = ct_store_set(s, key, text->s, text->len);
	ct_str_release(text);
	return st;
}

enum ct_status ct_rejoin_publish(ct_store *s, int number, const struct ct_roll *roll)
{
	struct ct_str text = {0};

	CT_TRY(ct_roll_publish(roll, s));
	ct_wire_put_u32(&text, (uint32_t)number);
	ct_wire_put_u32(&text, (uint32_t)roll->world);
	return set_key(s, ATTEMPT_KEY, &text);
}

static enum ct_status publish_error(const struct ct_rejoin_at *at, const struct ct_error *e, int n_others)
{
	int64_t deadline = ct_deadline_in(READ_NS), n_read = 0;
	struct ct_str text = {0};
	ct_store *s = NULL;

	CT_TRY(connect_once(at, &s));
	ct_wire_put_u32(&text, (uint32_t)e->status);
	ct_wire_put_str(&text, e->message);
	ct_wire_put_str(&text, e->hint);
	enum ct_status st = set_key(s, END_KEY, &text);
	while (st == CT_OK && (st = ct_store_add(s, READ_KEY, 0, &n_read)) == CT_OK && n_read < n_others &&
	       ct_now_ns() < deadline)
		if (ct_signals_wait(at->signals, ct_deadline_in(RETRY_NS)) != 0)
			break;
	ct_store_close(s);
	return st;
}

void ct_rejoin_publish_end(const struct ct_rejoin_at *at, int n_others)
{
	struct ct_error e;

	ct_error_save(&e);
	if (publish_error(at, &e, n_others) < 0)
		CT_DEBUG("the other nodes do not learn how the job has ended: %s", ct_error_message());
	(void)ct_error_restore(&e);
}

/* Waits for a key for CALL_NS. *there is false if it does not exist yet. */
static enum ct_status get(ct_store *s, const char *key, char **text, size_t *len, bool *there)
{
	enum ct_status st = ct_store_get(s, key, ct_deadline_in(CALL_NS), text, len);

	*there = st == CT_OK;
	if (st != CT_TIMEOUT)
		return st;
	ct_error_clear();
	return CT_OK;
}

static enum ct_status malformed(void)
{
	return CT_FAIL(CT_COMM, "cannot read what node 0 has published about this attempt");
}

enum ct_status ct_rejoin_read_end(ct_store *s, bool *over)
{
	struct ct_error e = {0};
	char *text;
	size_t len;
	int64_t n;
	bool there;

	CT_TRY(get(s, END_KEY, &text, &len, &there));
	if (!there)
		return CT_OK;
	struct ct_wire_reader r = {.p = (const uint8_t *)text, .left = len};
	e.status = (enum ct_status)(int32_t)ct_wire_u32(&r);
	ct_wire_str(&r, e.message, sizeof(e.message));
	ct_wire_str(&r, e.hint, sizeof(e.hint));
	*over = ct_wire_done(&r) && (e.status == CT_OK || ct_status_is_failure(e.status));
	ct_free(text);
	if (!*over)
		return malformed();
	if (ct_store_add(s, READ_KEY, 1, &n) < 0)
		ct_error_clear();
	return e.status == CT_OK ? CT_OK : ct_error_restore(&e);
}

static enum ct_status read_attempt(ct_store *s, struct ct_rejoin_attempt *now, struct ct_roll *roll, bool *there)
{
	char *text;
	size_t len;

	CT_TRY(get(s, ATTEMPT_KEY, &text, &len, there));
	if (!*there)
		return CT_OK;
	struct ct_wire_reader r = {.p = (const uint8_t *)text, .left = len};
	now->number = (int)ct_wire_u32(&r);
	int world = (int)ct_wire_u32(&r);
	bool good = ct_wire_done(&r) && now->number >= 0;
	ct_free(text);
	if (!good)
		return malformed();
	CT_TRY(ct_roll_read(s, world, roll));
	return roll->n_nodes > 0 ? CT_OK : malformed();
}

/* What the launcher of another node has found. */
struct found {
	struct ct_rejoin_attempt now;
	struct ct_roll roll;
	bool attempt; /* one in which this node has ranks, and which it does not know */
	bool over;
	bool seen; /* node 0 has accepted the connection */
	int sig;   /* stop signal, or 0 */
};

/* Takes part, or waits as long as this connection exists, because node 0 selects from the nodes that are connected. */
static enum ct_status take_part(const struct ct_rejoin_at *at, ct_store *s, const struct ct_rejoin_attempt *last,
				struct found *f)
{
	const int node = at->opts->node;
	struct ct_failure failure;
	bool there = false, spare = false;

	ct_store_owner(s, NULL, &f->now.pid, f->now.host);
	CT_TRY(ct_store_local_addr(s, f->now.addr, sizeof(f->now.addr)));
	while (f->sig == 0 && !f->over) {
		if (!there)
			CT_TRY(read_attempt(s, &f->now, &f->roll, &there));
		if (there && ct_store_watch(s, 0, &failure) == CT_OK)
			return CT_OK; /* the attempt has failed */
		const bool mine = there && node < f->roll.n_nodes && f->roll.first[node + 1] > f->roll.first[node];
		if (mine) {
			f->attempt = f->now.pid != last->pid || f->now.number != last->number ||
				     strcmp(f->now.host, last->host) != 0;
			return CT_OK;
		}
		if (there && !spare)
			ct_output_print(
				STDERR_FILENO,
				"ctrain: the job is running on %d node%s; this node is taken in at a checkpoint, or after a failure\n",
				ct_form_count(&f->roll), ct_plural(ct_form_count(&f->roll)));
		spare = there;
		CT_TRY(ct_rejoin_read_end(s, &f->over));
		f->sig = ct_signals_wait(at->signals, 0);
	}
	return CT_OK;
}

/* Tries once. */
static enum ct_status look(const struct ct_rejoin_at *at, const struct ct_rejoin_attempt *last, struct found *f)
{
	ct_store *s = NULL;

	*f = (struct found){0};
	CT_TRY(connect_once(at, &s));
	f->seen = true;
	enum ct_status st = take_part(at, s, last, f);
	ct_store_close(s);
	if (!f->attempt)
		ct_roll_release(&f->roll);
	return st;
}

enum ct_status ct_rejoin_wait(const struct ct_rejoin_at *at, int64_t timeout_ns, struct ct_rejoin_attempt *last,
			      struct ct_roll *roll, bool *over)
{
	int64_t start = ct_now_ns();
	bool logged = false;

	for (;;) {
		struct found f;
		enum ct_status st = look(at, last, &f);

		*over = f.over;
		if (f.now.addr[0])
			memcpy(last->addr, f.now.addr, sizeof(last->addr));
		if (st == CT_OK && f.attempt) {
			last->pid = f.now.pid;
			last->number = f.now.number;
			memcpy(last->host, f.now.host, sizeof(last->host));
			*roll = f.roll;
			return CT_OK;
		}
		if (f.over || st == CT_MISMATCH)
			return st;
		ct_error_clear();
		if (f.seen)
			last->seen_ns = start = ct_now_ns();
		else if (ct_now_ns() - start > timeout_ns)
			break;
		if (!logged && ct_now_ns() - start > CT_SEC) {
			logged = true;
			CT_INFO("waiting until node 0 (%s port %d) starts %s", at->host, at->port,
				last->pid ? "the ranks again" : "the store");
		}
		if (f.sig == 0)
			f.sig = ct_signals_wait(at->signals, ct_deadline_in(RETRY_NS));
		if (f.sig != 0)
			return CT_FAIL(CT_INTERRUPTED, "stopped by signal %d (%s) while no rank was running", f.sig,
				       strsignal(f.sig));
	}
	CT_FAIL(CT_TIMEOUT, "node 0 has not started %s within %.1f s", last->pid ? "the ranks again" : "the store",
		ct_seconds_since(start));
	return ct_error_hint(
		"check that ctrain is running on node 0, that its address is %s port %d, and that no firewall blocks it",
		at->host, at->port);
}
