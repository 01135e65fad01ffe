#define CT_LOG_COMPONENT "session"
#include "trainer/loop/session.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "trainer/loop/session_data.h"

static double seconds_since(int64_t t0)
{
	return (double)(ct_now_ns() - t0) * 1e-9;
}

void ct_session_phase(struct ct_session *s, const char *phase, uint64_t step)
{
	if (s->watchdog)
		ct_watchdog_phase(s->watchdog, "%s, step %llu", phase, (unsigned long long)step);
}

enum ct_status ct_session_broadcast(struct ct_session *s, void *buf, size_t bytes)
{
	ct_work *w = NULL;
	CT_TRY(ct_comm_broadcast(s->comm, buf, bytes, CT_U8, 0, &w));
	return ct_work_wait(w);
}

enum ct_status ct_session_share_weights(struct ct_session *s)
{
	CT_TRY(ct_session_broadcast(s, ct_net_params(s->net), ct_net_arena_elems(s->net) * sizeof(float)));
	return ct_session_broadcast(s, ct_net_buffers(s->net), ct_net_buffers_elems(s->net) * sizeof(float));
}

/* Batch norm over ranks. Buckets that are under way were posted before, on every rank in the same order. */
static enum ct_status sum_statistics(void *user, double *v, size_t n)
{
	ct_work *w = NULL;
	CT_TRY(ct_comm_allreduce(user, v, n, CT_F64, CT_SUM, &w));
	return ct_work_wait(w);
}

/* Graph, net and plan from open data sets. */
static enum ct_status build_model(struct ct_session *s, bool train)
{
	const struct ct_dataset_info *vi = s->val ? ct_dataset_info(s->val) : NULL;
	const struct ct_dataset_info *ti = s->train ? ct_dataset_info(s->train) : vi;
	if (!ti)
		return CT_FAIL(CT_CONFIG, "data.val is none: there is nothing to evaluate on");
	CT_TRY(ct_run_plan_make(s->cfg, (uint32_t)s->world.id.world, train ? ti : NULL, vi, &s->plan));
	s->plan.net.train = train;
	if (!train)
		s->plan.net.batch = (int)s->plan.eval_rows;
	if (s->cfg->model.bn == CT_CFG_BN_SYNC && s->world.id.world > 1) {
		s->plan.net.sync = sum_statistics;
		s->plan.net.sync_user = s->comm;
	}
	CT_TRY(ct_plan_check_precision(s->cfg, s->engine));
	CT_TRY(ct_plan_graph(s->cfg, ti, train ? s->plan.input : s->plan.val_input, &s->graph));
	if (train)
		CT_TRY(ct_plan_check_sizes(s->cfg, ti, &s->plan, s->graph));
	return ct_net_create(s->engine, s->graph, &s->plan.net, &s->net);
}

static enum ct_status build_buckets(struct ct_session *s)
{
	CT_TRY(ct_plan_buckets(s->cfg, s->net, &s->buckets, &s->n_buckets));
	/* The tail rides in the last bucket, up to and behind the arena's end. */
	struct ct_bucket *last = &s->buckets[s->n_buckets - 1];
	last->n = ct_net_arena_elems(s->net) + CT_TAIL_N - last->offset;
	return CT_OK;
}

static enum ct_status build_training(struct ct_session *s)
{
	size_t elems = ct_net_arena_elems(s->net);
	void *grads = NULL;
	CT_TRY(ct_comm_mem_alloc(s->comm, (elems + CT_TAIL_N) * sizeof(float), &grads));
	s->tail = (float *)grads + elems;
	CT_TRY(ct_net_bind_grads(s->net, grads));
	CT_TRY(build_buckets(s));
	CT_TRY(ct_reducer_create(s->comm, grads, s->buckets, s->n_buckets, &s->reducer));
	CT_TRY(ct_optim_create(s->net, &s->plan.optim, &s->optim));
	CT_TRY(ct_net_init(s->net, s->plan.init, (uint64_t)s->cfg->run.seed));
	if (s->cfg->train.ema > 0)
		CT_TRY(ct_ema_create(s->net, s->cfg->train.ema, &s->ema));
	s->full_shape = s->plan.input;
	return ct_program_create(s->net, (int)s->plan.micro_rows, CT_TRAIN, &s->full);
}

enum ct_status ct_session_resize(struct ct_session *s, struct ct_shape input)
{
	ct_program_destroy(s->full); /* first: the new one takes its memory */
	ct_graph_destroy(s->size_graph);
	s->full = NULL;
	s->size_graph = NULL;
	s->full_shape = input;
	if (input.h == s->plan.input.h && input.w == s->plan.input.w)
		return ct_program_create(s->net, (int)s->plan.micro_rows, CT_TRAIN, &s->full);
	CT_TRY(ct_plan_graph(s->cfg, ct_dataset_info(s->train), input, &s->size_graph));
	return ct_program_create_for(s->net, s->size_graph, (int)s->plan.micro_rows, CT_TRAIN, &s->full);
}

