#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "dist/store/store.h"
#include "trainer/launch/launch_env.h"
#include "trainer/launch/run_dir.h"
#include "trainer/launch/signals.h"
#include "trainer/launch/workers_impl.h"
#include "trainer/plan/run_plan.h"

#define KILL_AFTER_NS (2500 * CT_MS) /* from the first failure: everything is gone within 5 s */
#define MAX_ENV 16

struct launcher {
	const struct ct_config *cfg;
	struct ct_ranks ranks;
	struct ct_worker *workers;
	ct_store_server *server;
	struct ct_store_opts store;
	char store_addr[300];
	int signals;
	int n_interrupts; /* SIGINTs so far */
	int64_t kill_at;  /* CT_FOREVER until something failed */
	int first_failed; /* index, -1 */
	bool killed;      /* we ended what remained */
	int give_up;      /* the signal by which the user wants it so; 0 */
	bool saves;       /* the workers stop by saving */
};

/* One node: a random token and, unless told otherwise, a free port on the loopback interface. Several: node 0's launcher serves on
 * the agreed port. With --init the workers meet as the URL says. */
static enum ct_status start_store(struct launcher *l)
{
	const struct ct_config *c = l->cfg;
	if (c->launch.init[0])
		return CT_OK;
	snprintf(l->store.run_id, sizeof(l->store.run_id), "%s", ct_plan_run_id(c, ""));
	l->store.member = -1;
	l->store.pid = (int)getpid();
	const char *token = getenv("CTRAIN_TOKEN");
	if (token && token[0])
		snprintf(l->store.token, sizeof(l->store.token), "%s", token);
	else if (l->ranks.n_nodes == 1)
		CT_TRY(ct_token_make(l->store.token));
	int port = (int)c->launch.master_port;
	if (l->ranks.n_nodes > 1 && port == 0)
		port = 29400;
	if (l->ranks.node == 0) {
		CT_TRY(ct_store_server_start(l->ranks.n_nodes == 1 ? "127.0.0.1" : NULL, port, &l->store, &l->server));
		port = ct_store_server_port(l->server);
	}
	snprintf(l->store_addr, sizeof(l->store_addr), "%s:%d",
		 l->ranks.n_nodes == 1 || l->ranks.node == 0 ? "127.0.0.1" : c->launch.master_addr, port);
	return CT_OK;
}

static enum ct_status start_worker(struct launcher *l, int i, int64_t start_ns, char **argv)
{
	char *env[MAX_ENV] = {0};
	size_t n = 0;
	int threads = ct_plan_threads(l->cfg, l->ranks.local);
	env[n++] = ct_strfmt("RANK=%d", l->ranks.first + i);
	env[n++] = ct_strfmt("WORLD_SIZE=%d", l->ranks.world);
	env[n++] = ct_strfmt("LOCAL_RANK=%d", i);
	env[n++] = ct_strfmt("LOCAL_WORLD_SIZE=%d", l->ranks.local);
	env[n++] = ct_strfmt("CTRAIN_NODE_RANK=%d", l->ranks.node);
	env[n++] = ct_strfmt("CTRAIN_N_NODES=%d", l->ranks.n_nodes);
	env[n++] = ct_strfmt("CTRAIN_RUN_ID=%s", l->store.run_id);
	env[n++] = ct_strfmt("%s=%" PRId64, CT_ENV_START_NS, start_ns);
	env[n++] = ct_strfmt("OMP_NUM_THREADS=%d", threads);
	if (l->store_addr[0]) {
		env[n++] = ct_strfmt("CTRAIN_STORE=%s", l->store_addr);
		env[n++] = ct_strfmt("CTRAIN_TOKEN=%s", l->store.token);
	}
	enum ct_status st = CT_OK;
	for (size_t k = 0; k < n; k++)
		if (!env[k])
			st = CT_NOMEM;
	if (st == CT_OK)
		st = ct__worker_start(&l->workers[i], l->ranks.first + i, argv, env, n, i == 0 && l->ranks.node == 0);
	for (size_t k = 0; k < n; k++)
		ct_free(env[k]);
	return st;
}

static void signal_all(struct launcher *l, int sig)
{
	for (int i = 0; i < l->ranks.local; i++)
		ct__worker_signal(&l->workers[i], sig);
}

static void kill_all(struct launcher *l)
{
	signal_all(l, SIGKILL);
	l->killed = true;
	l->kill_at = CT_FOREVER;
}

