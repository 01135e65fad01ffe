/* What describes the model is decided in this order: a config that the user names, the description in the weights file,
 * unless a KEY=VALUE would change the model or its data, and the config of the run. A config does not contain the
 * number of outputs, which depends on the data set; it is taken from the weights, because the data set may not exist
 * here. A run that is still training may delete a checkpoint while it is used, so everything that reads weights goes
 * through ct_model_source_use, which starts again with another one. */
#include "trainer/tools/export/source.h"

#include <string.h>

#include "base/file.h"
#include "data/files/class_list.h"
#include "trainer/plan/describe.h"
#include "trainer/run/checkpoint/model_weights.h"

/* The keys that do not change the model or its input. */
static const char machine_keys[] =
	"device precision launch.devices launch.threads train.engine train.isa batch.eval log.level";

static char *existing(const char *directory, const char *name)
{
	char *path = ct_path_join(directory, name);

	if (path && ct_file_exists(path))
		return path;
	ct_free(path);
	return NULL;
}

enum ct_status ct_model_source_use(struct ct_model_source *s, ct_checkpoint_use_fn use, void *user)
{
	const struct ct_model_request *q = s->request;
	char *list = existing(q->model, "checkpoints");
	enum ct_status st;

	ct_free(s->weights);
	s->weights = NULL;
	if (!list && q->which)
		return CT_FAIL(CT_USAGE, "--checkpoint %s can be used with a run directory only, and %s is not one",
			       q->which, q->model);
	if (!list)
		return ct_checkpoint_use(NULL, q->model, use, user, &s->weights);
	ct_free(list);
	st = ct_checkpoint_use(q->model, q->which ? q->which : "best", use, user, &s->weights);
	if (st == CT_NOT_FOUND && !s->weights && !q->which)
		st = ct_checkpoint_use(q->model, "last", use, user, &s->weights);
	return st;
}

static const char *set_of_model(const struct ct_model_request *q)
{
	for (size_t i = 0; i < q->n_sets; i++) {
		if (!ct_word_in(machine_keys, q->sets[i].key, strlen(q->sets[i].key)))
			return q->sets[i].key;
	}
	return NULL;
}

/* Finds the weights, and reads their description unless the request overrides it. */
static enum ct_status read_description(const char *path, void *user)
{
	struct ct_model_source *s = user;
	struct ct_weights_file file;

	CT_TRY(ct_weights_open(path, &file));
	ct_description_release(&s->description);
	enum ct_status st = CT_OK;
	if (!s->request->config && !set_of_model(s->request))
		st = ct_description_load(file.tensors, file.path, &s->description);
	ct_weights_close(&file);
	if (st != CT_NOT_FOUND)
		return st;
	ct_error_clear();
	return CT_OK;
}

/* Loads a config for weights that describe their model: only the keys of the machine differ from the defaults. */
static enum ct_status default_config(const struct ct_model_source *s, struct ct_config **out)
{
	static const char origin[] = "weights";
	const struct ct_model_request *q = s->request;
	struct ct_config_set *sets = CT_NEW_ARRAY(struct ct_config_set, q->n_sets + 3);

	CT_TRY_ALLOC(sets);
	sets[0] = (struct ct_config_set){"model.name", "mlp", origin};
	sets[1] = (struct ct_config_set){"data.name", "synthetic", origin};
	sets[2] = (struct ct_config_set){"train.epochs", "1", origin};
	if (q->n_sets > 0)
		memcpy(sets + 3, q->sets, q->n_sets * sizeof(*sets));
	enum ct_status st = ct_config_load(NULL, sets, q->n_sets + 3, out);
	ct_free(sets);
	return st;
}

static enum ct_status load_config(struct ct_model_source *s, const char *run)
{
	const struct ct_model_request *q = s->request;
	char *path;

	if (!q->config && !run) {
		if (s->description.model.name)
			return default_config(s, &s->cfg);
		const char *key = set_of_model(q);
		if (key) {
			CT_FAIL(CT_USAGE, "%s cannot be set without a config, because %s is not in a run directory",
				key, q->model);
			return ct_error_hint("give the configuration of the model with --config CONFIG.yaml");
		}
		CT_FAIL(CT_USAGE,
			"%s does not describe its model and is not in a run directory, so the model of these weights is unknown",
			q->model);
		return ct_error_hint("give the configuration of the model with --config CONFIG.yaml");
	}
	CT_TRY_ALLOC(path = q->config ? ct_strdup(q->config) : ct_path_join(run, "config.yaml"));
	enum ct_status st = ct_config_load(path, q->sets, q->n_sets, &s->cfg);
	ct_free(path);
	return st;
}

/* Prefers the class names that the run has stored, because they exist even if the data set does not. */
static enum ct_status add_classes(struct ct_model_source *s, const char *run)
{
	const char *given = s->cfg->data.classes_file;
	char *own = run ? existing(run, "classes.txt") : NULL, *listed = NULL;

	if (!own && given[0])
		CT_TRY_ALLOC(listed = ct_path_join(s->cfg->data.dir, given));
	const char *path = own ? own : listed;
	struct ct_class_list list = {0};
	enum ct_status st = path ? ct_class_list_load(path, &list) : CT_OK;
	if (st == CT_OK && list.n == s->description.model.n_outputs)
		st = ct_description_set_classes(&s->description, (const char *const *)list.names, list.n);
	ct_class_list_release(&list);
	ct_free(listed);
	ct_free(own);
	return st;
}

/* Takes the number of outputs from the weights, regardless of the config. */
static enum ct_status find_outputs(const char *path, void *user)
{
	struct ct_model_source *s = user;
	ct_graph *g;

	CT_TRY(ct_model_build(&s->description.model, &g));
	enum ct_status st = ct_model_weights_outputs(path, g, &s->description.model.n_outputs);
	ct_graph_destroy(g);
	return st;
}

/* Describes the model of the config, without its data set. */
static enum ct_status describe_config(struct ct_model_source *s, const char *run)
{
	struct ct_dataset_info info;
	struct ct_run_plan plan;

	CT_TRY(ct_plan_foresee_data(s->cfg, &info));
	if (info.kind != CT_SAMPLE_ENCODED && info.h == 0)
		return CT_FAIL(CT_CONFIG, "the size of the images is unknown, because data.name=%s does not define it",
			       ct_config_choice(s->cfg, "data.name"));
	CT_TRY(ct_run_plan_make(s->cfg, 1, NULL, &info, &plan));
	CT_TRY(ct_plan_describe(s->cfg, &info, &plan, &s->description));
	CT_TRY(ct_model_source_use(s, find_outputs, s));
	return add_classes(s, run);
}

static enum ct_status open_source(struct ct_model_source *s, const char *run)
{
	CT_TRY(ct_model_source_use(s, read_description, s));
	CT_TRY(load_config(s, run));
	return s->description.model.name ? CT_OK : describe_config(s, run);
}

enum ct_status ct_model_source_open(const struct ct_model_request *q, struct ct_model_source *out)
{
	char *run = ct_checkpoint_run(q->model);
	*out = (struct ct_model_source){.request = q};
	enum ct_status st = open_source(out, run);

	ct_free(run);
	return st;
}

void ct_model_source_release(struct ct_model_source *s)
{
	ct_description_release(&s->description);
	ct_config_destroy(s->cfg);
	ct_free(s->weights);
	*s = (struct ct_model_source){0};
}