/* A rank whose heart has never beaten since it joined; the blame of dist/ does not judge it. */
static bool find_mute(struct ct_session *s, struct ct_failure *out)
{
	struct ct_member_state *m = NULL;
	int n = 0, found = -1;
	if (ct_store_members(s->world.store, &m, &n) < 0)
		return false;
	for (int i = 0; i < n && found < 0; i++)
		if (m[i].rank != s->world.id.rank && m[i].connected && m[i].beat_age_s < 0)
			found = i;
	if (found >= 0) {
		snprintf(out->message, sizeof(out->message),
			 "rank %d (pid %d on host %s) has joined and not been heard of since", m[found].rank,
			 m[found].pid, m[found].host);
		snprintf(out->hint, sizeof(out->hint), "is it stopped, or its host? See `ps -o stat,wchan -p %d` on %s",
			 m[found].pid, m[found].host);
	}
	ct_free(m);
	return found >= 0;
}

/* The store knows which key is missing; its heartbeats know whose fault that is. */
static enum ct_status name_late(struct ct_session *s)
{
	struct ct_error late;
	struct ct_failure f = {0};
	ct_error_save(&late);
	if (ct_world_attribute_failure(&s->world, -1, &f) != CT_OK && !find_mute(s, &f))
		return ct_error_restore(&late);
	ct_error_set(CT_TIMEOUT, __FILE__, __LINE__, "start: %s", f.message);
	if (f.hint[0])
		ct_error_hint("%s", f.hint);
	return CT_TIMEOUT;
}

/* Takes lines. */
static enum ct_status agree(struct ct_session *s, struct ct_str *lines)
{
	enum ct_status st = ct_str_status(lines);
	if (st == CT_OK)
		st = ct_world_agree(&s->world, "start", ct_str_text(lines),
				    ct_deadline_in((int64_t)(s->cfg->dist.rendezvous_timeout * 1e9)));
	ct_str_release(lines);
	return st == CT_TIMEOUT ? name_late(s) : st;
}

/* Before the ranks open a communicator: they must mean the same one. */
static enum ct_status agree_on_config(struct ct_session *s)
{
	struct ct_str lines = {0};
	ct_str_addf(&lines, "version=%s\n", CTRAIN_VERSION);
	if (ct_config_run_lines(s->cfg, &lines) < 0)
		lines.failed = true;
	return agree(s, &lines);
}

static enum ct_status agree_on_work(struct ct_session *s)
{
	char layout[65], val[65] = "none";
	struct ct_str lines = {0};
	ct_net_layout_digest(s->net, layout);
	if (s->val)
		ct_dataset_digest(s->val, val);
	ct_str_addf(&lines, "engine=%s\nmodel graph=%s\ntraining data=%s\nevaluation data=%s\nparameter layout=%s\n",
		    ct_engine_version(s->engine), s->state.graph_digest, s->state.data_digest, val, layout);
	return agree(s, &lines);
}

static enum ct_status open_world(struct ct_session *s, const struct ct_identity *id)
{
	const struct ct_config *c = s->cfg;
	struct ct_world_opts wo = {.run_id = ct_plan_run_id(c, id->run_id),
				   .run_dir = s->run_dir,
				   .open_network = c->dist.open_network,
				   .timeout_ns = (int64_t)(c->dist.rendezvous_timeout * 1e9)};
	CT_TRY(ct_world_join(id, &wo, &s->world));
	if (id->world > 1)
		CT_TRY(ct_watchdog_start(&s->world, &s->watchdog));
	ct_failpoint("startup");
	CT_TRY(agree_on_config(s));
	struct ct_comm_opts co = {.timeout_ns = (int64_t)(c->dist.timeout * 1e9),
				  .iface = c->dist.iface[0] ? c->dist.iface : NULL};
	CT_TRY(ct_comm_open(c->dist.backend, &s->world, &co, &s->comm));
	if (s->watchdog)
		ct_watchdog_set_comm(s->watchdog, s->comm);
	return CT_OK;
}

static enum ct_status name_run(struct ct_session *s)
{
	CT_TRY_ALLOC(s->run_dir = ct_plan_run_dir(s->cfg));
	struct ct_str lines = {0};
	CT_TRY(ct_config_lines(s->cfg, &lines));
	s->config_lines = ct_strdup(ct_str_text(&lines));
	ct_str_release(&lines);
	if (!s->config_lines)
		return CT_NOMEM;
	return ct_config_digest(s->cfg, s->state.config_digest);
}

