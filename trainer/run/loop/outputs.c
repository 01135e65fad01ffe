/* The order matters. Space is checked first, so that a run that cannot save does not start. Files that describe the
 * run are replaced as a whole. A report of NaN values from an earlier failure is removed. Then the metrics are opened,
 * cut at the resumed step, and get the line of the restart, if the launcher has given one, before the `run` line. The
 * banner comes last: when the user sees it, the files are there. Only rank 0 comes here, after ct_resume. */
#define CT_LOG_COMPONENT "worker"
#include "trainer/run/loop/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "trainer/job/launch_env.h"
#include "trainer/job/run_dir.h"
#include "trainer/job/version.h"
#include "trainer/plan/cpus.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/precision.h"
#include "trainer/run/diagnose/nan_report.h"
#include "trainer/run/loop/fine_tuning.h"

static enum ct_status write_config(const struct ct_session *s)
{
	struct ct_str text = {0};
	char *path = NULL;
	enum ct_status st = ct_config_dump(s->cfg, true, &text);

	if (s->grad.choice.n_times > 0)
		ct_str_addf(&text, "# dist.bucket_mib=auto has chosen %g in this run.\n",
			    (double)s->grad.choice.bytes / (1 << 20));
	if (st == CT_OK)
		st = (path = ct_path_join(s->run.dir, "config.yaml")) ? ct_file_replace(path, text.s, text.len)
								      : CT_NOMEM;
	ct_free(path);
	ct_str_release(&text);
	return st;
}

/* Writes RUN/classes.txt if the data names its classes, so that `ctrain predict` does not need the data set. */
static enum ct_status write_classes(const struct ct_session *s)
{
	const struct ct_dataset_info *info = ct_dataset_info(s->data.train);
	struct ct_str text = {0};
	char *path = NULL;
	enum ct_status st;

	for (int i = 0; i < info->n_classes; i++) {
		const char *name = ct_dataset_class_name(s->data.train, i);

		if (name)
			ct_str_addf(&text, "%d %s\n", i, name);
	}
	st = ct_str_status(&text);
	if (st == CT_OK && text.len > 0)
		st = (path = ct_path_join(s->run.dir, "classes.txt")) ? ct_file_replace(path, text.s, text.len)
								      : CT_NOMEM;
	ct_free(path);
	ct_str_release(&text);
	return st;
}

static enum ct_status write_net_plan(const struct ct_session *s)
{
	char *path;

	if (!s->run.net_plan)
		return CT_OK;
	CT_TRY_ALLOC(path = ct_path_join(s->run.dir, "plan.txt"));
	const enum ct_status st = ct_file_replace(path, s->run.net_plan, strlen(s->run.net_plan));
	ct_free(path);
	return st;
}

