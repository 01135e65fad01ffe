/* `ctrain bench step|loader`. Each command measures one part of the work separately and prints a JSON object. The
 * scripts that compare ctrain with other programs are in bench/. */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "trainer/commands/cli.h"
#include "trainer/commands/print_impl.h"
#include "trainer/commands/step_bench_impl.h"
#include "trainer/plan/ready.h"

static void set_node(ct_json *a, const struct ct_session *s, int id, int64_t steps, double backward)
{
	const struct ct_node *node = ct_graph_node(s->graph, id);
	double f, b;

	if (ct_program_times(s->full, id, &f, &b) < 0)
		return;
	ct_json *o = ct_json_object();
	ct_json_set_str(o, "name", node->name);
	ct_json_set_str(o, "op", ct_op_name(node->op));
	ct_json_set_f64(o, "forward_ms", f * 1e3 / (double)steps);
	ct_json_set_f64(o, "backward_ms", b * 1e3 / (double)steps);
	if (backward > 0) {
		const double forward = ct_graph_node_flops(s->graph, id);
		const double rows = (double)s->plan.per_rank * (double)steps;
		ct_json_set_f64(o, "flops", forward * s->plan.per_rank);
		ct_json_set_f64(o, "backward_flops", backward * s->plan.per_rank);
		/* If the time is 0, the rate is not finite and is written as null. */
		ct_json_set_f64(o, "forward_gflops_per_sec", forward * rows / f * 1e-9);
		ct_json_set_f64(o, "backward_gflops_per_sec", backward * rows / b * 1e-9);
	}
	ct_json_push(a, o);
}

static enum ct_status set_nodes(ct_json *j, const struct ct_session *s, int64_t steps)
{
	ct_json *a = ct_json_array();
	double *backward = NULL;
	const enum ct_status st = ct_plan_backward_flops(s->graph, &backward);

	for (int i = 1; st == CT_OK && i < ct_graph_n_nodes(s->graph); i++)
		set_node(a, s, i, steps, backward[i]);
	ct_json_set(j, "nodes", a);
	ct_free(backward);
	return st;
}

static enum ct_status bench_step(struct ct_session *s, int64_t steps)
{
	struct ct__step_bench b;

	CT_TRY(ct__step_bench(s, steps, &b));
	const double flop = 3 * ct_graph_flops(s->graph) * s->plan.per_rank;
	ct_json *j = ct_json_object();
	ct_json_set_str(j, "bench", "step");
	ct_json_set_str(j, "model", ct_config_choice(s->cfg, "model.name"));
	ct_json_set_str(j, "engine", ct_engine_version(s->engine));
	ct_json_set_i64(j, "batch", s->plan.per_rank);
	ct_json_set_i64(j, "steps", b.steps);
	ct_json_set_f64(j, "step_ms_median", b.step_ms);
	ct_json_set_f64(j, "step_ms_min", b.step_min_ms);
	ct_json_set_f64(j, "images_per_sec", s->plan.per_rank / b.step_ms * 1e3);
	ct_json_set_f64(j, "gflops_per_sec", flop / b.step_ms * 1e-6);
	ct_json_set_f64(j, "data_ms", b.data_ms);
	ct_json_set_f64(j, "forward_ms", b.forward_ms);
	ct_json_set_f64(j, "backward_ms", b.backward_ms);
	ct_json_set_f64(j, "optim_ms", b.optim_ms);
	ct_json_set_i64(j, "allocations", (int64_t)b.allocations);
	ct_json_set_i64(j, "loader_allocations", (int64_t)b.loader_allocations);
	const enum ct_status st = set_nodes(j, s, b.profiled);
	if (st == CT_OK)
		return ct__print_json(j, false);
	ct_json_destroy(j);
	return st;
}

static enum ct_status bench_loader(struct ct_session *s, int64_t steps)
{
	ct_loader *l = NULL;
	struct ct_loader_batch b;
	struct ct_loader_opts lo;
	uint64_t images = 0, sum = 0;
	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->train), true, 0, 1, &lo);
	CT_TRY(ct_loader_create(s->train, &lo, &l));
	int64_t t0 = ct_now_ns();
	enum ct_status st = CT_OK;
	for (int64_t i = 0; i < steps && st == CT_OK; i++) {
		st = ct_loader_next(l, CT_FOREVER, &b);
		images += st == CT_OK ? b.n : 0;
		sum += st == CT_OK && b.n > 0 ? ((const uint8_t *)b.x)[0] : 0;
		ct_loader_release(l, &b);
	}
	double seconds = ct_seconds_since(t0);
	ct_loader_destroy(l);
	CT_TRY(st);
	ct_json *j = ct_json_object();
	ct_json_set_str(j, "bench", "loader");
	ct_json_set_str(j, "data", ct_config_choice(s->cfg, "data.name"));
	ct_json_set_i64(j, "threads", lo.n_threads);
	ct_json_set_i64(j, "images", (int64_t)images);
	ct_json_set_i64(j, "checksum", (int64_t)sum);
	ct_json_set_f64(j, "open_seconds", s->data_s);
	ct_json_set_f64(j, "images_per_sec", (double)images / seconds);
	return ct__print_json(j, false);
}

static enum ct_status run_local(const struct ct_cli *cli, int64_t default_steps,
				enum ct_status (*fn)(struct ct_session *, int64_t))
{
	struct ct_config *c = NULL;
	struct ct_session s = {0};
	int64_t steps;
	CT_TRY(ct_cli_number("--steps", cli->steps, default_steps, 1, 1000000, &steps));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_session_create(c, NULL, true, &s);
	if (st == CT_OK)
		st = fn(&s, steps);
	ct_session_destroy(&s, st < 0);
	ct_config_destroy(c);
	return st;
}

enum ct_status ct_cmd_bench_step(const struct ct_cli *cli)
{
	return run_local(cli, 200, bench_step);
}

enum ct_status ct_cmd_bench_loader(const struct ct_cli *cli)
{
	return run_local(cli, 2000, bench_loader);
}
