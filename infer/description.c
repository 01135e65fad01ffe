/* The description consists of values that a file supplies, so all of them are checked before anyone allocates memory or
 * builds a graph from them: ranges, lengths of lists, finite numbers, and the relations between input, channels, resize
 * and outputs. Strings and arrays are copied, except the name of the model, which is the literal in the table of
 * models, so that an unknown model fails here. A list that is copied only in part is stored anyway with its length, and
 * the caller releases it. Every field is required when a description is read, so a field that is added later must be
 * optional, or files that exist could not be read. */
#include "infer/description.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/choice.h"

#define MAX_LAYERS 1024 /* and widths of hidden layers; as in configs. Building a graph is slow with many layers. */
#define MAX_CLASSES 1000000
#define MAX_SIDE 8192 /* of images, as in data/transform */

static const char *const losses[] = {"cross_entropy", "mse", NULL};

static enum ct_status copy_strings(const char *const *from, int n, char ***out)
{
	char **copy = CT_NEW_ARRAY(char *, (size_t)n + 1);

	CT_TRY_ALLOC(copy);
	*out = copy; /* complete or not, the caller releases it */
	for (int i = 0; i < n; i++)
		CT_TRY_ALLOC(copy[i] = ct_strdup(from[i]));
	return CT_OK;
}

static void free_strings(char **list, int n)
{
	for (int i = 0; list && i < n; i++)
		ct_free(list[i]);
	ct_free(list);
}

/* The model's arrays are const for those who build graphs. */
static char **layers_of(const struct ct_description *d)
{
	return (char **)(uintptr_t)d->model.layers;
}

enum ct_status ct_description_set_model(struct ct_description *out, const struct ct_model_spec *spec)
{
	struct ct_model_spec *m = &out->model;
	enum ct_status st;
	char **layers = NULL;
	int *hidden;

	*m = *spec;
	m->hidden = NULL;
	m->layers = NULL;
	CT_TRY_ALLOC(hidden = CT_NEW_ARRAY(int, (size_t)spec->n_hidden + 1));
	for (int i = 0; i < spec->n_hidden; i++)
		hidden[i] = spec->hidden[i];
	m->hidden = hidden;
	st = copy_strings(spec->layers, spec->n_layers, &layers);
	m->layers = (const char *const *)layers;
	return st;
}

enum ct_status ct_description_set_classes(struct ct_description *out, const char *const *names, int n)
{
	out->n_classes = n;
	return copy_strings(names, n, &out->classes);
}

void ct_description_release(struct ct_description *d)
{
	free_strings(d->classes, d->n_classes);
	free_strings(layers_of(d), d->model.n_layers);
	ct_free((int *)(uintptr_t)d->model.hidden);
	*d = (struct ct_description){0};
}

static ct_json *strings_json(const char *const *list, int n)
{
	ct_json *j = ct_json_array();

	for (int i = 0; i < n; i++)
		ct_json_push_str(j, list[i]);
	return j;
}

static ct_json *model_json(const struct ct_model_spec *m)
{
	ct_json *j = ct_json_object(), *hidden = ct_json_array();

	for (int i = 0; i < m->n_hidden; i++)
		ct_json_push_i64(hidden, m->hidden[i]);
	ct_json_set_str(j, "name", m->name);
	ct_json_set_i64(j, "outputs", m->n_outputs);
	ct_json_set_str(j, "loss", ct_choice_name(losses, (int)m->loss));
	ct_json_set(j, "hidden", hidden);
	ct_json_set_f64(j, "dropout", (double)m->dropout);
	ct_json_set(j, "layers", strings_json(m->layers, m->n_layers));
	ct_json_set_bool(j, "small_stem", m->small_stem);
	ct_json_set_f64(j, "drop_path", (double)m->drop_path);
	return j;
}

static ct_json *input_json(const struct ct_description *d)
{
	ct_json *j = ct_json_object(), *mean = ct_json_array(), *std = ct_json_array();
	const struct ct_shape *in = &d->model.input;

	for (int i = 0; i < in->c && i < (int)CT_ARRAY_LEN(d->mean); i++) {
		ct_json_push_f64(mean, (double)d->mean[i]);
		ct_json_push_f64(std, (double)d->std[i]);
	}
	ct_json_set_i64(j, "channels", in->c);
	ct_json_set_i64(j, "height", in->h);
	ct_json_set_i64(j, "width", in->w);
	ct_json_set(j, "mean", mean);
	ct_json_set(j, "std", std);
	ct_json_set_i64(j, "resize", d->resize);
	ct_json_set_bool(j, "exif", d->exif);
	ct_json_set_bool(j, "fast_decode", d->fast);
	return j;
}

