#define CT_LOG_COMPONENT "train"
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "dist/rendezvous/rendezvous.h"
#include "trainer/commands/cli.h"
#include "trainer/commands/slurm_nodes_impl.h"
#include "trainer/doctor/doctor.h"
#include "trainer/launch/job_store.h"
#include "trainer/launch/launch.h"
#include "trainer/launch/launch_env.h"
#include "trainer/loop/worker.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/run_plan.h"

/* Logs how many ranks `launch.procs: auto` starts on GPUs. */
static enum ct_status say_ranks(const struct ct_config *cfg, const struct ct_ranks *ranks)
{
	struct ct_plan_devices d;
	CT_TRY(ct_plan_devices(cfg, &d));
	if (d.n == 0 || cfg->launch.procs > 0 || cfg->launch.procs_list[0])
		return CT_OK;
	CT_INFO("launch.procs=auto: %d rank%s, one for each GPU", ranks->local, ct_plural(ranks->local));
	return CT_OK;
}

/* Reports configuration errors before any process is started. */
static enum ct_status check_start(const struct ct_config *cfg)
{
	static const char *const needed[] = {"MASTER_ADDR", "MASTER_PORT"};
	struct ct_stages stages;
	struct ct_ranks ranks;
	CT_TRY(ct_plan_ranks(cfg, &ranks));
	CT_TRY(ct_doctor_check_gpus(cfg, &ranks));
	CT_TRY(ct_plan_check_devices(cfg, ranks.local));
	CT_TRY(say_ranks(cfg, &ranks));
	CT_TRY(ct_plan_stages(cfg, ranks.world, ranks.first, &stages));
	CT_TRY(ct_plan_check_batch(cfg, (uint32_t)stages.n_replicas));
	CT_TRY(ct_plan_check_model(cfg));
	CT_TRY(ct_plan_check_engine(cfg));
	CT_TRY(ct_plan_check_comm_settings(cfg, ranks.world));
	CT_TRY(ct_doctor_preflight(cfg, &ranks));
	for (size_t i = 0; i < CT_ARRAY_LEN(needed) && strcmp(cfg->launch.init, "env://") == 0; i++) {
		if (getenv(needed[i]))
			continue;
		return CT_FAIL_HINT(
			CT_USAGE,
			"set MASTER_ADDR and MASTER_PORT, or do not set launch.init (--init) if all ranks are on one node",
			"launch.init is env://, but %s is not set in the environment", needed[i]);
	}
	return CT_OK;
}

/* Returns how the command line sets a key, for example "--procs", or NULL if it does not. */
static const char *given_as(const struct ct_cli *cli, const char *key)
{
	const char *given = NULL;
	for (size_t i = 0; i < cli->n_sets; i++)
		if (strcmp(cli->sets[i].key, key) == 0)
			given = cli->sets[i].origin;
	return given;
}

