/* The order of the first steps is fixed: signals must be blocked and NCCL's log opened before the process starts its
 * first thread, which is that of the stop guard. Everything is undone in reverse, so that NCCL's last messages are
 * logged when the threads have ended. Without an identity, signals keep their usual effect.
 *
 * On several nodes, the secret is found as in training: the first process stores it in the run directory. A directory
 * that did not exist is removed at the end, because there is no run. */
#include "trainer/tools/commands/as_rank_impl.h"

#include <unistd.h>

#include "base/file.h"
#include "trainer/job/signals.h"
#include "trainer/launch/launch.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/run_plan.h"
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

/* Creates the run directory for the secret. Returns its path, owned, or NULL if it exists or cannot be created; the
 * search for the secret then reports what is missing. */
static char *make_run_dir(const struct ct_config *cfg)
{
	char *dir = ct_plan_run_dir(cfg);

	if (dir && !ct_file_exists(dir) && ct_dir_make(dir) == CT_OK)
		return dir;
	ct_error_clear();
	ct_free(dir);
	return NULL;
}

/* Takes dir. Keeps the directory if it contains other files by now. */
static void remove_run_dir(char *dir)
{
	char *token = dir ? ct_path_join(dir, "token") : NULL;

	if (token)
		(void)unlink(token);
	if (dir)
		(void)rmdir(dir);
	ct_free(token);
	ct_free(dir);
}

enum ct_status ct__as_rank(const struct ct_cli *cli, struct ct_config *cfg, bool launches,
			   enum ct_status (*fn)(void *user, const struct ct_identity *id), void *user)
{
	struct ct_identity id;
	enum ct_status st;

	CT_TRY(ct__identity(cli, cfg, &id));
	const bool none = id.by == CT_LAUNCHER_NONE;
	const bool several_nodes =
		none ? launches && cfg->launch.nodes > 1 : id.by != CT_LAUNCHER_CTRAIN && id.local_world != id.world;
	char *dir = several_nodes && (none ? cfg->launch.node_rank : id.rank) == 0 ? make_run_dir(cfg) : NULL;

	if (none && launches)
		st = ct_launch(cfg, cli->argv, NULL);
	else
		st = run(cfg, none ? NULL : &id, fn, user);
	remove_run_dir(dir);
	return st;
}