enum ct_status ct_description_write(const struct ct_description *d, struct ct_str *out)
{
	ct_json *j = ct_json_object();
	enum ct_status st;

	ct_json_set_i64(j, "v", 1);
	ct_json_set(j, "model", model_json(&d->model));
	ct_json_set(j, "input", input_json(d));
	ct_json_set(j, "classes", strings_json((const char *const *)d->classes, d->n_classes));
	st = ct_json_dump(j, false, out);
	ct_json_destroy(j);
	return st;
}

static enum ct_status get_int(const ct_json *o, const char *key, int64_t lo, int64_t hi, int *out)
{
	int64_t v;

	CT_TRY(ct_json_get_i64(o, key, &v));
	if (v < lo || v > hi)
		return CT_FAIL(CT_DATA, "\"%s\" is %lld, which is not in %lld..%lld", key, (long long)v, (long long)lo,
			       (long long)hi);
	*out = (int)v;
	return CT_OK;
}

static bool fits_float(double v)
{
	return fabs(v) <= (double)FLT_MAX; /* false for NaN */
}

static enum ct_status get_float(const ct_json *o, const char *key, float *out)
{
	double v;

	CT_TRY(ct_json_get_f64(o, key, &v));
	if (!fits_float(v))
		return CT_FAIL(CT_DATA, "\"%s\" is %g, which is not a number in fp32", key, v);
	*out = (float)v;
	return CT_OK;
}

static enum ct_status get_array(const ct_json *o, const char *key, size_t max, const ct_json **out)
{
	*out = ct_json_get(o, key);
	if (!*out || !ct_json_is_array(*out) || ct_json_len(*out) > max)
		return CT_FAIL(CT_DATA, "\"%s\" is not an array of at most %zu values", key, max);
	return CT_OK;
}

/* *n is set even if the list is incomplete. */
static enum ct_status get_strings(const ct_json *o, const char *key, size_t max, char ***out, int *n)
{
	const char **borrowed;
	const ct_json *list;
	enum ct_status st = CT_OK;

	CT_TRY(get_array(o, key, max, &list));
	CT_TRY_ALLOC(borrowed = CT_NEW_ARRAY(const char *, ct_json_len(list) + 1));
	for (size_t i = 0; i < ct_json_len(list) && st == CT_OK; i++) {
		borrowed[i] = ct_json_as_str(ct_json_at(list, i));
		if (!borrowed[i])
			st = CT_FAIL(CT_DATA, "\"%s\" contains a value that is not a string", key);
	}
	if (st == CT_OK) {
		*n = (int)ct_json_len(list);
		st = copy_strings(borrowed, *n, out);
	}
	ct_free(borrowed);
	return st;
}

static enum ct_status get_hidden(const ct_json *j, struct ct_model_spec *m)
{
	const ct_json *list;
	int64_t v = 0;
	int *hidden;

	CT_TRY(get_array(j, "hidden", MAX_LAYERS, &list));
	CT_TRY_ALLOC(hidden = CT_NEW_ARRAY(int, ct_json_len(list) + 1));
	m->hidden = hidden;
	m->n_hidden = (int)ct_json_len(list);
	for (int i = 0; i < m->n_hidden; i++) {
		if (!ct_json_as_i64(ct_json_at(list, (size_t)i), &v) || v < 1 || v > INT32_MAX)
			return CT_FAIL(CT_DATA, "\"hidden\" contains a value that is not a positive integer");
		hidden[i] = (int)v;
	}
	return CT_OK;
}

/* The name is borrowed from the table of models. */
static enum ct_status get_name(const ct_json *j, struct ct_model_spec *m)
{
	const char *name;

	CT_TRY(ct_json_get_str(j, "name", &name));
	for (size_t i = 0; !m->name && ct_model_name_at(i); i++) {
		if (strcmp(ct_model_name_at(i), name) == 0)
			m->name = ct_model_name_at(i);
	}
	if (!m->name)
		return CT_FAIL(CT_DATA, "this version of ctrain has no model \"%.80s\"", name);
	return CT_OK;
}

static enum ct_status parse_model(const ct_json *j, struct ct_model_spec *m)
{
	const char *loss;
	char **layers = NULL;
	enum ct_status st;
	int at;

	CT_TRY(get_name(j, m));
	CT_TRY(get_int(j, "outputs", 1, INT32_MAX, &m->n_outputs));
	CT_TRY(ct_json_get_str(j, "loss", &loss));
	if ((at = ct_choice_find(losses, loss)) < 0)
		return CT_FAIL(CT_DATA, "\"loss\" is \"%.80s\", which is unknown", loss);
	m->loss = (enum ct_loss)at;
	CT_TRY(get_hidden(j, m));
	CT_TRY(get_float(j, "dropout", &m->dropout));
	st = get_strings(j, "layers", MAX_LAYERS, &layers, &m->n_layers);
	m->layers = (const char *const *)layers;
	CT_TRY(st);
	CT_TRY(ct_json_get_bool(j, "small_stem", &m->small_stem));
	return get_float(j, "drop_path", &m->drop_path);
}