static const char *bucket_choice_name(const struct ct_session *s)
{
	const struct ct_bucket_choice *c = &s->grad.choice;

	return c->resumed                    ? "checkpoint"
	       : c->n_times > 0              ? "measured"
	       : s->cfg->dist.bucket_mib > 0 ? "config"
					     : "default";
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
	char host[65] = "?", plan_digest[65] = "";

	(void)gethostname(host, sizeof(host) - 1);
	if (s->run.net_plan && ct_net_plan_digest(&s->net_plan, plan_digest) < 0)
		ct_error_clear();
	ct_json_set_str(j, "version", CTRAIN_VERSION);
	if (ct_version_commit()[0])
		ct_json_set_str(j, "commit", ct_version_commit());
	ct_json_set_str(j, "host", host);
	ct_json_set_i64(j, "world_size", id->world);
	ct_json_set_i64(j, "ranks_per_node", id->local_world);
	ct_json_set_i64(j, "nodes", id->n_nodes);
	ct_json_set_i64(j, "stages", s->pipe ? s->pipe->stages.n : 1);
	ct_json_set_str(j, "launcher", ct_launcher_name(id->by));
	ct_json_set_str(j, "engine", ct_engine_version(s->engine));
	ct_json_set_i64(j, "threads", ct_plan_threads(s->cfg, id->local_world));
	ct_json_set_i64(j, "loader_threads",
			ct_plan_loader_threads(s->cfg, ct_dataset_info(s->data.train), id->local_world));
	if (s->run.net_plan)
		ct_json_set_str(j, "plan_digest", plan_digest);
	ct_json_set_str(j, "precision", ct_precision_name(s->plan.net.precision));
	ct_json_set_str(j, "backend", ct_comm_name(s->comm));
	ct_json_set_str(j, "config_digest", s->state.config_digest);
	ct_json_set_str(j, "model", ct_config_choice(s->cfg, "model.name"));
	ct_json_set_i64(j, "params", (int64_t)ct_graph_n_elems(ct_session_whole(s)));
	ct_json_set_i64(j, "trained_params", (int64_t)ct_fine_tuning_params(s));
	ct_json_set_f64(j, "forward_flops", ct_graph_flops(ct_session_whole(s)));
	ct_json_set_str(j, "data", ct_config_choice(s->cfg, "data.name"));
	ct_json_set_i64(j, "seed", s->cfg->run.seed);
	ct_json_set_i64(j, "global_batch", s->plan.global_batch);
	ct_json_set_f64(j, "lr", s->plan.lr);
	ct_json_set_i64(j, "steps_per_epoch", (int64_t)s->plan.steps_per_epoch);
	ct_json_set_i64(j, "total_steps", (int64_t)s->plan.total_steps);
	ct_json_set_i64(j, "buckets", s->grad.n_buckets);
	ct_json_set_f64(j, "bucket_mib", (double)s->grad.choice.bytes / (1 << 20));
	ct_json_set_str(j, "bucket_choice", bucket_choice_name(s));
	if (s->grad.choice.n_times > 0)
		ct_json_set(j, "allreduce_times", allreduce_times(&s->grad.choice));
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
	ct_metrics_say(m, "  stages  %d, cut before %s; %d replica%s, %u micro-batch%s", p->stages.n,
		       ct_str_text(&text), p->stages.n_replicas, ct_plural(p->stages.n_replicas), s->plan.accumulate,
		       s->plan.accumulate == 1 ? "" : "es");
	ct_str_release(&text);
}

