#define CT_LOG_COMPONENT "worker"
#include "trainer/loop/worker.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/black_box.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/output.h"
#include "base/stacks.h"
#include "base/thread.h"
#include "trainer/launch/launch_env.h"
#include "trainer/launch/limits.h"
#include "trainer/launch/run_dir.h"
#include "trainer/launch/signals.h"
#include "trainer/loop/resume.h"
#include "trainer/loop/stop_guard.h"
#include "trainer/loop/train.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/cpus.h"
#include "trainer/plan/devices.h"
#include "trainer/postmortem/entry.h"
#include "trainer/postmortem/report.h"
#include "trainer/slurm/job.h"
#include "trainer/slurm/limit.h"

#define FINISH_NS CT_SEC /* maximum time to wait until the last lines of output have been read */

static int64_t env_i64(const char *name, int64_t fallback)
{
	const char *text = getenv(name);
	int64_t v = fallback;
	if (text && ct_parse_i64(text, &v) < 0)
		ct_error_clear();
	return v;
}

enum ct_status ct_worker_join_clock(void)
{
	int64_t fd = env_i64(CT_ENV_CLOCK_FD, -1);
	enum ct_status st = CT_OK;
	if (getenv(CT_ENV_ERROR_FD) && fd >= 0 && fd <= INT_MAX) {
		st = ct_clock_join((int)fd);
		close((int)fd);
	}
	unsetenv(CT_ENV_CLOCK_FD);
	return st;
}

bool ct_worker_deliver_error(enum ct_status st)
{
	int fd = (int)env_i64(CT_ENV_ERROR_FD, -1);
	struct ct_error e;
	if (fd < 0)
		return false;
	ct_error_save(&e);
	e.status = st;
	return write(fd, &e, sizeof(e)) == (ssize_t)sizeof(e);
}

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

static enum ct_status write_config(const struct ct_session *s)
{
	struct ct_str text = {0};
	char *path = NULL;
	enum ct_status st = ct_config_dump(s->cfg, true, &text);
	if (s->bucket_choice.n_times > 0)
		ct_str_addf(&text, "# dist.bucket_mib=auto has chosen %g in this run.\n",
			    (double)s->bucket_choice.bytes / (1 << 20));
	if (st == CT_OK)
		st = (path = ct_path_join(s->run_dir, "config.yaml")) ? ct_file_replace(path, text.s, text.len)
								      : CT_NOMEM;
	ct_free(path);
	ct_str_release(&text);
	return st;
}

/* Writes RUN/classes.txt if the data names its classes, so that `ctrain predict` does not need the data set. */
static enum ct_status write_classes(const struct ct_session *s)
{
	const struct ct_dataset_info *info = ct_dataset_info(s->train);
	struct ct_str text = {0};
	char *path = NULL;
	enum ct_status st;
	for (int i = 0; i < info->n_classes; i++) {
		const char *name = ct_dataset_class_name(s->train, i);
		if (name)
			ct_str_addf(&text, "%d %s\n", i, name);
	}
	st = ct_str_status(&text);
	if (st == CT_OK && text.len > 0)
		st = (path = ct_path_join(s->run_dir, "classes.txt")) ? ct_file_replace(path, text.s, text.len)
								      : CT_NOMEM;
	ct_free(path);
	ct_str_release(&text);
	return st;
}

static const char *bucket_choice_name(const struct ct_bucket_choice *c)
{
	return c->resumed ? "checkpoint" : c->n_times > 0 ? "measured" : "config";
}

static ct_json *allreduce_times(const struct ct_bucket_choice *c)
{
	ct_json *list = ct_json_array();
	for (int i = 0; i < c->n_times; i++) {
		ct_json *one = ct_json_object();
		ct_json_set_i64(one, "bytes", (int64_t)c->times[i].bytes);
		ct_json_set_f64(one, "us", 1e-3 * (double)c->times[i].ns);
		ct_json_push(list, one);
	}
	return list;
}

