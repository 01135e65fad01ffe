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
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/launch/launch_env.h"
#include "trainer/launch/run_dir.h"
#include "trainer/launch/signals.h"
#include "trainer/plan/run_plan.h"

void ct__attempts_init(struct ct_attempts *a, const struct ct_config *cfg, const char *run_dir, int node, int signals)
{
	*a = (struct ct_attempts){.cfg = cfg,
				  .run_dir = node == 0 ? run_dir : NULL,
				  .follows = run_dir && node != 0 && cfg->launch.restarts > 0,
				  .signals = signals,
				  .restarts.budget = (int)cfg->launch.restarts};
	if (a->run_dir && a->restarts.budget > 0)
		a->saves_before = ct_checkpoint_newest_save(run_dir);
}

void ct__attempts_release(struct ct_attempts *a)
{
	ct_str_release(&a->line);
}

size_t ct__attempts_env(const struct ct_attempts *a, char **env)
{
	if (a->now.number == 0)
		return 0;
	env[0] = ct_strfmt("CTRAIN_RESTART=%d", a->now.number);
	env[1] = ct_strfmt("%s=%" PRIu64, CT_ENV_SAVES_BEFORE, a->saves_before);
	env[2] = ct_strfmt("%s=%s", CT_ENV_RESTART_LINE, ct_str_text(&a->line));
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
	ct_str_clear(&a->line);
	enum ct_status st = ct_json_dump(j, false, &a->line);
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
		(void)ct_error_wrap("launch.restarts=%d allows no further restart", r->budget);
	else if (choice == CT_RESTART_LOOP) {
		(void)ct_error_wrap("crash loop: rank %d has failed %s in %d successive attempts", r->last.rank, where,
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
	CT_TRY(ct_run_dir_lock(a->run_dir, &lock));
	int sig = ct_signals_wait(a->signals, ct_deadline_in(r->delay_ns));
	ct_run_dir_unlock(lock);
	if (sig == 0)
		return CT_OK;
	(void)CT_FAIL(CT_INTERRUPTED, "stopped by signal %d (%s) before restart %d of %d", sig, strsignal(sig), r->used,
		      r->budget);
	ct_error_hint("%s to continue from the newest checkpoint", ct_plan_how_to_resume(a->cfg));
	return CT_INTERRUPTED;
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
	a->now.number++;
	return pause_job(a);
}

/* The attempt has ended at a checkpoint, because the next one can have more nodes. */
static enum ct_status prepare_regroup(struct ct_attempts *a, const struct ct_attempt_end *end)
{
	CT_TRY(make_line(a, end));
	ct_output_print(STDERR_FILENO, "ctrain: %s\n", ct_error_message());
	ct_error_clear();
	a->now.number++;
	return CT_OK;
}

/* Prints how an attempt has ended. The launcher of node 0 decides whether there is another one. */
static void follow(const struct ct_attempts *a)
{
	ct_output_print(STDERR_FILENO, "ctrain: %s\nctrain: waiting until node 0 (%s) starts the job again\n",
			ct_error_message(), a->cfg->launch.master_addr);
	ct_error_clear();
}

enum ct_status ct__attempts_run(struct ct_attempts *a, ct_attempt_fn attempt, void *user)
{
	for (;;) {
		struct ct_attempt_end end = {.rank = -1, .step = -1};
		enum ct_status st = attempt(user, &end);
		const bool goes_on = end.regroups || (st != CT_INTERRUPTED && !end.stopped);
		if (st == CT_OK || (!a->run_dir && !(a->follows && goes_on)))
			return st;
		if (end.status == CT_OK)
			end.status = st;
		if (a->follows) {
			follow(a);
			continue;
		}
		if (end.regroups)
			st = prepare_regroup(a, &end);
		else if (goes_on && (st = prepare_next(a, &end)) < 0)
			a->decided = a->restarts.budget > 0;
		if (st < 0)
			return record_failure(a->run_dir);
	}
}
