/* Everything is found out before anything is printed or written: layout, facts about a sample of the images, the
 * device. The recipe then chooses, and the config is written and loaded again, because a config that ctrain refuses
 * would be a defect of ctrain. What was found and chosen is printed only after that, with the next commands. An
 * existing file is refused before images are read. */
#include "trainer/tools/init/init.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device/device.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/thread.h"
#include "trainer/config/config.h"

#define SAMPLE 2000   /* images to decode */
#define SHOWN 5       /* damaged images to print */
#define UNBALANCED 10 /* ratio of the class sizes from which a remark is printed */

static void find_device(struct ct_init_facts *f)
{
	struct ct_device_info info;
	char why[512];
	bool has_driver;
	const char *kind = ct_device_choose(&has_driver, why, sizeof(why));

	f->gpu = strcmp(kind, "cuda") == 0;
	if (ct_device_describe(kind, 0, &info) == CT_OK)
		f->memory_bytes = info.total_bytes;
	ct_error_clear();
}

static void find_class_sizes(const ct_dataset *d, struct ct_init_facts *f)
{
	const struct ct_survey *s = &f->survey;
	int most = 0, least = 0;

	for (int k = 1; k < s->n_classes; k++) {
		most = s->per_class[k] > s->per_class[most] ? k : most;
		least = s->per_class[k] < s->per_class[least] ? k : least;
	}
	f->largest = ct_dataset_class_name(d, most);
	f->smallest = ct_dataset_class_name(d, least);
	f->n_largest = s->per_class[most];
	f->n_smallest = s->per_class[least];
}

static enum ct_status survey(const ct_dataset *d, struct ct_init_facts *f)
{
	static const double at[3] = {0, 0.5, 1};
	const struct ct_survey_opts o = {
		.what = "reading images", .data = d, .max_samples = SAMPLE, .threads = ct_cpu_count()};

	CT_TRY(ct_survey_make(&o, &f->survey));
	f->n = ct_dataset_info(d)->n;
	for (int i = 0; i < 3; i++) {
		CT_TRY(ct_survey_quantile(&f->survey, CT_SURVEY_WIDTH, at[i], &f->width[i]));
		CT_TRY(ct_survey_quantile(&f->survey, CT_SURVEY_HEIGHT, at[i], &f->height[i]));
	}
	CT_TRY(ct_survey_quantile(&f->survey, CT_SURVEY_SHORT_SIDE, 0.5, &f->short_side));
	if (f->survey.n_damaged == f->survey.n) {
		CT_FAIL(CT_DATA, "%s: none of the %u images that were read can be decoded", f->layout.dir, f->survey.n);
		return ct_error_hint("`ctrain data check DIR` lists the reasons");
	}
	find_class_sizes(d, f);
	return CT_OK;
}

static enum ct_status count_val(struct ct_init_facts *f)
{
	ct_dataset *val;

	if (!f->layout.has_val)
		return CT_OK;
	CT_TRY(ct_layout_open(&f->layout, false, &val));
	f->n_val = ct_dataset_info(val)->n;
	ct_dataset_close(val);
	return CT_OK;
}

static void print_damaged(const ct_dataset *d, const struct ct_init_facts *f)
{
	const struct ct_survey *s = &f->survey;
	uint32_t shown = 0;
	char where[512];

	if (s->n_damaged == 0)
		return;
	printf("damaged   %u of %u images cannot be decoded; remove or replace them (`ctrain data check` lists all)\n",
	       s->n_damaged, s->n);
	for (uint32_t i = 0; i < s->n && shown < SHOWN; i++) {
		if (!s->images[i].damage)
			continue;
		ct_dataset_describe(d, s->images[i].sample, where, sizeof(where));
		printf("          %s: %s\n", where, s->images[i].damage);
		shown++;
	}
}

static void print_found(const struct ct_init_facts *f, const struct ct_recipe *r)
{
	const struct ct_survey *s = &f->survey;
	const struct ct_layout *l = &f->layout;

	printf("found     %d classes, %u images%s in %s%s%s\n", s->n_classes, f->n, l->has_val ? " for training" : "",
	       l->dir, l->train[0] == '.' ? "" : "/", l->train[0] == '.' ? "" : l->train);
	if (l->labels[0])
		printf("labels    from %s: images in column \"%s\", classes in column \"%s\"\n", l->labels,
		       l->image_column, l->class_column);
	printf("classes   from %u images (%s) to %u (%s)%s\n", f->n_smallest, f->smallest, f->n_largest, f->largest,
	       f->n_largest > (uint64_t)UNBALANCED * f->n_smallest
		       ? ": unbalanced, so look at the accuracy of each class"
		       : "");
	printf("sizes     %.0f x %.0f pixels (median); width %.0f to %.0f, height %.0f to %.0f%s", f->width[1],
	       f->height[1], f->width[0], f->width[2], f->height[0], f->height[2], s->n < f->n ? "" : "\n");
	if (s->n < f->n)
		printf(", of %u sampled images\n", s->n);
	printf("color     mean %.4f %.4f %.4f, standard deviation %.4f %.4f %.4f\n", s->mean[0], s->mean[1], s->mean[2],
	       s->std[0], s->std[1], s->std[2]);
	if (l->split_column[0])
		printf("evaluate  on %u images of the same file, which column \"%s\" selects\n", f->n_val,
		       l->split_column);
	else if (l->val_labels[0])
		printf("evaluate  on %u images of %s\n", f->n_val, l->val_labels);
	else if (l->has_val)
		printf("evaluate  on %u images in %s/%s\n", f->n_val, l->dir, l->val);
	else
		printf("evaluate  on %g %% of the images of each class (data.val_fraction), which are not trained on\n",
		       100 * r->val_fraction);
}

