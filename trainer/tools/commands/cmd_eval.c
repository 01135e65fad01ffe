/* `ctrain eval CONFIG|RUN --checkpoint PATH|best|last`: computes the loss and accuracy of a checkpoint on the
 * evaluation data. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "data/files/class_list.h"
#include "trainer/run/checkpoint/checkpoint.h"
#include "trainer/run/checkpoint/model_weights.h"
#include "trainer/run/evaluation/eval_files.h"
#include "trainer/run/evaluation/evaluate.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/commands/as_rank_impl.h"
#include "trainer/tools/commands/commands.h"
#include "trainer/tools/commands/options_impl.h"
#include "trainer/tools/report/report.h"

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

/* Takes the number of classes from the checkpoint if otherwise only the training data would define it. */
static enum ct_status find_classes(const char *path, void *config)
{
	struct ct_config *c = config;
	struct ct_dataset_info info;
	struct ct_run_plan p;
	ct_graph *g = NULL;
	int n;

	if (c->data.name != CT_CFG_DATA_SHARDS || c->data.classes > 0)
		return CT_OK;
	CT_TRY(ct_plan_foresee_data(c, &info));
	CT_TRY(ct_run_plan_make(c, 1, NULL, &info, &p));
	CT_TRY(ct_plan_graph(c, &info, p.val_input, &g));
	enum ct_status st = ct_model_weights_outputs(path, g, &n);
	ct_graph_destroy(g);
	if (st == CT_OK)
		c->data.classes = n;
	return st;
}

/* Calls `use` for the checkpoint `which`. If `which` is NULL, uses the best checkpoint, or the last one if there is no
 * best one. *path is the path of the checkpoint, owned. */
static enum ct_status use_checkpoint(const char *which, const struct ct_config *c, ct_checkpoint_use_fn use, void *user,
				     char **path)
{
	char *run_dir;

	*path = NULL;
	CT_TRY_ALLOC(run_dir = ct_plan_run_dir(c));
	enum ct_status st = ct_checkpoint_use(run_dir, which ? which : "best", use, user, path);
	if (st == CT_NOT_FOUND && !*path && !which)
		st = ct_checkpoint_use(run_dir, "last", use, user, path);
	ct_free(run_dir);
	return st;
}

/* Compares the class names with those that the run of the checkpoint has stored, if any. */
static enum ct_status check_classes(const char *checkpoint, const ct_dataset *val)
{
	struct ct_class_list was = {0};
	enum ct_status st = CT_OK;
	char *run = ct_checkpoint_run(checkpoint), *path = NULL;

	if (run && !(path = ct_path_join(run, "classes.txt")))
		st = CT_NOMEM;
	else if (run && ct_file_exists(path))
		st = ct_class_list_load(path, &was);
	for (int i = 0; i < was.n && st == CT_OK; i++) {
		const char *is = ct_dataset_class_name(val, i);

		if (!is || strcmp(is, was.names[i]) == 0)
			continue;
		CT_FAIL(CT_DATA, "class %d was \"%s\" in training (%s), but is \"%s\" in the evaluation data", i,
			was.names[i], path, is);
		st = ct_error_hint(
			"set data.classes_file to a file that lists the classes in the same order as in training");
	}
	ct_class_list_release(&was);
	ct_free(path);
	ct_free(run);
	return st;
}

static enum ct_status print(const struct ct_cli *cli, const char *path, const struct ct_eval_result *r)
{
	if (cli->json)
		return ct_print_json(as_json(path, r), false);
	printf("%s: ", path);
	if (r->top1 >= 0)
		printf("top1 %.4f  top5 %.4f  loss %.4f", r->top1, r->top5, r->loss);
	else
		printf("loss %.6g", r->loss);
	printf(" over %llu samples (%.2f s)", (unsigned long long)r->count, r->seconds);
	if (r->bad > 0)
		printf(", %llu unreadable samples skipped", (unsigned long long)r->bad);
	printf("\n");
	return CT_OK;
}

static enum ct_status load(const char *path, void *session)
{
	struct ct_session *s = session;

	CT_TRY(check_classes(path, s->data.val));
	return ct_model_weights_load(path, s->net, CT_WEIGHTS_WHOLE, NULL);
}

/* Writes the files of the evaluation to --out or to the run of the checkpoint, whose report then shows them. */
static enum ct_status write_report(const struct ct_cli *cli, const struct ct_session *s, const char *checkpoint,
				   struct ct_predictions *p)
{
	struct ct_train_state state;
	char *run = ct_checkpoint_run(checkpoint), *dir = NULL, *lines = NULL, *page = NULL;

