/* Whether a task of Slurm is a rank or has to start ranks cannot be read from the environment. It starts ranks if it is
 * the only one on its node and the config requests several ranks there. If it is a rank, nothing is changed. The run id
 * of a restarted job has another suffix than "#", which separates attempts of the same start, so that processes of the
 * earlier start are refused. The port of the meeting point is mapped into dist.port_range if there is one. */
#define CT_LOG_COMPONENT "slurm"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/devices.h"
#include "trainer/tools/commands/slurm_nodes_impl.h"

static const struct ct_config_set *find_set(const struct ct_config_set *sets, size_t n_sets, const char *key)
{
	for (size_t i = n_sets; i-- > 0;)
		if (strcmp(sets[i].key, key) == 0)
			return &sets[i];
	return NULL;
}

static void warn_without_srun(const struct ct_config_set *sets, size_t n_sets)
{
	const char *nodes = getenv("SLURM_JOB_NUM_NODES");

	if (nodes && strcmp(nodes, "1") != 0 && !getenv("SLURM_STEP_ID") && !find_set(sets, n_sets, "launch.nodes"))
		CT_WARN("this Slurm job has %s nodes, but ctrain was started without srun and trains on one of them; to use "
			"all nodes, write srun before ctrain",
			nodes);
}

static enum ct_status check_nodes(const struct ct_config_set *sets, size_t n_sets, const struct ct_identity *id)
{
	const struct ct_config_set *nodes = find_set(sets, n_sets, "launch.nodes"),
				   *rank = find_set(sets, n_sets, "launch.node_rank");
	int64_t n = 0;

	if (id->by == CT_LAUNCHER_NONE)
		warn_without_srun(sets, n_sets);
	if (id->by != CT_LAUNCHER_SLURM || id->n_nodes < 2)
		return CT_OK;
	if (rank) {
		CT_FAIL(CT_USAGE,
			"%s %s: srun has started tasks on %d nodes, and each task gets its node from srun "
			"(this one is on node %d)",
			rank->origin, rank->value, id->n_nodes, id->node);
		return ct_error_hint(
			"remove --node-rank; $SLURM_NODEID in a batch script is 0, because the script runs on the first "
			"node");
	}
	if (!nodes || ct_parse_i64(nodes->value, &n) < 0 || n == id->n_nodes) {
		ct_error_clear(); /* the config reports a value that is not a number */
		return CT_OK;
	}
	CT_FAIL(CT_USAGE, "%s %s, but srun has started tasks on %d nodes", nodes->origin, nodes->value, id->n_nodes);
	return ct_error_hint("remove --nodes: ctrain reads the number of nodes from srun (sbatch --nodes=%s)",
			     nodes->value);
}

static bool starts_ranks(const struct ct_config *cfg, const struct ct_identity *id)
{
	struct ct_plan_devices d = {0};

	if (id->by != CT_LAUNCHER_SLURM || id->world != id->n_nodes || id->local_world != 1)
		return false;
	if (cfg->launch.procs_list[0])
		return true;
	if (cfg->launch.procs > 0)
		return cfg->launch.procs > 1;
	if (ct_plan_on_cpu(cfg))
		return false;
	if (ct_plan_devices(cfg, &d) < 0)
		ct_error_clear(); /* the launcher or the rank reports it */
	return d.n > 1;
}

static enum ct_status set_string(char **field, const char *text, size_t len)
{
	char *copy = NULL;

	CT_TRY_ALLOC(copy = ct_strndup(text, len));
	ct_free(*field);
	*field = copy;
	return CT_OK;
}

/* Takes host and port from "tcp://host:port". */
static enum ct_status set_master(struct ct_config *cfg, const char *init)
{
	const struct ct_port_range range = ct_plan_port_range(cfg);
	char host[256];
	int port;

	CT_TRY(ct_init_url_endpoint(init, host, sizeof(host), &port));
	if (range.first > 0)
		port = range.first + port % (range.last - range.first + 1);
	if (cfg->launch.master_port == 0)
		cfg->launch.master_port = port;
	return cfg->launch.master_addr[0] ? CT_OK : set_string(&cfg->launch.master_addr, host, strlen(host));
}

static enum ct_status set_nodes(struct ct_config *cfg, const struct ct_identity *id)
{
	char run_id[96];

	cfg->launch.nodes = id->n_nodes;
	cfg->launch.node_rank = id->node;
	/* Processes of an earlier start of the job are refused. "#" would separate attempts of the same start. */
	snprintf(run_id, sizeof(run_id), "%s", id->run_id);
	if (id->restart > 0)
		snprintf(run_id, sizeof(run_id), "%s.restart-%d", id->run_id, id->restart);
	if (!cfg->dist.run_id[0])
		CT_TRY(set_string(&cfg->dist.run_id, run_id, strlen(run_id)));
	return cfg->launch.init[0] ? CT_OK : set_master(cfg, id->init);
}

enum ct_status ct__slurm_nodes(const struct ct_config_set *sets, size_t n_sets, struct ct_config *cfg,
			       struct ct_identity *id)
{
	CT_TRY(check_nodes(sets, n_sets, id));
	if (!starts_ranks(cfg, id))
		return CT_OK;
	CT_TRY(set_nodes(cfg, id));
	id->by = CT_LAUNCHER_NONE;
	return CT_OK;
}