/* A run has the name of its config, without the suffix. */
static void print_next(const char *out)
{
	const char *name = ct_path_name(out), *dot = strrchr(name, '.');
	struct ct_str config = {0}, stem = {0}, run = {0};

	ct_str_addf(&stem, "%.*s", (int)(dot ? (size_t)(dot - name) : strlen(name)), name);
	ct_str_add_shell(&config, out);
	ct_str_add_shell(&run, ct_str_text(&stem));
	printf("\nnext:\n  ctrain data show %s      # look at augmented training images\n"
	       "  ctrain %s                # train; runs/%s/report.html then shows the result\n"
	       "  ctrain export runs/%s --out %s.onnx      # write the trained model as an ONNX file\n",
	       ct_str_text(&config), ct_str_text(&config), ct_str_text(&stem), ct_str_text(&run), ct_str_text(&run));
	ct_str_release(&config);
	ct_str_release(&stem);
	ct_str_release(&run);
}

static void print_chosen(const struct ct_init_facts *f, const struct ct_recipe *r, const char *out)
{
	printf("chosen    %s for %d x %d pixels, batch %u, learning rate %g, %d epochs\n", r->model, r->size, r->size,
	       r->batch, r->lr, r->epochs);
	if (r->few_images && !r->small)
		printf("          few images: pretrained weights are likely to be much better (see model.weights in the file)\n");
	if (r->size == 128 && f->short_side >= 200)
		printf("          data.train.size=224 is more accurate, but three times as slow without a GPU\n");
	printf("wrote     %s\n", out);
	print_next(out);
}

/* Returns the path of the config to write, owned by the caller. */
static char *default_out(const char *dir)
{
	char path[CT_LAYOUT_PATH];
	const char *name = realpath(dir, path) ? ct_path_name(path) : "";

	return ct_strfmt("%s.yaml", name[0] ? name : "images");
}

/* Loads the file again, because a config that ctrain refuses would be a defect. */
static enum ct_status check_written(const char *path)
{
	struct ct_config *c;

	CT_TRY(ct_config_load(path, NULL, 0, &c));
	ct_config_destroy(c);
	return CT_OK;
}

static enum ct_status write_config(const struct ct_init_facts *f, const struct ct_recipe *r, const char *out)
{
	struct ct_str text = {0};
	enum ct_status st;

	ct_init_write(f, r, ct_path_name(out), &text);
	st = ct_str_status(&text);
	if (st == CT_OK)
		st = ct_file_replace(out, ct_str_text(&text), text.len);
	ct_str_release(&text);
	return st == CT_OK ? check_written(out) : st;
}

static enum ct_status run(const ct_dataset *d, struct ct_init_facts *f, const char *out)
{
	CT_TRY(survey(d, f));
	CT_TRY(count_val(f));
	find_device(f);
	const struct ct_recipe_facts facts = {.n = f->n,
					      .short_side = f->short_side,
					      .has_val = f->layout.has_val,
					      .gpu = f->gpu,
					      .memory_bytes = f->memory_bytes};
	const struct ct_recipe r = ct_recipe_choose(&facts);
	CT_TRY(write_config(f, &r, out));
	print_found(f, &r);
	print_damaged(d, f);
	print_chosen(f, &r, out);
	return CT_OK;
}

/* The run gets the name of the file, so a name that would have to be escaped everywhere is refused. */
static enum ct_status check_name(const char *out)
{
	const char *name = ct_path_name(out);
	struct ct_str shown = {0};

	ct_str_add_escaped(&shown, name, strlen(name), 200);
	enum ct_status st = ct_str_status(&shown);
	if (st == CT_OK && strcmp(ct_str_text(&shown), name) != 0) {
		CT_FAIL(CT_USAGE, "the name of the config to write is not plain text: \"%s\"", ct_str_text(&shown));
		st = ct_error_hint("choose a shorter name without control characters with --out");
	}
	ct_str_release(&shown);
	return st;
}

enum ct_status ct_init_run(const struct ct_init_opts *o)
{
	struct ct_init_facts f = {0};
	ct_dataset *d = NULL;
	enum ct_status st;
	char *out;

	CT_TRY(ct_layout_find(o->dir, o->labels, &f.layout));
	CT_TRY_ALLOC(out = o->out ? ct_strdup(o->out) : default_out(o->dir));
	st = check_name(out);
	if (st == CT_OK && ct_file_exists(out) && !o->force) {
		CT_FAIL(CT_USAGE, "%s exists", out);
		st = ct_error_hint("--out writes another file, and --force replaces this one");
	}
	if (st == CT_OK)
		st = ct_layout_open(&f.layout, true, &d);
	if (st == CT_OK)
		st = run(d, &f, out);
	ct_dataset_close(d);
	ct_survey_release(&f.survey);
	ct_free(out);
	return st;
}
