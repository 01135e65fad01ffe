/* One thread runs the main loop of poll: signals, the output of the workers, the failure record of the store, and
 * deadlines. The first failure sets kill_at; until then, the ranks may report and end by themselves. What a rank has
 * stored in its page is more specific than what others see of its end, so it is published in the store. The rank to
 * blame is the first one that failed, unless it has named another as the cause or only reports a consequence.
 *
 * Between two attempts nothing of the first remains: workers, store and witness are created for each. Signal handlers
 * are not used; signals arrive through a descriptor. Workers get a copy of the environment with their own variables,
 * and no descriptor that they do not need. The second stop request kills all of them, and this process ends by the same
 * signal after it has cleaned up. */
#include "trainer/launch/launch.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/output.h"
#include "trainer/job/launch_env.h"
#include "trainer/job/limits.h"
#include "trainer/job/signals.h"
#include "trainer/launch/form.h"
#include "trainer/launch/launch_impl.h"
#include "trainer/plan/elastic.h"

#define KILL_AFTER_NS (2500 * CT_MS) /* after the first failure, so that all processes have ended within 5 s */
#define MISMATCH_AFTER_NS CT_SEC     /* after a node or rank was refused: the ranks have nothing to save */
#define GONE_AFTER_NS (10 * CT_SEC)  /* after the store has ended, which also happens when a run finishes */
#define LOOK_NS (100 * CT_MS)        /* interval at which the failure record is read after a stop signal */
#define SAME_STOP_NS CT_SEC          /* a batch system may send the same stop signal to the launcher twice */
#define GROW_NS (500 * CT_MS)        /* interval at which node 0 looks for nodes that could take part */
#define OUTPUT_RETRY_MS 100
#define MAX_ENV (13 + CT_ATTEMPTS_ENV)

/* Returns the number of environment variables of rank i, which the caller owns. Out of memory, some of them are NULL.
 */
static size_t worker_env(const struct ct_launcher *l, int i, int64_t start_ns, char *env[MAX_ENV])
{
	size_t n = 0;
	int threads = ct_plan_threads(l->cfg, l->ranks.local);

	env[n++] = ct_strfmt("RANK=%d", l->ranks.first + i);
	env[n++] = ct_strfmt("WORLD_SIZE=%d", l->ranks.world);
	env[n++] = ct_strfmt("LOCAL_RANK=%d", i);
	env[n++] = ct_strfmt("LOCAL_WORLD_SIZE=%d", l->ranks.local);
	const struct ct_roll *roll = &l->store.roll;
	env[n++] = ct_strfmt("CTRAIN_NODE_RANK=%d", roll->first ? ct_form_index(roll, l->ranks.node) : l->ranks.node);
	env[n++] = ct_strfmt("CTRAIN_N_NODES=%d", roll->first ? ct_form_count(roll) : l->ranks.n_nodes);
	env[n++] = ct_strfmt("CTRAIN_RUN_ID=%s", ct_plan_run_id(l->cfg, ""));
	env[n++] = ct_strfmt("%s=%" PRId64, CT_ENV_JOB_START_NS, ct_process_start_ns());
	env[n++] = ct_strfmt("%s=%" PRId64, CT_ENV_START_NS, start_ns);
	env[n++] = ct_strfmt("OMP_NUM_THREADS=%d", threads);
	env[n++] = ct_strfmt("%s=%d", CT_ENV_PAGES_FD, l->pages.fd);
	n += ct__attempts_env(&l->attempts, env + n);
	if (l->store.addr[0]) {
		env[n++] = ct_strfmt("CTRAIN_STORE=%s", l->store.addr);
		env[n++] = ct_strfmt("CTRAIN_TOKEN=%s", l->store.opts.token);
	}
	return n;
}

static enum ct_status start_worker(struct ct_launcher *l, int i, int64_t start_ns, char **argv)
{
	char *env[MAX_ENV] = {0};
	size_t n = worker_env(l, i, start_ns, env);
	enum ct_status st = CT_OK;

	for (size_t k = 0; k < n; k++)
		if (!env[k])
			st = CT_NOMEM;
	if (st == CT_OK)
		st = ct__worker_start(&l->workers[i], argv, env, n, l->ranks.first + i == 0, l->pages.fd);
	for (size_t k = 0; k < n; k++)
		ct_free(env[k]);
	return st;
}

