/* How an attempt has ended: the error of the job, and the facts for the decision whether to start again. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "trainer/launch/launch_impl.h"

/* Describes how a rank ended if it has delivered no error message. */
static enum ct_status describe_end(struct ct_launcher *l, const struct ct_worker *w)
{
	char doing[CT_POSITION_TEXT];
	struct ct_failure f;
	bool gone, known = ct_job_store_failure(&l->store, &f, &gone);

	if (!WIFSIGNALED(w->wait_status)) {
		enum ct_status st = ct__worker_status(w);

		if (!known) {
			CT_FAIL(st, "rank %d (pid %d) ended with exit code %d without an error message", w->rank,
				(int)w->pid, WEXITSTATUS(w->wait_status));
			return ct_error_hint("see its output above, and RUN/log/rank-%05d.log", w->rank);
		}
		/* Its watchdog ended it because another rank had failed. */
		CT_FAIL(st, "%s", f.message);
		if (f.hint[0])
			ct_error_hint("%s", f.hint);
		return st;
	}
	int sig = WTERMSIG(w->wait_status);
	bool crash = sig == SIGSEGV || sig == SIGABRT || sig == SIGBUS || sig == SIGILL || sig == SIGFPE;
	const struct ct_position at = ct_rank_page_position(w->page);

	ct_position_text(doing, sizeof(doing), &at);
	CT_FAIL(crash ? CT_BUG : CT_PEER_LOST, "rank %d (pid %d on %s) was killed by signal %d (%s)%s%s", w->rank,
		(int)w->pid, l->store.opts.host, sig, strsignal(sig), doing[0] ? "; last seen: " : "", doing);
	if (sig == SIGKILL)
		ct_witness_explain_kill(&l->witness,
					l->run_dir ? "a smaller batch or fewer loader threads"
						   : "fewer ranks, smaller vectors (--max) or a smaller batch");
	if (l->run_dir)
		ct_error_hint("%s to continue from the newest checkpoint", ct_plan_how_to_resume(l->cfg));
	return crash ? CT_BUG : CT_PEER_LOST;
}

/* Sets the error for the case that no rank of this node failed, but they were killed because the run had failed on
 * another node, or because the store had refused this node. */
static enum ct_status ended_by_run(struct ct_launcher *l)
{
	struct ct_failure f;
	bool gone;

	if (!ct_job_store_failure(&l->store, &f, &gone))
		return CT_FAIL(CT_PEER_LOST, "the run has failed on another node");
	if (f.status != CT_MISMATCH)
		return ct_failure_raise(&f);
	CT_FAIL(CT_MISMATCH, "%s", f.message);
	return ct_error_hint("%s", f.hint);
}

/* Returns true if any rank would have found the error. Which one found it first then does not matter on a single node.
 */
static bool is_common(enum ct_status st)
{
	return st == CT_USAGE || st == CT_CONFIG || st == CT_UNSUPPORTED || st == CT_DATA || st == CT_NOT_FOUND ||
	       st == CT_NUMERIC;
}

enum ct_status ct__launch_result(struct ct_launcher *l)
{
	const struct ct_worker *stopped = NULL;

	for (int i = 0; i < l->ranks.local; i++)
		if (ct__worker_status(&l->workers[i]) == CT_INTERRUPTED)
			stopped = &l->workers[i];
	if (!stopped && l->first_failed < 0 && l->killed && l->run_failed)
		return ended_by_run(l);
	/* For the other ranks, a rank that was stopped before training is a lost peer. For the job, it is a stop and
	 * not a failure. */
	if (stopped && (l->first_failed < 0 || ct__worker_is_consequence(&l->workers[l->first_failed]))) {
		const struct ct_error *e = ct__worker_error(stopped);

		return e ? ct_error_restore(e) : CT_FAIL(CT_INTERRUPTED, "stopped by a signal");
	}
	if (l->first_failed < 0)
		return CT_OK;
	const struct ct_worker *w = &l->workers[l->first_failed];
	const struct ct_error *e = ct__worker_error(w);

	if (!e)
		return describe_end(l, w);
	(void)ct_error_restore(e);
	return l->ranks.world > 1 && !(l->ranks.n_nodes == 1 && is_common(e->status))
		       ? ct_error_wrap("rank %d (pid %d) failed", w->rank, (int)w->pid)
		       : e->status;
}

/* Returns the step that a rank was computing, counted from 1; 0: training had not begun; -1: unknown. */
static int64_t step_at(const struct ct_position *at)
{
	return at->phase == CT_RANK_UNKNOWN && at->step < 0 ? -1 : at->step + 1;
}

struct ct_attempt_end ct__launch_attempt_end(struct ct_launcher *l, enum ct_status st)
{
	struct ct_attempt_end end = {.rank = -1, .step = -1, .stopped = l->stopping};

	end.regroups = st == CT_INTERRUPTED && !l->stopping &&
		       ct_rank_page_is_fulfilled(ct_rank_pages_at(&l->pages, 0), CT_REQUEST_REGROUP);
	struct ct_failure f = {.at = CT_POSITION_UNKNOWN};
	bool gone;
	if (ct_job_store_failure(&l->store, &f, &gone) && f.rank >= 0)
		end.rank = f.rank;
	else if (!gone && l->first_failed >= 0)
		end.rank = l->workers[l->first_failed].rank;
	int i = end.rank - l->ranks.first;
	if (end.rank >= 0 && i >= 0 && i < l->ranks.local) {
		const struct ct_position at = ct_rank_page_position(ct_rank_pages_at(&l->pages, i));

		end.step = step_at(&at);
	} else if (end.rank >= 0) {
		end.step = step_at(&f.at);             /* as its launcher or the rank itself has reported it */
		end.status = (enum ct_status)f.status; /* the ranks of this node have only lost a peer */
	}
	return end;
}

void ct__launch_report(struct ct_launcher *l)
{
	struct ct_failure f;
	bool gone, known = ct_job_store_failure(&l->store, &f, &gone);

	ct_witness_report(&l->witness, l->workers, l->ranks.node, l->ranks.world, l->run_dir, known ? &f : NULL,
			  l->first_failed);
}
