/* A worker first makes itself stoppable and observable (signals, log, run directory, backtraces), then creates the
 * session, resumes, and trains. Until training begins, a stop signal ends the process at once; afterwards the loop
 * reads the signals and saves a checkpoint. Only rank 0 locks the run directory and writes its outputs. The others must
 * not write there before all ranks have joined if rank 0 or a launcher may still rename it.
 *
 * A failure leaves a log record, and an entry in the postmortem report unless our launcher writes it. What is removed
 * at the start (backtraces, flight records) is that of an earlier failure. CT_INTERRUPTED is a normal end on which all
 * ranks have agreed. Requeuing the Slurm job comes last, when the lock has been released and everything is on disk,
 * because Slurm then ends this process. */
#define CT_LOG_COMPONENT "worker"
#include "trainer/run/loop/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/process/rank_page.h"
#include "base/stacks.h"
#include "base/thread.h"
#include "trainer/job/launch_env.h"
#include "trainer/job/limits.h"
#include "trainer/job/postmortem/entry.h"
#include "trainer/job/postmortem/postmortem.h"
#include "trainer/job/run_dir.h"
#include "trainer/job/signals.h"
#include "trainer/job/slurm/job.h"
#include "trainer/job/time_limit.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/host_binding.h"
#include "trainer/run/loop/hooks.h"
#include "trainer/run/loop/outputs.h"
#include "trainer/run/loop/resume.h"
#include "trainer/run/loop/stop_guard.h"
#include "trainer/run/loop/train.h"

#define FINISH_NS CT_SEC /* maximum time to wait until the last lines of output have been read */

static enum ct_status open_log(const char *run_dir, int rank)
{
	char *dir = NULL, *path = NULL;
	enum ct_status st = CT_NOMEM;

	if ((dir = ct_path_join(run_dir, "log")) && (path = ct_strfmt("%s/rank-%05d.log", dir, rank))) {
		st = ct_dir_make(dir);
		if (st == CT_OK)
			st = ct_log_open_file(path);
	}
	if (st == CT_NOT_FOUND) /* the directory is about to be created, so this is not missing data */
		st = CT_FAIL(CT_IO, "%s", ct_error_message());
	ct_free(path);
	ct_free(dir);
	return st;
}

/* The backtraces of an earlier failure would be misleading. */
static enum ct_status remove_stacks(const char *run_dir, const struct ct_identity *id)
{
	char *path;

	if (id->local_rank <= 0) /* -1: not known yet */
		CT_TRY(ct_postmortem_remove_stacks(run_dir, id->world));
	CT_TRY_ALLOC(path = ct_postmortem_stacks_path(run_dir, id->rank));
	(void)unlink(path);
	ct_free(path);
	return CT_OK;
}

/* The file is created only if this process fails. */
static enum ct_status enable_stacks(const char *run_dir, const struct ct_identity *id)
{
	char *path;

	CT_TRY_ALLOC(path = ct_postmortem_stacks_path(run_dir, id->rank));
	ct_stacks_enable(path);
	ct_free(path);
	return CT_OK;
}

static enum ct_status begin_files(const char *run_dir, const struct ct_identity *id)
{
	CT_TRY(open_log(run_dir, id->rank));
	return remove_stacks(run_dir, id);
}

/* With train.resume=never, rank 0 or the launcher of its node may rename the directory of an earlier run at any time
 * until all ranks have joined. Ranks that may start earlier use the directory only after that; before, their messages
 * are only printed. */
static bool begins_files_late(const struct ct_config *cfg, const struct ct_identity *id)
{
	const bool prepared = id->restart > 0 || (id->by == CT_LAUNCHER_CTRAIN && id->node <= 0);

	return id->rank > 0 && !prepared && strcmp(cfg->train.resume, "never") == 0;
}

