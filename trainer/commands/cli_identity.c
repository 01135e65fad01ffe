#include <stdlib.h>
#include <string.h>

#include "dist/rendezvous/rendezvous.h"
#include "trainer/commands/cli.h"

static const char *given_or_env(const char *name, void *user)
{
	const struct ct_cli *cli = user;

	if (cli->rank && strcmp(name, "RANK") == 0)
		return cli->rank;
	if (cli->world_size && strcmp(name, "WORLD_SIZE") == 0)
		return cli->world_size;
	if (cli->local_rank && strcmp(name, "LOCAL_RANK") == 0)
		return cli->local_rank;
	return getenv(name);
}

enum ct_status ct_cli_identity(const struct ct_cli *cli, const struct ct_config *cfg, struct ct_identity *out)
{
	const char *init = cfg->launch.init[0] ? cfg->launch.init : NULL;

	/* Workers have the command line of their launcher. */
	if (getenv("CTRAIN_STORE"))
		return ct_identity_from_env(init, out);
	CT_TRY(ct_identity_detect(given_or_env, (void *)cli, init, out));
	if (cli->local_rank && out->by == CT_LAUNCHER_NONE)
		return CT_FAIL_HINT(
			CT_USAGE, "remove --local-rank to let ctrain start the ranks, or set RANK and WORLD_SIZE, too",
			"--local-rank is %.20s, but RANK and WORLD_SIZE are not set", cli->local_rank);
	return CT_OK;
}
