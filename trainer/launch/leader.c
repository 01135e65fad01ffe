/* RUN/leader is replaced only by a process that holds RUN/lock and has read, under this lock, the number that it wants
 * to replace. So of several launchers only one succeeds, as with compare-and-swap, and the others see a new number and
 * follow it. A launcher considers the leader lost when its store has been silent for LOST_NS and RUN/lock has been free
 * for FREE_NS in a row; a rank 0 that runs would hold the lock. Nodes wait for different times, so that usually the
 * first node that is left takes over. Only a launcher that has taken part in the last attempt, or in none, may lead,
 * and one other than node 0 only if it knows an address at which it was reached. The new leader inherits the number of
 * restarts and the newest save before the job, so a job does not get more restarts by losing its leader. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/leader.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/job/signals.h"

#define MAX_BYTES 16384
#define LOST_NS (5 * CT_SEC)  /* without a store, another launcher may lead the job: node 0 after this time, ... */
#define TURN_NS (300 * CT_MS) /* ... and each of the next nodes later by this time */
#define TURNS 16
#define FREE_NS CT_SEC /* for this time, no one else must hold RUN/lock; rank 0 needs less to lock it at its start */
#define LOOK_NS (500 * CT_MS) /* interval at which RUN/leader is read */
#define RETRY_NS (50 * CT_MS)

/* Reads a number from 0 to max. */
static enum ct_status get_int(const ct_json *j, const char *key, int max, int *out)
{
	int64_t v = 0;

	CT_TRY(ct_json_get_i64(j, key, &v));
	if (v < 0 || v > max)
		return CT_FAIL(CT_DATA, "\"%s\" is %lld, but must be from 0 to %d", key, (long long)v, max);
	*out = (int)v;
	return CT_OK;
}

static enum ct_status parse(const ct_json *j, struct ct_leader *out, struct ct_str *line)
{
	const char *host, *addr, *text;

	CT_TRY(get_int(j, "attempt", INT_MAX - 1, &out->number));
	CT_TRY(get_int(j, "pid", INT_MAX, &out->pid));
	CT_TRY(get_int(j, "port", 65535, &out->port));
	CT_TRY(get_int(j, "restarts", INT_MAX, &out->used));
	CT_TRY(ct_json_get_i64(j, "saves_before", &out->saves_before));
	CT_TRY(ct_json_get_str(j, "host", &host));
	CT_TRY(ct_json_get_str(j, "addr", &addr));
	CT_TRY(ct_json_get_str(j, "line", &text));
	snprintf(out->host, sizeof(out->host), "%s", host);
	snprintf(out->addr, sizeof(out->addr), "%s", addr);
	if (line)
		ct_str_add(line, text);
	return line ? ct_str_status(line) : CT_OK;
}

enum ct_status ct_leader_read(const char *run_dir, struct ct_leader *out, struct ct_str *line)
{
	char *path = NULL, *text = NULL;
	ct_json *j = NULL;
	size_t len;

	*out = (struct ct_leader){.number = -1};
	CT_TRY_ALLOC(path = ct_path_join(run_dir, "leader"));
	enum ct_status st = ct_file_read(path, MAX_BYTES, &text, &len);
	if (st == CT_OK && (st = ct_json_parse(text, len, path, &j)) == CT_OK)
		st = parse(j, out, line);
	if (st == CT_NOT_FOUND) {
		ct_error_clear();
		st = CT_OK;
	} else if (st < 0) {
		ct_error_wrap("cannot read which node leads the job from %s", path);
		ct_error_hint("if no ctrain uses the run directory, delete this file");
	}
	ct_json_destroy(j);
	ct_free(text);
	ct_free(path);
	return st;
}

static enum ct_status write_leader(const char *run_dir, const struct ct_leader *l, const char *line)
{
	char *path = NULL;
	struct ct_str text = {0};