/* Adds this rank to the report after a failure. Our launcher would do this itself. */
static void report_failure(const struct ct_identity *id, const char *run_dir, double started)
{
	struct ct_failure f = {.rank = id->rank,
			       .pid = (int)getpid(),
			       .status = ct_error_status(),
			       .at = ct_rank_page_position(ct_rank_page_own())};
	const struct ct_postmortem_job job = {.world = id->world, .started = started, .failure = &f};
	struct ct_rank_end end = {.rank = id->rank, .pid = (int)getpid(), .node = id->node, .wait_status = -1};
	struct ct_error keep;
	char host[65] = "?";

	if (id->by == CT_LAUNCHER_CTRAIN || f.status == CT_INTERRUPTED || !ct_rank_phase_has_worked(f.at.phase))
		return;
	(void)gethostname(host, sizeof(host) - 1);
	ct_error_save(&keep);
	if (f.status == CT_PEER_LOST || f.status == CT_CANCELLED || f.status == CT_TIMEOUT)
		f.rank = -1; /* another rank failed first */
	snprintf(f.host, sizeof(f.host), "%.63s", host);
	snprintf(f.message, sizeof(f.message), "rank %d (pid %d on %s): %.500s", id->rank, f.pid, f.host, keep.message);
	end.host = host;
	end.error = &keep;
	ct_json *entries = ct_json_array();
	ct_json_push(entries, ct_postmortem_entry(run_dir, &end, ct_rank_page_own()));
	if (ct_postmortem_add(run_dir, &job, entries) < 0)
		CT_DEBUG("cannot write the report of the failure: %s", ct_error_message());
	(void)ct_error_restore(&keep);
	ct_error_hint("%s/log/postmortem.txt describes what each rank was doing", run_dir);
}

/* The record of an earlier failure would be misleading. */
static enum ct_status name_flight_file(const struct ct_session *s)
{
	char *path;

	if (!s->watchdog)
		return CT_OK;
	CT_TRY_ALLOC(path = ct_strfmt("%s/log/flight-%05d.json", s->run.dir, s->world.id.rank));
	(void)unlink(path);
	ct_watchdog_flight_file(s->watchdog, path);
	ct_free(path);
	return CT_OK;
}

/* The result of the run is in the other files, so a failure is only a warning. Keeps the error chain. */
static void write_report(const struct ct_session *s, ct_metrics_log *metrics, ct_report_writer *write)
{
	struct ct_image_source data;
	struct ct_error keep;
	char *path = NULL;

	ct_error_save(&keep);
	ct_image_source_set(&data, s->cfg, &s->plan, s->data.train, s->data.val);
	if (write(s->run.dir, &data, &path) == CT_OK)
		ct_metrics_say(metrics, "  report        %s", path);
	else
		CT_WARN("cannot write the report of the run: %s", ct_error_message());
	ct_free(path);
	(void)ct_error_restore(&keep);
}

/* The binding of this rank. */
struct bound {
	struct ct_host_binding host;
	struct ct_binding rank;
};

/* Without a rank page of our launcher, another launcher has started the rank, and may have bound it already. */
static enum ct_status bind_rank(const struct ct_config *cfg, const struct ct_identity *id, struct bound *out)
{
	if (id->local_rank < 0 || id->local_world < 1) {
		snprintf(out->rank.why_not, sizeof(out->rank.why_not),
			 "the launcher does not say which of the ranks on this host this one is");
		return CT_OK;
	}
	CT_TRY(ct_host_binding_open(cfg, id->local_world, !ct_rank_page_is_shared(), &out->host));
	ct_binding_make(&out->host.job, id->local_rank, &out->rank);
	ct_host_binding_apply(&out->host, &out->rank);
	return CT_OK;
}

