/* A store belongs to one attempt. With restarts, its run id depends on the number of the attempt, so ranks of an
 * earlier one are refused. The launcher that leads the job starts the server, checks that the other nodes will reach
 * it, and publishes which ranks each node has; the others read that before they start a rank. If the number of nodes
 * may change, the leader first selects the nodes. While it has too few of them, it gives the lock of the run directory
 * away for a moment, since this host may be the one that has lost its network. If another launcher then leads the job,
 * it closes its store and begins again as a follower.
 *
 * Nodes without the secret wait for it, because node 0 creates it. At the end the server must run until all ranks have
 * left and until the waiting launchers have read the result. Functions that report keep the error chain of the
 * caller. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/job_store.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "dist/net/net.h"
#include "dist/rendezvous/place.h"
#include "dist/rendezvous/rendezvous.h"
#include "dist/rendezvous/secret.h"
#include "dist/store/failure.h"
#include "trainer/job/signals.h"
#include "trainer/launch/form.h"
#include "trainer/launch/leader.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/elastic.h"

#define DEFAULT_PORT 29400 /* for runs on several nodes; the same port as torchrun's default */
#define RETRY_NS (50 * CT_MS)
#define OWN_NS (5 * CT_SEC) /* to connect to the server of this process */
#define MEMBERS_NS (500 * CT_MS)
#define EARLY_SERVE_NS (600 * CT_MS) /* longer than the interval at which clients retry */
#define EARLY_CONNECT_NS CT_SEC
#define ALONE_NS (2 * CT_SEC)    /* without enough nodes, after launch.join_wait, until another launcher may lead ... */
#define HANDOVER_NS (3 * CT_SEC) /* ... within this time */
#define AGREE_NS (100 * CT_MS)

static enum ct_status stopped_by(int sig)
{
	return CT_FAIL(CT_INTERRUPTED, "stopped by signal %d (%s) before any rank was started", sig, strsignal(sig));
}

static int port_of(const struct ct_config *c)
{
	const int first = ct_plan_port_range(c).first;

	if (c->launch.master_port != 0 || c->launch.nodes == 1)
		return (int)c->launch.master_port;
	return first > 0 ? first : DEFAULT_PORT;
}

/* Node 0 creates the secret if there is none, so the other nodes may have to wait for it. */
static enum ct_status wait_for_secret(const struct ct_secret_opts *so, const struct ct_config *c, int signals,
				      struct ct_secret *out)
{
	const char *host = c->launch.master_addr;
	int port = port_of(c);
	int64_t start = ct_now_ns(), deadline = ct_deadline_in((int64_t)(c->dist.rendezvous_timeout * 1e9));
	bool logged = false;
	enum ct_status st;

	while ((st = ct_secret_find(so, out)) == CT_NOT_FOUND && so->run_dir && ct_now_ns() < deadline) {
		if (!logged && ct_now_ns() - start > CT_SEC) {
			logged = true;
			CT_INFO("waiting until node 0 creates the run's secret in %s/token; %s", so->run_dir,
				ct_error_hint_text());
		}
		int sig = ct_signals_wait(signals, ct_deadline_in(RETRY_NS));
		if (sig != 0)
			return stopped_by(sig);
	}
	if (st != CT_NOT_FOUND)
		return st;
	return ct_secret_missing(so->run_dir, ct_seconds_since(start), host, port);
}

/* Node 0: prints how to start the other nodes. The secret itself is printed to a terminal only, never to a log file. */
static void announce(const struct ct_secret *s, int port)
{
	if (!s->token[0]) {
		CT_WARN("dist.open_network is set: any program that can connect to port %d can read data of this run, join it and end it",
			port);
		return;
	}
	if (!s->in_file)
		return;
	ct_output_print(
		STDERR_FILENO,
		"ctrain: the other nodes read this run's secret from %s; on nodes that cannot read this file, start ctrain with\n",
		s->from);
	if (isatty(STDERR_FILENO))
		ct_output_print(STDERR_FILENO, "    CTRAIN_TOKEN=%s ctrain ...\n", s->token);
	else
		ct_output_print(STDERR_FILENO, "    CTRAIN_TOKEN=... ctrain ...    (the contents of that file)\n");
}

