/* The options --rank, --world-size, --local-rank, --master-addr and --master-port replace the variables of the same
 * names, but not in workers: they get the command line of their launcher, whose options do not apply to them. After the
 * identity is known, options that would have no effect are refused: if another launcher has determined the nodes or the
 * number of ranks, a contradiction is usually a launch within a launch. A Slurm step with one task per node is the
 * exception, and becomes a launcher (slurm_nodes.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dist/rendezvous/rendezvous.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/commands/as_rank_impl.h"
#include "trainer/tools/commands/slurm_nodes_impl.h"

/* Returns how the command line sets a key, for example "--procs", or NULL if it does not. */
static const char *given_as(const struct ct_cli *cli, const char *key)
{
	const char *given = NULL;

	for (size_t i = 0; i < cli->n_sets; i++)
		if (strcmp(cli->sets[i].key, key) == 0)
			given = cli->sets[i].origin;
	return given;
}

/* The command line, and the text of its port. */
struct given {
	const struct ct_cli *cli;
	const struct ct_config *cfg;
	char port[8];
};

static const char *given_or_env(const char *name, void *user)
{
	const struct given *g = user;
	const struct ct_cli *cli = g->cli;

	if (cli->identity.rank && strcmp(name, "RANK") == 0)
		return cli->identity.rank;
	if (cli->identity.world_size && strcmp(name, "WORLD_SIZE") == 0)
		return cli->identity.world_size;
	if (cli->identity.local_rank && strcmp(name, "LOCAL_RANK") == 0)
		return cli->identity.local_rank;
	if (strcmp(name, "MASTER_ADDR") == 0 && given_as(cli, "launch.master_addr"))
		return g->cfg->launch.master_addr;
	if (strcmp(name, "MASTER_PORT") == 0 && given_as(cli, "launch.master_port"))
		return g->port;
	return getenv(name);
}

static enum ct_status detect(const struct ct_cli *cli, const struct ct_config *cfg, struct ct_identity *out)
{
	const char *init = cfg->launch.init[0] ? cfg->launch.init : NULL;
	struct given given = {.cli = cli, .cfg = cfg};

	snprintf(given.port, sizeof(given.port), "%d", (int)cfg->launch.master_port);
	/* Workers have the command line of their launcher. */
	if (getenv("CTRAIN_STORE"))
		return ct_identity_from_env(init, out);
	CT_TRY(ct_identity_detect(given_or_env, &given, init, out));
	if (cli->identity.local_rank && out->by == CT_LAUNCHER_NONE) {
		CT_FAIL(CT_USAGE, "--local-rank is %.20s, but RANK and WORLD_SIZE are not set",
			cli->identity.local_rank);
		return ct_error_hint(
			"remove --local-rank to let ctrain start the ranks, or set RANK and WORLD_SIZE, too");
	}
	return CT_OK;
}

/* torchrun determines the nodes; the command line must not contradict it. */
static enum ct_status check_node(const struct ct_cli *cli, const struct ct_config *cfg, const struct ct_identity *id)
{
	const char *rank = given_as(cli, "launch.node_rank"), *nodes = given_as(cli, "launch.nodes");

	if (id->by != CT_LAUNCHER_TORCHRUN)
		return CT_OK;
	if (nodes && id->n_nodes >= 0 && cfg->launch.nodes != id->n_nodes) {
		CT_FAIL(CT_USAGE, "%s requests %lld nodes, but according to the environment there %s %d (%s)", nodes,
			(long long)cfg->launch.nodes, id->n_nodes == 1 ? "is" : "are", id->n_nodes,
			ct_launcher_name(id->by));
		return ct_error_hint("remove %s, because %s determines the nodes", nodes, ct_launcher_name(id->by));
	}
	if (rank && id->node >= 0 && cfg->launch.node_rank != id->node) {
		CT_FAIL(CT_USAGE, "%s is %lld, but according to the environment this process is on node %d (%s)", rank,
			(long long)cfg->launch.node_rank, id->node, ct_launcher_name(id->by));
		return ct_error_hint("remove %s, because %s determines the node", rank, ct_launcher_name(id->by));
	}
	return CT_OK;
}

/* If another launcher determines the number of ranks, refuses options that request a different number, because they
 * would have no effect. */
static enum ct_status check_number(const struct ct_cli *cli, const struct ct_config *cfg, const struct ct_identity *id)
{
	const char *list = given_as(cli, "launch.procs_list"), *given = list ? list : given_as(cli, "launch.procs");
	struct ct_ranks asked;

	if (!given || id->by == CT_LAUNCHER_CTRAIN || (cfg->launch.procs < 0 && !cfg->launch.procs_list[0]))
		return CT_OK;
	CT_TRY(ct_plan_ranks(cfg, &asked));
	bool here = id->local_world >= 0;
	int want = here ? asked.local : asked.world, have = here ? id->local_world : id->world;
	if (want == have)
		return CT_OK;
	if (id->by == CT_LAUNCHER_SLURM || id->by == CT_LAUNCHER_MPI) {
		CT_FAIL(CT_USAGE,
			"launch within launch: %s requests %d ranks%s, but according to the environment there are %d (%s)",
			given, want, here ? " on this host" : "", have, ct_launcher_name(id->by));
		return ct_error_hint(
			"%s has already started one process for each rank: remove %s, and start as many tasks as you want ranks",
			id->by == CT_LAUNCHER_SLURM ? "srun" : "mpirun", given);
	}
	CT_FAIL(CT_USAGE, "%s requests %d ranks%s, but according to the environment there are %d (%s)", given, want,
		here ? " on this host" : "", have, ct_launcher_name(id->by));
	return ct_error_hint(
		"remove %s, or unset RANK, WORLD_SIZE and similar variables so that ctrain starts its own ranks",
		given);
}

enum ct_status ct__identity(const struct ct_cli *cli, struct ct_config *cfg, struct ct_identity *out)
{
	CT_TRY(detect(cli, cfg, out));
	cfg->ranks_are_started = out->by != CT_LAUNCHER_NONE && out->by != CT_LAUNCHER_CTRAIN;
	CT_TRY(check_node(cli, cfg, out));
	CT_TRY(ct__slurm_nodes(cli->sets, cli->n_sets, cfg, out));
	cfg->ranks_are_started = cfg->ranks_are_started && out->by != CT_LAUNCHER_NONE;
	return out->by == CT_LAUNCHER_NONE ? CT_OK : check_number(cli, cfg, out);
}
