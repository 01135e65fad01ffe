/* Converts a string from a file, the command line or the environment to the typed value of a key. */
#include <string.h>

#include "trainer/config/value_impl.h"

#define SHOWN_TEXT 60

struct ct_place ct__source_place(const struct ct_source *s, const struct ct_yaml_node *v)
{
	if (!s->is_file || !v)
		return (struct ct_place){.name = s->name};
	return (struct ct_place){.name = s->name, .line = v->line, .column = v->column};
}

void ct__value_complain(struct ct_setter *t, const struct ct_yaml_node *v, const char *fmt, ...)
{
	const struct ct_place at = ct__source_place(t->s, v);
	struct ct_str b = {0};
	va_list ap;

	t->failed = true;
	ct_str_addf(&b, "%s: ", t->k->name);
	if (v->kind == CT_YAML_SCALAR) {
		ct_str_add(&b, "\"");
		ct_str_add_escaped(&b, v->text, v->len, SHOWN_TEXT);
		ct_str_add(&b, "\" ");
	}
	va_start(ap, fmt);
	ct_str_addv(&b, fmt, ap);
	va_end(ap);
	ct__problems_add(t->p, &at, "%s", ct_str_text(&b));
	ct_str_release(&b);
}

static bool is_list(const struct ct_key *k)
{
	return k->type == CT_KEY_INTS || k->type == CT_KEY_FLOATS || k->type == CT_KEY_STRS;
}

static bool list_length_fits(struct ct_setter *t, const struct ct_yaml_node *v)
{
	int min = t->k->min_n, max = t->k->max_n;

	if (v->n >= (size_t)min && v->n <= (size_t)max)
		return true;
	if (min == max)
		ct__value_complain(t, v, "has %zu entries instead of %d", v->n, min);
	else
		ct__value_complain(t, v, "has %zu entries; the maximum is %d", v->n, max);
	return false;
}

/* Checks that the value is a single value. An empty string must be quoted. */
static bool is_scalar(struct ct_setter *t, const struct ct_yaml_node *v)
{
	struct ct_str b = {0};

	if (v->kind == CT_YAML_SCALAR && (v->len > 0 || v->quoted))
		return true;
	ct__key_describe(t->k, &b);
	if (v->kind == CT_YAML_SCALAR && t->k->type == CT_KEY_STR && !t->k->choices)
		ct__value_complain(t, v, "is not a value; write \"\" for an empty string, or remove the key");
	else if (v->kind == CT_YAML_SCALAR)
		ct__value_complain(t, v, "is not a value; set the key to %s, or remove it", ct_str_text(&b));
	else
		ct__value_complain(t, v, "is %s instead of a single value (%s)",
				   v->kind == CT_YAML_MAP ? "a group of keys" : "a list", ct_str_text(&b));
	ct_str_release(&b);
	return false;
}

static enum ct_status store_list(struct ct_setter *t, const struct ct_yaml_node *v, void *slot)
{
	struct ct_int_list ints = {0};
	struct ct_float_list floats = {0};
	struct ct_str_list texts = {0};
	enum ct_status st = CT_OK;

	if (!list_length_fits(t, v))
		return CT_OK;
	if (t->k->type == CT_KEY_STRS)
		CT_TRY_ALLOC(texts.v = CT_NEW_ARRAY(char *, v->n));
	for (size_t i = 0; i < v->n && st == CT_OK; i++) {
		const struct ct_yaml_node *item = v->items[i];

		if (!is_scalar(t, item))
			continue;
		if (t->k->type == CT_KEY_INTS)
			ints.v[ints.n++] = ct__value_int(t, item);
		else if (t->k->type == CT_KEY_FLOATS)
			floats.v[floats.n++] = ct__value_float(t, item);
		else if ((st = ct__value_text(t, item, &texts.v[texts.n])) == CT_OK && texts.v[texts.n])
			texts.n++;
	}
	if (st != CT_OK || t->failed) {
		ct__str_list_release(&texts);
	} else if (t->k->type == CT_KEY_INTS) {
		*(struct ct_int_list *)slot = ints;
	} else if (t->k->type == CT_KEY_FLOATS) {
		*(struct ct_float_list *)slot = floats;
	} else {
		ct__str_list_release(slot);
		*(struct ct_str_list *)slot = texts;
	}
	return st;
}

/* Stores a number, or pairs of an epoch and a number. The first epoch is 0, and epochs increase. */
static void store_sizes(struct ct_setter *t, const struct ct_yaml_node *v, struct ct_size_list *slot)
{
	struct ct_size_list l = {0};

	if (v->kind != CT_YAML_LIST) {
		if (!is_scalar(t, v))
			return;
		l.v[l.n++].size = ct__value_int(t, v);
	} else if (v->n > (size_t)t->k->max_n) {
		ct__value_complain(t, v, "has %zu entries; the maximum is %d", v->n, t->k->max_n);
	} else {
		for (size_t i = 0; i < v->n && !t->failed; i++) {
			const struct ct_yaml_node *pair = v->items[i];
			int64_t epoch = 0, before = i > 0 ? l.v[i - 1].epoch : -1;

			if (pair->kind != CT_YAML_LIST || pair->n != 2 || !is_scalar(t, pair->items[0]) ||
			    !is_scalar(t, pair->items[1])) {
				ct__value_complain(
					t, pair,
					"must be a list of pairs [epoch, number], for example [[0, 128], [10, 160]]");
				return;
			}
			if (ct_parse_i64(pair->items[0]->text, &epoch) != CT_OK || epoch <= before || epoch > 1000000 ||
			    (i == 0 && epoch != 0))
				ct__value_complain(t, pair->items[0],
						   "is not valid; the first epoch must be 0, and epochs must increase");
			l.v[l.n].epoch = epoch;
			l.v[l.n++].size = ct__value_int(t, pair->items[1]);
		}
	}
	if (!t->failed)
		*slot = l;
}