	CT_TRY_ALLOC(path = ct_path_join(run_dir, "leader"));
	ct_json *j = ct_json_object();
	ct_json_set_i64(j, "attempt", l->number);
	ct_json_set_i64(j, "pid", l->pid);
	ct_json_set_i64(j, "port", l->port);
	ct_json_set_i64(j, "restarts", l->used);
	ct_json_set_i64(j, "saves_before", l->saves_before);
	ct_json_set_str(j, "host", l->host);
	ct_json_set_str(j, "addr", l->addr);
	ct_json_set_str(j, "line", line);
	enum ct_status st = ct_json_dump(j, false, &text);
	if (st == CT_OK)
		st = ct_file_replace(path, ct_str_text(&text), text.len);
	ct_json_destroy(j);
	ct_str_release(&text);
	ct_free(path);
	return st;
}

enum ct_status ct_leader_lock(const char *run_dir, int number, ct_run_lock **lock)
{
	ct_run_lock *taken = NULL;
	struct ct_leader now;

	*lock = NULL;
	if (ct_run_dir_lock(run_dir, &taken) < 0) {
		if (number < 0)
			return ct_error_status();
		ct_error_clear();
		return CT_OK;
	}
	enum ct_status st = ct_leader_read(run_dir, &now, NULL);
	if (st == CT_OK && now.number == number)
		*lock = taken;
	else
		ct_run_dir_unlock(taken);
	return st;
}

enum ct_status ct_leader_become(const char *run_dir, int number, struct ct_leader *me, const char *line,
				ct_run_lock **lock)
{
	CT_TRY(ct_leader_lock(run_dir, number, lock));
	if (!*lock)
		return CT_OK;
	me->number = number + 1;
	enum ct_status st = write_leader(run_dir, me, line);
	if (st < 0) {
		ct_run_dir_unlock(*lock);
		*lock = NULL;
	}
	return st;
}

void ct_leader_resign(const char *run_dir, int number)
{
	struct ct_leader now;
	struct ct_error e;
	char *path = ct_path_join(run_dir, "leader");

	ct_error_save(&e);
	if (path && ct_leader_read(run_dir, &now, NULL) == CT_OK && now.number == number)
		(void)unlink(path);
	(void)ct_error_restore(&e);
	ct_free(path);
}

/* Sets what a launcher that has not taken part in the last attempt does not know, for the attempt that it leads. */
static void inherit(const struct ct_config *c, const struct ct_leader *before, bool mine, struct ct_rejoin_attempt *a)
{
	if (before->number < 0)
		return;
	a->saves_before = before->saves_before;
	if (!mine && a->pid == 0)
		a->used = before->used < (int)c->launch.restarts ? before->used + 1 : before->used;
}

static enum ct_status lead(const struct ct_config *c, const char *run_dir, const struct ct_rejoin_at *at, bool mine,
			   struct ct_rejoin_attempt *a, struct ct_leader *leader, ct_run_lock **lock)
{
	const struct ct_leader before = *leader;
	struct ct_leader me = {.pid = at->opts->pid, .port = at->port};
	struct ct_rejoin_attempt next = *a;

	snprintf(me.host, sizeof(me.host), "%s", at->opts->host);
	snprintf(me.addr, sizeof(me.addr), "%s", at->opts->node == 0 ? c->launch.master_addr : a->addr);
	inherit(c, &before, mine, &next);
	me.used = next.used;
	me.saves_before = next.saves_before;
	CT_TRY(ct_leader_become(run_dir, before.number, &me, ct_str_text(&a->line), lock));
	if (!*lock)
		return CT_OK;
	if (!mine)
		CT_WARN("the launcher that led the job, pid %d on host %s, cannot be reached; this launcher takes its place",
			before.pid, before.host);
	next.leads = true;
	next.shared = true;
	next.number = me.number;
	next.pid = 0;
	*a = next;
	*leader = me;
	return CT_OK;
}

/* Reads what the leader of the attempt has written, in case this launcher takes its place later, or has rank 0. */
static enum ct_status join(const char *run_dir, struct ct_rejoin_attempt *a)
{
	struct ct_leader now;
	struct ct_str line = {0};

	a->leads = false;
	enum ct_status st = ct_leader_read(run_dir, &now, &line);
	if (st == CT_OK && now.number == a->number) {
		ct_str_release(&a->line);
		a->line = line;
		a->used = now.used;
		a->saves_before = now.saves_before;
		a->shared = true;
		return CT_OK;
	}
	ct_str_release(&line);
	return st;
}