static enum ct_status get_channels(const ct_json *j, const char *key, int c, float *out)
{
	const ct_json *list;
	double v = 0;

	CT_TRY(get_array(j, key, 4, &list));
	if ((int)ct_json_len(list) != (c < 4 ? c : 4))
		return CT_FAIL(CT_DATA, "\"%s\" has %zu values for %d channels", key, ct_json_len(list), c);
	for (size_t i = 0; i < ct_json_len(list); i++) {
		if (!ct_json_as_f64(ct_json_at(list, i), &v) || !fits_float(v))
			return CT_FAIL(CT_DATA, "\"%s\" contains a value that is not a number", key);
		out[i] = (float)v;
	}
	return CT_OK;
}

static enum ct_status parse_input(const ct_json *j, struct ct_description *d)
{
	struct ct_shape *in = &d->model.input;
	int long_side;

	CT_TRY(get_int(j, "channels", 1, INT32_MAX, &in->c));
	CT_TRY(get_int(j, "height", 1, INT32_MAX, &in->h));
	CT_TRY(get_int(j, "width", 1, INT32_MAX, &in->w));
	CT_TRY(get_channels(j, "mean", in->c, d->mean));
	CT_TRY(get_channels(j, "std", in->c, d->std));
	for (int i = 0; i < in->c && i < 4; i++) {
		if (!(d->std[i] > 0))
			return CT_FAIL(CT_DATA, "\"std\" contains a value that is not positive");
		if (in->c > 4 && (d->mean[i] != 0 || d->std[i] != 1))
			return CT_FAIL(CT_DATA, "\"mean\" and \"std\" normalize 4 channels, but the input has %d",
				       in->c);
	}
	CT_TRY(get_int(j, "resize", 0, MAX_SIDE, &d->resize));
	long_side = in->h > in->w ? in->h : in->w;
	if (d->resize > 0 && (d->resize < long_side || (in->c != 1 && in->c != 3)))
		return CT_FAIL(CT_DATA, "\"resize\" is %d, but the input is %dx%dx%d", d->resize, in->c, in->h, in->w);
	CT_TRY(ct_json_get_bool(j, "exif", &d->exif));
	return ct_json_get_bool(j, "fast_decode", &d->fast);
}

static enum ct_status parse(const ct_json *j, struct ct_description *d)
{
	int64_t v;

	CT_TRY(ct_json_get_i64(j, "v", &v));
	if (v != 1)
		return CT_FAIL(CT_DATA, "\"v\" is %lld, but this version of ctrain supports only 1", (long long)v);
	CT_TRY(parse_model(ct_json_get(j, "model"), &d->model));
	CT_TRY(parse_input(ct_json_get(j, "input"), d));
	CT_TRY(get_strings(j, "classes", MAX_CLASSES, &d->classes, &d->n_classes));
	if (d->n_classes > 0 && d->n_classes != d->model.n_outputs)
		return CT_FAIL(CT_DATA, "\"classes\" has %d names, but the model has %d outputs", d->n_classes,
			       d->model.n_outputs);
	return CT_OK;
}

enum ct_status ct_description_parse(const char *text, const char *where, struct ct_description *out)
{
	enum ct_status st;
	ct_json *j;

	*out = (struct ct_description){.std = {1, 1, 1, 1}};
	CT_TRY(ct_json_parse(text, strlen(text), where, &j));
	st = parse(j, out);
	ct_json_destroy(j);
	if (st < 0) {
		ct_description_release(out);
		return ct_error_wrap("%s: metadata \"" CT_DESCRIPTION_KEY "\"", where);
	}
	return CT_OK;
}

enum ct_status ct_description_load(const ct_safetensors *s, const char *where, struct ct_description *out)
{
	const char *text = ct_safetensors_metadata(s, CT_DESCRIPTION_KEY);

	if (!text)
		return CT_FAIL(CT_NOT_FOUND, "%s has no description of its model", where);
	return ct_description_parse(text, where, out);
}

struct ct_transform ct_description_transform(const struct ct_description *d)
{
	return (struct ct_transform){.crop = CT_CROP_CENTER,
				     .h = d->model.input.h,
				     .w = d->model.input.w,
				     .resize = d->resize,
				     .image = {.exif = d->exif, .fast = d->fast}};
}

void ct_description_gray(const uint8_t *rgb, size_t n, uint8_t *gray)
{
	for (size_t i = 0; i < n; i++, rgb += 3)
		gray[i] = (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}
