/* The data part of the plan: files, transforms and image sizes. */
#include <math.h>
#include <string.h>

#include "data/formats/dataset_files.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/precision.h"
#include "trainer/plan/run_plan.h"

#define SMALL_IMAGES 64 /* pixels; up to this size `model.stem: auto` chooses the stem without downsampling */

bool ct_plan_has_val(const struct ct_config *c)
{
	return c->data.val_fraction > 0 || strcmp(c->data.val, "none") != 0;
}

/* NULL if it is not set. */
static const char *text_or_null(const char *text)
{
	return text[0] ? text : NULL;
}

void ct_plan_dataset_spec(const struct ct_config *c, bool train, struct ct_dataset_spec *out)
{
	const struct ct_int_list *s = &c->data.shape;
	const bool divided = c->data.val_fraction > 0;
	const char *split = train || divided ? c->data.train : c->data.val;
	const char *first = c->data.train[0] ? c->data.train : c->data.labels[0] ? "." : "train";

	*out = (struct ct_dataset_spec){
		.name = ct_config_choice(c, "data.name"),
		.dir = c->data.dir,
		.path = divided || (c->data.labels[0] && !split[0]) ? first : text_or_null(split),
		.classes_of = c->data.name == CT_CFG_DATA_IMAGEFOLDER ? first : NULL,
		.val_fraction = c->data.val_fraction,
		.labels = text_or_null(!train && c->data.val_labels[0] ? c->data.val_labels : c->data.labels),
		.train_labels = text_or_null(c->data.labels),
		.image_column = text_or_null(c->data.labels_image),
		.class_column = text_or_null(c->data.labels_class),
		.split_column = text_or_null(c->data.labels_split),
		.index_dir = text_or_null(c->data.index_dir),
		.classes = text_or_null(c->data.classes_file),
		.threads = ct_plan_threads(c, ct_plan_local_procs(c)),
		.split = text_or_null(split),
		.train = train,
		.n = (uint32_t)(train ? c->data.n_train : c->data.n_val),
		.c = s->n > 0 ? (int)s->v[0] : 0,
		.h = s->n > 1 ? (int)s->v[1] : 0,
		.w = s->n > 2 ? (int)s->v[2] : 0,
		.n_classes = c->data.classes > 0 ? (int)c->data.classes : 0,
		.n_targets = (int)c->data.targets,
		.seed = (uint64_t)c->run.seed,
	};
}

enum ct_status ct_plan_open_data(const struct ct_config *c, bool train, const struct ct_dataset_info *other,
				 ct_dataset **out)
{
	struct ct_dataset_spec spec;

	CT_TRY(ct_plan_limit_cpu(c));
	ct_plan_dataset_spec(c, train, &spec);
	if (other && spec.n_classes == 0)
		spec.n_classes = other->n_classes;
	return ct_dataset_open(&spec, out);
}

bool ct_plan_is_encoded(const struct ct_config *c)
{
	return c->data.name == CT_CFG_DATA_IMAGEFOLDER || c->data.name == CT_CFG_DATA_SHARDS;
}

static int64_t largest_size(const struct ct_config *c)
{
	int64_t most = c->data.train_size.n > 0 ? 0 : CT_DATA_DEFAULT_SIZE;

	for (int i = 0; i < c->data.train_size.n; i++)
		most = c->data.train_size.v[i].size > most ? c->data.train_size.v[i].size : most;
	return most;
}

bool ct_plan_small_stem(const struct ct_config *c, const struct ct_dataset_info *train)
{
	if (c->model.stem != CT_CFG_STEM_AUTO)
		return c->model.stem == CT_CFG_STEM_CIFAR;
	if (train->kind == CT_SAMPLE_ENCODED)
		return largest_size(c) <= SMALL_IMAGES;
	return train->h <= SMALL_IMAGES && train->w <= SMALL_IMAGES;
}

/* A fraction is rounded up: 1 % of 320 samples is 4. */
static uint64_t bad_budget(const struct ct_config *c, uint32_t n)
{
	return (uint64_t)(c->data.max_bad < 1 ? ceil(c->data.max_bad * n) : c->data.max_bad);
}