static enum ct_status choose_token(const struct ct_config *c, const struct ct_ranks *ranks, const char *run_dir,
				   int signals, struct ct_secret *secret)
{
	char *dir = run_dir ? ct_strdup(run_dir) : ct_plan_run_dir(c); /* other commands use the secret of the run */
	const struct ct_secret_opts so = {
		.run_dir = dir, .open_network = c->dist.open_network, .first = ranks->node == 0};
	enum ct_status st = !dir                 ? CT_NOMEM
			    : ranks->n_nodes > 1 ? wait_for_secret(&so, c, signals, secret)
						 : ct_secret_from_env(secret);

	ct_free(dir);
	return st == CT_OK && ranks->n_nodes == 1 && !secret->token[0] ? ct_token_make(secret->token) : st;
}

/* The connection of the launcher, which is used for failures only. Ranks have their own connections to the store. */
static enum ct_status watch_store(struct ct_job_store *j, const struct ct_ranks *ranks, const char *host, int port)
{
	if (ranks->n_nodes == 1)
		return CT_OK;
	return ct_store_watch_start(host, port, &j->opts, &j->watch);
}

static void name_self(const struct ct_config *c, int n_nodes, int node, struct ct_store_opts *out)
{
	*out = (struct ct_store_opts){.member = -1, .pid = (int)getpid(), .node = node};
	/* With one node, nothing else can claim to be a node of the run. */
	out->n_nodes = n_nodes > 1 ? n_nodes : 0;
	(void)gethostname(out->host, sizeof(out->host) - 1);
	snprintf(out->run_id, sizeof(out->run_id), "%s", ct_plan_run_id(c, ""));
}

static enum ct_status make_roll(const struct ct_config *c, const struct ct_ranks *ranks, struct ct_roll *out)
{
	out->world = ranks->world;
	out->n_nodes = ranks->n_nodes;
	CT_TRY_ALLOC(out->first = ct_plan_first_ranks(c, ranks));
	return CT_OK;
}

/* Node 0 of several: checks that the other nodes will find the store. */
static enum ct_status check_place(const struct ct_config *c, const struct ct_job_store *j)
{
	struct ct_store_opts opts = j->opts;
	ct_store *outside;

	opts.member = CT_STORE_LAUNCHER;
	CT_TRY(ct_place_check("--master-addr", "node rank 0", c->launch.master_addr, j->port, &opts, &outside));
	ct_store_close(outside);
	return CT_OK;
}

/* If the number of nodes may change: selects the nodes that take part. Too few nodes are there if this host has lost
 * its network, too. Then *lock is released from time to time so that another launcher can lead the job; it becomes NULL
 * if one does. run_dir is NULL if there is no lock. */
static enum ct_status form(const struct ct_config *c, const char *run_dir, int signals, int number, ct_run_lock **lock,
			   struct ct_job_store *j)
{
	const int64_t since = ct_now_ns(), end = ct_deadline_in((int64_t)(c->dist.rendezvous_timeout * 1e9));

	for (;;) {
		const int64_t alone = ct_deadline_in((int64_t)(c->launch.join_wait * 1e9) + ALONE_NS);
		const bool last = !run_dir || number == 0 || alone >= end;
		enum ct_status st = ct_form_wait(c, j->server, signals, since, last ? end : alone, &j->roll);

		if (st != CT_TIMEOUT || last)
			return st;
		ct_error_clear();
		ct_run_dir_unlock(*lock);
		*lock = NULL;
		int sig = ct_signals_wait(signals, ct_deadline_in(HANDOVER_NS));
		if (sig != 0)
			return stopped_by(sig);
		CT_TRY(ct_leader_lock(run_dir, number, lock));
		if (!*lock)
			return CT_OK;
	}
}

/* The leader of several nodes: publishes the list of nodes, from which the other nodes start. */
static enum ct_status publish(const struct ct_job_store *j, int port, const struct ct_rejoin_attempt *attempt)
{
	struct ct_store_opts opts = j->opts;
	ct_store *own;

	opts.member = CT_STORE_LAUNCHER;
	CT_TRY(ct_store_connect(ct_net_loopback(), port, &opts, ct_deadline_in(OWN_NS), &own));
	enum ct_status st =
		attempt ? ct_rejoin_publish(own, attempt->number, &j->roll) : ct_roll_publish(&j->roll, own);
	ct_store_close(own);
	return st;
}

enum ct_status ct_job_store_members(struct ct_job_store *j, struct ct_member_state **out, int *n)
{
	ct_store *s = ct_store_watch_store(j->watch);
	char why[256] = "";

