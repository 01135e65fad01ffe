#include "trainer/commands/predict_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/formats/dataset_files.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_weights.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/run_plan.h"

static char *existing(const char *folder, const char *name)
{
	char *path = ct_path_join(folder, name);
	if (path && ct_file_exists(path))
		return path;
	ct_free(path);
	return NULL;
}

/* Calls use for the checkpoint `which` of a run (NULL: the best, otherwise the last), or for a checkpoint outside of a run. */
static enum ct_status use_weights(struct ct_predictor *p, const char *model, const char *which,
				  ct_checkpoint_use_fn use)
{
	char *folder = existing(model, "checkpoints");
	enum ct_status st;
	ct_free(p->weights);
	p->weights = NULL;
	if (!folder && which)
		return CT_FAIL(CT_USAGE, "--checkpoint %s can be used with a run directory only, and %s is not one",
			       which, model);
	if (!folder)
		return ct_checkpoint_use(NULL, model, use, p, &p->weights);
	ct_free(folder);
	st = ct_checkpoint_use(model, which ? which : "best", use, p, &p->weights);
	if (st == CT_NOT_FOUND && !p->weights && !which)
		st = ct_checkpoint_use(model, "last", use, p, &p->weights);
	return st;
}

static enum ct_status only_find(const char *path, void *p)
{
	(void)path;
	(void)p;
	return CT_OK;
}

static enum ct_status find_config(struct ct_predictor *p, const char *run, const char *model, const char *config,
				  const struct ct_config_set *sets, size_t n_sets)
{
	char *path;
	if (!config && !run) {
		return CT_FAIL_HINT(CT_USAGE, "give the configuration of the model with --config CONFIG.yaml",
				    "%s is not in a run directory, so the model of these weights is unknown", model);
	}
	CT_TRY_ALLOC(path = config ? ct_strdup(config) : ct_path_join(run, "config.yaml"));
	enum ct_status st = ct_config_load(path, sets, n_sets, &p->cfg);
	ct_free(path);
	return st;
}

/* Prefers the class names that the run has stored, because they exist even if the data set does not. */
static enum ct_status load_classes(struct ct_predictor *p, const char *run)
{
	const char *given = p->cfg->data.classes_file;
	char *own = run ? existing(run, "classes.txt") : NULL;
	const char *path = own ? own : given[0] ? given : NULL;
	enum ct_status st = path ? ct_class_list_load(path, &p->classes) : CT_OK;
	ct_free(own);
	return st;
}

/* Derives the shape and normalization of evaluation images from the config, without the data set. */
static enum ct_status plan_images(struct ct_predictor *p)
{
	const struct ct_config *c = p->cfg;
	struct ct_dataset_info *info = &p->info;
	struct ct_run_plan plan;
	CT_TRY(ct_plan_foresee_data(c, info));
	if (info->n_targets > 0 || c->model.loss == CT_CFG_LOSS_MSE)
		return CT_FAIL(CT_CONFIG, "predict prints classes, but this model predicts numbers (model.loss=mse)");
	bool encoded = info->kind == CT_SAMPLE_ENCODED;
	if ((!encoded && info->h == 0) || (info->c != 1 && info->c != 3))
		return CT_FAIL(
			CT_CONFIG,
			"predict does not support data.name=%s, because it does not define how image files are preprocessed",
			ct_config_choice(c, "data.name"));
	CT_TRY(ct_run_plan_make(c, 1, NULL, info, &plan));
	p->input = plan.val_input;
	p->net_opts = plan.net;
	p->transform = plan.val_transform;
	if (!encoded) /* resize the short side to the crop, which then removes only the ends of the long side */
		p->transform = (struct ct_transform){.crop = CT_CROP_CENTER,
						     .h = info->h,
						     .w = info->w,
						     .resize = info->h > info->w ? info->h : info->w};
	return CT_OK;
}

/* Builds the graph with the number of classes of the weights, regardless of the config. */
static enum ct_status build_graph(struct ct_predictor *p, const char *weights)
{
	CT_TRY(ct_plan_graph(p->cfg, &p->info, p->input, &p->graph));
	CT_TRY(ct_model_weights_outputs(weights, p->graph, &p->info.n_classes));
	ct_graph_destroy(p->graph);
	p->graph = NULL;
	return ct_plan_graph(p->cfg, &p->info, p->input, &p->graph);
}

