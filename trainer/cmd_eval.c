/* `ctrain eval CONFIG --checkpoint PATH|best|last`: loss and accuracy of a checkpoint on the evaluation data. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "trainer/cli.h"
#include "trainer/evaluate.h"
#include "trainer/print_json.h"

static ct_json *as_json(const char *path, const struct ct_eval_result *r)
{
	ct_json *j = ct_json_object();
	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", "eval");
	ct_json_set_str(j, "checkpoint", path);
	ct_json_set_f64(j, "loss", r->loss);
	ct_json_set_f64(j, "top1", r->top1 < 0 ? NAN : r->top1); /* null for regression, as in metrics.jsonl */
	ct_json_set_f64(j, "top5", r->top5 < 0 ? NAN : r->top5);
	ct_json_set_i64(j, "count", (int64_t)r->count);
	ct_json_set_f64(j, "seconds", r->seconds);
	return j;
}

static enum ct_status evaluate(const struct ct_cli *cli, struct ct_session *s)
{
	char *path = NULL;
	struct ct_eval_result r;
	CT_TRY(ct_checkpoint_resolve(s->run_dir, cli->checkpoint ? cli->checkpoint : "best", &path));
	enum ct_status st = ct_checkpoint_load_weights(path, s->net, s->cfg->train.ema > 0);
	if (st == CT_OK)
		st = ct_evaluate(s, NULL, NULL, &r);
	if (st == CT_OK && cli->json)
		st = ct_print_json(as_json(path, &r), false);
	else if (st == CT_OK && s->plan.regression)
		printf("%s: loss %.6g over %llu samples (%.2f s)\n", path, r.loss, (unsigned long long)r.count,
		       r.seconds);
	else if (st == CT_OK)
		printf("%s: top1 %.4f  top5 %.4f  loss %.4f over %llu samples (%.2f s)\n", path, r.top1, r.top5, r.loss,
		       (unsigned long long)r.count, r.seconds);
	ct_free(path);
	return st;
}

enum ct_status ct_cmd_eval(const struct ct_cli *cli)
{
	struct ct_config *c = NULL;
	struct ct_session s = {0};
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = ct_session_create_local(c, false, &s);
	if (st == CT_OK)
		st = evaluate(cli, &s);
	ct_session_destroy(&s, st < 0);
	ct_config_destroy(c);
	return st;
}
