/* The files are a data set for the loader of training, so images are decoded and prepared by several threads, as the
 * description of the model says. The loader drops unreadable images, so a batch may be shorter than its part of the
 * list; the index of each sample shows which ones are missing, and results are reported in the order of the list.
 *
 * With crops, the loader makes larger squares, out of which the views are cut. The probabilities of the views are
 * averaged, not the logits. The weights may disappear while a run is training, so the net is built by a function that
 * can be called again with another checkpoint. */
#include "trainer/tools/predict/predictor.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/formats/dataset_files.h"
#include "data/loader/loader.h"
#include "infer/ranking.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/precision.h"
#include "trainer/plan/run_plan.h"
#include "trainer/run/checkpoint/model_weights.h"

static enum ct_status check_model(const struct ct_predictor *p)
{
	const struct ct_description *d = &p->source.description;

	if (d->model.loss == CT_LOSS_MSE)
		return CT_FAIL(CT_CONFIG, "predict prints classes, but this model predicts numbers (model.loss=mse)");
	if (d->resize == 0)
		return CT_FAIL(
			CT_CONFIG,
			"predict cannot prepare image files for this model, because its input is not an image of 1 or 3 channels");
	return CT_OK;
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
	const struct ct_config *c = p->source.cfg;
	const struct ct_description *d = &p->source.description;
	struct ct_net_opts opts = {.batch = p->rows,
				   .input = CT_INPUT_U8_NHWC,
				   .precision = ct_plan_precision(c),
				   .autotune = CT_AUTOTUNE_OFF}; /* a few images do not repay it */

	memcpy(opts.mean, d->mean, sizeof(opts.mean));
	memcpy(opts.std, d->std, sizeof(opts.std));
	release_net(p);
	CT_TRY(ct_model_build(&d->model, &p->graph));
	CT_TRY(ct_plan_device_open(c, 0, &p->device));
	CT_TRY(ct_engine_open(c->train.engine, p->device, ct_plan_threads(c, 1), &p->engine));
	CT_TRY(ct_plan_check_precision(c, p->engine));
	CT_TRY(ct_net_create(p->engine, p->graph, &opts, &p->net));
	CT_TRY(ct_model_weights_load(weights, p->net, CT_WEIGHTS_WHOLE, NULL));
	return ct_program_create(p->net, p->rows, CT_EVAL, &p->program);
}

enum ct_status ct_predictor_open(const struct ct_model_request *q, int max_rows, struct ct_predictor *out)
{
	*out = (struct ct_predictor){0};
	CT_TRY(ct_model_source_open(q, &out->source));
	CT_TRY(check_model(out));
	out->rows = max_rows < out->source.cfg->batch.eval ? max_rows : (int)out->source.cfg->batch.eval;
	return ct_model_source_use(&out->source, build, out);
}

void ct_predictor_release(struct ct_predictor *p)
{
	release_net(p);
	ct_model_source_release(&p->source);
	memset(p, 0, sizeof(*p));
}

enum ct_status ct_views_parse(const char *text, struct ct_views *out)
{
	*out = (struct ct_views){.flip = strcmp(text, "flip") == 0 || strcmp(text, "flip,crops") == 0,
				 .crops = strcmp(text, "crops") == 0 || strcmp(text, "flip,crops") == 0};
	if (!out->flip && !out->crops)
		return CT_FAIL(CT_USAGE, "--tta %s: expected flip, crops or flip,crops", text);
	return CT_OK;
}

struct job {
	struct ct_predictor *p;
	char *const *paths;
	char **errors; /* [n] */
	struct ct_views views;
	int h, w;        /* size of the images of the loader, from which views are cut */
	float *logits;   /* [rows, classes] of one view */
	float *mean;     /* [rows, classes] probabilities */
	uint8_t *view;   /* [rows, H, W, 3] */
	uint8_t *gray;   /* [rows, H, W], if the model has one input channel */
	int32_t *labels; /* [rows] zeros, because the loss is not used */
	struct ct_prediction best;
	void (*tell)(void *user, uint32_t i, const struct ct_prediction *r, const char *error);
	void *user;
	int top, n_classes;
};

static void note_bad(void *user, uint32_t sample, const char *text)
{
	struct job *j = user;

	j->errors[sample] = ct_strdup(text);
}

static const struct ct_shape *input_of(const struct job *j)
{
	return &j->p->source.description.model.input;
}

static const void *to_gray(struct job *j, const uint8_t *rgb, uint32_t n)
{
	const struct ct_shape *in = input_of(j);

	ct_description_gray(rgb, n * (size_t)in->h * (size_t)in->w, j->gray);
	return j->gray;
}

/* Cuts the view with its corner at (x0, y0) out of n images [h,w,3]. */
static void cut_view(struct job *j, const uint8_t *images, uint32_t n, int y0, int x0, bool flip)
{
	const struct ct_shape *in = input_of(j);
	uint8_t *to = j->view;

	for (uint32_t row = 0; row < n; row++) {
		const uint8_t *image = images + (size_t)row * (size_t)j->h * (size_t)j->w * 3;

		for (int y = 0; y < in->h; y++) {
			const uint8_t *from = image + ((size_t)(y0 + y) * (size_t)j->w + (size_t)x0) * 3;

			for (int x = 0; x < in->w; x++, to += 3)
				memcpy(to, from + 3 * (flip ? in->w - 1 - x : x), 3);
		}
	}
}

