/* `ctrain check` and `ctrain config dump|docs|schema`. */
#define CT_LOG_COMPONENT "check"
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "dist/net/local_addr.h"
#include "trainer/plan/host_binding.h"
#include "trainer/plan/run_plan.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"

/* Prints the text unless it could not be made. Takes text. */
static enum ct_status deliver(const struct ct_cli *cli, struct ct_str *text, enum ct_status st)
{
	if (st == CT_OK)
		return ct_print_to(cli->out, text);
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
	if (c->data.dir[0])
		ct_str_add(out, "  the data files exist; ctrain data check decodes them\n");
}

/* Checks the number of stages against the ranks that this command would start. */
static enum ct_status check_ranks(const struct ct_config *c)
{
	struct ct_ranks ranks;
	struct ct_stages stages;

	CT_TRY(ct_plan_ranks(c, &ranks));
	return ct_plan_stages(c, ranks.world, ranks.first, &stages);
}

/* An address belongs to a launch: the next one may run on other hosts. */
static void warn_of_address(const struct ct_config *c, const char *key, const char *value, const char *option)
{
	char addr[CT_ADDR_LEN];
	bool local = true;

	if (ct_config_origin_kind(c, key) != CT_ORIGIN_FILE)
		return;
	if (strncmp(value, "tcp:", 4) != 0 && ct_net_is_local(value, &local, addr) < 0)
		ct_error_clear();
	CT_WARN("%s: %s is \"%s\"%s; remove it and pass %s instead, because the next run may use other hosts",
		ct_config_origin(c, key), key, value, local ? "" : ", which is not an address of this host", option);
}

static void warn_of_addresses(const struct ct_config *c)
{
	if (c->launch.master_addr[0])
		warn_of_address(c, "launch.master_addr", c->launch.master_addr, "--master-addr");
	if (strncmp(c->launch.init, "tcp:", 4) == 0)
		warn_of_address(c, "launch.init", c->launch.init, "--init");
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
		st = ct_host_binding_check(c);
	if (st == CT_OK)
		st = ct_plan_check_data(c);
	warn_of_addresses(c);
	add_summary(c, &text);
	ct_config_destroy(c);
	return deliver(cli, &text, st == CT_OK ? ct_str_status(&text) : st);
}

static void add_values(struct ct_str *out, const float *v, int n)
{
	for (int i = 0; i < n; i++)
		ct_str_addf(out, "%s%g", i > 0 ? ", " : "in effect: [", (double)v[i]);
	ct_str_add(out, "]");
}

/* Copies the dump, and adds the normalization that is in effect to data.mean and data.std if they are not set: it
 * depends on the data set. The values are comments, so that the dump loads to the same config. */
static void add_normalization(const struct ct_dataset_info *info, const char *dump, struct ct_str *out)
{
	static const char mean[] = "  mean: []", std[] = "  std: []";
	const bool known = info->kind != CT_SAMPLE_F32 && info->c > 0 && info->c <= (int)CT_ARRAY_LEN(info->mean);

	for (const char *line = dump, *end; *line; line = end + (*end == '\n')) {
		const bool is_mean = strncmp(line, mean, strlen(mean)) == 0,
			   is_std = strncmp(line, std, strlen(std)) == 0;

		end = line + strcspn(line, "\n");
		ct_str_add_bytes(out, line, (size_t)(end - line));
		if (known && (is_mean || is_std)) {
			ct_str_add(out, memchr(line, '#', (size_t)(end - line)) ? ", " : "  # ");
			add_values(out, is_mean ? info->mean : info->std, info->c);
		}
		ct_str_add(out, "\n");
	}
}

enum ct_status ct_cmd_config_dump(const struct ct_cli *cli)
{
	const struct ct_config_dump_options *o = cli->own;
	struct ct_config *c;
	struct ct_dataset_info info;
	struct ct_str dump = {0}, text = {0};
	enum ct_status st;

	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	st = ct_config_dump(c, o->origins, &dump);
	if (st == CT_OK && ct_plan_known_data(c, &info) < 0) {
		ct_error_clear(); /* damaged files: a dump needs no data */
		info = (struct ct_dataset_info){0};
	}
	if (st == CT_OK)
		add_normalization(&info, ct_str_text(&dump), &text);
	ct_str_release(&dump);
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