static void log_binding(const struct ct_config *cfg, const struct ct_identity *id, const struct bound *b)
{
	const bool requested = cfg->launch.bind == CT_CFG_BIND_NUMA || cfg->launch.bind == CT_CFG_BIND_CORE;
	char text[256];

	ct_binding_text(&b->rank, text, sizeof(text));
	if (requested && b->rank.why_not[0] && id->local_rank <= 0)
		CT_WARN("launch.bind=%s: %s", ct_config_choice(cfg, "launch.bind"), text);
	else
		CT_INFO("binding: %s", text);
}

static enum ct_status train(const struct ct_config *cfg, const struct ct_identity *id, const struct bound *bound,
			    const ct_run_lock *lock, int signals, struct ct_stop_guard *guard, ct_report_writer *report)
{
	struct ct_session s = {
		.start = {.joined = begins_files_late(cfg, id) ? begin_files : NULL, .writes_run_dir = true}};
	ct_metrics_log *metrics = NULL;
	enum ct_run_end end = CT_END_FAILED;
	int64_t start = ct_env_i64(CT_ENV_START_NS, ct_process_start_ns());

	log_binding(cfg, id, bound);
	if (id->rank == 0)
		CT_TRY(ct_console_create(cfg->log.console, &s.start.console));
	ct_console *console = s.start.console; /* a failed session is zero */
	s.start.saves_before = lock ? ct_run_lock_saves_before(lock) : -1;
	if (s.start.saves_before < 0)
		s.start.saves_before = ct_env_i64(CT_ENV_SAVES_BEFORE, -1);
	enum ct_status st = ct_session_create(cfg, id, true, &s);
	if (st < 0) {
		ct_console_destroy(console);
		return st;
	}
	s.run.lock = lock;
	st = ct_host_binding_pin(&bound->host, &bound->rank);
	if (st == CT_OK)
		st = name_flight_file(&s);
	if (st == CT_OK)
		st = ct_resume(&s);
	if (st == CT_OK && id->rank == 0)
		st = ct_outputs_open(&s, &metrics);
	ct_stop_guard_end(guard); /* from here on, a stop signal saves a checkpoint */
	if (st == CT_OK)
		st = ct_train(&s, metrics, start, signals, &end);
	if (st < 0 && st != CT_INTERRUPTED && metrics) {
		ct_metrics_failed(metrics, s.state.step, s.state.epoch, ct_seconds_since(start));
		ct_hook_failure(&s, metrics);
	}
	if (metrics && report && cfg->log.report && (st == CT_OK || st == CT_NUMERIC || st == CT_INTERRUPTED))
		write_report(&s, metrics, report);
	if (end != CT_END_FAILED)
		ct_hook_end(&s, metrics, end);
	ct_metrics_close(metrics);
	ct_console_destroy(console);
	/* All ranks have agreed to stop after a signal, so they leave normally, without a failure. */
	ct_session_destroy(&s, st < 0 && st != CT_INTERRUPTED);
	return st;
}

static enum ct_status open_run_dir(const struct ct_config *cfg, const struct ct_identity *id, const char *run_dir,
				   ct_run_lock **lock)
{
	if (id->rank == 0) {
		/* ctrain's launcher has already prepared the directory. */
		const bool prepared = id->by == CT_LAUNCHER_CTRAIN || id->restart > 0;

		CT_TRY(ct_run_dir_prepare(run_dir, prepared ? "auto" : cfg->train.resume));
		/* Launchers of several nodes elect their leader by this lock. */
		const bool must = cfg->launch.restarts > 0 && cfg->launch.nodes > 1;
		CT_TRY(must ? ct_run_dir_lock(run_dir, lock) : ct_run_dir_try_lock(run_dir, lock));
	}
	return begins_files_late(cfg, id) ? CT_OK : begin_files(run_dir, id);
}

/* Returns true if there were earlier starts of the same Slurm job, and none of them has saved a checkpoint. */
static bool has_no_progress(const ct_run_lock *lock, const char *run_dir)
{
	const int64_t before = ct_run_lock_saves_before(lock);

	return before >= 0 && ct_checkpoint_newest_save(run_dir) <= (uint64_t)before;
}