static ct_json *run_fields(const struct ct_session *s)
{
	ct_json *j = ct_json_object();
	const struct ct_identity *id = &s->world.id;
	char host[65] = "?";
	(void)gethostname(host, sizeof(host) - 1);
	ct_json_set_str(j, "version", CTRAIN_VERSION);
	ct_json_set_str(j, "host", host);
	ct_json_set_i64(j, "world_size", id->world);
	ct_json_set_i64(j, "ranks_per_node", id->local_world);
	ct_json_set_i64(j, "nodes", id->n_nodes);
	ct_json_set_i64(j, "stages", s->pipe ? s->pipe->stages.n : 1);
	ct_json_set_str(j, "launcher", ct_launcher_name(id->by));
	ct_json_set_str(j, "engine", ct_engine_version(s->engine));
	ct_json_set_i64(j, "threads", ct_plan_threads(s->cfg, id->local_world));
	ct_json_set_i64(j, "loader_threads",
			ct_plan_loader_threads(s->cfg, ct_dataset_info(s->train), id->local_world));
	ct_json_set_str(j, "precision", ct_precision_name(s->cfg->precision));
	ct_json_set_str(j, "backend", ct_comm_name(s->comm));
	ct_json_set_str(j, "config_digest", s->state.config_digest);
	ct_json_set_str(j, "model", ct_config_choice(s->cfg, "model.name"));
	ct_json_set_i64(j, "params", (int64_t)ct_graph_n_elems(ct_session_whole(s)));
	ct_json_set_f64(j, "forward_flops", ct_graph_flops(ct_session_whole(s)));
	ct_json_set_str(j, "data", ct_config_choice(s->cfg, "data.name"));
	ct_json_set_i64(j, "seed", s->cfg->run.seed);
	ct_json_set_i64(j, "global_batch", s->plan.global_batch);
	ct_json_set_f64(j, "lr", s->plan.lr);
	ct_json_set_i64(j, "steps_per_epoch", (int64_t)s->plan.steps_per_epoch);
	ct_json_set_i64(j, "total_steps", (int64_t)s->plan.total_steps);
	ct_json_set_i64(j, "buckets", s->n_buckets);
	ct_json_set_f64(j, "bucket_mib", (double)s->bucket_choice.bytes / (1 << 20));
	ct_json_set_str(j, "bucket_choice", bucket_choice_name(&s->bucket_choice));
	if (s->bucket_choice.n_times > 0)
		ct_json_set(j, "allreduce_times", allreduce_times(&s->bucket_choice));
	ct_json_set_i64(j, "resumed_step", (int64_t)s->state.step);
	return j;
}

static void say_stages(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_pipeline *p = s->pipe;
	struct ct_str text = {0};
	if (!p)
		return;
	for (int k = 1; k < p->stages.n; k++)
		ct_str_addf(&text, "%s%s", k > 1 ? ", " : "", ct_graph_node(p->whole, p->first[k])->name);
	ct_metrics_say(m, "  stages  %d, cut before %s; %d replica%s, %u micro-batches", p->stages.n, ct_str_text(&text),
		       p->stages.n_replicas, ct_plural(p->stages.n_replicas), s->plan.accumulate);
	ct_str_release(&text);
}

static void say_batch(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_run_plan *p = &s->plan;
	char rule[96] = "as given";
	if (s->cfg->optim.lr_rule == CT_CFG_LR_RULE_LINEAR)
		snprintf(rule, sizeof(rule), "%g x %u / %lld by the linear rule", s->cfg->optim.lr, p->global_batch,
			 (long long)s->cfg->optim.lr_base_batch);
	const char *share = s->pipe ? "replica" : "rank";
	ct_metrics_say(m, "  batch   %u per %s x %u %s%s%s = %u global; lr %g (%s)", p->per_rank, share, p->world, share,
		       ct_plural(p->world), p->accumulate > 1 ? " (accumulated)" : "", p->global_batch, p->lr, rule);
}

static void say_sizes(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_run_plan *p = &s->plan;
	struct ct_str text = {0};
	ct_str_addf(&text, "%dx%d", p->sizes[0].w, p->sizes[0].h);
	for (int i = 1; i < p->n_sizes; i++)
		ct_str_addf(&text, ", from epoch %u on %dx%d", p->sizes[i].epoch + 1, p->sizes[i].w, p->sizes[i].h);
	if (p->has_val)
		ct_str_addf(&text, "; evaluation %dx%d", p->val_input.w, p->val_input.h);
	ct_metrics_say(m, "  images  %s", ct_str_text(&text));
	ct_str_release(&text);
}

