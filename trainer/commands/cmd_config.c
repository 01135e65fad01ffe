/* `ctrain check` and `ctrain config dump|docs|schema`. */
#include "base/file.h"
#include "base/mem.h"
#include "trainer/commands/cli.h"
#include "trainer/commands/print_impl.h"
#include "trainer/plan/run_plan.h"

/* Writes the text to the file given by --out, durably, or to standard output. Takes text. */
static enum ct_status deliver(const struct ct_cli *cli, struct ct_str *text, enum ct_status st)
{
	if (st == CT_OK && !cli->out)
		return ct__print_text(text);
	if (st == CT_OK)
		st = ct_str_status(text);
	if (st == CT_OK)
		st = ct_file_replace(cli->out, ct_str_text(text), text->len);
	ct_str_release(text);
	return st;
}

static void add_summary(const struct ct_config *c, struct ct_str *out)
{
	ct_str_addf(out, "ok: run %s in %s\n", c->run.name, c->run.dir);
	ct_str_addf(out, "  model %s on %s%s%s, ", ct_config_choice(c, "model.name"), ct_config_choice(c, "data.name"),
		    c->data.dir[0] ? " from " : "", c->data.dir);
	if (c->batch.global > 0)
		ct_str_addf(out, "batch %lld over all ranks\n", (long long)c->batch.global);
	else
		ct_str_addf(out, "batch %lld per rank\n", (long long)c->batch.per_rank);
	ct_str_addf(out, "  %s, lr %g%s, schedule %s, ", ct_config_choice(c, "optim.name"), c->optim.lr,
		    c->optim.lr_rule == CT_CFG_LR_RULE_LINEAR ? " scaled by the batch" : "",
		    ct_config_choice(c, "schedule.name"));
	if (c->train.epochs > 0)
		ct_str_addf(out, "%lld epoch%s%s", (long long)c->train.epochs, ct_plural(c->train.epochs),
			    c->train.max_steps > 0 ? " or " : "\n");
	if (c->train.max_steps > 0)
		ct_str_addf(out, "%lld steps\n", (long long)c->train.max_steps);
}

/* Checks the number of stages against the ranks that this command would start. */
static enum ct_status check_ranks(const struct ct_config *c)
{
	struct ct_ranks ranks;
	struct ct_stages stages;

	CT_TRY(ct_plan_ranks(c, &ranks));
	return ct_plan_stages(c, ranks.world, ranks.first, &stages);
}

enum ct_status ct_cmd_check(const struct ct_cli *cli)
{
	struct ct_config *c;
	struct ct_str text = {0};
	enum ct_status st;

	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	st = check_ranks(c);
	if (st == CT_OK)
		st = ct_plan_check_model(c);
	if (st == CT_OK)
		st = ct_plan_check_engine(c);
	if (st == CT_OK)
		st = ct_plan_check_data(c);
	add_summary(c, &text);
	ct_config_destroy(c);
	return deliver(cli, &text, st == CT_OK ? ct_str_status(&text) : st);
}

enum ct_status ct_cmd_config_dump(const struct ct_cli *cli)
{
	struct ct_config *c;
	struct ct_str text = {0};
	enum ct_status st;

	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	st = ct_config_dump(c, cli->origins, &text);
	ct_config_destroy(c);
	return deliver(cli, &text, st);
}

enum ct_status ct_cmd_config_docs(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	enum ct_status st = ct_config_docs(&text);

	return deliver(cli, &text, st);
}

enum ct_status ct_cmd_config_schema(const struct ct_cli *cli)
{
	struct ct_str text = {0};
	enum ct_status st = ct_config_json_schema(&text);

	return deliver(cli, &text, st);
}