static void release_net(struct ct_predictor *p)
{
	ct_program_destroy(p->program);
	ct_net_destroy(p->net);
	ct_engine_close(p->engine);
	ct_device_close(p->device);
	ct_graph_destroy(p->graph);
	p->program = NULL;
	p->net = NULL;
	p->engine = NULL;
	p->device = NULL;
	p->graph = NULL;
}

/* Called again with another checkpoint if a run that is training has deleted this one meanwhile. */
static enum ct_status build(const char *weights, void *predictor)
{
	struct ct_predictor *p = predictor;

	release_net(p);
	CT_TRY(build_graph(p, weights));
	CT_TRY(ct_plan_device_open(p->cfg, 0, &p->device));
	CT_TRY(ct_engine_open(p->cfg->train.engine, p->device, ct_plan_threads(p->cfg, 1), &p->engine));
	CT_TRY(ct_plan_check_precision(p->cfg, p->engine));
	p->net_opts.batch = p->rows;
	p->net_opts.train = false;
	p->net_opts.autotune = CT_AUTOTUNE_OFF; /* a few images do not repay it */
	p->net_opts.sync = NULL;
	CT_TRY(ct_net_create(p->engine, p->graph, &p->net_opts, &p->net));
	CT_TRY(ct_model_weights_load(weights, p->net, CT_WEIGHTS_WHOLE, NULL));
	return ct_program_create(p->net, p->rows, CT_EVAL, &p->program);
}

static enum ct_status open_predictor(struct ct_predictor *p, const char *run, const char *model, const char *which,
				     const char *config, const struct ct_config_set *sets, size_t n_sets)
{
	CT_TRY(use_weights(p, model, which, only_find));
	CT_TRY(find_config(p, run, model, config, sets, n_sets));
	CT_TRY(load_classes(p, run));
	CT_TRY(plan_images(p));
	p->rows = p->rows < p->cfg->batch.eval ? p->rows : (int)p->cfg->batch.eval;
	return use_weights(p, model, which, build);
}

enum ct_status ct__predictor_open(const char *model, const char *which, const char *config,
				  const struct ct_config_set *sets, size_t n_sets, int max_rows,
				  struct ct_predictor *out)
{
	char *run = ct_checkpoint_run(model);
	*out = (struct ct_predictor){.rows = max_rows};
	enum ct_status st = open_predictor(out, run, model, which, config, sets, n_sets);
	ct_free(run);
	return st;
}

void ct__predictor_release(struct ct_predictor *p)
{
	release_net(p);
	ct_class_list_release(&p->classes);
	ct_config_destroy(p->cfg);
	ct_free(p->weights);
	memset(p, 0, sizeof(*p));
}

struct job {
	struct ct_predictor *p;
	char *const *paths;
	char **errors;   /* [n] */
	float *logits;   /* [rows, classes] */
	uint8_t *grey;   /* [rows, h, w], if the model has one input channel */
	int32_t *labels; /* [rows] zeros, because the loss is not used */
	struct ct_prediction best;
	void (*tell)(void *user, uint32_t i, const struct ct_prediction *r, const char *error);
	void *user;
	int top;
};

static void note_bad(void *user, uint32_t sample, const char *text)
{
	struct job *j = user;
	j->errors[sample] = ct_strdup(text);
}

