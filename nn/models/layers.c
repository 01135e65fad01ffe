#include "nn/models/layers_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define MAX_TEXT 256 /* of one layer */

enum key {
	KEY_CHANNELS,
	KEY_FEATURES,
	KEY_KERNEL,
	KEY_STRIDE,
	KEY_PADDING,
	KEY_DILATION,
	KEY_GROUPS,
	KEY_BIAS,
	KEY_EPS,
	KEY_MOMENTUM,
	KEY_P,
	KEY_NAME,
	KEY_FROM,
	N_KEYS
};
#define BIT(key) (1u << (key))
#define WINDOW (BIT(KEY_KERNEL) | BIT(KEY_STRIDE) | BIT(KEY_PADDING))

/* The parsed words of one layer. The number of a pair is {height, width}. */
struct words {
	unsigned given; /* BIT(key) */
	int number[N_KEYS][2];
	double real[N_KEYS];
	bool bias;
	const char *name, *from; /* in the copy of the string */
};

enum kind { KIND_INT, KIND_PAIR, KIND_REAL, KIND_BOOL, KIND_TEXT };

static const struct {
	const char *name;
	enum kind kind;
	int min;
} keys[N_KEYS] = {
	[KEY_CHANNELS] = {"channels", KIND_INT, 1},
	[KEY_FEATURES] = {"features", KIND_INT, 1},
	[KEY_KERNEL] = {"kernel", KIND_PAIR, 1},
	[KEY_STRIDE] = {"stride", KIND_PAIR, 1},
	[KEY_PADDING] = {"padding", KIND_PAIR, 0},
	[KEY_DILATION] = {"dilation", KIND_PAIR, 1},
	[KEY_GROUPS] = {"groups", KIND_INT, 1},
	[KEY_BIAS] = {"bias", KIND_BOOL, 0},
	[KEY_EPS] = {"eps", KIND_REAL, 0},
	[KEY_MOMENTUM] = {"momentum", KIND_REAL, 0},
	[KEY_P] = {"p", KIND_REAL, 0},
	[KEY_NAME] = {"name", KIND_TEXT, 0},
	[KEY_FROM] = {"from", KIND_TEXT, 0},
};

/* bare: the key whose value may be written without "key="; N_KEYS: none. name and from are always allowed. */
static const struct layer {
	const char *name, *prefix;
	enum ct_op op;
	enum key bare;
	unsigned required, allowed;
} layers[] = {
	{"conv2d", "conv", CT_OP_CONV2D, KEY_CHANNELS, BIT(KEY_CHANNELS) | BIT(KEY_KERNEL),
	 WINDOW | BIT(KEY_CHANNELS) | BIT(KEY_DILATION) | BIT(KEY_GROUPS) | BIT(KEY_BIAS)},
	{"linear", "fc", CT_OP_LINEAR, KEY_FEATURES, BIT(KEY_FEATURES), BIT(KEY_FEATURES) | BIT(KEY_BIAS)},
	{"batch_norm", "bn", CT_OP_BATCH_NORM, N_KEYS, 0, BIT(KEY_EPS) | BIT(KEY_MOMENTUM)},
	{"relu", "relu", CT_OP_RELU, N_KEYS, 0, 0},
	{"max_pool", "pool", CT_OP_MAX_POOL, KEY_KERNEL, BIT(KEY_KERNEL), WINDOW | BIT(KEY_DILATION)},
	{"avg_pool", "pool", CT_OP_AVG_POOL, KEY_KERNEL, BIT(KEY_KERNEL), WINDOW},
	{"global_avg_pool", "pool", CT_OP_GLOBAL_AVG_POOL, N_KEYS, 0, 0},
	{"add", "add", CT_OP_ADD, N_KEYS, BIT(KEY_FROM), 0},
	{"flatten", "flatten", CT_OP_FLATTEN, N_KEYS, 0, 0},
	{"dropout", "drop", CT_OP_DROPOUT, KEY_P, BIT(KEY_P), BIT(KEY_P)},
	{"drop_path", "path", CT_OP_DROP_PATH, KEY_P, BIT(KEY_P), BIT(KEY_P)},
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

static enum ct_status parse_value(struct words *w, enum key key, char *value)
{
	const char *name = keys[key].name;

	if (w->given & BIT(key))
		return CT_FAIL(CT_CONFIG, "%s is given twice", name);
	w->given |= BIT(key);
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
		*(key == KEY_NAME ? &w->name : &w->from) = value;
		return CT_OK;
	}
	return CT_OK;
}

static enum ct_status parse_word(const struct layer *layer, struct words *w, char *word)
{
	const unsigned allowed = layer->allowed | BIT(KEY_NAME) | BIT(KEY_FROM);
	const char *names[N_KEYS];
	size_t n = 0;
	char *equals = strchr(word, '=');

	if (!equals) {
		if (layer->bare != N_KEYS)
			return parse_value(w, layer->bare, word);
		return CT_FAIL(CT_CONFIG, "%s does not accept the value \"%s\" without a key", layer->name, word);
	}
	*equals = '\0';
	for (enum key key = 0; key < N_KEYS; key++) {
		if (!(allowed & BIT(key)))
			continue;
		names[n++] = keys[key].name;
		if (!strcmp(keys[key].name, word))
			return parse_value(w, key, equals + 1);
	}
	const char *near = ct_suggest(word, names, n);
	enum ct_status st = CT_FAIL(CT_CONFIG, "%s has no key \"%s\"", layer->name, word);
	if (near)
		ct_error_hint("did you mean \"%s\"?", near);
	return st;
}