void ct_plan_augment(const struct ct_config *c, struct ct_augment *out)
{
	*out = (struct ct_augment){.crop_padding = (int)c->data.augment.crop_padding,
				   .flip = c->data.augment.flip,
				   .degrees = (float)c->data.augment.degrees,
				   .translate = (float)c->data.augment.translate,
				   .scale_min = (float)c->data.augment.scale_min,
				   .scale_max = (float)c->data.augment.scale_max,
				   .shear = (float)c->data.augment.shear,
				   .brightness = (float)c->data.augment.brightness,
				   .contrast = (float)c->data.augment.contrast,
				   .saturation = (float)c->data.augment.saturation,
				   .hue = (float)c->data.augment.hue,
				   .rand_augment = (int)c->data.augment.rand_augment,
				   .rand_magnitude = (int)c->data.augment.rand_magnitude,
				   .erasing = (float)c->data.augment.erasing};
}

static void plan_sizes(const struct ct_config *c, struct ct_run_plan *p)
{
	const struct ct_size_list *l = &c->data.train_size;

	for (int i = 0; i < l->n; i++)
		p->sizes[p->n_sizes++] = (struct ct_loader_size){
			.epoch = (uint32_t)l->v[i].epoch, .h = (int)l->v[i].size, .w = (int)l->v[i].size};
	if (p->n_sizes == 0)
		p->sizes[p->n_sizes++] = (struct ct_loader_size){.h = CT_DATA_DEFAULT_SIZE, .w = CT_DATA_DEFAULT_SIZE};
}

static void plan_encoded(const struct ct_config *c, struct ct_run_plan *p)
{
	struct ct_image_opts image = {.max_pixels = (uint64_t)c->data.max_pixels,
				      .exif = c->data.exif,
				      .fast = c->data.decode == CT_CFG_DECODE_FAST};

	plan_sizes(c, p);
	int size = c->data.val_size > 0 ? (int)c->data.val_size : p->sizes[p->n_sizes - 1].h;
	p->transform.crop = CT_CROP_RANDOM;
	p->transform.h = p->sizes[0].h;
	p->transform.w = p->sizes[0].w;
	p->transform.area_min = (float)c->data.augment.area.v[0];
	p->transform.area_max = (float)c->data.augment.area.v[1];
	p->transform.ratio_min = (float)c->data.augment.ratio.v[0];
	p->transform.ratio_max = (float)c->data.augment.ratio.v[1];
	p->transform.image = image;
	p->val_transform = (struct ct_transform){
		.h = size, .w = size, .crop = CT_CROP_CENTER, .resize = (int)c->data.val_resize, .image = image};
}

/* With one class, every prediction is correct from the start, and nothing can be learned. */
static enum ct_status check_classes(const struct ct_config *c, const struct ct_dataset_info *train)
{
	if (train->n_classes != 1 || train->n_targets > 0)
		return CT_OK;
	CT_FAIL(CT_DATA, "%s%s%s has only one class, but a classifier needs at least two",
		ct_config_choice(c, "data.name"), c->data.dir[0] ? " in " : "", c->data.dir);
	return ct_error_hint(
		"%s",
		c->data.name == CT_CFG_DATA_IMAGEFOLDER
			? "add a directory for what is not in this class; if the directories of the classes are one level deeper, set data.dir or data.train to the directory that contains them"
			: "add samples of other classes; data.classes sets the number of classes if these samples do not contain all of them");
}

