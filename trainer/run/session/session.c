/* A session is built in the order in which its parts need each other, and users are destroyed before what they use;
 * watchdog and communicators point into it, so it must not be moved. The data is opened by a thread while this one
 * joins the world and opens the engine. A failure on the way destroys what exists, after it has been reported to the
 * other ranks, and leaves *out zeroed.
 *
 * Memory may be freed only when no posted work uses it. After a failure that work may wait for ranks that are gone.
 * ct_session_drain therefore waits for one second, then reports the failure and aborts the collectives. The watchdog is
 * told before the world is left, and communicators are removed from it before they are closed. */
#include "trainer/run/session/session.h"

#include <string.h>

#include "base/clock.h"
#include "trainer/plan/describe.h"
#include "trainer/run/session/resident.h"
#include "trainer/run/session/session_data.h"
#include "trainer/run/session/session_plan_impl.h"
#include "trainer/run/session/session_reducer.h"
#include "trainer/run/session/session_world_impl.h"
#include "trainer/run/session/step_clock.h"

void ct_session_phase(struct ct_session *s, enum ct_rank_phase phase, uint64_t step)
{
	if (ct_rank_page_enter(phase, (int64_t)step) && s->watchdog)
		ct_watchdog_beat(s->watchdog);
}

enum ct_status ct_session_stopped(struct ct_session *s, bool more_nodes)
{
	const unsigned long long step = s->state.step;

	if (more_nodes) {
		ct_rank_page_fulfill(ct_rank_page_own(), CT_REQUEST_REGROUP);
		return CT_FAIL(CT_INTERRUPTED, "stopped at step %llu to continue with more nodes", step);
	}
	CT_FAIL(CT_INTERRUPTED, "stopped by a signal at step %llu; the checkpoint is saved", step);
	/* Our launcher prints the message of one rank, but srun or mpirun may collect those of thousands. */
	if (s->world.id.rank > 0 && s->world.id.by != CT_LAUNCHER_CTRAIN)
		ct_error_because(CT_REASON_REPORTED);
	return ct_error_hint("%s to continue", ct_plan_how_to_resume(s->cfg));
}

static enum ct_status broadcast(ct_comm *c, void *buf, size_t bytes)
{
	ct_work *w = NULL;

	CT_TRY(ct_comm_broadcast(c, buf, bytes, CT_U8, 0, &w));
	return ct_work_wait(w);
}

enum ct_status ct_session_broadcast(struct ct_session *s, void *buf, size_t bytes)
{
	return broadcast(s->comm, buf, bytes);
}

enum ct_status ct_session_broadcast_arena(struct ct_session *s, ct_arena *a)
{
	enum ct_mirror_access access = ct_comm_rank(s->group) == 0 ? CT_MIRROR_READ : CT_MIRROR_WRITE;
	struct ct_mirror m;

	CT_TRY(ct_mirror_open(a, access, ct_engine_stream(s->engine), &m));
	enum ct_status st = broadcast(s->group, m.data, ct_arena_bytes(a));
	if (st < 0) {
		ct_mirror_drop(&m);
		return st;
	}
	return ct_mirror_close(&m);
}

enum ct_status ct_session_share_weights(struct ct_session *s)
{
	CT_TRY(ct_session_broadcast_arena(s, ct_net_params(s->net)));
	return ct_session_broadcast_arena(s, ct_net_buffers(s->net));
}

/* Synchronized batch norm. Every rank posts these sums and its buckets in the same order. If one communicator serves
 * the streams of both, they also run in this order. */
static enum ct_status sum_statistics(void *user, double *v, size_t n, ct_stream *stream)
{
	struct ct_session *s = user;

	if (s->clock)
		CT_TRY(ct_step_clock_pause_phase(s->clock));
	if (!s->norm_comm && s->grad.reducer)
		CT_TRY(ct_reducer_join(s->grad.reducer, stream));
	CT_TRY(ct_comm_post_allreduce(s->norm_comm ? s->norm_comm : s->group, v, n, CT_F64, CT_SUM, stream));
	return s->clock ? ct_step_clock_resume_phase(s->clock) : CT_OK;
}

static void show_tuning(void *user, size_t done, size_t total)
{
	const struct ct_session_start *start = user;

	if (!start->compiled)
		ct_console_count(start->console, "tuning convolutions", done, total);
}

static void show_compiling(const struct ct_session *s)
{
	const struct ct_run_plan *p = &s->plan;

	ct_console_stage(s->start.console, "compiling %s for %ux%dx%dx%d", ct_config_choice(s->cfg, "model.name"),
			 p->micro_rows, p->input.c, p->input.h, p->input.w);
}

/* Makes the plan, the graph and the net for the open data sets. */
static enum ct_status build_model(struct ct_session *s, bool train)
{
	const struct ct_dataset_info *vi = s->data.val ? ct_dataset_info(s->data.val) : NULL;
	const struct ct_dataset_info *ti = s->data.train ? ct_dataset_info(s->data.train) : vi;

