/* Text, JSON lines and CSV are printed as results arrive, so a long list needs no memory for them; JSON is one object,
 * which is printed at the end. The label of an image is the class whose name its directory has; the accuracy counts
 * only images with a label. Paths and names of classes come from elsewhere: they are escaped for the terminal, and
 * for CSV. */
#define CT_LOG_COMPONENT "predict"
#include "trainer/tools/predict/output.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

enum ct_status ct_predict_output_init(struct ct_predict_output *o, enum ct_predict_format format,
				      const struct ct_predictor *p, char *const *paths, uint32_t n)
{
	const size_t n_classes = (size_t)p->source.description.n_classes;

	*o = (struct ct_predict_output){.format = format, .p = p, .paths = paths, .n = n};
	if (format == CT_PREDICT_JSON)
		o->images = ct_json_array();
	if (format == CT_PREDICT_CSV)
		printf("path,rank,class,name,probability,label,error\n");
	if (n_classes > 0) {
		CT_TRY_ALLOC(o->n_of_class = CT_NEW_ARRAY(uint32_t, n_classes));
		CT_TRY_ALLOC(o->right_of_class = CT_NEW_ARRAY(uint32_t, n_classes));
	}
	return CT_OK;
}

void ct_predict_output_release(struct ct_predict_output *o)
{
	ct_json_destroy(o->images);
	ct_free(o->n_of_class);
	ct_free(o->right_of_class);
	*o = (struct ct_predict_output){0};
}

/* Returns the class whose name is that of the directory of the file, or -1. */
static int class_of_path(const struct ct_description *d, const char *path)
{
	const char *end = strrchr(path, '/'), *begin = end;

	while (begin && begin > path && begin[-1] != '/')
		begin--;
	for (int i = 0; end && i < d->n_classes; i++) {
		if (strlen(d->classes[i]) == (size_t)(end - begin) &&
		    strncmp(d->classes[i], begin, (size_t)(end - begin)) == 0)
			return i;
	}
	return -1;
}

static ct_json *image_json(const struct ct_predict_output *o, uint32_t i, const struct ct_prediction *r, int label,
			   const char *error)
{
	const struct ct_description *d = &o->p->source.description;
	ct_json *image = ct_json_object(), *list = ct_json_array();

	ct_json_set_str(image, "path", o->paths[i]);
	for (int k = 0; r && k < r->n; k++) {
		ct_json *one = ct_json_object();

		ct_json_set_i64(one, "class", r->label[k]);
		if (r->label[k] < d->n_classes)
			ct_json_set_str(one, "name", d->classes[r->label[k]]);
		ct_json_set_f64(one, "p", (double)r->probability[k]);
		ct_json_push(list, one);
	}
	if (label >= 0)
		ct_json_set_i64(image, "label", label);
	if (error)
		ct_json_set_str(image, "error", error);
	ct_json_set(image, "top", list);
	return image;
}

static void print_json_line(ct_json *image)
{
	struct ct_str text = {0};

	if (ct_json_dump(image, false, &text) < 0)
		CT_WARN("%s", ct_error_message());
	else
		printf("%s\n", ct_str_text(&text));
	ct_str_release(&text);
	ct_json_destroy(image);
}

static void print_field(const char *text)
{
	struct ct_str field = {0};

	ct_str_add_csv(&field, text);
	fputs(ct_str_text(&field), stdout);
	ct_str_release(&field);
}

static void print_csv_row(const struct ct_predict_output *o, uint32_t i, const struct ct_prediction *r, int k,
			  int label, const char *error)
{
	const struct ct_description *d = &o->p->source.description;

	print_field(o->paths[i]);
	if (r) {
		printf(",%d,%d,", k + 1, r->label[k]);
		print_field(r->label[k] < d->n_classes ? d->classes[r->label[k]] : "");
		printf(",%.6g,", (double)r->probability[k]);
	} else {
		printf(",,,,,");
	}
	if (label >= 0)
		printf("%d", label);
	putchar(',');
	if (error)
		print_field(error);
	putchar('\n');
}

/* Paths and names of classes may come from elsewhere, and must not control the terminal. */
static void print_line(const char *text)
{
	char shown[5];

	for (size_t n = strlen(text), taken; n > 0; text += taken, n -= taken) {
		taken = ct_escape_next(text, n, shown);
		fputs(shown, stdout);
	}
	putchar('\n');
}