enum ct_status ct_plan_data(const struct ct_config *c, const struct ct_dataset_info *train,
			    const struct ct_dataset_info *val, struct ct_run_plan *p)
{
	CT_TRY(check_classes(c, train));
	p->encoded = train->kind == CT_SAMPLE_ENCODED;
	p->mixup = (float)c->data.augment.mixup;
	p->cutmix = (float)c->data.augment.cutmix;
	p->max_bad = bad_budget(c, train->n);
	p->max_bad_val = val ? bad_budget(c, val->n) : 0;
	ct_plan_augment(c, &p->transform.augment);
	memcpy(p->transform.augment.mean, p->net.mean, sizeof(p->net.mean));
	p->input = p->val_input = (struct ct_shape){train->c, train->h, train->w};
	if (p->encoded) {
		plan_encoded(c, p);
		p->input = (struct ct_shape){3, p->transform.h, p->transform.w};
		p->val_input = (struct ct_shape){3, p->val_transform.h, p->val_transform.w};
	}
	if (c->data.shuffle == CT_CFG_SHUFFLE_WINDOW && train->group_first) {
		p->train.window = (uint32_t)c->data.shuffle_window;
		p->train.n_groups = train->n_groups;
		p->train.group_first = train->group_first;
	}
	if (train->kind == CT_SAMPLE_F32)
		return CT_OK;
	CT_TRY(ct_transform_check(&p->transform, train));
	return val ? ct_transform_check(&p->val_transform, val) : CT_OK;
}

struct ct_shape ct_plan_input_at(const struct ct_run_plan *p, uint32_t epoch)
{
	struct ct_shape s = p->input;

	for (int i = 0; i < p->n_sizes && p->sizes[i].epoch <= epoch; i++) {
		s.h = p->sizes[i].h;
		s.w = p->sizes[i].w;
	}
	return s;
}

void ct_plan_loader_opts(const struct ct_config *c, const struct ct_run_plan *p, const struct ct_dataset_info *info,
			 bool train, uint32_t rank, int local_world, struct ct_loader_opts *out)
{
	*out = (struct ct_loader_opts){
		.sampler = train ? p->train : p->val,
		.transform = train ? p->transform : p->val_transform,
		.sizes = train ? p->sizes : NULL,
		.n_sizes = train ? p->n_sizes : 0,
		.mixup = train ? p->mixup : 0,
		.cutmix = train ? p->cutmix : 0,
		.bad = !p->encoded ? CT_BAD_FAIL
		       : train     ? CT_BAD_REPLACE
				   : CT_BAD_DROP,
		.max_bad = train ? p->max_bad : p->max_bad_val,
		.n_threads = train || p->encoded ? ct_plan_loader_threads(c, info, local_world) : 0,
		.depth = (int)c->data.depth,
	};
	out->sampler.rank = rank;
}

static enum ct_status same_weights(const struct ct_config *c, const ct_graph *a, const ct_graph *b,
				   struct ct_shape size)
{
	for (int i = 0; i < ct_graph_n_params(a); i++) {
		const struct ct_param *p = ct_graph_param(a, i), *q = ct_graph_param(b, i);

		if (p->n == q->n)
			continue;
		CT_FAIL(CT_CONFIG,
			"the weights of model.name=%s depend on the image size: for %dx%d, %s would have %zu elements instead of %zu",
			ct_config_choice(c, "model.name"), size.w, size.h, p->name, q->n, p->n);
		return ct_error_hint(
			"use the same size for training and evaluation, or a model whose linear layer follows a global_avg_pool");
	}
	return CT_OK;
}

static enum ct_status check_size(const struct ct_config *c, const struct ct_dataset_info *train, const ct_graph *g,
				 struct ct_shape size)
{
	const struct ct_shape *have = &ct_graph_node(g, 0)->shape;
	ct_graph *other = NULL;

	if (size.h == have->h && size.w == have->w)
		return CT_OK;
	CT_TRY(ct_plan_graph(c, train, size, &other));
	enum ct_status st = same_weights(c, g, other, size);
	ct_graph_destroy(other);
	return st;
}

enum ct_status ct_plan_check_sizes(const struct ct_config *c, const struct ct_dataset_info *train,
				   const struct ct_run_plan *p, const ct_graph *g)
{
	for (int i = 0; i < p->n_sizes; i++)
		CT_TRY(check_size(c, train, g, (struct ct_shape){p->input.c, p->sizes[i].h, p->sizes[i].w}));
	return p->has_val ? check_size(c, train, g, p->val_input) : CT_OK;
}

