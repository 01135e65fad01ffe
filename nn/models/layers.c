/* A line is split in a copy, and its words are stored by key, without regard to the operation. The descriptor of the
 * operation (nn/graph/op.h) has the keys that are required and allowed, so a new operation needs no code here. Defaults
 * are filled in after all words have been read, because the stride of a pool is its kernel. Names refer to earlier
 * layers only, so the graph has no cycles. A sum adds `from` to the previous layer; for other operations, `from`
 * replaces the previous layer. Errors of the parser and of the graph are wrapped alike, with the number of the layer
 * and its string. */
#include "nn/models/layers_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "nn/graph/op.h"

#define MAX_TEXT 256 /* of one layer */

/* The parsed words of one layer. The number of a pair is {height, width}. */
struct words {
	unsigned given; /* CT_ATTR_BIT */
	int number[CT_N_LAYER_KEYS][2];
	double real[CT_N_LAYER_KEYS];
	bool bias;
	const char *name, *from; /* in the copy of the string */
};

enum kind { KIND_INT, KIND_PAIR, KIND_REAL, KIND_BOOL, KIND_TEXT };

static const struct {
	const char *name;
	enum kind kind;
	int min;
} keys[CT_N_LAYER_KEYS] = {
	[CT_ATTR_CHANNELS] = {"channels", KIND_INT, 1},
	[CT_ATTR_FEATURES] = {"features", KIND_INT, 1},
	[CT_ATTR_KERNEL] = {"kernel", KIND_PAIR, 1},
	[CT_ATTR_STRIDE] = {"stride", KIND_PAIR, 1},
	[CT_ATTR_PADDING] = {"padding", KIND_PAIR, 0},
	[CT_ATTR_DILATION] = {"dilation", KIND_PAIR, 1},
	[CT_ATTR_GROUPS] = {"groups", KIND_INT, 1},
	[CT_ATTR_BIAS] = {"bias", KIND_BOOL, 0},
	[CT_ATTR_EPS] = {"eps", KIND_REAL, 0},
	[CT_ATTR_MOMENTUM] = {"momentum", KIND_REAL, 0},
	[CT_ATTR_P] = {"p", KIND_REAL, 0},
	[CT_ATTR_NAME] = {"name", KIND_TEXT, 0},
	[CT_ATTR_FROM] = {"from", KIND_TEXT, 0},
};

static enum ct_status parse_int(const char *s, const char *key, int min, int *out)
{
	int64_t v;

	if (ct_parse_i64(s, &v) < 0 || v < min || v > INT32_MAX)
		return CT_FAIL(CT_CONFIG, "%s=%s is not an integer of at least %d", key, s, min);
	*out = (int)v;
	return CT_OK;
}

/* "3" or "3x5" (height x width). */
static enum ct_status parse_pair(char *s, const char *key, int min, int out[2])
{
	char *cross = strchr(s, 'x');

	if (cross)
		*cross = '\0';
	CT_TRY(parse_int(s, key, min, &out[0]));
	return parse_int(cross ? cross + 1 : s, key, min, &out[1]);
}

static enum ct_status parse_value(struct words *w, enum ct_layer_key key, char *value)
{
	const char *name = keys[key].name;

	if (w->given & CT_ATTR_BIT(key))
		return CT_FAIL(CT_CONFIG, "%s is given twice", name);
	w->given |= CT_ATTR_BIT(key);
	switch (keys[key].kind) {
	case KIND_INT:
		return parse_int(value, name, keys[key].min, &w->number[key][0]);
	case KIND_PAIR:
		return parse_pair(value, name, keys[key].min, w->number[key]);
	case KIND_REAL:
		if (ct_parse_f64(value, &w->real[key]) < 0 || !isfinite(w->real[key]))
			return CT_FAIL(CT_CONFIG, "%s=%s is not a number", name, value);
		return CT_OK;
	case KIND_BOOL:
		w->bias = !strcmp(value, "true");
		if (!w->bias && strcmp(value, "false"))
			return CT_FAIL(CT_CONFIG, "%s=%s is invalid: write true or false", name, value);
		return CT_OK;
	case KIND_TEXT:
		*(key == CT_ATTR_NAME ? &w->name : &w->from) = value;
		return CT_OK;
	}
	return CT_OK;
}