static void handle_signals(struct launcher *l)
{
	for (int sig; (sig = ct_signals_next(l->signals)) != 0;) {
		if (sig == SIGCHLD)
			continue;
		if (!l->saves || (sig == SIGINT && l->n_interrupts++ > 0)) {
			l->give_up = sig;
			kill_all(l);
			continue;
		}
		ct__worker_clear_live_line();
		fprintf(stderr, "ctrain: got %s: finishing the step and saving%s\n", strsignal(sig),
			sig == SIGINT ? "; again to end at once" : "");
		signal_all(l, sig == SIGHUP ? SIGTERM : sig);
	}
}

/* Tells the ranks of all nodes why, in words better than "connection lost"; a rank that failed before it joined told nobody. */
static void publish_failure(struct launcher *l, const struct ct_worker *w)
{
	struct ct_failure f = {.rank = w->rank, .pid = (int)w->pid, .status = ct__worker_status(w), .seq = -1};
	if (!l->server || (w->has_error ? ct__worker_is_consequence(w) : !WIFSIGNALED(w->wait_status)))
		return;
	snprintf(f.host, sizeof(f.host), "%s", l->store.host);
	if (w->has_error) {
		snprintf(f.message, sizeof(f.message), "rank %d (pid %d on %s) failed: %.500s", w->rank, (int)w->pid,
			 f.host, w->error.message);
		snprintf(f.hint, sizeof(f.hint), "%.255s", w->error.hint);
	} else {
		snprintf(f.message, sizeof(f.message), "rank %d (pid %d on %s) was killed by signal %d (%s)", w->rank,
			 (int)w->pid, f.host, WTERMSIG(w->wait_status), strsignal(WTERMSIG(w->wait_status)));
	}
	ct_store_server_fail(l->server, &f);
}

/* Does this rank's message say that `other` failed? What a rank is told by others has their status. */
static bool blames(const struct ct_worker *w, const struct ct_worker *other)
{
	char name[48];
	snprintf(name, sizeof(name), "rank %d (pid %d ", other->rank, (int)other->pid);
	return w->has_error && strstr(w->error.message, name) != NULL;
}

static void note_end(struct launcher *l, int i)
{
	const struct ct_worker *w = &l->workers[i];
	enum ct_status st = ct__worker_status(w);
	if (st == CT_OK || st == CT_INTERRUPTED || l->killed)
		return;
	publish_failure(l, w);
	if (l->kill_at == CT_FOREVER)
		l->kill_at = ct_deadline_in(KILL_AFTER_NS);
	/* A rank that only heard of another's failure gives way to the one that is its cause. */
	const struct ct_worker *first = l->first_failed < 0 ? NULL : &l->workers[l->first_failed];
	if (!first || (!blames(w, first) &&
		       (blames(first, w) || (ct__worker_is_consequence(first) && !ct__worker_is_consequence(w)))))
		l->first_failed = i;
}

static int n_running(const struct launcher *l)
{
	int n = 0;
	for (int i = 0; i < l->ranks.local; i++)
		n += l->workers[i].pid > 0 && !l->workers[i].ended;
	return n;
}

static enum ct_status wait_for_all(struct launcher *l)
{
	struct pollfd *fds = NULL;
	CT_TRY_ALLOC(fds = CT_NEW_ARRAY(struct pollfd, (size_t)l->ranks.local * 2 + 1));
	while (n_running(l) > 0) {
		nfds_t k = 0;
		fds[k++] = (struct pollfd){.fd = l->signals, .events = POLLIN};
		for (int i = 0; i < l->ranks.local; i++) {
			fds[k++] = (struct pollfd){.fd = l->workers[i].out_fd, .events = POLLIN};
			fds[k++] = (struct pollfd){.fd = l->workers[i].error_fd, .events = POLLIN};
		}
		(void)poll(fds, k, ct_deadline_poll_ms(l->kill_at));
		handle_signals(l);
		for (int i = 0; i < l->ranks.local; i++)
			ct__worker_drain(&l->workers[i]);
		for (int i = 0; i < l->ranks.local; i++)
			if (ct__worker_reap(&l->workers[i]))
				note_end(l, i);
		if (ct_now_ns() >= l->kill_at)
			kill_all(l);
	}
	ct_free(fds);
	return CT_OK;
}

