#include <stdlib.h>

#include "base/log.h"
#include "dist/rendezvous.h"
#include "trainer/cli.h"
#include "trainer/launch.h"
#include "trainer/worker.h"

static const char *get_env(const char *name, void *user)
{
	(void)user;
	return getenv(name);
}

/* A worker when somebody gave us a rank, else the launcher. */
static enum ct_status train_or_launch(const struct ct_config *cfg, char **argv)
{
	struct ct_identity id;
	const char *init = cfg->launch.init[0] ? cfg->launch.init : NULL;
	CT_TRY(ct_identity_detect(get_env, NULL, init, &id));
	return id.by == CT_LAUNCHER_NONE ? ct_launch(cfg, argv) : ct_worker_run(cfg, &id);
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
