/* The ranks agree twice: on version and config before the communicator is opened, since the config chooses its kind,
 * and on model, data and layout before the first gradient is summed. Without the second check, ranks with different
 * files would train on silently. Both go through the store of the world, with the timeout of the rendezvous. If it
 * passes, the cause is looked up in the heartbeats of the members, so that the error names the late rank and not only a
 * missing key. Two ranks on one GPU are found by its UUID: each rank counts itself at a key with this UUID.
 *
 * Synchronized batch norm on an asynchronous device gets a communicator of its own, because its sums run in another
 * stream than the buckets, and collectives of one communicator must have one order. Staged collectives share one, and
 * sum_statistics orders them. */
#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/process/rank_page.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/devices.h"
#include "trainer/run/session/session_stage_impl.h"
#include "trainer/run/session/session_world_impl.h"

/* The timeout names the missing key. The heartbeats in the store show which rank is the cause. */
static enum ct_status name_late(struct ct_session *s)
{
	struct ct_error late;
	struct ct_failure f = {0};

	ct_error_save(&late);
	if (ct_world_attribute_failure(&s->world, &(struct ct_waiting){.seq = -1}, &f) != CT_OK)
		return ct_error_restore(&late);
	CT_FAIL(CT_TIMEOUT, "start: %s", f.message);
	if (f.hint[0])
		ct_error_hint("%s", f.hint);
	return ct_error_caused_by(f.rank, f.pid);
}

/* Takes ownership of lines. */
static enum ct_status agree(struct ct_session *s, struct ct_str *lines)
{
	enum ct_status st = ct_str_status(lines);

	if (st == CT_OK)
		st = ct_world_agree(&s->world, "start", ct_str_text(lines),
				    ct_deadline_in((int64_t)(s->cfg->dist.rendezvous_timeout * 1e9)));
	ct_str_release(lines);
	return st == CT_TIMEOUT ? name_late(s) : st;
}

/* Called before the ranks open a communicator, because the config chooses its kind. */
static enum ct_status agree_on_config(struct ct_session *s)
{
	struct ct_str lines = {0};

	ct_str_addf(&lines, "version=%s\n", CTRAIN_VERSION);
	if (ct_config_run_lines(s->cfg, &lines) < 0)
		lines.failed = true;
	return agree(s, &lines);
}

enum ct_status ct__session_agree_on_work(struct ct_session *s)
{
	char layout[65], val[65] = "none";
	struct ct_str lines = {0};

	ct_net_layout_digest(s->net, layout);
	if (s->pipe) { /* stages differ in their parameters */
		CT_TRY(ct_pipeline_check_same(s->group, layout));
		snprintf(layout, sizeof(layout), "of each stage");
	}
	if (s->data.val)
		ct_dataset_digest(s->data.val, val);
	ct_str_addf(&lines, "engine=%s\nmodel graph=%s\ntraining data=%s\nevaluation data=%s\nparameter layout=%s\n",
		    ct_engine_version(s->engine), s->state.graph_digest, s->state.data_digest, val, layout);
	if (s->pipe)
		ct_str_addf(&lines, "micro-batches=%u\n", s->plan.accumulate);
	return agree(s, &lines);
}

static enum ct_status join(struct ct_session *s, const struct ct_identity *id)
{
	const struct ct_config *c = s->cfg;
	struct ct_world_opts wo = {.run_id = ct_plan_run_id(c, id->run_id),
				   .run_dir = s->run.dir,
				   .open_network = c->dist.open_network,
				   .ports = ct_plan_port_range(c),
				   .timeout_ns = (int64_t)(c->dist.rendezvous_timeout * 1e9)};

	(void)ct_rank_page_enter(CT_RANK_JOINING, -1);
	ct_failpoint("join");
	CT_TRY(ct_world_join(id, &wo, &s->world));
	if (id->world > 1)
		CT_TRY(ct_watchdog_start(&s->world, &s->watchdog));
	if (s->start.joined)
		CT_TRY(s->start.joined(s->run.dir, &s->world.id));
	ct_failpoint("startup");
	CT_TRY(agree_on_config(s));
	return s->start.writes_run_dir ? ct__session_check_run_dir(s) : CT_OK;
}

static enum ct_status join_nobody(struct ct_session *s)
{
	const struct ct_identity id = {.world = 1, .local_world = 1, .n_nodes = 1};
	const struct ct_world_opts wo = {.run_id = "local"};

