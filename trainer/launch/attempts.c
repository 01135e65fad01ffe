/* The loop of the launcher: make an attempt, decide, wait, make the next one. Only the launcher that leads the job
 * decides. The others make the same bookkeeping, in case one of them has to take its place, and go on with attempts as
 * long as the leader does. A stop signal always ends the loop. While it waits after a failure, the leader holds the
 * lock of the run directory, so that no other run can start in it. The reason for a failure is printed and recorded
 * before the error chain is cleared. What rank 0 of the next attempt needs to know, such as the line about the restart,
 * is passed to it in environment variables. Attempts to regroup with more nodes count as attempts, but not as
 * restarts. */
#define CT_LOG_COMPONENT "launch"
#include "trainer/launch/attempts_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "trainer/job/checkpoints/checkpoint_files.h"
#include "trainer/job/launch_env.h"
#include "trainer/job/run_dir.h"
#include "trainer/job/signals.h"
#include "trainer/launch/leader.h"
#include "trainer/plan/elastic.h"
#include "trainer/plan/run_plan.h"

enum ct_status ct__attempts_prepare(const struct ct_config *cfg, const char *run_dir)
{
	struct ct_leader leader = {.number = -1};
	const char *resume = cfg->train.resume;

	if (ct_plan_is_elastic(cfg))
		CT_TRY(ct_leader_read(run_dir, &leader, NULL));
	if (leader.number >= 0 && strcmp(resume, "never") == 0) {
		CT_WARN("train.resume=never does not apply, because the job has begun; if it has not, delete %s/leader",
			run_dir);
		resume = "auto";
	}
	return ct_run_dir_prepare(run_dir, resume);
}

void ct__attempts_init(struct ct_attempts *a, const struct ct_config *cfg, const char *run_dir, int node, int signals)
{
	*a = (struct ct_attempts){.cfg = cfg,
				  .run_dir = run_dir,
				  .signals = signals,
				  .restarts.budget = (int)cfg->launch.restarts,
				  .now.leads = node == 0};
	if (a->now.leads && run_dir && a->restarts.budget > 0)
		a->now.saves_before = (int64_t)ct_checkpoint_newest_save(run_dir);
}

void ct__attempts_release(struct ct_attempts *a)
{
	if (a->now.leads && a->now.shared)
		ct_leader_resign(a->run_dir, a->now.number);
	ct_str_release(&a->now.line);
}

bool ct__attempts_follow(const struct ct_attempts *a)
{
	return !a->now.leads && a->run_dir && a->restarts.budget > 0;
}

size_t ct__attempts_env(const struct ct_attempts *a, char **env)
{
	if (a->now.number == 0)
		return 0;
	env[0] = ct_strfmt("CTRAIN_RESTART=%d", a->now.number);
	env[1] = ct_strfmt("%s=%" PRId64, CT_ENV_SAVES_BEFORE, a->now.saves_before);
	if (a->now.line.len == 0) /* this launcher does not know how the last attempt has ended */
		return 2;
	env[2] = ct_strfmt("%s=%s", CT_ENV_RESTART_LINE, ct_str_text(&a->now.line));
	return CT_ATTEMPTS_ENV;
}

/* Writes the reason for the failure to RUN/log/launcher.log, because terminal output may be lost. */
static enum ct_status record_failure(const char *run_dir)
{
	struct ct_error e;

	ct_error_save(&e);
	char *path = ct_path_join(run_dir, "log/launcher.log");
	bool opened = path && ct_log_open_file(path) == CT_OK;
	if (opened)
		ct_log_record(CT_LOG_COMPONENT, "%s%s%s", ct_error_message(), e.hint[0] ? "; hint: " : "", e.hint);
	else
		(void)ct_error_restore(&e);
	ct_log_close();
	ct_free(path);
	return e.status;
}

/* Makes the fields of the `restart` line of metrics.jsonl, to which rank 0 adds the step from which it continues. */
static enum ct_status make_line(struct ct_attempts *a, const struct ct_attempt_end *end)
{
	ct_json *j = ct_json_object();
	struct ct_error e;

	ct_error_save(&e); /* limits the length of the message */
	ct_json_set_i64(j, "attempt", a->now.number + 1);
	ct_json_set_i64(j, "restart", a->restarts.used);
	ct_json_set_i64(j, "restarts", a->restarts.budget);
	ct_json_set_i64(j, "rank", end->rank);
	ct_json_set_i64(j, "failed_step", end->step);
	ct_json_set_str(j, "error", ct_status_name(end->status));
	ct_json_set_str(j, "message", e.message);
	ct_str_clear(&a->now.line);
	enum ct_status st = ct_json_dump(j, false, &a->now.line);
	ct_json_destroy(j);
	return st;
}

/* Adds to the error of the last attempt why there is no further one. */
static enum ct_status explain_end(const struct ct_attempts *a, enum ct_restart_choice choice)
{
	const struct ct_restarts *r = &a->restarts;
	const enum ct_status st = ct_error_status();
	char where[48] = "before the first step";