enum ct_status ct_plan_foresee_data(const struct ct_config *c, struct ct_dataset_info *out)
{
	const struct ct_int_list *s = &c->data.shape;
	bool regression = c->data.name == CT_CFG_DATA_SYNTHETIC_REGRESSION;
	ct_dataset *none = NULL;

	CT_TRY(ct_dataset_open_files(ct_config_choice(c, "data.name"), NULL, 0, &none));
	*out = *ct_dataset_info(none);
	ct_dataset_close(none);
	out->n = UINT32_MAX / 2; /* any batch size is possible */
	out->kind = ct_plan_is_encoded(c) ? CT_SAMPLE_ENCODED : regression ? CT_SAMPLE_F32 : CT_SAMPLE_U8_HWC;
	if (s->n == 3) {
		out->c = (int)s->v[0];
		out->h = (int)s->v[1];
		out->w = (int)s->v[2];
	}
	out->n_targets = regression ? (int)c->data.targets : 0;
	if (regression)
		out->n_classes = 0;
	else if (c->data.classes > 0)
		out->n_classes = (int)c->data.classes;
	else if (ct_plan_is_encoded(c))
		out->n_classes = c->model.name == CT_MODEL_LAYERS ? 0 : 2;
	else if (out->n_classes < 2)
		out->n_classes = 10;
	return CT_OK;
}

/* Adds the properties that the headers of existing files contain. */
static enum ct_status peek(const struct ct_config *c, bool train, struct ct_dataset_info *info)
{
	struct ct_dataset_spec spec;

	ct_plan_dataset_spec(c, train, &spec);
	enum ct_status st = ct_dataset_peek(&spec, info);
	if (st != CT_NOT_FOUND)
		return st;
	ct_error_clear();
	return CT_OK;
}

enum ct_status ct_plan_known_data(const struct ct_config *c, struct ct_dataset_info *out)
{
	CT_TRY(ct_plan_foresee_data(c, out));
	return peek(c, true, out);
}

/* The engines of GPUs are in a module that only ranks open. */
static enum ct_status check_operations(const struct ct_config *c, const ct_graph *g)
{
	ct_device *device;

	if (!ct_plan_on_cpu(c))
		return CT_OK;
	CT_TRY(ct_plan_device_open(c, 0, &device));
	enum ct_status st = ct_engine_check_model(c->train.engine, device, g, ct_plan_precision(c));
	ct_device_close(device);
	return st;
}

enum ct_status ct_plan_check_model(const struct ct_config *c)
{
	const char *key = c->model.name == CT_MODEL_LAYERS ? "model.layers" : "model.name";
	struct ct_dataset_info info, val;
	struct ct_run_plan p;
	ct_graph *g = NULL;

	CT_TRY(ct_plan_known_data(c, &info));
	val = info;
	if (ct_plan_has_val(c))
		CT_TRY(peek(c, false, &val));
	if (info.kind != CT_SAMPLE_ENCODED && info.h == 0)
		return CT_OK;
	CT_TRY(ct_run_plan_make(c, 1, &info, ct_plan_has_val(c) ? &val : NULL, &p));
	enum ct_status st = ct_plan_graph(c, &info, p.input, &g);
	if (st == CT_OK)
		st = ct_plan_check_sizes(c, &info, &p, g);
	if (st == CT_OK)
		st = check_operations(c, g);
	if (st == CT_OK && c->launch.pipeline > 1) {
		int first[CT_MAX_STAGES + 1];

		key = "launch.pipeline";
		st = ct_graph_cut(g, (int)c->launch.pipeline, first);
		if (st == CT_CONFIG)
			st = ct_error_wrap("launch.pipeline=%d", (int)c->launch.pipeline);
	}
	ct_graph_destroy(g);
	if (st == CT_CONFIG) {
		ct_error_wrap("%s: error", ct_config_origin(c, key));
		ct_error_because(CT_REASON_PROBLEMS);
	}
	return st;
}