static enum ct_status parse_bare(const struct ct_op_info *op, struct words *w, char *word)
{
	for (enum ct_layer_key key = 0; key < CT_N_LAYER_KEYS; key++) {
		if (op->layer.required & op->layer.allowed & CT_ATTR_BIT(key))
			return parse_value(w, key, word);
	}
	return CT_FAIL(CT_CONFIG, "%s does not accept the value \"%s\" without a key", op->name, word);
}

static enum ct_status parse_word(const struct ct_op_info *op, struct words *w, char *word)
{
	const unsigned allowed = op->layer.allowed | CT_ATTR_BIT(CT_ATTR_NAME) | CT_ATTR_BIT(CT_ATTR_FROM);
	const char *names[CT_N_LAYER_KEYS];
	size_t n = 0;
	char *equals = strchr(word, '=');

	if (!equals)
		return parse_bare(op, w, word);
	*equals = '\0';
	for (enum ct_layer_key key = 0; key < CT_N_LAYER_KEYS; key++) {
		if (!(allowed & CT_ATTR_BIT(key)))
			continue;
		names[n++] = keys[key].name;
		if (!strcmp(keys[key].name, word))
			return parse_value(w, key, equals + 1);
	}
	const char *near = ct_suggest(word, names, n);
	enum ct_status st = CT_FAIL(CT_CONFIG, "%s has no key \"%s\"", op->name, word);
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	return st;
}

static enum ct_status find_layer(const char *name, enum ct_op *out)
{
	const char *names[CT_N_OPS];
	size_t n = 0;

	for (enum ct_op op = 0; op < CT_N_OPS; op++) {
		if (!ct_op_info(op)->layer.prefix)
			continue;
		names[n++] = ct_op_name(op);
		if (!strcmp(ct_op_name(op), name)) {
			*out = op;
			return CT_OK;
		}
	}
	const char *near = ct_suggest(name, names, n);
	enum ct_status st = CT_FAIL(CT_CONFIG, "unknown layer \"%s\"", name);
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	return st;
}

static int find_node(const ct_graph *g, const char *name)
{
	for (int i = 0; i < ct_graph_n_nodes(g); i++) {
		if (!strcmp(ct_graph_node(g, i)->name, name))
			return i;
	}
	return -1;
}

/* Makes a default name, such as conv1 or conv2, from the prefix and its next number. */
static void default_name(const ct_graph *g, const char *prefix, char *out, size_t len)
{
	int number = 1;

	do {
		snprintf(out, len, "%s%d", prefix, number++);
	} while (find_node(g, out) >= 0);
}

static struct ct_window window_of(const struct words *w)
{
	const int *kernel = w->number[CT_ATTR_KERNEL], *stride = w->number[CT_ATTR_STRIDE],
		  *padding = w->number[CT_ATTR_PADDING];
	const int *dilation = w->number[CT_ATTR_DILATION];

	return (struct ct_window){kernel[0],  kernel[1],  stride[0],   stride[1],
				  padding[0], padding[1], dilation[0], dilation[1]};
}

static enum ct_status build_layer(ct_graph *g, enum ct_op op, const struct words *w, int x, int *out)
{
	const struct ct_op_info *info = ct_op_info(op);
	const enum ct_layer_key k =
		info->layer.allowed & CT_ATTR_BIT(CT_ATTR_FEATURES) ? CT_ATTR_FEATURES : CT_ATTR_CHANNELS;
	const struct ct_op_attrs attrs = {.k = w->number[k][0],
					  .win = window_of(w),
					  .groups = w->number[CT_ATTR_GROUPS][0],
					  .bias = w->bias,
					  .eps = (float)w->real[CT_ATTR_EPS],
					  .momentum = (float)w->real[CT_ATTR_MOMENTUM],
					  .p = (float)w->real[CT_ATTR_P]};
	char made_up[32];
	const char *name = w->name;
	int from = -1;