static enum ct_status find_layer(const char *name, const struct layer **out)
{
	const char *names[CT_ARRAY_LEN(layers)];

	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		names[i] = layers[i].name;
		if (!strcmp(layers[i].name, name)) {
			*out = &layers[i];
			return CT_OK;
		}
	}
	const char *near = ct_suggest(name, names, CT_ARRAY_LEN(names));
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
static void default_name(const ct_graph *g, const struct layer *layer, char *out, size_t len)
{
	int number = 1;

	do {
		snprintf(out, len, "%s%d", layer->prefix, number++);
	} while (find_node(g, out) >= 0);
}

static struct ct_window window_of(const struct words *w)
{
	const int *kernel = w->number[KEY_KERNEL], *stride = w->number[KEY_STRIDE], *padding = w->number[KEY_PADDING];
	const int *dilation = w->number[KEY_DILATION];

	return (struct ct_window){kernel[0],  kernel[1],  stride[0],   stride[1],
				  padding[0], padding[1], dilation[0], dilation[1]};
}

static enum ct_status build_layer(ct_graph *g, const struct layer *layer, const struct words *w, int x, int *out)
{
	char made_up[32];
	const char *name = w->name;
	int from = -1;

	if (w->from) {
		from = find_node(g, w->from);
		if (from < 0)
			return CT_FAIL(CT_CONFIG, "from=%s: no earlier layer has that name", w->from);
		if (layer->op != CT_OP_ADD)
			x = from;
	}
	if (!name) {
		default_name(g, layer, made_up, sizeof(made_up));
		name = made_up;
	} else if (find_node(g, name) >= 0) {
		return CT_FAIL(CT_CONFIG, "name=%s: another layer has that name", name);
	}
	switch (layer->op) {
	case CT_OP_CONV2D:
		*out = ct_graph_conv2d(g, name, x, w->number[KEY_CHANNELS][0], window_of(w), w->number[KEY_GROUPS][0],
				       w->bias);
		break;
	case CT_OP_LINEAR:
		*out = ct_graph_linear(g, name, x, w->number[KEY_FEATURES][0], w->bias);
		break;
	case CT_OP_BATCH_NORM:
		*out = ct_graph_batch_norm(g, name, x, (float)w->real[KEY_EPS], (float)w->real[KEY_MOMENTUM]);
		break;
	case CT_OP_RELU:
		*out = ct_graph_relu(g, name, x);
		break;
	case CT_OP_MAX_POOL:
		*out = ct_graph_max_pool(g, name, x, window_of(w));
		break;
	case CT_OP_AVG_POOL:
		*out = ct_graph_avg_pool(g, name, x, window_of(w));
		break;
	case CT_OP_GLOBAL_AVG_POOL:
		*out = ct_graph_global_avg_pool(g, name, x);
		break;
	case CT_OP_ADD:
		*out = ct_graph_add(g, name, x, from);
		break;
	case CT_OP_FLATTEN:
		*out = ct_graph_flatten(g, name, x);
		break;
	case CT_OP_DROP_PATH:
		*out = ct_graph_drop_path(g, name, x, (float)w->real[KEY_P]);
		break;
	default:
		*out = ct_graph_dropout(g, name, x, (float)w->real[KEY_P]);
		break;
	}
	return ct_graph_status(g);
}

static enum ct_status parse_layer(ct_graph *g, const char *text, int x, int *out)
{
	char copy[MAX_TEXT];
	const struct layer *layer = NULL;
	struct words w = {.bias = true};

	if (strlen(text) >= sizeof(copy))
		return CT_FAIL(CT_CONFIG, "the description of a layer may have at most %d characters", MAX_TEXT - 1);
	memcpy(copy, text, strlen(text) + 1);
	char *rest = NULL, *word = strtok_r(copy, " \t", &rest);
	if (!word)
		return CT_FAIL(CT_CONFIG, "a layer has no type");
	CT_TRY(find_layer(word, &layer));
	while ((word = strtok_r(NULL, " \t", &rest)))
		CT_TRY(parse_word(layer, &w, word));
	for (enum key key = 0; key < N_KEYS; key++) {
		if ((layer->required & BIT(key)) && !(w.given & BIT(key)))
			return CT_FAIL(CT_CONFIG, "%s needs %s", layer->name, keys[key].name);
	}
	static const enum key ones[] = {KEY_STRIDE, KEY_DILATION, KEY_GROUPS};
	bool pool = layer->op == CT_OP_MAX_POOL || layer->op == CT_OP_AVG_POOL;
	for (size_t i = 0; i < CT_ARRAY_LEN(ones); i++) {
		for (int axis = 0; axis < 2 && !(w.given & BIT(ones[i])); axis++)
			w.number[ones[i]][axis] = pool && ones[i] == KEY_STRIDE ? w.number[KEY_KERNEL][axis] : 1;
	}
	if (!(w.given & BIT(KEY_EPS)))
		w.real[KEY_EPS] = 1e-5;
	if (!(w.given & BIT(KEY_MOMENTUM)))
		w.real[KEY_MOMENTUM] = 0.1;
	return build_layer(g, layer, &w, x, out);
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
		enum ct_status st = CT_FAIL(
			CT_CONFIG, "the output of the last layer is %dx%dx%d, but it must be a vector", s.c, s.h, s.w);

		ct_error_hint("end the list with \"linear N\", where N is the number of classes");
		return st;
	}
	if (spec->n_outputs > 0 && (s.c != spec->n_outputs || s.h != 1 || s.w != 1)) {
		enum ct_status st =
			CT_FAIL(CT_CONFIG, "the output of the last layer is %dx%dx%d, but the data needs %d output%s",
				s.c, s.h, s.w, spec->n_outputs, ct_plural(spec->n_outputs));

		ct_error_hint("end the list with \"linear %d\"", spec->n_outputs);
		return st;
	}
	*last = x;
	return CT_OK;
}