static enum ct_status open_compute(struct ct_session *s)
{
	CT_TRY(ct_plan_device_open(s->cfg, s->world.id.local_rank, &s->device));
	int threads = ct_plan_threads(s->cfg, s->world.id.local_world > 0 ? s->world.id.local_world : 1);
	return ct_engine_open(s->cfg->train.engine, s->device, threads, &s->engine);
}

static void note_digests(struct ct_session *s)
{
	ct_graph_digest(s->graph, s->state.graph_digest);
	if (s->train)
		ct_dataset_digest(s->train, s->state.data_digest);
	s->state.best_top1 = s->state.last_top1 = s->state.last_loss = -1;
	s->state.seed = s->cfg->run.seed;
	s->state.world = (uint32_t)s->world.id.world;
	s->state.global_batch = s->plan.global_batch;
}

enum ct_status ct_session_create(const struct ct_config *cfg, const struct ct_identity *id, bool train,
				 struct ct_session *out)
{
	struct ct_session *s = out; /* built in place: watchdog and communicator keep pointers to its world */
	struct ct_data_opening data = {0};
	enum ct_status st;
	int64_t t0 = ct_now_ns();
	*s = (struct ct_session){.cfg = cfg};
	CT_TRY_GOTO(name_run(s), st, fail);
	CT_TRY_GOTO(ct_data_opening_start(&data, cfg, !train), st, fail);
	CT_TRY_GOTO(open_world(s, id), st, fail_data);
	s->join_s = seconds_since(t0);
	CT_TRY_GOTO(open_compute(s), st, fail_data);
	CT_TRY_GOTO(ct_data_opening_finish(&data, &s->train, &s->val), st, fail);
	s->data_s = data.seconds;
	t0 = ct_now_ns();
	CT_TRY_GOTO(build_model(s, train), st, fail);
	note_digests(s);
	CT_TRY_GOTO(agree_on_work(s), st, fail);
	if (train)
		CT_TRY_GOTO(build_training(s), st, fail);
	s->compile_s = seconds_since(t0);
	return CT_OK;

fail_data:
	ct_thread_join(&data.thread);
	ct_dataset_close(data.train);
	ct_dataset_close(data.val);
fail:
	ct_session_destroy(s, true);
	return st;
}

enum ct_status ct_session_create_local(const struct ct_config *cfg, bool train, struct ct_session *out)
{
	struct ct_session *s = out;
	struct ct_data_opening data = {0};
	struct ct_identity id = {.world = 1, .local_world = 1, .n_nodes = 1};
	struct ct_world_opts wo = {.run_id = "local"};
	struct ct_comm_opts co = {.timeout_ns = CT_FOREVER};
	enum ct_status st;
	*s = (struct ct_session){.cfg = cfg};
	CT_TRY_GOTO(name_run(s), st, fail);
	CT_TRY_GOTO(ct_data_opening_start(&data, cfg, !train), st, fail);
	st = ct_data_opening_finish(&data, &s->train, &s->val);
	CT_TRY_GOTO(st, st, fail);
	s->data_s = data.seconds;
	CT_TRY_GOTO(ct_world_join(&id, &wo, &s->world), st, fail);
	CT_TRY_GOTO(ct_comm_open("self", &s->world, &co, &s->comm), st, fail);
	CT_TRY_GOTO(open_compute(s), st, fail);
	int64_t t0 = ct_now_ns();
	CT_TRY_GOTO(build_model(s, train), st, fail);
	note_digests(s);
	if (train)
		CT_TRY_GOTO(build_training(s), st, fail);
	s->compile_s = seconds_since(t0);
	return CT_OK;

fail:
	ct_session_destroy(s, true);
	return st;
}

void ct_session_destroy(struct ct_session *s, bool failed)
{
	struct ct_error keep;
	ct_error_save(&keep); /* undoing must not lose the reason, which a stop by a signal has as well */
	if (failed && s->watchdog)
		ct_watchdog_report(s->watchdog);
	ct_program_destroy(s->eval);
	ct_program_destroy(s->full);
	ct_ema_destroy(s->ema);
	ct_optim_destroy(s->optim);
	ct_reducer_destroy(s->reducer);
	ct_free(s->buckets);
	ct_net_destroy(s->net);
	if (s->watchdog)
		ct_watchdog_set_comm(s->watchdog, NULL);
	ct_comm_close(s->comm);
	ct_engine_close(s->engine);
	ct_graph_destroy(s->val_graph);
	ct_graph_destroy(s->size_graph);
	ct_graph_destroy(s->graph);
	ct_dataset_close(s->val);
	ct_dataset_close(s->train);
	ct_device_close(s->device);
	ct_watchdog_stop(s->watchdog);
	ct_world_leave(&s->world, failed);
	ct_free(s->resumed_from);
	ct_free(s->config_lines);
	ct_free(s->run_dir);
	memset(s, 0, sizeof(*s));
	if (keep.status < 0)
		(void)ct_error_restore(&keep);
}