static void say_buckets(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_bucket_choice *c = &s->bucket_choice;
	struct ct_str text = {0};
	for (int i = 0; i < c->n_times; i++)
		ct_str_addf(&text, "%s%.4g MiB %.4g us", i > 0 ? ", " : "", (double)c->times[i].bytes / (1 << 20),
			    1e-3 * (double)c->times[i].ns);
	ct_metrics_say(m, "  buckets %d of %g MiB, %s; all-reduces measured in %.2f s: %s", s->n_buckets,
		       (double)c->bytes / (1 << 20), c->resumed ? "as in the checkpoint" : "chosen by measurement",
		       c->seconds, ct_str_text(&text));
	ct_str_release(&text);
}

/* The GPU, or why `device: auto` did not choose one. */
static enum ct_status say_device(const struct ct_session *s, ct_metrics_log *m)
{
	const char *libs = getenv("CTRAIN_CUDA_LIBS");
	struct ct_device_info info;
	struct ct_plan_devices d;
	CT_TRY(ct_plan_devices(s->cfg, &d));
	CT_TRY(ct_device_info(s->device, &info));
	if (strcmp(info.kind, "cuda") == 0)
		ct_metrics_say(m, "  device  cuda:%d: %s (%s), %.1f of %.1f GiB free", info.index, info.name, info.arch,
			       (double)info.free_bytes / (1 << 30), (double)info.total_bytes / (1 << 30));
	else if (d.why[0])
		ct_metrics_say(m, "  device  CPU: %s", d.why);
	if (d.skipped[0])
		ct_metrics_say(m, "  skipped %s", d.skipped);
	if (d.has_driver && d.why[0])
		CT_WARN("%s, but device=auto trains on the CPU: %s",
			libs && *libs ? "CTRAIN_CUDA_LIBS is set" : "this machine has an NVIDIA driver", d.why);
	return CT_OK;
}

static enum ct_status say_banner(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_run_plan *p = &s->plan;
	const struct ct_identity *id = &s->world.id;
	int threads = ct_plan_threads(s->cfg, id->local_world),
	    loaders = ct_plan_loader_threads(s->cfg, ct_dataset_info(s->train), id->local_world);
	ct_metrics_say(m, "ctrain " CTRAIN_VERSION "  %s on %s, %s, %d rank%s x %d thread%s (%s, %s)",
		       ct_config_choice(s->cfg, "model.name"), ct_config_choice(s->cfg, "data.name"),
		       ct_precision_name(s->cfg->precision), id->world, ct_plural(id->world), threads,
		       ct_plural(threads), ct_engine_version(s->engine), ct_comm_name(s->comm));
	ct_metrics_say(m, "  model   %zu parameters, %.2f MFLOP forward per image", ct_graph_n_elems(ct_session_whole(s)),
		       ct_graph_flops(ct_session_whole(s)) * 1e-6);
	say_stages(s, m);
	CT_TRY(say_device(s, m));
	say_batch(s, m);
	ct_metrics_say(
		m, "  data    %u training, %u evaluation samples, %d loader thread%s; %llu steps an epoch, %llu in all",
		p->train.n, p->has_val ? p->val.n : 0, loaders, ct_plural(loaders),
		(unsigned long long)p->steps_per_epoch, (unsigned long long)p->total_steps);
	if (p->encoded)
		say_sizes(s, m);
	if (s->bucket_choice.n_times > 0)
		say_buckets(s, m);
	ct_metrics_say(m, "  run     %s%s%s", s->run_dir, s->resumed_from ? ", resumed from " : "",
		       s->resumed_from ? s->resumed_from : "");
	CT_INFO("start: joined in %.3f s, data in %.3f s, compiled in %.3f s", s->join_s, s->data_s, s->compile_s);
	return CT_OK;
}

/* While a checkpoint is written, it needs space in addition to those that are kept. Checkpoints of an earlier run
 * already use space. */