/* torchrun determines the nodes; the command line must not contradict it. */
static enum ct_status check_node(const struct ct_cli *cli, const struct ct_config *cfg, const struct ct_identity *id)
{
	const char *rank = given_as(cli, "launch.node_rank"), *nodes = given_as(cli, "launch.nodes");
	if (id->by != CT_LAUNCHER_TORCHRUN)
		return CT_OK;
	if (nodes && id->n_nodes >= 0 && cfg->launch.nodes != id->n_nodes)
		return ct_error_hinted(
			CT_FAIL(CT_USAGE, "%s requests %lld nodes, but according to the environment there %s %d (%s)",
				nodes, (long long)cfg->launch.nodes, id->n_nodes == 1 ? "is" : "are", id->n_nodes,
				ct_launcher_name(id->by)),
			"remove %s, because %s determines the nodes", nodes, ct_launcher_name(id->by));
	if (rank && id->node >= 0 && cfg->launch.node_rank != id->node)
		return ct_error_hinted(
			CT_FAIL(CT_USAGE,
				"%s is %lld, but according to the environment this process is on node %d (%s)", rank,
				(long long)cfg->launch.node_rank, id->node, ct_launcher_name(id->by)),
			"remove %s, because %s determines the node", rank, ct_launcher_name(id->by));
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
	if (id->by == CT_LAUNCHER_SLURM || id->by == CT_LAUNCHER_MPI)
		return ct_error_hinted(
			CT_FAIL(CT_USAGE,
				"launch within launch: %s requests %d ranks%s, but according to the environment there are %d (%s)",
				given, want, here ? " on this host" : "", have, ct_launcher_name(id->by)),
			"%s has already started one process for each rank: remove %s, and start as many tasks as you want ranks",
			id->by == CT_LAUNCHER_SLURM ? "srun" : "mpirun", given);
	return ct_error_hinted(
		CT_FAIL(CT_USAGE, "%s requests %d ranks%s, but according to the environment there are %d (%s)", given,
			want, here ? " on this host" : "", have, ct_launcher_name(id->by)),
		"remove %s, or unset RANK, WORLD_SIZE and similar variables so that ctrain starts its own ranks",
		given);
}

/* Ranks that ctrain's launcher has started have a pipe for errors, whatever their identity is derived from. */
static void warn_of_restarts(const struct ct_config *cfg, const struct ct_identity *id)
{
	if (cfg->launch.restarts > 0 && id->rank == 0 && !getenv(CT_ENV_ERROR_FD))
		CT_WARN("launch.restarts=%lld has no effect: the ranks were started by another launcher (%s), which would have to restart them",
			(long long)cfg->launch.restarts, ct_launcher_name(id->by));
}

/* Runs as a worker if the environment assigns a rank to this process, otherwise as the launcher. */
static enum ct_status train_or_launch(const struct ct_cli *cli, struct ct_config *cfg)
{
	struct ct_identity id;
	char *run_dir = NULL;
	CT_TRY(ct_cli_identity(cli, cfg, &id));
	CT_TRY(check_node(cli, cfg, &id));
	CT_TRY(ct__slurm_nodes(cli, cfg, &id));
	if (id.by != CT_LAUNCHER_NONE) {
		CT_TRY(check_number(cli, cfg, &id));
		warn_of_restarts(cfg, &id);
		return ct_worker_run(cfg, &id);
	}
	CT_TRY_ALLOC(run_dir = ct_plan_run_dir(cfg));
	enum ct_status st = check_start(cfg);
	if (st < 0)
		ct_job_store_report_early(cfg, run_dir);
	else
		st = ct_launch(cfg, cli->argv, run_dir);
	ct_free(run_dir);
	return st;
}

/* Reports to the other nodes that the config cannot be used, as far as the command line says where they are. */
static void report_unusable(const struct ct_cli *cli)
{
	struct ct_config *c = NULL;
	struct ct_error why;
	char *run_dir = NULL;
	if (getenv("CTRAIN_STORE") || getenv("RANK"))
		return;
	ct_error_save(&why);
	if (ct_config_salvage(cli->args[0], cli->sets, cli->n_sets, &c) == CT_OK && (run_dir = ct_plan_run_dir(c))) {
		(void)ct_error_restore(&why);
		ct_job_store_report_early(c, run_dir);
	}
	(void)ct_error_restore(&why);
	ct_free(run_dir);
	ct_config_destroy(c);
}

enum ct_status ct_cmd_train(const struct ct_cli *cli)
{
	struct ct_config *cfg = NULL;
	enum ct_status st = ct_config_load(cli->args[0], cli->sets, cli->n_sets, &cfg);
	if (st < 0) {
		report_unusable(cli);
		return st;
	}
	st = ct_log_configure(cfg->log.level);
	if (st == CT_OK)
		st = train_or_launch(cli, cfg);
	ct_config_destroy(cfg);
	return st;
}
