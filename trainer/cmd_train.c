
#include "base/log.h"
#include "dist/rendezvous.h"
#include "trainer/cli.h"
#include "trainer/launch.h"
#include "trainer/run_plan.h"
#include "trainer/worker.h"

/* A worker when somebody gave us a rank, else the launcher. */
static enum ct_status train_or_launch(const struct ct_config *cfg, char **argv)
{
	struct ct_identity id;
	char *run_dir = NULL;
	CT_TRY(ct_identity_from_env(cfg->launch.init[0] ? cfg->launch.init : NULL, &id));
	if (id.by != CT_LAUNCHER_NONE)
		return ct_worker_run(cfg, &id);
	CT_TRY_ALLOC(run_dir = ct_plan_run_dir(cfg));
	enum ct_status st = ct_launch(cfg, argv, run_dir);
	ct_free(run_dir);
	return st;
}

enum ct_status ct_cmd_train(const struct ct_cli *cli)
{
	struct ct_config *cfg = NULL;
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &cfg));
	enum ct_status st = ct_log_configure(cfg->log.level);
	if (st == CT_OK)
		st = train_or_launch(cfg, cli->argv);
	ct_config_destroy(cfg);
	return st;
}