static enum ct_status check_space(const struct ct_session *s)
{
	int n_states = 0;
	while (ct_optim_state_name(s->optim, n_states))
		n_states++;
	uint64_t bytes = (uint64_t)(1 + n_states + (s->ema ? 1 : 0)) * ct_net_arena_elems(s->net) * sizeof(float);
	int64_t more = s->cfg->checkpoint.keep_last + s->cfg->checkpoint.best + 1 - ct_checkpoint_count(s->run_dir);
	return ct_run_dir_check_space(s->run_dir, bytes, more > 1 ? (int)more : 1);
}

/* Compute threads spin while they wait, so training is many times slower if there are more threads than CPUs. */
static void warn_of_threads(const struct ct_session *s)
{
	int local = ct_session_local_world(s), cpus = local * ct_plan_cpus(local);
	int threads = ct_plan_threads(s->cfg, local);
	if (threads > ct_plan_cpus(local) && threads > 1)
		CT_WARN("%d rank%s x %d compute threads on %d CPU%s: with more threads than CPUs, training is many "
			"times slower; set launch.threads=%d or do not set it",
			local, ct_plural(local), threads, cpus, ct_plural(cpus), cpus / local > 0 ? cpus / local : 1);
}

static enum ct_status open_outputs(struct ct_session *s, ct_metrics_log **m)
{
	CT_TRY(check_space(s));
	CT_TRY(write_config(s));
	CT_TRY(write_classes(s));
	CT_TRY(ct_metrics_open(s->run_dir, s->state.step, s->cfg->log.tensorboard, s->cfg->log.console, m));
	if (getenv(CT_ENV_RESTART_LINE))
		CT_TRY(ct_metrics_restart(*m, getenv(CT_ENV_RESTART_LINE), s->state.step));
	CT_TRY(ct_metrics_run(*m, run_fields(s)));
	CT_TRY(say_banner(s, *m));
	warn_of_threads(s);
	return CT_OK;
}

/* The backtraces of an earlier failure would be misleading. */
static enum ct_status enable_stacks(const char *run_dir, const struct ct_identity *id)
{
	char *path;
	if (id->local_rank <= 0) /* -1: not known yet */
		CT_TRY(ct_postmortem_remove_stacks(run_dir, id->world));
	CT_TRY_ALLOC(path = ct_postmortem_stacks_path(run_dir, id->rank));
	(void)unlink(path);
	ct_stacks_enable(path);
	ct_free(path);
	return CT_OK;
}

/* Adds this rank to the report after a failure. Our launcher would do this itself. */
static void report_failure(const struct ct_identity *id, const char *run_dir, double started)
{
	struct ct_failure f = {.rank = id->rank, .pid = (int)getpid(), .status = ct_error_status(), .seq = -1};
	const struct ct_postmortem_job job = {.world = id->world, .started = started, .failure = &f};
	struct ct_rank_end end = {.rank = id->rank, .pid = (int)getpid(), .node = id->node, .wait_status = -1};
	const struct ct_black_box *box = ct_black_box_own();
	struct ct_error keep;
	char host[65] = "?";
	if (id->by == CT_LAUNCHER_CTRAIN || f.status == CT_INTERRUPTED || !box || !strstr(ct_box_phase_of(box), ", step "))
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
	ct_json_push(entries, ct_postmortem_entry(run_dir, &end, box));
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
	CT_TRY_ALLOC(path = ct_strfmt("%s/log/flight-%05d.json", s->run_dir, s->world.id.rank));
	(void)unlink(path);
	ct_watchdog_flight_file(s->watchdog, path);
	ct_free(path);
	return CT_OK;
}