/* Sets *free_at to when RUN/lock was found free, or to 0 if it is not. A process that waits for the lock gets it
 * meanwhile. */
static enum ct_status look_at_lock(const char *run_dir, int number, int64_t *free_at)
{
	ct_run_lock *lock;

	CT_TRY(ct_leader_lock(run_dir, number, &lock));
	if (!lock)
		*free_at = 0;
	else if (*free_at == 0)
		*free_at = ct_now_ns();
	ct_run_dir_unlock(lock);
	return CT_OK;
}

static enum ct_status no_leader(const struct ct_leader *l, const char *master, int port, double seconds)
{
	if (l->number >= 0) {
		CT_FAIL(CT_TIMEOUT,
			"the launcher that led the job, pid %d on host %s, has not been reached for %.1f s, and no other one leads it",
			l->pid, l->host, seconds);
		return ct_error_hint("start ctrain again on the nodes");
	}
	CT_FAIL(CT_TIMEOUT, "node 0 has not started the store within %.1f s", seconds);
	return ct_error_hint(
		"check that ctrain is running on node 0, that its address is %s port %d, and that no firewall blocks it",
		master, port);
}

enum ct_status ct_leader_elect(const struct ct_config *c, const char *run_dir, struct ct_rejoin_at *at,
			       struct ct_rejoin_attempt *a, struct ct_roll *roll, bool *over, struct ct_leader *leader,
			       ct_run_lock **lock)
{
	const int64_t limit = (int64_t)(c->dist.rendezvous_timeout * 1e9);
	const int node = at->opts->node, port = at->port;
	int64_t since = ct_now_ns(), free_at = 0;
	int known = -1;
	bool logged = false;

	for (;;) {
		CT_TRY(ct_leader_read(run_dir, leader, NULL));
		if (leader->number < 0 && a->shared)
			return CT_FAIL(CT_PEER_LOST, "the job has ended, but this node has not received its result");
		const bool mine = leader->number < 0 ? node == 0 : a->shared && a->leads && leader->number == a->number;
		a->leads = a->leads && mine;
		if (leader->number != known) {
			known = leader->number;
			since = ct_now_ns();
			free_at = 0;
		}
		at->host = leader->number < 0 ? c->launch.master_addr : leader->addr;
		at->port = leader->number < 0 ? port : leader->port;
		enum ct_status st = mine ? CT_TIMEOUT : ct_rejoin_wait(at, LOOK_NS, a, roll, over);
		if (*over || st != CT_TIMEOUT)
			return st == CT_OK && !*over ? join(run_dir, a) : st;
		ct_error_clear();
		since = a->seen_ns > since ? a->seen_ns : since;
		const int64_t silent = ct_now_ns() - since;
		const bool lost = leader->number >= 0 && silent > LOST_NS + node % TURNS * TURN_NS,
			   may_lead = (node == 0 || a->addr[0]) && (a->may_lead || a->pid == 0);
		at->port = port;
		if (!mine && lost && may_lead)
			CT_TRY(look_at_lock(run_dir, leader->number, &free_at));
		else
			free_at = 0;
		if (mine || (free_at > 0 && ct_now_ns() - free_at > FREE_NS))
			CT_TRY(lead(c, run_dir, at, mine, a, leader, lock));
		if (*lock)
			return CT_OK;
		if (silent > limit)
			return no_leader(leader, c->launch.master_addr, port, (double)silent / CT_SEC);
		if (!logged && silent > CT_SEC) {
			logged = true;
			CT_INFO("waiting until %s starts %s", leader->number < 0 ? "node 0" : leader->host,
				a->pid ? "the ranks again" : "the store");
		}
		int sig = ct_signals_wait(at->signals, ct_deadline_in(RETRY_NS));
		if (sig != 0)
			return CT_FAIL(CT_INTERRUPTED, "stopped by signal %d (%s) while no rank was running", sig,
				       strsignal(sig));
	}
}