static void signal_all(struct ct_launcher *l, int sig)
{
	for (int i = 0; i < l->ranks.local; i++)
		ct__worker_signal(&l->workers[i], sig);
}

static void kill_all(struct ct_launcher *l)
{
	ct_witness_note_states(&l->witness, l->workers);
	signal_all(l, SIGKILL);
	l->killed = true;
	l->kill_at = CT_FOREVER;
}

/* Returns true if the user has repeated the stop request, by a second Ctrl-C, or by a second SIGTERM that is not a copy
 * of the first. */
static bool is_second_stop(struct ct_launcher *l, int sig)
{
	int64_t now = ct_now_ns(), first = l->stopped_at;

	if (sig != SIGINT && sig != SIGTERM)
		return false;
	if (first == 0)
		l->stopped_at = now;
	return first != 0 && (sig == SIGINT || now - first > SAME_STOP_NS);
}

/* Suspends the ranks, too: Ctrl-Z reaches only the launcher, because the ranks have separate process groups. */
static void suspend(struct ct_launcher *l)
{
	ct_lines_clear_live();
	ct_clock_halt();
	signal_all(l, SIGSTOP);
	ct_signals_suspend_self();
	ct_clock_resume();
	signal_all(l, SIGCONT);
}

static void handle_signals(struct ct_launcher *l)
{
	for (int sig; (sig = ct_signals_next(l->signals)) != 0;) {
		if (sig == SIGCHLD)
			continue;
		if (sig == SIGTSTP) {
			suspend(l);
			continue;
		}
		l->stopping = true;
		if (!l->run_dir || is_second_stop(l, sig)) {
			l->give_up = sig;
			kill_all(l);
			continue;
		}
		ct_lines_clear_live();
		ct_output_print(STDERR_FILENO, "ctrain: received %s: saving, then stopping%s\n", strsignal(sig),
				sig == SIGINT || sig == SIGTERM ? "; send it again to end at once" : "");
		signal_all(l, sig == SIGHUP ? SIGTERM : sig);
	}
}

/* Reports to the ranks of all nodes why this rank ended, which is more specific than "connection lost". A rank that
 * failed before it joined could not report this itself. */
static void publish_failure(struct ct_launcher *l, const struct ct_worker *w)
{
	const struct ct_error *e = ct__worker_error(w);
	struct ct_failure f = {.rank = w->rank,
			       .pid = (int)w->pid,
			       .status = ct__worker_status(w),
			       .at = ct_rank_page_position(w->page)};

	if (e ? ct__worker_is_consequence(w) : !WIFSIGNALED(w->wait_status))
		return;
	snprintf(f.host, sizeof(f.host), "%s", l->store.opts.host);
	if (e) {
		snprintf(f.message, sizeof(f.message), "rank %d (pid %d on %s) %s: %.500s", w->rank, (int)w->pid,
			 f.host, f.status == CT_INTERRUPTED ? "ended" : "failed", e->message);
		snprintf(f.hint, sizeof(f.hint), "%.255s", e->hint);
	} else {
		snprintf(f.message, sizeof(f.message), "rank %d (pid %d on %s) was killed by signal %d (%s)", w->rank,
			 (int)w->pid, f.host, WTERMSIG(w->wait_status), strsignal(WTERMSIG(w->wait_status)));
	}
	ct_job_store_report(&l->store, &f);
}

/* Returns true if the failure of `other` has caused that of w. The status alone does not show this, because a rank that
 * ends because of another rank's failure has the same status. */
static bool is_caused_by(const struct ct_worker *w, const struct ct_worker *other)
{
	const struct ct_error *e = ct__worker_error(w);

	return e && e->cause_pid > 0 && e->cause_pid == (int)other->pid && e->cause_rank == other->rank;
}

static void note_end(struct ct_launcher *l, int i)
{
	const struct ct_worker *w = &l->workers[i];
	enum ct_status st = ct__worker_status(w);

	if (st == CT_OK || l->killed)
		return;
	/* Reports a stop, too: the store knows whether the rank had left the run or was stopped while it started. */
	publish_failure(l, w);
	if (st == CT_INTERRUPTED)
		return;
	if (l->kill_at == CT_FOREVER)
		l->kill_at = ct_deadline_in(KILL_AFTER_NS);
	/* A rank that is the cause replaces one that only reported the failure of another. */
	const struct ct_worker *first = l->first_failed < 0 ? NULL : &l->workers[l->first_failed];
	if (!first || (!is_caused_by(w, first) &&
		       (is_caused_by(first, w) || (ct__worker_is_consequence(first) && !ct__worker_is_consequence(w)))))
		l->first_failed = i;
}