/* When train.max_time ends, on the ct_now_ns clock; INT64_MAX: never. Restarts do not extend it. */
static int64_t end_of_time(const struct ct_config *cfg)
{
	int64_t start = ct_env_i64(CT_ENV_JOB_START_NS, ct_process_start_ns());

	return cfg->train.max_time > 0 ? start + (int64_t)(cfg->train.max_time * 1e9) : INT64_MAX;
}

static enum ct_status run(const struct ct_config *cfg, const struct ct_identity *id, const struct bound *bound,
			  ct_report_writer *report)
{
	ct_run_lock *lock = NULL;
	int signals = -1;
	struct ct_stop_guard guard = {0};
	ct_nccl_log *nccl_log = NULL; /* NULL: NCCL is not used, or its messages are not wanted */
	struct ct_time_limit limit = {0};
	struct ct_slurm_job job;
	char *run_dir = NULL;
	const double started = ct_wall_seconds();
	enum ct_status st;

	ct_slurm_job_from_env(&job);
	bool requeues = id->rank == 0 && job.id > 0 && cfg->launch.requeue;
	CT_TRY(ct_limits_check(id->local_world));
	CT_TRY(ct_signals_open(false, &signals));
	ct_output_never_wait();
	CT_TRY_ALLOC(run_dir = ct_plan_run_dir(cfg));
	ct_log_set_rank(id->rank, id->world);
	guard.job = requeues ? &job : NULL;
	st = ct_plan_open_nccl_log(cfg, id->world, &nccl_log);
	if (st == CT_OK)
		st = ct_stop_guard_start(&guard, signals);
	if (st == CT_OK)
		st = open_run_dir(cfg, id, run_dir, &lock);
	if (st == CT_OK && lock)
		atomic_store(&guard.no_progress, has_no_progress(lock, run_dir));
	if (st == CT_OK && id->rank == 0)
		st = ct_time_limit_start(&limit, &job, end_of_time(cfg), cfg->launch.stop_before);
	if (st == CT_OK)
		st = enable_stacks(run_dir, id);
	if (st == CT_OK)
		st = ct_nccl_log_start(nccl_log);
	if (st == CT_OK)
		st = train(cfg, id, bound, lock, signals, &guard, report);
	/* The job continues by itself, so Slurm must not start it again. */
	requeues = requeues && !ct_rank_page_is_fulfilled(ct_rank_page_own(), CT_REQUEST_REGROUP);
	ct_stop_guard_end(&guard);
	ct_nccl_log_close(nccl_log);
	ct_time_limit_stop(&limit);
	if (st < 0) {
		report_failure(id, run_dir, started);
		/* Written to the log file only, because the launcher or main prints the error. */
		ct_log_record(CT_LOG_COMPONENT, "ends with %s: %s%s%s", ct_status_name(st), ct_error_message(),
			      ct_error_hint_text()[0] ? "; hint: " : "", ct_error_hint_text());
		CT_DEBUG("%s", ct_error_frames());
	}
	ct_run_dir_unlock(lock);
	if (st == CT_INTERRUPTED && requeues)
		ct_slurm_requeue(&job); /* comes last, because it ends this process */
	ct_signals_close(signals);
	ct_log_close();
	ct_output_finish(ct_deadline_in(FINISH_NS));
	ct_free(run_dir);
	return st;
}

enum ct_status ct_worker_run(const struct ct_config *cfg, const struct ct_identity *id, ct_report_writer *report)
{
	(void)prctl(PR_SET_NAME,
		    "ctrain"); /* otherwise ps and top would show "exe", because the launcher executes /proc/self/exe */
	struct bound bound = {0};
	enum ct_status st = bind_rank(cfg, id, &bound);

	if (st == CT_OK)
		st = run(cfg, id, &bound, report);
	ct_host_binding_close(&bound.host);
	return st;
}