/* Adds the probabilities of one view to the mean. */
static enum ct_status add_view(struct job *j, const uint8_t *rgb, uint32_t n, float weight)
{
	struct ct_predictor *p = j->p;
	struct ct_batch in = {.n = (int)n, .x = input_of(j)->c == 1 ? to_gray(j, rgb, n) : rgb, .labels = j->labels};

	CT_TRY(ct_program_forward(p->program, &in));
	int head = ct_graph_node(p->graph, ct_graph_loss(p->graph))->in[0];
	CT_TRY(ct_program_read(p->program, head, false, j->logits));
	for (uint32_t row = 0; row < n; row++) {
		float *x = j->logits + (size_t)row * (size_t)j->n_classes;
		float *mean = j->mean + (size_t)row * (size_t)j->n_classes;

		ct_softmax(x, j->n_classes);
		for (int i = 0; i < j->n_classes; i++)
			mean[i] += weight * x[i];
	}
	return CT_OK;
}

static enum ct_status classify(struct job *j, const struct ct_loader_batch *b)
{
	const struct ct_shape *in = input_of(j);
	const int bottom = j->h - in->h, right = j->w - in->w;
	const int corner[5][2] = {
		{(int)rint(bottom / 2.0), (int)rint(right / 2.0)}, {0, 0}, {0, right}, {bottom, 0}, {bottom, right}};
	const int n_crops = j->views.crops ? 5 : 1, n_flips = j->views.flip ? 2 : 1;

	if (b->n == 0)
		return CT_OK;
	memset(j->mean, 0, b->n * (size_t)j->n_classes * sizeof(float));
	if (n_crops * n_flips == 1)
		return add_view(j, b->x, b->n, 1);
	for (int k = 0; k < n_crops; k++) {
		for (int flip = 0; flip < n_flips; flip++) {
			cut_view(j, b->x, b->n, corner[k][0], corner[k][1], flip == 1);
			CT_TRY(add_view(j, j->view, b->n, 1.0f / (float)(n_crops * n_flips)));
		}
	}
	return CT_OK;
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
				ct_top_k(j->mean + (size_t)row++ * (size_t)j->n_classes, j->n_classes, j->best.n,
					 j->best.label, j->best.probability);
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
	const struct ct_shape *in = input_of(j);

	CT_TRY_ALLOC(j->errors = CT_NEW_ARRAY(char *, n));
	CT_TRY_ALLOC(j->logits = CT_NEW_ARRAY(float, rows *(size_t)j->n_classes));
	CT_TRY_ALLOC(j->mean = CT_NEW_ARRAY(float, rows *(size_t)j->n_classes));
	CT_TRY_ALLOC(j->view = CT_NEW_ARRAY(uint8_t, rows *(size_t)in->h *(size_t)in->w * 3));
	CT_TRY_ALLOC(j->gray = CT_NEW_ARRAY(uint8_t, rows *(size_t)in->h *(size_t)in->w));
	CT_TRY_ALLOC(j->labels = CT_NEW_ARRAY(int32_t, rows));
	j->best.n = j->top < j->n_classes ? j->top : j->n_classes;
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
	ct_free(j->mean);
	ct_free(j->view);
	ct_free(j->gray);
	ct_free(j->labels);
	ct_free(j->best.label);
	ct_free(j->best.probability);
}

/* Crops are cut out of a square that is as large as the resized image allows for every aspect ratio. */
static enum ct_status plan_views(struct job *j, struct ct_transform *t)
{
	const struct ct_shape *in = input_of(j);

	if (j->views.crops && t->resize <= in->h && t->resize <= in->w) {
		CT_FAIL(CT_USAGE,
			"--tta crops: images are resized to %d pixels, so the model's input of %dx%d leaves no other crops",
			t->resize, in->w, in->h);
		return ct_error_hint("use --tta flip");
	}
	if (j->views.crops)
		t->h = t->w = t->resize;
	j->h = t->h;
	j->w = t->w;
	return CT_OK;
}

enum ct_status ct_predictor_run(struct ct_predictor *p, char *const *paths, uint32_t n,
				const struct ct_predict_opts *opts,
				void (*tell)(void *user, uint32_t i, const struct ct_prediction *r, const char *error),
				void *user)
{
	struct job j = {.p = p,
			.paths = paths,
			.tell = tell,
			.user = user,
			.top = opts->top,
			.views = opts->views,
			.n_classes = p->source.description.model.n_outputs};
	int cpus = ct_cpu_count();
	struct ct_loader_opts lo = {
		.sampler = {.n = n, .global_batch = (uint32_t)p->rows, .world = 1, .accumulate = 1},
		.transform = ct_description_transform(&p->source.description),
		.bad = CT_BAD_DROP,
		.max_bad = n,
		.on_bad = note_bad,
		.user = &j,
		.n_threads = (uint32_t)cpus < n ? cpus : (int)n,
	};
	ct_dataset *files = NULL;
	ct_loader *loader = NULL;

	CT_TRY(plan_views(&j, &lo.transform));
	lo.transform.image.max_pixels = (uint64_t)p->source.cfg->data.max_pixels;
	CT_TRY(ct_dataset_open_files("imagefolder", paths, n, &files));
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