/* Checks whether the run has failed. The ranks then end by themselves. Those that are stopped or hang are killed later.
 */
static void look_at_store(struct ct_launcher *l)
{
	struct ct_failure f;
	bool store_gone;
	/* For the ranks that wait for it, a rank that was stopped while it started is a failure. */
	bool stopping = l->stopped_at != 0;

	if (l->run_failed || (!l->store.watch && !stopping) || !ct_job_store_failure(&l->store, &f, &store_gone))
		return;
	l->run_failed = true;
	int64_t due = ct_deadline_in(store_gone                                    ? GONE_AFTER_NS
				     : !l->waiting.done && f.status == CT_MISMATCH ? MISMATCH_AFTER_NS
										   : KILL_AFTER_NS);
	if (!l->killed && due < l->kill_at)
		l->kill_at = due;
}

/* Shows which nodes have joined, until all have, or until the job ends. If other nodes can take part in the job,
 * requests rank 0 to stop at the next checkpoint. */
static void look_at_nodes(struct ct_launcher *l)
{
	if (ct_now_ns() >= l->grow_at) {
		l->grow_at = ct_deadline_in(GROW_NS);
		if (ct_job_store_can_grow(&l->store, l->cfg) &&
		    ct_rank_page_request(ct_rank_pages_at(&l->pages, 0), CT_REQUEST_REGROUP))
			ct_output_print(
				STDERR_FILENO,
				"ctrain: more nodes are there; the job continues with them after the next checkpoint\n");
	}
	if (l->run_failed || l->stopped_at != 0 || l->first_failed >= 0)
		ct_waiting_end(&l->waiting);
	else
		ct_waiting_look(&l->waiting, &l->store);
}

static int n_running(const struct ct_launcher *l)
{
	int n = 0;

	for (int i = 0; i < l->ranks.local; i++)
		n += l->workers[i].pid > 0 && !l->workers[i].ended;
	return n;
}

static enum ct_status wait_for_all(struct ct_launcher *l)
{
	struct pollfd *fds = NULL;

	CT_TRY_ALLOC(fds = CT_NEW_ARRAY(struct pollfd, (size_t)l->ranks.local + 2));
	while (n_running(l) > 0) {
		nfds_t k = 0;

		fds[k++] = (struct pollfd){.fd = l->signals, .events = POLLIN};
		fds[k++] =
			(struct pollfd){.fd = l->run_failed ? -1 : ct_store_watch_fd(l->store.watch), .events = POLLIN};
		for (int i = 0; i < l->ranks.local; i++)
			fds[k++] = (struct pollfd){.fd = l->workers[i].out.fd, .events = POLLIN};
		int64_t look_at = l->stopped_at != 0 && !l->run_failed ? ct_deadline_in(LOOK_NS) : CT_FOREVER;
		int64_t due = ct_waiting_due(&l->waiting);
		due = look_at < due ? look_at : due;
		due = l->grow_at < due ? l->grow_at : due;
		int ms = ct_deadline_poll_ms(l->kill_at < due ? l->kill_at : due);
		/* Wakes up to print pending lines, in case the terminal accepts output again. */
		(void)poll(fds, k, ct_output_pending() && (ms < 0 || ms > OUTPUT_RETRY_MS) ? OUTPUT_RETRY_MS : ms);
		handle_signals(l);
		for (int i = 0; i < l->ranks.local; i++)
			ct__worker_drain(&l->workers[i]);
		for (int i = 0; i < l->ranks.local; i++)
			if (ct__worker_reap(&l->workers[i]))
				note_end(l, i);
		ct__workers_reap_orphans(l->workers, l->ranks.local);
		look_at_store(l);
		look_at_nodes(l);
		if (ct_now_ns() >= l->kill_at)
			kill_all(l);
	}
	ct_free(fds);
	return CT_OK;
}

static enum ct_status run_job(struct ct_launcher *l, char **argv)
{
	enum ct_status st = CT_OK;
	int64_t start = l->attempts.now.number == 0 ? ct_process_start_ns() : ct_now_ns();