static void print_text(const struct ct_predict_output *o, uint32_t i, const struct ct_prediction *r)
{
	const struct ct_description *d = &o->p->source.description;

	print_line(o->paths[i]);
	for (int k = 0; k < r->n; k++) {
		printf("  %6.2f %%  ", 100 * (double)r->probability[k]);
		if (r->label[k] < d->n_classes)
			print_line(d->classes[r->label[k]]);
		else
			printf("class %d\n", r->label[k]);
	}
}

void ct_predict_output_add(void *user, uint32_t i, const struct ct_prediction *r, const char *error)
{
	struct ct_predict_output *o = user;
	const int label = class_of_path(&o->p->source.description, o->paths[i]);

	o->n_bad += r == NULL;
	if (error)
		CT_WARN("%s", error);
	if (r && label >= 0) {
		o->n_of_class[label]++;
		o->right_of_class[label] += r->label[0] == label;
	}
	if (o->format == CT_PREDICT_JSON)
		ct_json_push(o->images, image_json(o, i, r, label, error));
	else if (o->format == CT_PREDICT_JSONL)
		print_json_line(image_json(o, i, r, label, error));
	else if (o->format == CT_PREDICT_CSV)
		for (int k = 0; k < (r ? r->n : 1); k++)
			print_csv_row(o, i, r, k, label, error);
	else if (r)
		print_text(o, i, r);
}

/* Sums over all classes. */
static uint32_t total(const struct ct_predict_output *o, const uint32_t *of_class)
{
	uint32_t sum = 0;

	for (int i = 0; of_class && i < o->p->source.description.n_classes; i++)
		sum += of_class[i];
	return sum;
}

static double share(uint32_t part, uint32_t all)
{
	return all ? (double)part / all : 0;
}

void ct_predict_output_accuracy(const struct ct_predict_output *o, struct ct_str *text)
{
	const struct ct_description *d = &o->p->source.description;
	const uint32_t n = total(o, o->n_of_class), right = total(o, o->right_of_class);

	if (n == 0)
		return;
	ct_str_addf(text, "accuracy %.2f %% (%u of %u images in directories with names of classes)\n",
		    100 * share(right, n), right, n);
	for (int i = 0; i < d->n_classes; i++) {
		if (o->n_of_class[i] == 0)
			continue;
		ct_str_addf(text, "  %6.2f %%  ", 100 * share(o->right_of_class[i], o->n_of_class[i]));
		ct_str_add_escaped(text, d->classes[i], strlen(d->classes[i]), SIZE_MAX);
		ct_str_addf(text, " (%u of %u)\n", o->right_of_class[i], o->n_of_class[i]);
	}
}

static ct_json *accuracy_json(const struct ct_predict_output *o)
{
	const struct ct_description *d = &o->p->source.description;
	const uint32_t n = total(o, o->n_of_class);
	ct_json *j = ct_json_object(), *list = ct_json_array();

	ct_json_set_i64(j, "count", n);
	ct_json_set_f64(j, "top1", share(total(o, o->right_of_class), n));
	for (int i = 0; i < d->n_classes; i++) {
		ct_json *one;

		if (o->n_of_class[i] == 0)
			continue;
		one = ct_json_object();
		ct_json_set_str(one, "name", d->classes[i]);
		ct_json_set_i64(one, "count", o->n_of_class[i]);
		ct_json_set_f64(one, "top1", share(o->right_of_class[i], o->n_of_class[i]));
		ct_json_push(list, one);
	}
	ct_json_set(j, "classes", list);
	return j;
}

ct_json *ct_predict_output_json(struct ct_predict_output *o, double seconds)
{
	ct_json *j = ct_json_object();

	ct_json_set_i64(j, "v", 1);
	ct_json_set_str(j, "kind", "predict");
	ct_json_set_str(j, "model", o->p->source.description.model.name);
	ct_json_set_str(j, "checkpoint", o->p->source.weights);
	ct_json_set(j, "images", o->images);
	o->images = NULL;
	if (total(o, o->n_of_class) > 0)
		ct_json_set(j, "accuracy", accuracy_json(o));
	ct_json_set_f64(j, "seconds", seconds);
	ct_json_set_f64(j, "images_per_sec", seconds > 0 ? o->n / seconds : 0);
	return j;
}
