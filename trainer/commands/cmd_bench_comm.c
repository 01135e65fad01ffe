/* `ctrain bench comm`: measures the communicator of a run, without training, for a range of sizes. The numbers are
 * defined as in nccl-tests. The ranks are started in the same way as for training. */
#include <stdlib.h>

#include "base/json.h"
#include "base/log.h"
#include "dist/bench_comm.h"
#include "dist/watchdog.h"
#include "trainer/commands/cli.h"
#include "trainer/commands/print_impl.h"
#include "trainer/launch/launch.h"
#include "trainer/launch/signals.h"
#include "trainer/loop/stop_guard.h"
#include "trainer/plan/run_plan.h"

static enum ct_status print_rows(const ct_comm *c, const struct ct_bench_comm_row *rows, int n)
{
	ct_json *j = ct_json_object(), *list = ct_json_array();
	for (int i = 0; i < n; i++) {
		ct_json *o = ct_json_object();
		ct_json_set_str(o, "op", rows[i].op);
		ct_json_set_i64(o, "bytes", (int64_t)rows[i].bytes);
		ct_json_set_i64(o, "rounds", rows[i].rounds);
		ct_json_set_f64(o, "us", rows[i].us);
		ct_json_set_f64(o, "algbw_gbps", rows[i].algbw);
		ct_json_set_f64(o, "busbw_gbps", rows[i].busbw);
		ct_json_push(list, o);
	}
	ct_json_set_str(j, "bench", "comm");
	ct_json_set_str(j, "backend", ct_comm_name(c));
	ct_json_set_i64(j, "world_size", ct_comm_size(c));
	ct_json_set(j, "rows", list);
	return ct__print_json(j, false);
}

static enum ct_status run_rank(const struct ct_config *cfg, const struct ct_identity *id, int rounds)
{
	struct ct_world world = {0};
	ct_watchdog *dog = NULL;
	ct_comm *comm = NULL;
	struct ct_bench_comm_row *rows = NULL;
	int n = 0;
	enum ct_status st;
	struct ct_world_opts wo = {.run_id = ct_plan_run_id(cfg, id->run_id),
				   .open_network = cfg->dist.open_network,
				   .timeout_ns = (int64_t)(cfg->dist.rendezvous_timeout * 1e9)};
	struct ct_comm_opts co = {.timeout_ns = (int64_t)(cfg->dist.timeout * 1e9),
				  .iface = cfg->dist.iface[0] ? cfg->dist.iface : NULL};
	CT_TRY_GOTO(ct_world_join(id, &wo, &world), st, out);
	if (id->world > 1)
		CT_TRY_GOTO(ct_watchdog_start(&world, &dog), st, out);
	CT_TRY_GOTO(ct_comm_open(cfg->dist.backend, &world, &co, &comm), st, out);
	if (dog)
		ct_watchdog_add_comm(dog, comm);
	CT_TRY_GOTO(ct_bench_comm(comm, rounds, &rows, &n), st, out);
	if (id->rank == 0)
		st = print_rows(comm, rows, n);
out:
	if (st < 0 && dog)
		ct_watchdog_report(dog);
	ct_free(rows);
	if (dog)
		ct_watchdog_remove_comm(dog, comm);
	ct_comm_close(comm);
	ct_watchdog_stop(dog);
	ct_world_leave(&world, st < 0);
	return st;
}

enum ct_status ct_cmd_bench_comm(const struct ct_cli *cli)
{
	struct ct_config *cfg = NULL;
	struct ct_identity id;
	int64_t rounds;
	int signals = -1;
	struct ct_stop_guard guard = {0};
	CT_TRY(ct_cli_number("--steps", cli->steps, 0, 1, 2000, &rounds));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &cfg));
	enum ct_status st = ct_log_configure(cfg->log.level);
	if (st == CT_OK)
		st = ct_identity_from_env(cfg->launch.init[0] ? cfg->launch.init : NULL, &id);
	if (st == CT_OK && id.by == CT_LAUNCHER_NONE) {
		st = ct_launch(cfg, cli->argv, NULL);
	} else if (st == CT_OK) {
		st = ct_signals_open(false, &signals);
		if (st == CT_OK)
			st = ct_stop_guard_start(&guard, signals);
		if (st == CT_OK)
			st = run_rank(cfg, &id, (int)rounds);
		ct_stop_guard_end(&guard);
		ct_signals_close(signals);
	}
	ct_config_destroy(cfg);
	return st;
}