	if (r->budget == 0)
		return st;
	if (r->last.step > 0)
		snprintf(where, sizeof(where), "in step %" PRId64, r->last.step);
	if (choice == CT_RESTART_USELESS)
		ct_error_hint("launch.restarts does not apply to this error, because it would occur again");
	else if (choice == CT_RESTART_USED)
		ct_error_wrap("launch.restarts=%d allows no further restart", r->budget);
	else if (choice == CT_RESTART_LOOP) {
		ct_error_wrap("crash loop: rank %d has failed %s in %d successive attempts", r->last.rank, where,
			      r->n_same);
		ct_error_hint(
			"another restart would probably fail in the same way, so the job ends; see RUN/log/launcher.log");
	}
	return st;
}

static enum ct_status pause_job(struct ct_attempts *a)
{
	const struct ct_restarts *r = &a->restarts;
	ct_run_lock *lock = NULL;
	const enum ct_status st =
		a->now.shared ? ct_run_dir_lock(a->run_dir, &lock) : ct_run_dir_try_lock(a->run_dir, &lock);

	/* Rank 0 on another node may not have ended yet. The next attempt then waits for the lock. */
	if (st < 0) {
		if (!a->now.shared)
			return ct_error_status();
		ct_error_clear();
	}
	int sig = ct_signals_wait(a->signals, ct_deadline_in(r->delay_ns));
	ct_run_dir_unlock(lock);
	if (sig == 0)
		return CT_OK;
	CT_FAIL(CT_INTERRUPTED, "stopped by signal %d (%s) before restart %d of %d", sig, strsignal(sig), r->used,
		r->budget);
	return ct_error_hint("%s to continue from the newest checkpoint", ct_plan_how_to_resume(a->cfg));
}

/* After a failure: returns CT_OK when it is time for another attempt, otherwise the status of the job. */
static enum ct_status prepare_next(struct ct_attempts *a, const struct ct_attempt_end *end)
{
	const struct ct_restarts *r = &a->restarts;
	const enum ct_restart_choice choice = ct_restarts_next(&a->restarts, end);

	if (choice != CT_RESTART_AGAIN)
		return explain_end(a, choice);
	CT_TRY(make_line(a, end));
	ct_output_print(STDERR_FILENO, "ctrain: %s\nctrain: restart %d of %d in %g s\n", ct_error_message(), r->used,
			r->budget, (double)r->delay_ns / CT_SEC);
	(void)record_failure(a->run_dir);
	ct_error_clear();
	return pause_job(a);
}

/* The attempt has ended at a checkpoint, because the next one can have more nodes. */
static enum ct_status prepare_regroup(struct ct_attempts *a, const struct ct_attempt_end *end)
{
	CT_TRY(make_line(a, end));
	ct_output_print(STDERR_FILENO, "ctrain: %s\n", ct_error_message());
	ct_error_clear();
	return CT_OK;
}

/* Prints how an attempt has ended. The launcher that leads the job decides whether there is another one. Prepares for
 * the case that this launcher takes its place. */
static enum ct_status follow(struct ct_attempts *a, const struct ct_attempt_end *end)
{
	a->now.may_lead = end->regroups || ct_restarts_next(&a->restarts, end) == CT_RESTART_AGAIN;
	CT_TRY(make_line(a, end));
	ct_output_print(STDERR_FILENO, "ctrain: %s\n", ct_error_message());
	if (a->now.shared)
		ct_output_print(STDERR_FILENO,
				"ctrain: waiting until the launcher on %s starts the job again, or another one does\n",
				a->now.host);
	else
		ct_output_print(STDERR_FILENO, "ctrain: waiting until node 0 (%s) starts the job again\n",
				a->cfg->launch.master_addr);
	ct_error_clear();
	return CT_OK;
}

/* Returns CT_OK if there is another attempt. */
static enum ct_status after_attempt(struct ct_attempts *a, enum ct_status st, struct ct_attempt_end *end)
{
	if (end->status == CT_OK)
		end->status = st;
	a->restarts.used = a->now.used; /* which may be from another launcher */
	if (ct__attempts_follow(a))
		st = follow(a, end);
	else
		st = end->regroups ? prepare_regroup(a, end) : prepare_next(a, end);
	a->now.used = a->restarts.used;
	if (st == CT_OK && a->now.leads && !a->now.shared)
		a->now.number++;
	return st;
}

enum ct_status ct__attempts_run(struct ct_attempts *a, ct_attempt_fn attempt, void *user)
{
	for (;;) {
		struct ct_attempt_end end = {.rank = -1, .step = -1};
		enum ct_status st = attempt(user, &end);
		const bool goes_on = end.regroups || (st != CT_INTERRUPTED && !end.stopped);

		if (st == CT_OK || !a->run_dir || !(a->now.leads || (ct__attempts_follow(a) && goes_on)))
			return st;
		if (goes_on) {
			st = after_attempt(a, st, &end);
			a->decided = st < 0 && a->now.leads && a->restarts.budget > 0;
		}
		if (st < 0)
			return a->now.leads ? record_failure(a->run_dir) : st;
	}
}