	if (!ti)
		return CT_FAIL(CT_CONFIG, "data.val is none, so there is no evaluation data");
	CT_TRY(ct_run_plan_make(s->cfg, (uint32_t)ct_session_n_replicas(s), train ? ti : NULL, vi, &s->plan));
	s->plan.net.train = train;
	ct_run_plan_reduce(s->cfg, s->device, &s->plan);
	if (!train)
		s->plan.net.batch = (int)s->plan.eval_rows;
	if (s->cfg->model.bn == CT_CFG_BN_SYNC && ct_session_n_replicas(s) > 1) {
		s->plan.net.sync = sum_statistics;
		s->plan.net.sync_user = s;
	}
	s->plan.net.self_check = train && ct_plan_self_checks(s->cfg, 1, s->plan.total_steps);
	if (train && ct_session_is_root(s)) {
		s->plan.net.tuning = show_tuning;
		s->plan.net.tuning_user = &s->start;
	}
	if (train)
		show_compiling(s);
	CT_TRY(ct_plan_check_precision(s->cfg, s->engine));
	CT_TRY(ct_session_graph(s, train ? s->plan.input : s->plan.val_input, &s->model.graph));
	if (train)
		CT_TRY(ct_plan_check_sizes(s->cfg, ti, &s->plan, ct_session_whole(s)));
	if (s->pipe)
		ct_pipeline_net_opts(&s->pipe->stages, s->plan.accumulate, &s->plan.net);
	if (train) {
		CT_TRY(ct_plan_class_weights(s->cfg, s->data.train, &s->data.class_weights));
		s->plan.net.class_weights = s->data.class_weights;
		s->plan.net.n_class_weights = s->data.class_weights ? ti->n_classes : 0;
	}
	CT_TRY(ct__session_agree_on_plan(s, train));
	return ct_net_create(s->engine, s->model.graph, &s->plan.net, &s->net);
}

static enum ct_status build_training(struct ct_session *s)
{
	CT_TRY(ct_session_build_reducer(s));
	ct_device_purpose(s->device, "optimizer states");
	CT_TRY(ct_optim_create(s->net, &s->plan.optim, &s->optim));
	ct_optim_watch_loss(s->optim, s->grad.scalars, CT_SCALAR_LOSS);
	if (s->pipe)
		ct_optim_sum_stages(s->optim, ct_pipeline_sum_stages, s->pipe);
	CT_TRY(ct_optim_place_result(s->optim, ct_arena_at(s->grad.scalars, CT_SCALAR_UPDATE)));
	CT_TRY(ct_net_init(s->net, s->plan.init, (uint64_t)s->cfg->run.seed));
	ct_device_purpose(s->device, "EMA weights");
	if (s->cfg->train.ema > 0)
		CT_TRY(ct_ema_create(s->net, s->cfg->train.ema, &s->ema));
	ct_device_purpose(s->device, NULL);
	s->model.full_shape = s->plan.input;
	if (s->pipe)
		CT_TRY(ct_pipeline_reserve(s->pipe, s->model.graph, (int)s->plan.micro_rows));
	const enum ct_status st = ct_program_create(s->net, (int)s->plan.micro_rows, CT_TRAIN, &s->model.full);
	s->start.compiled = true;
	return st;
}

enum ct_status ct_session_resize(struct ct_session *s, struct ct_shape input)
{
	ct_program_destroy(s->model.full); /* first, because the new program reuses its memory */
	ct_graph_destroy(s->model.size_graph);
	s->model.full = NULL;
	s->model.size_graph = NULL;
	s->model.full_shape = input;
	if (input.h != s->plan.input.h || input.w != s->plan.input.w)
		CT_TRY(ct_session_graph(s, input, &s->model.size_graph));
	const ct_graph *g = ct_session_train_graph(&s->model);
	if (s->pipe)
		CT_TRY(ct_pipeline_reserve(s->pipe, g, (int)s->plan.micro_rows));
	return ct_program_create_for(s->net, g, (int)s->plan.micro_rows, CT_TRAIN, &s->model.full);
}

static enum ct_status name_run(struct ct_session *s)
{
	CT_TRY_ALLOC(s->run.dir = ct_plan_run_dir(s->cfg));
	struct ct_str lines = {0};
	CT_TRY(ct_config_lines(s->cfg, &lines));
	s->run.config_lines = ct_strdup(ct_str_text(&lines));
	ct_str_release(&lines);
	if (!s->run.config_lines)
		return CT_NOMEM;
	return ct_config_digest(s->cfg, s->state.config_digest);
}

static enum ct_status describe(struct ct_session *s)
{
	struct ct_str text = {0};
	enum ct_status st = ct_plan_describe_data(s->cfg, s->data.train, &s->plan, &text);

	s->run.description = text.s;
	return st;
}

static enum ct_status open_engine(struct ct_session *s)
{
	int threads = ct_plan_threads(s->cfg, ct_session_local_world(s));

	return ct_engine_open(s->cfg->train.engine, s->device, threads, &s->engine);
}

