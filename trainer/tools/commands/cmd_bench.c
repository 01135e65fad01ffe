/* `ctrain bench step|loader`. Each command measures one part of the work separately. The scripts that compare ctrain
 * with other programs are in bench/. */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "trainer/tools/bench/step_print.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/as_rank_impl.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

static enum ct_status measure_step(struct ct_session *s, int64_t steps, const char *trace_path, struct ct_step_bench *b)
{
	struct ct__step_trace trace = {.session = s};

	enum ct_status st = ct_step_bench(s, steps, trace_path ? &trace : NULL, b);
	if (st == CT_OK && trace_path)
		st = ct_trace_write(&trace, trace_path);
	ct_trace_release(&trace);
	return st;
}

struct step_command {
	const char *trace;
	bool json;
	const struct ct_config *cfg;
	int64_t steps;
};

static enum ct_status bench_step(void *user, const struct ct_identity *id)
{
	const struct step_command *c = user;
	struct ct_session s = {0};
	struct ct_step_bench b;

	enum ct_status st = ct_session_create(c->cfg, id, true, &s);
	if (st == CT_OK)
		st = measure_step(&s, c->steps, c->trace, &b);
	if (st == CT_OK && ct_session_is_root(&s))
		st = c->json ? ct_step_print_json(&s, &b) : ct_step_print_table(&s, &b, c->trace);
	ct_session_destroy(&s, st < 0);
	return st;
}

static enum ct_status refuse_pipeline(const struct ct_config *c)
{
	if (c->launch.pipeline == 1)
		return CT_OK;
	CT_FAIL(CT_UNSUPPORTED, "bench step does not measure launch.pipeline=%lld", (long long)c->launch.pipeline);
	return ct_error_hint("use launch.pipeline=1");
}

/* Without --trace, one rank is measured, without communication. */
enum ct_status ct_cmd_bench_step(const struct ct_cli *cli)
{
	const struct ct_bench_step_options *o = cli->own;
	struct step_command c = {.trace = o->trace, .json = cli->json};
	struct ct_config *cfg = NULL;

	CT_TRY(ct_cli_number("--steps", cli->steps, 200, 1, 1000000, &c.steps));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &cfg));
	c.cfg = cfg;
	enum ct_status st = refuse_pipeline(cfg);
	if (st == CT_OK)
		st = ct_log_configure(cfg->log.level);
	if (st == CT_OK)
		st = o->trace ? ct__as_rank(cli, cfg, ct__has_ranks(cfg), bench_step, &c) : bench_step(&c, NULL);
	ct_config_destroy(cfg);
	return st;
}

static enum ct_status bench_loader(struct ct_session *s, int64_t steps)
{
	ct_loader *l = NULL;
	struct ct_loader_batch b;
	struct ct_loader_opts lo;
	uint64_t images = 0, sum = 0;

	ct_plan_loader_opts(s->cfg, &s->plan, ct_dataset_info(s->data.train), true, 0, 1, &lo);
	CT_TRY(ct_loader_create(s->data.train, &lo, &l));
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
	ct_json_set_f64(j, "open_seconds", s->start.data_s);
	ct_json_set_f64(j, "images_per_sec", (double)images / seconds);
	return ct_print_json(j, false);
}

enum ct_status ct_cmd_bench_loader(const struct ct_cli *cli)
{
	struct ct_config *c = NULL;
	struct ct_session s = {0};
	int64_t steps;

	CT_TRY(ct_cli_number("--steps", cli->steps, 2000, 1, 1000000, &steps));
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_session_create(c, NULL, true, &s);
	if (st == CT_OK)
		st = bench_loader(&s, steps);
	ct_session_destroy(&s, st < 0);
	ct_config_destroy(c);
	return st;
}