/* ITU-R 601 luma, rounded as in Pillow's convert("L"). */
static const void *to_grey(struct job *j, const uint8_t *rgb, uint32_t n)
{
	size_t pixels = n * (size_t)j->p->input.h * (size_t)j->p->input.w;
	for (size_t i = 0; i < pixels; i++, rgb += 3)
		j->grey[i] = (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
	return j->grey;
}

/* Computes the softmax over all classes and selects the largest values. Overwrites x. */
static void rank_classes(struct job *j, float *x)
{
	int n = j->p->info.n_classes;
	float most = x[0];
	double sum = 0;
	for (int i = 1; i < n; i++)
		most = fmaxf(most, x[i]);
	for (int i = 0; i < n; i++)
		sum += exp((double)(x[i] - most));
	for (int k = 0; k < j->best.n; k++) {
		int at = 0;
		for (int i = 1; i < n; i++)
			at = x[i] > x[at] ? i : at;
		j->best.label[k] = at;
		j->best.probability[k] = (float)(exp((double)(x[at] - most)) / sum);
		x[at] = -INFINITY;
	}
}

static enum ct_status classify(struct job *j, const struct ct_loader_batch *b)
{
	struct ct_predictor *p = j->p;
	struct ct_batch in = {
		.n = (int)b->n, .x = p->input.c == 1 ? to_grey(j, b->x, b->n) : b->x, .labels = j->labels};
	if (b->n == 0)
		return CT_OK;
	CT_TRY(ct_program_forward(p->program, &in));
	int head = ct_graph_node(p->graph, ct_graph_loss(p->graph))->in[0];
	return ct_program_read(p->program, head, false, j->logits);
}

static enum ct_status run_batches(struct job *j, ct_loader *l, uint32_t n)
{
	struct ct_loader_batch b;
	for (uint32_t i = 0; i < n;) {
		CT_TRY(ct_loader_next(l, CT_FOREVER, &b));
		CT_TRY(classify(j, &b));
		/* The samples of a batch are in the order of the list, without unreadable images. */
		for (uint32_t row = 0, end = i + b.n_global; i < end; i++) {
			bool good = row < b.n && b.samples[row] == i;
			if (good)
				rank_classes(j, j->logits + (size_t)row++ * (size_t)j->p->info.n_classes);
			j->tell(j->user, i, good ? &j->best : NULL,
				good           ? NULL
				: j->errors[i] ? j->errors[i]
					       : "out of memory");
		}
		ct_loader_release(l, &b);
	}
	return CT_OK;
}

static enum ct_status alloc_job(struct job *j, uint32_t n, size_t rows)
{
	const struct ct_shape *in = &j->p->input;
	CT_TRY_ALLOC(j->errors = CT_NEW_ARRAY(char *, n));
	CT_TRY_ALLOC(j->logits = CT_NEW_ARRAY(float, rows *(size_t)j->p->info.n_classes));
	CT_TRY_ALLOC(j->grey = CT_NEW_ARRAY(uint8_t, rows * (size_t)in->h * (size_t)in->w));
	CT_TRY_ALLOC(j->labels = CT_NEW_ARRAY(int32_t, rows));
	j->best.n = j->top < j->p->info.n_classes ? j->top : j->p->info.n_classes;
	CT_TRY_ALLOC(j->best.label = CT_NEW_ARRAY(int, (size_t)j->best.n));
	CT_TRY_ALLOC(j->best.probability = CT_NEW_ARRAY(float, (size_t)j->best.n));
	return CT_OK;
}

static void release_job(struct job *j, uint32_t n)
{
	for (uint32_t i = 0; j->errors && i < n; i++)
		ct_free(j->errors[i]);
	ct_free(j->errors);
	ct_free(j->logits);
	ct_free(j->grey);
	ct_free(j->labels);
	ct_free(j->best.label);
	ct_free(j->best.probability);
}

enum ct_status ct__predictor_run(struct ct_predictor *p, char *const *paths, uint32_t n, int top,
				 void (*tell)(void *user, uint32_t i, const struct ct_prediction *r, const char *error),
				 void *user)
{
	struct job j = {.p = p, .paths = paths, .tell = tell, .user = user, .top = top};
	int cpus = ct_cpu_count();
	struct ct_loader_opts lo = {
		.sampler = {.n = n, .global_batch = (uint32_t)p->rows, .world = 1, .accumulate = 1},
		.transform = p->transform,
		.bad = CT_BAD_DROP,
		.max_bad = n,
		.on_bad = note_bad,
		.user = &j,
		.n_threads = (uint32_t)cpus < n ? cpus : (int)n,
	};
	ct_dataset *files = NULL;
	ct_loader *loader = NULL;
	CT_TRY(ct_dataset_open_files(ct_config_choice(p->cfg, "data.name"), paths, n, &files));
	enum ct_status st = alloc_job(&j, n, (size_t)p->rows);
	if (st == CT_OK)
		st = ct_loader_create(files, &lo, &loader);
	if (st == CT_OK)
		st = run_batches(&j, loader, n);
	ct_loader_destroy(loader);
	ct_dataset_close(files);
	release_job(&j, n);
	return st;
}
