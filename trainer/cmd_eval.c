/* `ctrain eval CONFIG --checkpoint PATH|best|last`: loss and accuracy of a checkpoint on the evaluation data. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "trainer/cli.h"
#include "trainer/evaluate.h"
#include "trainer/model_weights.h"
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
	ct_json_set_i64(j, "bad_samples", (int64_t)r->bad);
	ct_json_set_f64(j, "seconds", r->seconds);
	return j;
}

/* Where only the training data would say how many classes there are, the checkpoint does. */
static enum ct_status find_classes(const char *path, struct ct_config *c)
{
	struct ct_dataset_info info = {.kind = CT_SAMPLE_ENCODED, .c = 3, .n_classes = 2};
	ct_graph *g = NULL;
	int n;
	if (strcmp(c->data.name, "shards") != 0 || c->data.classes > 0 || strcmp(c->model.name, "layers") == 0)
		return CT_OK;
	CT_TRY(ct_plan_graph(c, &info, (struct ct_shape){3, 224, 224}, &g));
	enum ct_status st = ct_model_weights_outputs(path, g, &n);
	ct_graph_destroy(g);
	if (st == CT_OK)
		c->data.classes = n;
	return st;
}

static enum ct_status evaluate(const struct ct_cli *cli, const char *path, struct ct_session *s)
{
	struct ct_eval_result r;
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
	return st;
}

enum ct_status ct_cmd_eval(const struct ct_cli *cli)
{
	struct ct_config *c = NULL;
	struct ct_session s = {0};
	char *run_dir = NULL, *path = NULL;
	CT_TRY(ct_config_load(cli->args[0], cli->sets, cli->n_sets, &c));
	enum ct_status st = ct_log_configure(c->log.level);
	if (st == CT_OK)
		st = (run_dir = ct_plan_run_dir(c)) ? CT_OK : CT_NOMEM;
	if (st == CT_OK)
		st = ct_checkpoint_resolve(run_dir, cli->checkpoint ? cli->checkpoint : "best", &path);
	if (st == CT_OK)
		st = find_classes(path, c);
	if (st == CT_OK)
		st = ct_session_create_local(c, false, &s);
	if (st == CT_OK)
		st = evaluate(cli, path, &s);
	ct_free(path);
	ct_free(run_dir);
	ct_session_destroy(&s, st < 0);
	ct_config_destroy(c);
	return st;
}