static void note_digests(struct ct_session *s)
{
	ct_graph_digest(ct_session_whole(s), s->state.graph_digest);
	if (s->data.train)
		ct_dataset_digest(s->data.train, s->state.data_digest);
	s->state.best_top1 = s->state.last_top1 = s->state.last_loss = -1;
	s->state.loss_scale = s->state.lr_scale = 1;
	s->state.seed = s->cfg->run.seed;
	s->state.world = (uint32_t)s->world.id.world;
	s->state.global_batch = s->plan.global_batch;
}

enum ct_status ct_session_create(const struct ct_config *cfg, const struct ct_identity *id, bool train,
				 struct ct_session *out)
{
	struct ct_session *s = out; /* built in place, because watchdog and communicator keep pointers to s->world */
	struct ct_data_opening data = {0};
	enum ct_status st;
	int64_t t0 = ct_now_ns();

	*s = (struct ct_session){.cfg = cfg, .start = out->start};
	ct_console_stage(s->start.console, "reading data: %s%s%s", ct_config_choice(cfg, "data.name"),
			 cfg->data.dir[0] ? " in " : "", cfg->data.dir);
	CT_TRY_GOTO(name_run(s), st, fail);
	CT_TRY_GOTO(ct_data_opening_start(&data, cfg, !train, id && id->local_rank > 0), st, fail);
	CT_TRY_GOTO(ct__session_open_world(s, id), st, fail_data);
	s->start.join_s = ct_seconds_since(t0);
	CT_TRY_GOTO(open_engine(s), st, fail_data);
	CT_TRY_GOTO(ct_data_opening_finish(&data, &s->data.train, &s->data.val), st, fail);
	s->start.data_s = data.seconds;
	(void)ct_rank_page_enter(CT_RANK_COMPILING, -1);
	t0 = ct_now_ns();
	CT_TRY_GOTO(build_model(s, train), st, fail);
	note_digests(s);
	if (id)
		CT_TRY_GOTO(ct__session_agree_on_work(s), st, fail);
	CT_TRY_GOTO(ct_resident_place(s), st, fail);
	if (train)
		CT_TRY_GOTO(build_training(s), st, fail);
	if (train && ct_session_is_root(s))
		CT_TRY_GOTO(describe(s), st, fail);
	s->start.compile_s = ct_seconds_since(t0);
	return CT_OK;

fail_data:
	ct_thread_join(&data.thread);
	ct_dataset_close(data.train);
	ct_dataset_close(data.val);
fail:
	ct_session_destroy(s, true);
	return st;
}

void ct_session_drain(struct ct_session *s)
{
	struct ct_error keep;

	if (!s->device || !ct_device_caps(s->device)->async)
		return;
	ct_error_save(&keep);
	if (s->watchdog && s->comm && ct_device_sync(s->device, ct_deadline_in(CT_SEC)) == CT_TIMEOUT) {
		if (keep.status < 0)
			(void)ct_error_restore(&keep);
		ct_watchdog_report(s->watchdog);
		ct_comm_abort(s->comm, NULL);
		if (s->group != s->comm)
			ct_comm_abort(s->group, NULL);
		if (s->norm_comm)
			ct_comm_abort(s->norm_comm, NULL);
	}
	ct_error_clear();
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
	ct_device_drain(s->device);
}

void ct_session_destroy(struct ct_session *s, bool failed)
{
	struct ct_error keep;

	ct_error_save(
		&keep); /* cleaning up must not lose the error chain, which also exists after a stop by a signal */
	if (failed && s->watchdog)
		ct_watchdog_report(s->watchdog);
	ct_session_drain(s);
	ct_program_destroy(s->model.eval);
	ct_program_destroy(s->model.full);
	ct_ema_destroy(s->ema);
	ct_optim_destroy(s->optim);
	ct_reducer_destroy(s->grad.reducer);
	ct_net_destroy(s->net);
	ct_resident_release(s->device, &s->data);
	ct_session_release_grad(s->device, &s->grad);
	if (s->watchdog) {
		ct_watchdog_remove_comm(s->watchdog, s->norm_comm);
		ct_watchdog_remove_comm(s->watchdog, s->group);
		ct_watchdog_remove_comm(s->watchdog, s->comm);
	}
	ct_comm_close(s->norm_comm);
	if (s->group != s->comm)
		ct_comm_close(s->group);
	ct_comm_close(s->comm); /* before the memory of its messages is freed */
	ct_pipeline_destroy(s->pipe);
	ct_engine_close(s->engine);
	ct_graph_destroy(s->model.val_graph);
	ct_graph_destroy(s->model.size_graph);
	ct_graph_destroy(s->model.graph);
	ct_free((void *)s->data.val_bad);
	ct_dataset_close(s->data.val);
	ct_dataset_close(s->data.train);
	ct_device_close(s->device);
	ct_watchdog_stop(s->watchdog);
	ct_world_leave(&s->world, failed);
	ct_free(s->start.resumed_from);
	ct_free(s->data.class_weights);
	ct_net_plan_release(&s->net_plan);
	ct_free(s->run.config_lines);
	ct_free(s->run.net_plan);
	ct_free(s->run.description);
	ct_free(s->run.dir);
	memset(s, 0, sizeof(*s));
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}