	if (w->from) {
		from = find_node(g, w->from);
		if (from < 0)
			return CT_FAIL(CT_CONFIG, "from=%s: no earlier layer has that name", w->from);
	}
	if (!name) {
		default_name(g, info->layer.prefix, made_up, sizeof(made_up));
		name = made_up;
	} else if (find_node(g, name) >= 0) {
		return CT_FAIL(CT_CONFIG, "name=%s: another layer has that name", name);
	}
	if (info->n_inputs == 2)
		*out = ct_graph_op(g, op, name, x, from, &attrs);
	else
		*out = ct_graph_op(g, op, name, from < 0 ? x : from, -1, &attrs);
	return ct_graph_status(g);
}

static enum ct_status parse_layer(ct_graph *g, const char *text, int x, int *out)
{
	char copy[MAX_TEXT];
	enum ct_op op = CT_N_OPS;
	struct words w = {.bias = true};

	if (strlen(text) >= sizeof(copy))
		return CT_FAIL(CT_CONFIG, "the description of a layer may have at most %d characters", MAX_TEXT - 1);
	memcpy(copy, text, strlen(text) + 1);
	char *rest = NULL, *word = strtok_r(copy, " \t", &rest);
	if (!word)
		return CT_FAIL(CT_CONFIG, "a layer has no type");
	CT_TRY(find_layer(word, &op));
	const struct ct_op_info *info = ct_op_info(op);
	while ((word = strtok_r(NULL, " \t", &rest)))
		CT_TRY(parse_word(info, &w, word));
	for (enum ct_layer_key key = 0; key < CT_N_LAYER_KEYS; key++) {
		if ((info->layer.required & CT_ATTR_BIT(key)) && !(w.given & CT_ATTR_BIT(key)))
			return CT_FAIL(CT_CONFIG, "%s needs %s", info->name, keys[key].name);
	}
	static const enum ct_layer_key ones[] = {CT_ATTR_STRIDE, CT_ATTR_DILATION, CT_ATTR_GROUPS};
	for (size_t i = 0; i < CT_ARRAY_LEN(ones); i++) {
		for (int axis = 0; axis < 2 && !(w.given & CT_ATTR_BIT(ones[i])); axis++)
			w.number[ones[i]][axis] = info->layer.stride_of_kernel && ones[i] == CT_ATTR_STRIDE
							  ? w.number[CT_ATTR_KERNEL][axis]
							  : 1;
	}
	if (!(w.given & CT_ATTR_BIT(CT_ATTR_EPS)))
		w.real[CT_ATTR_EPS] = 1e-5;
	if (!(w.given & CT_ATTR_BIT(CT_ATTR_MOMENTUM)))
		w.real[CT_ATTR_MOMENTUM] = 0.1;
	return build_layer(g, op, &w, x, out);
}

static enum ct_status wrap(int i, const char *text)
{
	struct ct_str shown = {0};

	ct_str_add_escaped(&shown, text, strlen(text), 80);
	enum ct_status st = ct_error_wrap("layer %d, \"%s\"", i + 1, ct_str_text(&shown));
	ct_str_release(&shown);
	return st;
}

enum ct_status ct__model_layers(ct_graph *g, const struct ct_model_spec *spec, int *last)
{
	int x = 0;

	if (spec->n_layers < 1)
		return CT_FAIL(CT_CONFIG, "model.layers is empty");
	for (int i = 0; i < spec->n_layers; i++) {
		if (parse_layer(g, spec->layers[i], x, &x) < 0)
			return wrap(i, spec->layers[i]);
	}
	struct ct_shape s = ct_graph_node(g, x)->shape;
	if (spec->n_outputs == 0 && (s.h != 1 || s.w != 1)) {
		CT_FAIL(CT_CONFIG, "the output of the last layer is %dx%dx%d, but it must be a vector", s.c, s.h, s.w);

		return ct_error_hint("end the list with \"linear N\", where N is the number of classes");
	}
	if (spec->n_outputs > 0 && (s.c != spec->n_outputs || s.h != 1 || s.w != 1)) {
		CT_FAIL(CT_CONFIG, "the output of the last layer is %dx%dx%d, but the data needs %d output%s", s.c, s.h,
			s.w, spec->n_outputs, ct_plural(spec->n_outputs));

		return ct_error_hint("end the list with \"linear %d\"", spec->n_outputs);
	}
	*last = x;
	return CT_OK;
}