/* The job's result: the first failing rank's own message. */
static enum ct_status verdict(const struct launcher *l)
{
	const struct ct_worker *stopped = NULL;
	for (int i = 0; i < l->ranks.local; i++)
		if (ct__worker_status(&l->workers[i]) == CT_INTERRUPTED)
			stopped = &l->workers[i];
	if (l->first_failed < 0 && stopped)
		return stopped->has_error ? ct_error_restore(&stopped->error)
					  : CT_FAIL(CT_INTERRUPTED, "stopped by a signal");
	if (l->first_failed < 0)
		return CT_OK;
	const struct ct_worker *w = &l->workers[l->first_failed];
	if (w->has_error) {
		(void)ct_error_restore(&w->error);
		return l->ranks.world > 1 ? ct_error_wrap("rank %d (pid %d) failed", w->rank, (int)w->pid)
					  : w->error.status;
	}
	if (!WIFSIGNALED(w->wait_status))
		return CT_FAIL(ct__worker_status(w), "rank %d (pid %d) ended with exit code %d without saying why",
			       w->rank, (int)w->pid, WEXITSTATUS(w->wait_status));
	int sig = WTERMSIG(w->wait_status);
	bool crash = sig == SIGSEGV || sig == SIGABRT || sig == SIGBUS || sig == SIGILL || sig == SIGFPE;
	struct ct_failure f;
	bool known = l->server && ct_store_server_failure(l->server, &f) && f.rank == w->rank && f.pid == (int)w->pid;
	ct_error_set(crash ? CT_BUG : CT_PEER_LOST, __FILE__, __LINE__,
		     "rank %d (pid %d on %s) was killed by signal %d (%s)%s%s", w->rank, (int)w->pid, l->store.host,
		     sig, strsignal(sig), known && f.phase[0] ? "; last seen: " : "", known ? f.phase : "");
	if (sig == SIGKILL)
		ct_error_hint("kill -9, or the kernel ran out of memory (see dmesg)");
	ct_error_hint("%s to go on from the newest checkpoint", ct_plan_how_to_resume(l->cfg));
	return crash ? CT_BUG : CT_PEER_LOST;
}

static enum ct_status run_job(struct launcher *l, char **argv)
{
	enum ct_status st = CT_OK;
	int64_t start = ct_process_start_ns();
	for (int i = 0; i < l->ranks.local && st == CT_OK; i++)
		st = start_worker(l, i, start, argv);
	if (st < 0)
		kill_all(l);
	struct ct_error first = {0};
	if (st < 0)
		ct_error_save(&first);
	CT_TRY(wait_for_all(l));
	ct__worker_clear_live_line();
	return st < 0 ? ct_error_restore(&first) : verdict(l);
}

enum ct_status ct_launch(const struct ct_config *cfg, char **argv, const char *run_dir)
{
	struct launcher l = {
		.cfg = cfg, .signals = -1, .kill_at = CT_FOREVER, .first_failed = -1, .saves = run_dir != NULL};
	enum ct_status st;
	CT_TRY(ct_plan_ranks(cfg, &l.ranks));
	(void)gethostname(l.store.host, sizeof(l.store.host) - 1);
	if (run_dir && l.ranks.node == 0)
		CT_TRY(ct_run_dir_prepare(run_dir, cfg->train.resume));
	CT_TRY(ct_signals_open(true, &l.signals));
	CT_TRY_GOTO(start_store(&l), st, out_signals);
	if (!(l.workers = CT_NEW_ARRAY(struct ct_worker, (size_t)l.ranks.local))) {
		st = CT_NOMEM;
		goto out_store;
	}
	for (int i = 0; i < l.ranks.local; i++)
		l.workers[i].out_fd = l.workers[i].error_fd = -1;
	st = run_job(&l, argv);
	for (int i = 0; i < l.ranks.local; i++)
		ct__worker_release(&l.workers[i]);
	ct_free(l.workers);
out_store:
	/* Ranks of other nodes may still have to hear how it ended, or to say goodbye. */
	ct_store_server_stop(
		l.server, l.give_up ? 0 : ct_deadline_in(st == CT_OK || st == CT_INTERRUPTED ? 10 * CT_SEC : CT_SEC));
out_signals:
	ct_signals_close(l.signals);
	if (l.give_up) { /* as the shell expects of an interrupted program */
		signal(l.give_up, SIG_DFL);
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, l.give_up);
		raise(l.give_up);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
	}
	return st;
}