	return ct_world_join(&id, &wo, &s->world);
}

static enum ct_status open_comm(struct ct_session *s, bool local)
{
	const struct ct_config *c = s->cfg;
	const char *backend = local ? "self" : c->dist.backend;
	struct ct_comm_opts co = {.timeout_ns = local ? CT_FOREVER : (int64_t)(c->dist.timeout * 1e9),
				  .connect_ns = (int64_t)(c->dist.rendezvous_timeout * 1e9),
				  .iface = c->dist.iface[0] && !local ? c->dist.iface : NULL,
				  .ports = ct_plan_port_range(c),
				  .device = s->device,
				  .nccl_windows = c->dist.nccl_windows,
				  .deterministic = c->train.deterministic,
				  .shares_device = c->launch.pipeline > 1 || c->model.bn == CT_CFG_BN_SYNC};
	char scope[32] = "norm";

	if (!local) {
		ct_failpoint("connect");
		CT_TRY(ct_plan_use_comm_settings(c, &s->world.id));
	}
	CT_TRY(ct_comm_open(backend, &s->world, &co, &s->comm));
	s->group = s->comm;
	if (s->watchdog)
		ct_watchdog_add_comm(s->watchdog, s->comm);
	if (!local)
		CT_TRY(ct__session_open_pipeline(s, backend, &co));
	/* Two streams may share a communicator only if their collectives are ordered. Staged ones must be, even with
	 * two communicators, because a GPU calls functions of the host one after the other (sum_statistics orders
	 * them). */
	if (c->model.bn != CT_CFG_BN_SYNC || s->world.id.world == 1 || !ct_device_caps(s->device)->async ||
	    ct_comm_is_staged(s->comm, s->device))
		return CT_OK;
	if (s->pipe)
		snprintf(scope, sizeof(scope), "norm%d", s->pipe->stages.stage);
	co.scope = scope;
	CT_TRY(ct_comm_open(backend, s->pipe ? &s->pipe->part : &s->world, &co, &s->norm_comm));
	if (s->watchdog)
		ct_watchdog_add_comm(s->watchdog, s->norm_comm);
	if (ct_comm_is_cooperative(s->norm_comm))
		return CT_OK;
	CT_FAIL(CT_UNSUPPORTED, "model.bn=sync on a %s device: the communicator %s would block its streams",
		ct_device_kind(s->device), ct_comm_name(s->norm_comm));
	return ct_error_hint("use dist.backend=shm, which does not block them");
}

/* Fails if another rank uses the same GPU, unless the config requests this. The indexes do not show it, because each
 * rank may have a different CUDA_VISIBLE_DEVICES. */
static enum ct_status claim_gpu(struct ct_session *s)
{
	struct ct_plan_devices d;
	struct ct_device_info info;
	char key[96], owner[16], *other = NULL;
	int64_t n_users;
	size_t len;

	if (!s->world.store || strcmp(ct_device_kind(s->device), "cuda") != 0)
		return CT_OK;
	CT_TRY(ct_plan_devices(s->cfg, &d));
	if (d.shared)
		return CT_OK;
	CT_TRY(ct_device_info(s->device, &info));
	snprintf(key, sizeof(key), "gpu/%s", info.uuid);
	CT_TRY(ct_store_add(s->world.store, key, 1, &n_users));
	snprintf(key, sizeof(key), "gpu/%s/rank", info.uuid);
	snprintf(owner, sizeof(owner), "%d", s->world.id.rank);
	if (n_users == 1)
		return ct_store_set(s->world.store, key, owner, strlen(owner) + 1);
	CT_TRY(ct_store_get(s->world.store, key, ct_deadline_in(10 * CT_SEC), &other, &len));
	CT_FAIL(CT_NO_DEVICE, "rank %d would share GPU %d (%s) with rank %s", s->world.id.rank, info.index, info.uuid,
		other);
	enum ct_status st = ct_error_hint(
		"start at most one rank for each GPU; to share GPUs on purpose, list them repeatedly: launch.devices=0,0");
	ct_free(other);
	return st;
}

enum ct_status ct__session_open_world(struct ct_session *s, const struct ct_identity *id)
{
	CT_TRY(id ? join(s, id) : join_nobody(s));
	CT_TRY(ct_plan_device_open(s->cfg, s->world.id.local_rank, &s->device));
	CT_TRY(claim_gpu(s));
	return open_comm(s, !id);
}