static enum ct_status train(const struct ct_config *cfg, const struct ct_identity *id, const ct_run_lock *lock,
			    struct ct_step_count *steps, int signals, struct ct_stop_guard *guard)
{
	struct ct_session s = {0};
	ct_metrics_log *metrics = NULL;
	int64_t start = env_i64(CT_ENV_START_NS, ct_process_start_ns());
	CT_TRY(ct_session_create(cfg, id, true, &s));
	s.lock = lock;
	s.steps = steps;
	s.saves_before = lock ? ct_run_lock_saves_before(lock) : -1;
	if (s.saves_before < 0)
		s.saves_before = env_i64(CT_ENV_SAVES_BEFORE, -1);
	enum ct_status st = name_flight_file(&s);
	if (st == CT_OK)
		st = ct_resume(&s);
	if (st == CT_OK && id->rank == 0)
		st = open_outputs(&s, &metrics);
	ct_stop_guard_end(guard); /* from here on, a stop signal saves a checkpoint */
	if (st == CT_OK)
		st = ct_train(&s, metrics, start, signals);
	if (st < 0 && st != CT_INTERRUPTED && metrics)
		ct_metrics_failed(metrics, s.state.step, s.state.epoch, ct_seconds_since(start));
	ct_metrics_close(metrics);
	/* All ranks have agreed to stop after a signal, so they leave normally, without a failure. */
	ct_session_destroy(&s, st < 0 && st != CT_INTERRUPTED);
	return st;
}

/* *out has an element for each rank of this node, or is NULL if ctrain's launcher has not started this process. */
static enum ct_status join_steps(const struct ct_identity *id, struct ct_step_count **out)
{
	const int64_t fd = env_i64(CT_ENV_STEPS_FD, -1);
	enum ct_status st = CT_OK;
	if (getenv(CT_ENV_ERROR_FD) && fd >= 0 && fd <= INT_MAX) {
		st = ct_step_board_join((int)fd, id->local_world, out);
		close((int)fd);
	}
	unsetenv(CT_ENV_STEPS_FD);
	return st;
}

static enum ct_status open_run_dir(const struct ct_config *cfg, const struct ct_identity *id, const char *run_dir,
				   ct_run_lock **lock)
{
	if (id->rank == 0) {
		/* ctrain's launcher has already prepared the directory. */
		const bool prepared = id->by == CT_LAUNCHER_CTRAIN || id->restart > 0;
		CT_TRY(ct_run_dir_prepare(run_dir, prepared ? "auto" : cfg->train.resume));
		CT_TRY(ct_run_dir_lock(run_dir, lock));
	}
	return open_log(run_dir, id->rank);
}

/* Returns true if there were earlier starts of the same Slurm job, and none of them has saved a checkpoint. */
static bool has_no_progress(const ct_run_lock *lock, const char *run_dir)
{
	const int64_t before = ct_run_lock_saves_before(lock);
	return before >= 0 && ct_checkpoint_newest_save(run_dir) <= (uint64_t)before;
}

enum ct_status ct_worker_run(const struct ct_config *cfg, const struct ct_identity *id)
{
	(void)prctl(PR_SET_NAME,
		    "ctrain"); /* otherwise ps and top would show "exe", because the launcher executes /proc/self/exe */
	ct_run_lock *lock = NULL;
	struct ct_step_count *steps = NULL;
	int signals = -1;
	struct ct_stop_guard guard = {0};
	ct_nccl_log *nccl_log = NULL; /* NULL: NCCL is not used, or its messages are not wanted */
	struct ct_slurm_limit limit = {0};
	struct ct_slurm_job job;
	char *run_dir = NULL;
	const double started = ct_wall_seconds();
	const char *box = getenv(CT_ENV_BLACK_BOX);
	enum ct_status st;
	ct_black_box_join(box && box[0] ? box : NULL);
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
		st = ct_slurm_limit_start(&limit, &job, cfg->launch.stop_before);
	if (st == CT_OK)
		st = enable_stacks(run_dir, id);
	if (st == CT_OK)
		st = ct_nccl_log_start(nccl_log);
	if (st == CT_OK)
		st = join_steps(id, &steps);
	if (st == CT_OK)
		st = train(cfg, id, lock, steps ? &steps[id->local_rank] : NULL, signals, &guard);
	/* The job continues by itself, so Slurm must not start it again. */
	requeues = requeues && !(steps && atomic_load(&steps[id->local_rank].regrouped));
	ct_step_board_release(steps, id->local_world);
	ct_stop_guard_end(&guard);
	ct_nccl_log_close(nccl_log);
	ct_slurm_limit_stop(&limit);
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