static void say_batch(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_run_plan *p = &s->plan;
	char rule[96] = "";

	if (s->cfg->optim.lr_rule == CT_CFG_LR_RULE_LINEAR)
		snprintf(rule, sizeof(rule), " (%g x %u / %lld by the linear rule)", s->cfg->optim.lr, p->global_batch,
			 (long long)s->cfg->optim.lr_base_batch);
	const char *share = s->pipe ? "replica" : "rank";
	ct_metrics_say(m, "  batch   %u per %s x %u %s%s%s = %u global; lr %g%s", p->per_rank, share, p->world, share,
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

static void say_buckets(const struct ct_session_grad *g, ct_metrics_log *m)
{
	const struct ct_bucket_choice *c = &g->choice;
	struct ct_str text = {0};

	for (int i = 0; i < c->n_times; i++)
		ct_str_addf(&text, "%s%.4g MiB %.1f us", i > 0 ? ", " : "", (double)c->times[i].bytes / (1 << 20),
			    1e-3 * (double)c->times[i].ns);
	ct_metrics_say(m, "  buckets %d of %g MiB, %s; all-reduces measured in %.2f s: %s", g->n_buckets,
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

/* Without explicit threads, each rank has at least one, even if there are more ranks than CPUs. Other launchers may
 * have given each rank CPUs of its own. A pipeline has a rank for each stage, so fewer ranks may be impossible. */
static void say_crowding(const struct ct_session *s, ct_metrics_log *m)
{
	const int local = ct_session_local_world(s), cpus = ct_cpu_count();
	struct ct_device_info info;
	char advice[48] = "";

	if (s->world.id.by != CT_LAUNCHER_CTRAIN || local <= cpus || ct_device_info(s->device, &info) < 0 ||
	    strcmp(info.kind, "cpu") != 0)
		return;
	if (!s->pipe)
		snprintf(advice, sizeof(advice), ": --procs %d would be faster", cpus);
	ct_metrics_say(m, "  cpus    %d ranks share %d CPU%s%s", local, cpus, ct_plural(cpus), advice);
}

static enum ct_status say_banner(const struct ct_session *s, ct_metrics_log *m)
{
	const struct ct_run_plan *p = &s->plan;
	const struct ct_identity *id = &s->world.id;
	int threads = ct_plan_threads(s->cfg, id->local_world),
	    loaders = ct_plan_loader_threads(s->cfg, ct_dataset_info(s->data.train), id->local_world);

	ct_metrics_say(m, "ctrain %s  %s on %s, %s, %d rank%s x %d thread%s (%s, %s)", ct_version(),
		       ct_config_choice(s->cfg, "model.name"), ct_config_choice(s->cfg, "data.name"),
		       ct_precision_name(p->net.precision), id->world, ct_plural(id->world), threads,
		       ct_plural(threads), ct_engine_version(s->engine), ct_comm_name(s->comm));
	const double flops = ct_graph_flops(ct_session_whole(s));
	char params[32];
	ct_metrics_say(m, "  model   %s parameters, %.3g %s forward per image",
		       ct_console_grouped(ct_graph_n_elems(ct_session_whole(s)), params, sizeof(params)),
		       flops < 1e9 ? flops * 1e-6 : flops * 1e-9, flops < 1e9 ? "MFLOP" : "GFLOP");
	ct_fine_tuning_say(s, m);
	say_stages(s, m);
	CT_TRY(say_device(s, m));
	if (ct_plan_precision_note(s->cfg))
		ct_metrics_say(m, "  format  %s (%s)", ct_precision_name(p->net.precision),
			       ct_plan_precision_note(s->cfg));
	say_crowding(s, m);
	say_batch(s, m);
	ct_metrics_say(
		m, "  data    %u training, %u evaluation samples, %d loader thread%s; %llu steps an epoch, %llu in all",
		p->train.n, p->has_val ? p->val.n : 0, loaders, ct_plural(loaders),
		(unsigned long long)p->steps_per_epoch, (unsigned long long)p->total_steps);
	if (p->encoded)
		say_sizes(s, m);
	if (s->grad.choice.n_times > 0)
		say_buckets(&s->grad, m);
	ct_metrics_say(m, "  run     %s%s%s", s->run.dir, s->start.resumed_from ? ", resumed from " : "",
		       s->start.resumed_from ? s->start.resumed_from : "");
	CT_INFO("start: joined in %.3f s, data in %.3f s, compiled in %.3f s", s->start.join_s, s->start.data_s,
		s->start.compile_s);
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
	int64_t more = s->cfg->checkpoint.keep_last + s->cfg->checkpoint.best + 1 - ct_checkpoint_count(s->run.dir);
	return ct_run_dir_check_space(s->run.dir, bytes, more > 1 ? (int)more : 1);
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

enum ct_status ct_outputs_open(struct ct_session *s, ct_metrics_log **m)
{
	CT_TRY(check_space(s));
	CT_TRY(write_config(s));
	CT_TRY(write_classes(s));
	CT_TRY(write_net_plan(s));
	CT_TRY(ct_nan_report_remove(s->run.dir));
	CT_TRY(ct_metrics_open(s->run.dir, s->state.step, s->cfg->log.tensorboard, s->start.console, m));
	if (ct_metrics_has_board(*m))
		CT_TRY(ct_metrics_hparams(*m, s->run.config_lines));
	if (getenv(CT_ENV_RESTART_LINE))
		CT_TRY(ct_metrics_restart(*m, getenv(CT_ENV_RESTART_LINE), s->state.step));
	CT_TRY(ct_metrics_run(*m, run_fields(s)));
	CT_TRY(say_banner(s, *m));
	warn_of_threads(s);
	return CT_OK;
}
