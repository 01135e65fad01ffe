/* `ctrain doctor` and `ctrain explain`. */
#include <string.h>

#include "base/file.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/slurm_nodes_impl.h"
#include "trainer/tools/doctor/doctor.h"
#include "trainer/tools/doctor/explain.h"

static bool sets_key(const struct ct_cli *cli, const char *key)
{
	for (size_t i = 0; i < cli->n_sets; i++) {
		if (strcmp(cli->sets[i].key, key) == 0)
			return true;
	}
	return false;
}

/* Sets the master address to that of tcp://HOST:PORT. */
static enum ct_status set_master(struct ct_config *cfg, const char *init)
{
	char host[256], *copy;
	int port;

	CT_TRY(ct_init_url_endpoint(init, host, sizeof(host), &port));
	CT_TRY_ALLOC(copy = ct_strdup(host));
	cfg->launch.master_port = port;
	ct_free(cfg->launch.master_addr);
	cfg->launch.master_addr = copy;
	return CT_OK;
}

/* Under another launcher, takes the node of this process from it. If it has started several processes on each node,
 * only the first one of each node is needed. */
static enum ct_status place(struct ct_config *cfg, const struct ct_identity *id, struct ct_ranks *out, bool *needed)
{
	*needed = true;
	if (id->by == CT_LAUNCHER_NONE)
		return ct_plan_ranks(cfg, out);
	*needed = id->local_rank <= 0;
	*out = (struct ct_ranks){.local = id->local_world > 0 ? id->local_world : 1, .world = id->world, .n_nodes = 1};
	if (id->world == 1 || id->n_nodes == 1)
		return CT_OK;
	if (id->node < 0 || id->n_nodes < 0) {
		CT_FAIL(CT_USAGE, "%s has started this process as rank %d of %d, but does not say on which node it is",
			ct_launcher_name(id->by), id->rank, id->world);
		return ct_error_hint(
			"start `ctrain doctor` without this launcher, with --nodes, --node-rank and --master-addr");
	}
	out->node = id->node;
	out->n_nodes = id->n_nodes;
	return set_master(cfg, id->init);
}

static enum ct_status report(const struct ct_cli *cli, const struct ct_doctor *d)
{
	struct ct_str text = {0};

	if (cli->json)
		return ct_print_json(ct_doctor_json(d), true);
	/* Node 0 prints the report of a run. A node that has not joined prints its own. */
	if (d->cluster.self == 0 || d->cluster.join_error[0])
		ct_doctor_text(d, &text);
	else
		ct_str_addf(&text, "node %d (%s): %zu finding%s in all; node 0 (%s) prints the report\n",
			    d->cluster.self, d->cluster.nodes[d->cluster.self].host, d->findings.n,
			    ct_plural((int64_t)d->findings.n), d->cluster.nodes[0].host);
	return ct_print_text(&text);
}

/* The findings have been printed, so the error consists of their number only. */
static enum ct_status result(const struct ct_doctor *d)
{
	const enum ct_status worst = ct_findings_worst(&d->findings);

	if (worst == CT_OK)
		return CT_OK;
	CT_FAIL(worst, "doctor: %zu finding%s; the worst: %s", d->findings.n, ct_plural((int64_t)d->findings.n),
		d->findings.all[0].what);
	return ct_error_hint("%s", d->findings.all[0].fix);
}

static enum ct_status examine(const struct ct_cli *cli, struct ct_config *cfg)
{
	struct ct_collect_opts o = {.cfg = cfg, .ranks = {.local = 1, .world = 1, .n_nodes = 1}};
	struct ct_identity id;
	struct ct_doctor d = {0};
	bool needed = true;

	CT_TRY(ct_identity_from_env(NULL, &id));
	o.asks_for_ranks = sets_key(cli, "launch.procs") || sets_key(cli, "launch.procs_list");
	if (cfg)
		CT_TRY(ct__slurm_nodes(cli->sets, cli->n_sets, cfg, &id));
	o.by = id.by;
	if (cfg)
		CT_TRY(place(cfg, &id, &o.ranks, &needed));
	if (!needed)
		return CT_OK;
	enum ct_status st = ct_doctor_run(&o, &d);
	if (st == CT_OK)
		st = report(cli, &d);
	if (st == CT_OK)
		st = result(&d);
	ct_doctor_release(&d);
	return st;
}

enum ct_status ct_cmd_doctor(const struct ct_cli *cli)
{
	struct ct_config *cfg = NULL;

	if (cli->n_args == 0 && cli->n_sets > 0)
		return CT_FAIL(CT_USAGE, "%s needs a configuration: ctrain doctor CONFIG.yaml ...",
			       cli->sets[0].origin);
	if (cli->n_args > 0)
		CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &cfg));
	const enum ct_status st = examine(cli, cfg);
	ct_config_destroy(cfg);
	return st;
}

enum ct_status ct_cmd_explain(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	enum ct_status st = CT_OK;

	if (cli->n_args > 0)
		st = ct_explain(cli->args[0], &text);
	else
		ct_explain_page(&text);
	if (st == CT_OK)
		return ct_print_to(cli->out, &text);
	ct_str_release(&text);
	return st;
}