	if (s)
		return ct_store_members_by(s, ct_deadline_in(MEMBERS_NS), out, n);
	if (j->watch)
		ct_store_watch_trouble(j->watch, why, sizeof(why));
	return CT_FAIL(CT_COMM, "%s", why);
}

static void report_early(const struct ct_config *c, const char *run_dir, const struct ct_error *why)
{
	const struct ct_secret_opts so = {.run_dir = run_dir, .open_network = c->dist.open_network};
	struct ct_member_state me = {.rank = CT_STORE_LAUNCHER, .at = CT_POSITION_UNKNOWN};
	struct ct_store_opts opts;
	ct_store_server *server;
	struct ct_failure f;
	struct ct_secret secret;
	ct_store *s;

	if (ct_secret_find(&so, &secret) != CT_OK)
		return;
	name_self(c, (int)c->launch.nodes, (int)c->launch.node_rank, &opts);
	memcpy(opts.token, secret.token, sizeof(opts.token));
	me.pid = opts.pid;
	snprintf(me.host, sizeof(me.host), "%s", opts.host);
	ct_failure_set(&f, &me, why->status, "could not start node rank %d: %s", opts.node, why->message);
	snprintf(f.hint, sizeof(f.hint), "%.255s", why->hint);
	if (opts.node == 0) {
		if (ct_store_server_start(NULL, port_of(c), &opts, &server) != CT_OK)
			return;
		ct_store_server_fail(server, &f);
		(void)poll(NULL, 0, (int)(EARLY_SERVE_NS / CT_MS));
		ct_store_server_stop(server, 0);
		return;
	}
	opts.member = CT_STORE_LAUNCHER;
	if (ct_store_connect(c->launch.master_addr, port_of(c), &opts, ct_deadline_in(EARLY_CONNECT_NS), &s) != CT_OK)
		return;
	(void)!ct_store_report(s, &f);
	ct_store_close(s);
}

void ct_job_store_report_early(const struct ct_config *c, const char *run_dir)
{
	struct ct_error why;

	if (c->launch.nodes < 2 || c->launch.init[0] || !c->launch.master_addr[0] || ct_plan_is_elastic(c))
		return;
	ct_error_save(&why);
	report_early(c, run_dir, &why);
	(void)ct_error_restore(&why);
}

/* Starts the store. If the number of nodes may change, *lock is that of the run directory, and becomes NULL if another
 * launcher now leads the job. */
static enum ct_status serve(const struct ct_config *c, const char *run_dir, const struct ct_secret *secret, int signals,
			    const struct ct_rejoin_attempt *attempt, ct_run_lock **lock, struct ct_job_store *j)
{
	const bool several = j->roll.n_nodes > 1;

	j->opts.max_world = j->roll.first[j->roll.n_nodes];
	snprintf(j->host, sizeof(j->host), "localhost");
	if (attempt)
		ct_run_id_of_attempt(j->opts.run_id, ct_plan_run_id(c, ""), attempt->number);
	CT_TRY(ct_store_server_start(several ? NULL : j->host, j->port, &j->opts, &j->server));
	j->port = ct_store_server_port(j->server);
	if (!several)
		return CT_OK;
	if (!attempt || attempt->number == 0)
		announce(secret, j->port);
	if (j->opts.node == 0)
		CT_TRY(check_place(c, j));
	const bool locked = *lock != NULL;
	if (j->elastic)
		CT_TRY(form(c, locked ? run_dir : NULL, signals, attempt->number, lock, j));
	return locked && !*lock ? CT_OK : publish(j, j->port, attempt);
}

static enum ct_status check_ranks(const struct ct_ranks *ranks, const struct ct_rejoin_attempt *attempt,
				  const struct ct_roll *roll)
{
	const int n = roll->first[ranks->node + 1] - roll->first[ranks->node];

	if (n == ranks->local)
		return CT_OK;
	CT_FAIL(CT_MISMATCH, "this node was started with %d rank%s, but according to node 0 (%s) it has %d",
		ranks->local, ct_plural(ranks->local), attempt->host, n);
	return ct_error_hint("start every node with the same number of processes (--procs), or with --procs A,B,..");
}

