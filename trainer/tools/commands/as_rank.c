/* The order of the first steps is fixed: signals must be blocked and NCCL's log opened before the process starts its
 * first thread, which is that of the stop guard. Everything is undone in reverse, so that NCCL's last messages are
 * logged when the threads have ended. Without an identity, signals keep their usual effect. */
#include "trainer/tools/commands/as_rank_impl.h"

#include "trainer/job/signals.h"
#include "trainer/launch/launch.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/run/loop/stop_guard.h"

bool ct__has_ranks(const struct ct_config *cfg)
{
	return cfg->launch.procs > 1 || cfg->launch.procs_list[0] || cfg->launch.nodes > 1;
}

static enum ct_status run(const struct ct_config *cfg, const struct ct_identity *id,
			  enum ct_status (*fn)(void *user, const struct ct_identity *id), void *user)
{
	struct ct_stop_guard guard = {0};
	ct_nccl_log *nccl_log = NULL;
	enum ct_status st = CT_OK;
	int signals = -1;

	if (id)
		st = ct_signals_open(false, &signals);
	if (st == CT_OK && id)
		st = ct_plan_open_nccl_log(cfg, id->world, &nccl_log);
	if (st == CT_OK)
		st = ct_stop_guard_start(&guard, signals);
	if (st == CT_OK)
		st = ct_nccl_log_start(nccl_log);
	if (st == CT_OK)
		st = fn(user, id);
	ct_stop_guard_end(&guard);
	ct_nccl_log_close(nccl_log);
	ct_signals_close(signals);
	return st;
}

enum ct_status ct__as_rank(const struct ct_cli *cli, struct ct_config *cfg, bool launches,
			   enum ct_status (*fn)(void *user, const struct ct_identity *id), void *user)
{
	struct ct_identity id;

	CT_TRY(ct__identity(cli, cfg, &id));
	if (id.by == CT_LAUNCHER_NONE && launches)
		return ct_launch(cfg, cli->argv, NULL);
	return run(cfg, id.by == CT_LAUNCHER_NONE ? NULL : &id, fn, user);
}