	for (int i = 0; i < l->ranks.local && st == CT_OK; i++)
		st = start_worker(l, i, start, argv);
	if (st < 0)
		kill_all(l);
	struct ct_error first = {0};
	if (st < 0)
		ct_error_save(&first);
	ct_waiting_begin(&l->waiting, &l->store, l->cfg);
	enum ct_status waited = wait_for_all(l);
	ct_waiting_end(&l->waiting);
	CT_TRY(waited);
	ct_lines_clear_live();
	return st < 0 ? ct_error_restore(&first) : ct__launch_result(l);
}

/* Starts the store and the ranks, and waits until all of them have ended. */
static enum ct_status run_attempt(void *user, struct ct_attempt_end *end)
{
	struct ct_launcher *l = user;

	l->stopping = l->killed = l->run_failed = false;
	l->stopped_at = 0;
	l->kill_at = CT_FOREVER;
	l->first_failed = -1;
	ct_rank_pages_clear(&l->pages);
	enum ct_status st = ct_job_store_open(l->cfg, &l->ranks, l->run_dir, l->signals, &l->attempts.now, &l->store);
	/* An error before the start of the ranks is final, except for the launcher that leads the job. */
	end->stopped = st < 0 && ct__attempts_follow(&l->attempts);
	if (st < 0 || l->store.over)
		return st;
	l->grow_at = ct_plan_is_elastic(l->cfg) && l->attempts.now.leads ? 0 : CT_FOREVER;
	st = (l->workers = CT_NEW_ARRAY(struct ct_worker, (size_t)l->ranks.local)) ? CT_OK : CT_NOMEM;
	for (int i = 0; st == CT_OK && i < l->ranks.local; i++)
		ct__worker_init(&l->workers[i], l->ranks.first + i, ct_rank_pages_at(&l->pages, i));
	if (st == CT_OK)
		st = ct_witness_open(&l->witness, l->ranks.local);
	if (st == CT_OK) {
		st = run_job(l, l->argv);
		if (st == CT_OK && l->cfg->launch.restarts > 0)
			st = ct_job_store_agree(l->cfg, l->run_dir, l->signals, &l->store);
		*end = ct__launch_attempt_end(l, st);
		if (st < 0 && !end->regroups)
			ct__launch_report(l);
		ct_witness_close(&l->witness);
	}
	for (int i = 0; l->workers && i < l->ranks.local; i++)
		ct__worker_release(&l->workers[i]);
	ct_free(l->workers);
	l->workers = NULL;
	if (st == CT_OK)
		ct_error_clear();
	const int n_wait = ct_job_store_others(&l->store, st == CT_OK && l->cfg->launch.restarts > 0);
	if (!end->regroups && (st == CT_OK || st == CT_INTERRUPTED) && n_wait > 0)
		ct_job_store_publish_end(&l->store, l->signals, n_wait);
	l->n_others = ct_job_store_others(&l->store, true);
	/* Ranks on other nodes may still have to read the result, or to leave. */
	ct_job_store_close(&l->store,
			   l->give_up ? 0 : ct_deadline_in(st == CT_OK || st == CT_INTERRUPTED ? 10 * CT_SEC : CT_SEC));
	return st;
}

enum ct_status ct_launch(const struct ct_config *cfg, char **argv, const char *run_dir)
{
	struct ct_launcher l = {.cfg = cfg, .argv = argv, .run_dir = run_dir, .signals = -1};
	enum ct_status st;

	CT_TRY(ct_plan_ranks(cfg, &l.ranks));
	CT_TRY(ct_limits_check(l.ranks.local));
	if (run_dir && l.ranks.node == 0)
		CT_TRY(ct__attempts_prepare(cfg, run_dir));
	CT_TRY(ct_signals_open(true, &l.signals));
	ct_output_never_wait();
	CT_TRY_GOTO(ct_rank_pages_create(l.ranks.local, &l.pages), st, out_signals);
	ct__attempts_init(&l.attempts, cfg, run_dir, l.ranks.node, l.signals);
	st = ct__attempts_run(&l.attempts, run_attempt, &l);
	if (l.attempts.decided && l.n_others > 0)
		ct_job_store_serve_end(cfg, &l.ranks, run_dir, l.signals, l.attempts.now.number + 1, l.n_others);
	ct__attempts_release(&l.attempts);
	ct_rank_pages_close(&l.pages);
out_signals:
	ct_signals_close(l.signals);
	if (l.give_up)
		ct_signals_end_self(l.give_up);
	return st;
}