/* With launch.restarts: leads the attempt, or waits for one that another launcher leads. */
static enum ct_status lead_or_follow(const struct ct_config *c, const struct ct_ranks *ranks, const char *run_dir,
				     int signals, struct ct_rejoin_attempt *attempt, struct ct_job_store *j,
				     ct_run_lock **lock)
{
	struct ct_rejoin_at at = {c->launch.master_addr, port_of(c), &j->opts, signals};
	struct ct_leader leader;
	struct ct_roll roll = {0};
	enum ct_status st;

	if (run_dir && j->elastic)
		st = ct_leader_elect(c, run_dir, &at, attempt, &roll, &j->over, &leader, lock);
	else if (attempt->leads)
		return CT_OK;
	else
		st = ct_rejoin_wait(&at, (int64_t)(c->dist.rendezvous_timeout * 1e9), attempt, &roll, &j->over);
	snprintf(j->host, sizeof(j->host), "%s", at.host);
	j->port = at.port;
	if (st < 0 || j->over || attempt->leads) {
		ct_roll_release(&roll);
		if (j->over)
			ct_roll_release(&j->roll);
		return st;
	}
	ct_roll_release(&j->roll);
	j->roll = roll;
	ct_run_id_of_attempt(j->opts.run_id, ct_plan_run_id(c, ""), attempt->number);
	return check_ranks(ranks, attempt, &roll);
}

/* The attempt is NULL if there are no restarts. *again: this launcher has led the attempt, but does not any more. */
static enum ct_status open_store(const struct ct_config *c, const struct ct_ranks *ranks, const char *run_dir,
				 const struct ct_secret *secret, int signals, struct ct_rejoin_attempt *attempt,
				 struct ct_job_store *j, bool *again)
{
	ct_run_lock *lock = NULL;

	CT_TRY(make_roll(c, ranks, &j->roll));
	if (attempt && c->launch.restarts > 0)
		CT_TRY(lead_or_follow(c, ranks, run_dir, signals, attempt, j, &lock));
	if (!(attempt ? attempt->leads : ranks->node == 0))
		return CT_OK;
	const bool locked = lock != NULL;
	enum ct_status st = serve(c, run_dir, secret, signals, attempt, &lock, j);
	*again = st == CT_OK && locked && !lock;
	ct_run_dir_unlock(lock); /* rank 0 locks the run directory */
	return st;
}

enum ct_status ct_job_store_open(const struct ct_config *c, struct ct_ranks *ranks, const char *run_dir, int signals,
				 struct ct_rejoin_attempt *attempt, struct ct_job_store *out)
{
	struct ct_job_store j = {.port = port_of(c)};
	struct ct_secret secret;
	bool again;

	j.elastic = attempt && ct_plan_is_elastic(c);
	name_self(c, ranks->n_nodes, ranks->node, &j.opts);
	/* The number of ranks is not known before the nodes have been selected. */
	j.opts.world = j.elastic ? 0 : ranks->world;
	if (c->launch.init[0]) {
		*out = j;
		return CT_OK;
	}
	CT_TRY(choose_token(c, ranks, run_dir, signals, &secret));
	memcpy(j.opts.token, secret.token, sizeof(j.opts.token));
	snprintf(j.host, sizeof(j.host), "%s", c->launch.master_addr);
	const struct ct_job_store fresh = j;
	enum ct_status st;
	do {
		again = false;
		st = open_store(c, ranks, run_dir, &secret, signals, attempt, &j, &again);
		if (again) {
			ct_job_store_close(&j, 0);
			j = fresh;
		}
	} while (again);
	snprintf(j.master, sizeof(j.master), "%.255s port %d",
		 strcmp(j.host, "localhost") == 0 ? c->launch.master_addr : j.host, j.port);
	bool v6 = strchr(j.host, ':') && j.host[0] != '[';
	snprintf(j.addr, sizeof(j.addr), "%s%s%s:%d", v6 ? "[" : "", j.host, v6 ? "]" : "", j.port);
	if (st == CT_OK && !j.over)
		st = watch_store(&j, ranks, j.host, j.port);
	if (st == CT_OK && j.elastic && !j.over) {
		ranks->world = j.roll.world;
		ranks->first = j.roll.first[ranks->node];
	}
	if (st == CT_OK)
		*out = j;
	else
		ct_job_store_close(&j, 0);
	return st;
}

int ct_job_store_others(const struct ct_job_store *j, bool with_ranks)
{
	int n = 0;

	for (int k = 0; j->server && k < j->roll.n_nodes; k++) {
		if (k == j->opts.node)
			continue;
		const bool takes_part = j->roll.first[k + 1] > j->roll.first[k];
		n += takes_part ? with_ranks && ct_store_server_had_node(j->server, k)
				: ct_store_server_has_node(j->server, k);
	}
	return n;
}