static enum ct_status store_scalar(struct ct_setter *t, const struct ct_yaml_node *v, void *slot)
{
	char *text;

	if (t->k->type == CT_KEY_STR) {
		CT_TRY(ct__value_text(t, v, &text));
		if (!text)
			return CT_OK;
		ct_free(*(char **)slot);
		*(char **)slot = text;
	} else if (t->k->type == CT_KEY_ENUM) {
		int x = ct__value_choice(t, v);

		if (!t->failed)
			*(int *)slot = x;
	} else if (t->k->flags & CT_KEY_RANGE) {
		ct__value_range(t, v, slot);
	} else if (t->k->type == CT_KEY_INT) {
		int64_t x = ct__value_int(t, v);

		if (!t->failed)
			*(int64_t *)slot = x;
	} else if (t->k->type == CT_KEY_BOOL) {
		bool x = ct__value_bool(t, v);

		if (!t->failed)
			*(bool *)slot = x;
	} else {
		double x = ct__value_float(t, v);

		if (!t->failed)
			*(double *)slot = x;
	}
	return CT_OK;
}

enum ct_status ct__key_store(size_t key, struct ct_config *c, const struct ct_yaml_node *v, const struct ct_source *s,
			     struct ct_problems *p)
{
	struct ct_setter t = {.k = ct__key_at(key), .s = s, .p = p};
	void *slot = ct__key_slot(t.k, c);
	struct ct_str b = {0};

	if (t.k->type == CT_KEY_SIZES) {
		store_sizes(&t, v, slot);
	} else if (!is_list(t.k)) {
		if (is_scalar(&t, v))
			CT_TRY(store_scalar(&t, v, slot));
	} else if (v->kind == CT_YAML_LIST) {
		CT_TRY(store_list(&t, v, slot));
	} else if (v->kind == CT_YAML_SCALAR && t.k->flags & CT_KEY_AUTO && strcmp(v->text, "auto") == 0) {
		struct ct_yaml_node *item = (struct ct_yaml_node *)(uintptr_t)v;
		const struct ct_yaml_node list = {.kind = CT_YAML_LIST, .items = &item, .n = 1};

		CT_TRY(store_list(&t, &list, slot));
	} else {
		ct__key_describe(t.k, &b);
		ct__value_complain(&t, v, "is %s instead of a list; write it in the form [a, b] (%s)",
				   v->kind == CT_YAML_MAP ? "a group of keys" : "a single value", ct_str_text(&b));
		ct_str_release(&b);
	}
	ct__config_origins(c)[key].bad = t.failed;
	return ct__config_note_place(c, key, s->layer, ct__source_place(s, v));
}

/* Converts "a,b" to a list node. The items and their strings are allocated. */
static enum ct_status split_list(const char *text, struct ct_yaml_node *list)
{
	list->kind = CT_YAML_LIST;
	while (*text) {
		size_t len = strcspn(text, ","), spaces = strspn(text, " "), end = len;
		struct ct_yaml_node *item;
		void *more;

		while (end > spaces && text[end - 1] == ' ')
			end--;
		CT_TRY_ALLOC(more = ct_realloc(list->items, list->n + 1, sizeof(*list->items)));
		list->items = more;
		CT_TRY_ALLOC(item = CT_NEW(struct ct_yaml_node));
		list->items[list->n++] = item;
		item->len = spaces < end ? end - spaces : 0;
		CT_TRY_ALLOC(item->text = ct_strndup(text + (item->len > 0 ? spaces : 0), item->len));
		text += len + (text[len] == ',');
	}
	return CT_OK;
}

enum ct_status ct__key_store_text(size_t key, struct ct_config *c, const char *text, const struct ct_source *s,
				  struct ct_problems *p)
{
	struct ct_yaml_node scalar = {.kind = CT_YAML_SCALAR, .len = strlen(text)}, list = {0};
	bool text_key = ct__key_at(key)->type == CT_KEY_STR || ct__key_at(key)->type == CT_KEY_ENUM;
	ct_yaml *doc = NULL;
	enum ct_status st;

	if ((is_list(ct__key_at(key)) || ct__key_at(key)->type == CT_KEY_SIZES) && text[0] == '[') {
		CT_TRY(ct__yaml_parse(text, scalar.len, s->name, p, &doc));
		st = doc ? ct__key_store(key, c, ct__yaml_root(doc), s, p) : CT_OK;
		ct__yaml_destroy(doc);
	} else if (is_list(ct__key_at(key))) {
		st = split_list(text, &list);
		if (st == CT_OK)
			st = ct__key_store(key, c, &list, s, p);
		for (size_t i = 0; i < list.n; i++) {
			ct_free(list.items[i]->text);
			ct_free(list.items[i]);
		}
		ct_free(list.items);
	} else {
		CT_TRY_ALLOC(scalar.text = ct_strdup(text));
		scalar.quoted = text_key;
		st = ct__key_store(key, c, &scalar, s, p);
		ct_free(scalar.text);
	}
	return st;
}
