/* `ctrain CONFIG`: trains, as one of the ranks if the environment assigns a rank to this process, otherwise as the
 * launcher. The launcher checks everything that can be checked without a rank before it starts any. If something is
 * wrong, and there are other nodes, it reports this to them, or they would wait for this one. This works even if the
 * config cannot be used, as long as the command line and the file say where the nodes are. */
#define CT_LOG_COMPONENT "train"
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/rank_page.h"
#include "dist/rendezvous/rendezvous.h"
#include "trainer/launch/job_store.h"
#include "trainer/launch/launch.h"
#include "trainer/plan/comm_settings.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/host_binding.h"
#include "trainer/plan/run_plan.h"
#include "trainer/run/loop/resume.h"
#include "trainer/run/loop/worker.h"
#include "trainer/tools/commands/as_rank_impl.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/doctor/doctor.h"
#include "trainer/tools/report/report.h"

/* Logs how many ranks `launch.procs: auto` starts on GPUs. */
static enum ct_status say_ranks(const struct ct_config *cfg, const struct ct_ranks *ranks)
{
	struct ct_plan_devices d;

	CT_TRY(ct_plan_devices(cfg, &d));
	if (d.n == 0 || cfg->launch.procs > 0 || cfg->launch.procs_list[0])
		return CT_OK;
	if (ranks->local == d.n)
		CT_INFO("launch.procs=auto: %d rank%s, one for each GPU", d.n, ct_plural(d.n));
	else
		CT_INFO("launch.procs=auto: %d rank%s for %d GPU%s, because launch.pipeline=%lld must divide the number of ranks",
			ranks->local, ct_plural(ranks->local), d.n, ct_plural(d.n), (long long)cfg->launch.pipeline);
	return CT_OK;
}

static enum ct_status check_variables(const struct ct_config *cfg)
{
	const bool address = getenv("MASTER_ADDR") != NULL, port = getenv("MASTER_PORT") != NULL;

	if (strcmp(cfg->launch.init, "env://") != 0 || (address && port))
		return CT_OK;
	CT_FAIL(CT_USAGE, "launch.init is env://, but %s not set in the environment",
		address ? "MASTER_PORT is"
		: port  ? "MASTER_ADDR is"
			: "MASTER_ADDR and MASTER_PORT are");
	return ct_error_hint(
		"set MASTER_ADDR and MASTER_PORT, or do not set launch.init (--init) if all ranks are on one node");
}

/* Reports configuration errors before any process is started. */
static enum ct_status check_start(const struct ct_config *cfg)
{
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
	CT_TRY(ct_host_binding_check(cfg));
	CT_TRY(ct_plan_check_comm_settings(cfg, ranks.world));
	CT_TRY(ct_doctor_preflight(cfg, &ranks));
	return check_variables(cfg);
}

/* Ranks that ctrain's launcher has started share a page with it, whatever their identity is derived from. */
static void warn_of_restarts(const struct ct_config *cfg, const struct ct_identity *id)
{
	if (cfg->launch.restarts > 0 && id->rank == 0 && !ct_rank_page_is_shared())
		CT_WARN("launch.restarts=%lld has no effect: the ranks were started by another launcher (%s), which would have to restart them",
			(long long)cfg->launch.restarts, ct_launcher_name(id->by));
}

/* Runs as a worker if the environment assigns a rank to this process, otherwise as the launcher. */
static enum ct_status train_or_launch(const struct ct_cli *cli, struct ct_config *cfg)
{
	struct ct_identity id;
	char *run_dir = NULL;

	CT_TRY(ct__identity(cli, cfg, &id));
	CT_TRY(ct_resume_settle(cfg, id.restart > 0));
	if (id.by != CT_LAUNCHER_NONE) {
		warn_of_restarts(cfg, &id);
		return ct_worker_run(cfg, &id, ct_report_write_run);
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