bool ct_job_store_can_grow(const struct ct_job_store *j, const struct ct_config *c)
{
	return j->server && j->elastic && ct_form_count(&j->roll) < j->roll.n_nodes &&
	       ct_form_can_grow(c, j->server, &j->roll);
}

void ct_job_store_serve_end(const struct ct_config *c, const struct ct_ranks *ranks, const char *run_dir, int signals,
			    int number, int n_others)
{
	struct ct_job_store j = {.port = port_of(c), .host = "localhost"};
	struct ct_secret secret;
	struct ct_error e;

	ct_error_save(&e);
	name_self(c, ranks->n_nodes, ranks->node, &j.opts);
	ct_run_id_of_attempt(j.opts.run_id, ct_plan_run_id(c, ""), number);
	enum ct_status st = choose_token(c, ranks, run_dir, signals, &secret);
	if (st == CT_OK) {
		memcpy(j.opts.token, secret.token, sizeof(j.opts.token));
		st = ct_store_server_start(NULL, j.port, &j.opts, &j.server);
	}
	(void)ct_error_restore(&e);
	if (st == CT_OK)
		ct_job_store_publish_end(&j, signals, n_others);
	ct_job_store_close(&j, 0);
}

void ct_job_store_publish_end(const struct ct_job_store *j, int signals, int n_others)
{
	const struct ct_rejoin_at at = {j->host, j->port, &j->opts, signals};

	ct_rejoin_publish_end(&at, n_others);
}

/* *over is true if all ranks have left the run, or if one of them does not respond, which is a failure. */
static enum ct_status look_at_ranks(const struct ct_config *c, struct ct_job_store *j, bool *over)
{
	struct ct_member_state *m;
	int n, n_left = 0;
	enum ct_status st = CT_OK;

	CT_TRY(ct_job_store_members(j, &m, &n));
	for (int i = 0; i < n && st == CT_OK; i++) {
		n_left += m[i].rank >= 0 && m[i].left;
		if (m[i].rank >= 0 && !m[i].left && m[i].beat_age_s > c->dist.timeout)
			st = CT_FAIL(CT_TIMEOUT,
				     "rank %d (pid %d on %s) has not responded for %.0f s at the end of the run",
				     m[i].rank, m[i].pid, m[i].host, m[i].beat_age_s);
	}
	*over = st < 0 || n_left >= j->roll.world;
	ct_free(m);
	return st;
}

/* If the number of nodes may change, another launcher takes the place of one that was lost. */
static bool has_successor(const struct ct_job_store *j, const char *run_dir)
{
	struct ct_leader now = {.number = -1};

	return j->elastic && run_dir && ct_leader_read(run_dir, &now, NULL) == CT_OK && now.number >= 0;
}

enum ct_status ct_job_store_agree(const struct ct_config *c, const char *run_dir, int signals, struct ct_job_store *j)
{
	while (j->watch) {
		struct ct_failure f;
		bool gone, over = false;

		if (ct_job_store_failure(j, &f, &gone))
			return gone && !has_successor(j, run_dir) ? CT_OK : ct_failure_raise(&f);
		ct_store *s = ct_store_watch_store(j->watch);
		enum ct_status st = j->server ? look_at_ranks(c, j, &over) : s ? ct_rejoin_read_end(s, &over) : CT_OK;
		if (over)
			return st;
		ct_error_clear();
		if (ct_signals_wait(signals, ct_deadline_in(AGREE_NS)) != 0)
			return CT_OK;
	}
	return CT_OK;
}

void ct_job_store_report(struct ct_job_store *j, const struct ct_failure *f)
{
	if (j->server)
		ct_store_server_fail(j->server, f);
	else
		ct_store_watch_report(j->watch, f);
}

bool ct_job_store_failure(struct ct_job_store *j, struct ct_failure *out, bool *store_gone)
{
	*store_gone = false;
	return j->server ? ct_store_server_failure(j->server, out) : ct_store_watch_failure(j->watch, out, store_gone);
}

void ct_job_store_close(struct ct_job_store *j, int64_t deadline_ns)
{
	ct_store_watch_stop(j->watch);
	ct_store_server_stop(j->server, deadline_ns);
	ct_roll_release(&j->roll);
	j->watch = NULL;
	j->server = NULL;
}