	if (p->n == 0) {
		ct_free(run);
		return CT_FAIL(CT_USAGE,
			       "--report is for models that predict classes, and for at most %d evaluation samples",
			       CT_PREDICTIONS_MAX);
	}
	if (ct_checkpoint_load_state(checkpoint, &state, &lines) == CT_OK)
		p->step = state.step;
	ct_error_clear();
	ct_free(lines);
	enum ct_status st = CT_OK;
	if (cli->out)
		st = (dir = ct_strdup(cli->out)) ? CT_OK : CT_NOMEM;
	else if (run)
		st = (dir = ct_path_join(run, "eval")) ? CT_OK : CT_NOMEM;
	else {
		CT_FAIL(CT_USAGE, "%s is not in a run directory", checkpoint);
		st = ct_error_hint("name the directory for the files with --out DIRECTORY");
	}
	if (st == CT_OK)
		st = ct_eval_files_write(dir, p, s->data.val, checkpoint);
	if (st == CT_OK && !cli->out)
		st = ct_report_write_run(run, NULL, &page);
	if (st == CT_OK && !cli->json)
		printf("%s\n", page ? page : dir);
	ct_free(page);
	ct_free(dir);
	ct_free(run);
	return st;
}

static enum ct_status evaluate(const struct ct_cli *cli, const char *which, struct ct_session *s)
{
	const struct ct_eval_options *o = cli->own;
	struct ct_eval_result r;
	struct ct_predictions p = {0};
	char *path = NULL;
	enum ct_status st = CT_OK;

	if (ct_session_is_root(s))
		st = use_checkpoint(which, s->cfg, load, s, &path);
	if (st == CT_OK)
		st = ct_session_share_weights(s);
	if (st == CT_OK)
		st = ct_evaluate(s, NULL, NULL, o->report ? &p : NULL, &r);
	if (st == CT_OK && path)
		st = print(cli, path, &r);
	if (st == CT_OK && path && o->report)
		st = write_report(cli, s, path, &p);
	ct_predictions_release(&p);
	ct_free(path);
	return st;
}

struct evaluation {
	const struct ct_cli *cli;
	const char *which;
	struct ct_config *cfg;
};

static enum ct_status run(void *user, const struct ct_identity *id)
{
	const struct evaluation *e = user;
	struct ct_session s = {0};
	char *path = NULL;
	enum ct_status st = use_checkpoint(e->which, e->cfg, find_classes, e->cfg, &path);

	if (st == CT_OK)
		st = ct_session_create(e->cfg, id, false, &s);
	if (st == CT_OK)
		st = evaluate(e->cli, e->which, &s);
	ct_free(path);
	ct_session_destroy(&s, st < 0);
	return st;
}

/* Loads the resolved config of a run. `dir` is its current directory, which may differ from the run.dir in the config.
 */
static enum ct_status load_run_config(const struct ct_cli *cli, const char *dir, struct ct_config **out)
{
	char *path = ct_path_join(dir, "config.yaml");
	struct ct_config_set *sets = CT_NEW_ARRAY(struct ct_config_set, cli->n_sets + 1);
	enum ct_status st = path && sets ? CT_OK : CT_NOMEM;

	if (st == CT_OK) {
		sets[0] = (struct ct_config_set){.key = "run.dir", .value = dir, .origin = cli->args[0]};
		if (cli->n_sets > 0)
			memcpy(sets + 1, cli->sets, cli->n_sets * sizeof(*sets));
		st = ct_config_load(path, sets, cli->n_sets + 1, out);
	}
	ct_free(sets);
	ct_free(path);
	return st;
}

/* Loads the config. The argument is a config file, a run directory, or a checkpoint of a run. *which is the checkpoint
 * to evaluate, borrowed, or NULL for the default. */
static enum ct_status load_config(const struct ct_cli *cli, struct ct_config **out, const char **which)
{
	const char *arg = cli->args[0];
	struct stat sb;

	*which = cli->checkpoint;
	if (stat(arg, &sb) != 0 || !S_ISDIR(sb.st_mode))
		return ct_config_load(arg, cli->sets, cli->n_sets, out);
	char *run = ct_checkpoint_run(arg), *list = ct_path_join(arg, "checkpoints");
	bool is_run = list && ct_file_exists(list);
	enum ct_status st;
	if (!list) {
		st = CT_NOMEM;
	} else if (!run) {
		CT_FAIL(CT_USAGE, "%s is neither a run directory nor a checkpoint in a run directory", arg);
		st = ct_error_hint(
			"a run directory contains config.yaml and checkpoints/. Alternatively, give the config: ctrain eval "
			"CONFIG.yaml --checkpoint PATH");
	} else if (!is_run && *which) {
		st = CT_FAIL(CT_USAGE, "%s is already a checkpoint, but --checkpoint selects %s", arg, *which);
	} else {
		*which = is_run ? *which : arg;
		st = load_run_config(cli, is_run ? arg : run, out);
	}
	ct_free(list);
	ct_free(run);
	return st;
}

enum ct_status ct_cmd_eval(const struct ct_cli *cli)
{
	struct evaluation e = {.cli = cli};

	CT_TRY(load_config(cli, &e.cfg, &e.which));
	enum ct_status st = ct_log_configure(e.cfg->log.level);
	if (st == CT_OK)
		st = ct__as_rank(cli, e.cfg, ct__has_ranks(e.cfg), run, &e);
	ct_config_destroy(e.cfg);
	return st;
}
