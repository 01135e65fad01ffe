/* Converts a string from a file, the command line or the environment to the typed value of a key. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "trainer/config/config_impl.h"

#define SHOWN_TEXT 60

/* The state of one conversion. */
struct setter {
	const struct ct_key *k;
	const struct ct_source *s;
	struct ct_problems *p;
	bool failed;
};

struct unit {
	const char *name;
	double factor;
};
static const struct unit mib_units[] = {{"KiB", 1.0 / 1024}, {"MiB", 1}, {"GiB", 1024}};
static const struct unit second_units[] = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};

char *ct__source_where(const struct ct_source *s, const struct ct_yaml_node *v)
{
	return s->is_file && v ? ct_strfmt("%s:%d:%d", s->name, v->line, v->column) : ct_strdup(s->name);
}

/* `optim.lr: "abc" <text>`; v NULL: without the value. */
static void complain(struct setter *t, const struct ct_yaml_node *v, const char *fmt, ...) CT_PRINTF(3, 4);
static void complain(struct setter *t, const struct ct_yaml_node *v, const char *fmt, ...)
{
	struct ct_str b = {0};
	char *where = ct__source_where(t->s, v);
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
	if (where)
		ct__problems_add(t->p, where, "%s", ct_str_text(&b));
	else
		t->p->text.failed = true;
	ct_free(where);
	ct_str_release(&b);
}

static bool in_range(struct setter *t, const struct ct_yaml_node *v, double x)
{
	const struct ct_key *k = t->k;
	struct ct_str b = {0};

	if ((k->flags & CT_KEY_OPEN_LO ? x > k->lo : x >= k->lo) &&
	    (k->flags & CT_KEY_OPEN_HI ? x < k->hi : x <= k->hi))
		return true;
	ct__key_add_range(k, &b);
	complain(t, v, "is out of range (%s)", ct_str_text(&b));
	ct_str_release(&b);
	return false;
}

static int64_t read_int(struct setter *t, const struct ct_yaml_node *v)
{
	const char *digits = v->text + (v->text[0] == '-' || v->text[0] == '+');
	bool automatic = t->k->flags & CT_KEY_AUTO;
	struct ct_str b = {0};
	int64_t x = 0;
	double f;

	if (automatic && strcmp(v->text, "auto") == 0)
		return CT_CFG_AUTO;
	if (strlen(v->text) == v->len && ct_parse_i64(v->text, &x) == CT_OK) {
		if (digits[0] == '0' && digits[1])
			complain(t, v, "starts with 0; remove the leading 0 (octal numbers are not supported)");
		else
			in_range(t, v, (double)x);
		return x;
	}
	if (automatic)
		ct_str_add(&b, " or auto");
	if (ct_parse_f64(v->text, &f) == CT_OK && f == floor(f) && fabs(f) < 1e15)
		ct_str_addf(&b, "; write %.0f", f);
	complain(t, v, "is not an integer%s", ct_str_text(&b));
	ct_str_release(&b);
	return 0;
}

/* "N", "MIN..MAX" or torchrun's "MIN:MAX"; for CT_KEY_RANGE. */
static void read_range(struct setter *t, const struct ct_yaml_node *v, int64_t slot[2])
{
	int64_t min = 0, max = 0;
	int end;

	if (sscanf(v->text, "%5" SCNd64 "..%5" SCNd64 "%n", &min, &max, &end) < 2 &&
	    sscanf(v->text, "%5" SCNd64 ":%5" SCNd64 "%n", &min, &max, &end) < 2)
		max = read_int(t, v);
	else if ((size_t)end != v->len || min > max)
		complain(t, v, "is not a range MIN..MAX, such as 2..4");
	else
		(void)(in_range(t, v, (double)min) && in_range(t, v, (double)max));
	slot[0] = max;
	slot[1] = min < max ? min : 0;
}

/* Reads a number, which may be followed by one of the units. */
static double read_number(struct setter *t, const struct ct_yaml_node *v, const struct unit *units, size_t n_units)
{
	char number[64];
	size_t len = strspn(v->text, "+-.0123456789eE");
	double factor = 1, x = 0;
	bool ok = strlen(v->text) == v->len && len > 0 && len < sizeof(number);

	if (ok && v->text[len]) {
		const char *unit = v->text + len + (v->text[len] == ' ');
		size_t i = 0;

		while (i < n_units && strcmp(units[i].name, unit) != 0)
			i++;
		ok = i < n_units;
		factor = ok ? units[i].factor : 1;
	}
	if (ok) {
		memcpy(number, v->text, len);
		number[len] = '\0';
		ok = ct_parse_f64(number, &x) == CT_OK;
	}
	if (!ok) {
		struct ct_str b = {0};

		if (t->k->flags & CT_KEY_AUTO)
			ct_str_add(&b, " or auto");
		for (size_t i = 0; i < n_units; i++)
			ct_str_addf(&b, "%s%s", i > 0 ? ", " : "; the units are ", units[i].name);
		complain(t, v, "is not a number%s", ct_str_text(&b));
		ct_str_release(&b);
		return 0;
	}
	in_range(t, v, x * factor);
	return x * factor;
}

static double read_float(struct setter *t, const struct ct_yaml_node *v)
{
	if (t->k->flags & CT_KEY_AUTO && strcmp(v->text, "auto") == 0)
		return CT_CFG_AUTO;
	if (t->k->type == CT_KEY_MIB)
		return read_number(t, v, mib_units, CT_ARRAY_LEN(mib_units));
	if (t->k->type == CT_KEY_SECONDS)
		return read_number(t, v, second_units, CT_ARRAY_LEN(second_units));
	return read_number(t, v, NULL, 0);
}

static bool read_bool(struct setter *t, const struct ct_yaml_node *v)
{
	static const char *const yes[] = {"yes", "on", "y", "1", "true"}, *const no[] = {"no", "off", "n", "0",
											 "false"};

	if (strcmp(v->text, "true") == 0 || strcmp(v->text, "false") == 0)
		return v->text[0] == 't';
	for (size_t i = 0; i < CT_ARRAY_LEN(yes); i++) {
		if (strcasecmp(v->text, yes[i]) == 0 || strcasecmp(v->text, no[i]) == 0) {
			complain(t, v, "is not true or false; write %s",
				 strcasecmp(v->text, yes[i]) == 0 ? "true" : "false");
			return false;
		}
	}
	complain(t, v, "is not true or false");
	return false;
}

static void unknown_choice(struct setter *t, const struct ct_yaml_node *v)
{
	const char *near;
	struct ct_str b = {0};
	size_t n = 0;

	while (t->k->choices[n])
		n++;
	near = ct__choice_synonym(t->k->name, v->text);
	if (!near)
		near = ct_suggest(v->text, t->k->choices, n);
	ct__key_describe(t->k, &b);
	if (t->k->why)
		complain(t, v, "is not available: %s", t->k->why);
	else if (near)
		complain(t, v, "is unknown; did you mean \"%s\"? (%s)", near, ct_str_text(&b));
	else
		complain(t, v, "is unknown; choose one of %s", ct_str_text(&b));
	ct_str_release(&b);
}

/* Checks that the string can be used in paths, logs and lines of text. */
static bool plain_text(struct setter *t, const struct ct_yaml_node *v)
{
	if (v->len > CT_MAX_TEXT) {
		complain(t, v, "is longer than %d bytes", CT_MAX_TEXT);
		return false;
	}
	if (!ct_utf8_valid(v->text, v->len)) {
		complain(t, v, "is not valid UTF-8");
		return false;
	}
	for (size_t i = 0; i < v->len;) {
		char shown[5];
		size_t n = ct_escape_next(v->text + i, v->len - i, shown);

		if (n == 1 && shown[0] == '\\' && v->text[i] != '\\') {
			complain(t, v, "contains a control character or a line break");
			return false;
		}
		i += n;
	}
	return true;
}

/* Returns the choice that an alias stands for (copied to buf), or the string itself if it is not an alias. */
static const char *resolve_alias(const struct ct_key *k, const char *text, char *buf, size_t size)
{
	size_t len = strlen(text);

	for (size_t i = 0; k->alias && ct__word_at(k->alias, i, buf, size); i++) {
		if (strncmp(buf, text, len) == 0 && buf[len] == '=')
			return buf + len + 1;
	}
	return text;
}

/* Returns the choice that the string stands for, in which upper and lower case are equal ("NCCL"), or NULL. A choice that
 * ends with ":N", such as "cuda:N", stands for all numbers. */
static const char *choice_of(const char *const *choices, const char *text)
{
	for (size_t i = 0; choices[i]; i++) {
		const size_t len = strlen(choices[i]);
		const bool numbered = len > 2 && strcmp(choices[i] + len - 2, ":N") == 0;

		if (numbered && strncmp(text, choices[i], len - 1) == 0) {
			const char *number = text + len - 1;
			const size_t digits = strspn(number, "0123456789");

			if (digits >= 1 && digits <= 4 && !number[digits])
				return text;
		} else if (!numbered && strcasecmp(text, choices[i]) == 0) {
			return choices[i];
		}
	}
	return NULL;
}

static int read_choice(struct setter *t, const struct ct_yaml_node *v)
{
	char buf[64];
	const char *name;

	if (!plain_text(t, v))
		return CT_CFG_UNSET;
	name = choice_of(t->k->choices, resolve_alias(t->k, v->text, buf, sizeof(buf)));
	if (!name)
		unknown_choice(t, v);
	return name ? ct_choice_find(t->k->choices, name) : -1;
}

static enum ct_status read_text(struct setter *t, const struct ct_yaml_node *v, char **out)
{
	const char *value = v->text;
	*out = NULL;
	if (!plain_text(t, v))
		return CT_OK;
	if (t->k->choices && !(t->k->flags & CT_KEY_OTHERS)) {
		value = choice_of(t->k->choices, v->text);
		if (!value)
			unknown_choice(t, v);
	}
	if (!t->failed)
		CT_TRY_ALLOC(*out = ct_strdup(value));
	return CT_OK;
}

static bool is_list(const struct ct_key *k)
{
	return k->type == CT_KEY_INTS || k->type == CT_KEY_FLOATS || k->type == CT_KEY_STRS;
}

static bool list_length_fits(struct setter *t, const struct ct_yaml_node *v)
{
	int min = t->k->min_n, max = t->k->max_n;

	if (v->n >= (size_t)min && v->n <= (size_t)max)
		return true;
	if (min == max)
		complain(t, v, "has %zu entries instead of %d", v->n, min);
	else
		complain(t, v, "has %zu entries; the maximum is %d", v->n, max);
	return false;
}

/* Checks that the value is a single value. An empty string must be quoted. */
static bool is_scalar(struct setter *t, const struct ct_yaml_node *v)
{
	struct ct_str b = {0};

	if (v->kind == CT_YAML_SCALAR && (v->len > 0 || v->quoted))
		return true;
	ct__key_describe(t->k, &b);
	if (v->kind == CT_YAML_SCALAR && t->k->type == CT_KEY_STR && !t->k->choices)
		complain(t, v, "is not a value; write \"\" for an empty string, or remove the key");
	else if (v->kind == CT_YAML_SCALAR)
		complain(t, v, "is not a value; set the key to %s, or remove it", ct_str_text(&b));
	else
		complain(t, v, "is %s instead of a single value (%s)",
			 v->kind == CT_YAML_MAP ? "a group of keys" : "a list", ct_str_text(&b));
	ct_str_release(&b);
	return false;
}

static enum ct_status store_list(struct setter *t, const struct ct_yaml_node *v, void *slot)
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
			ints.v[ints.n++] = read_int(t, item);
		else if (t->k->type == CT_KEY_FLOATS)
			floats.v[floats.n++] = read_number(t, item, NULL, 0);
		else if ((st = read_text(t, item, &texts.v[texts.n])) == CT_OK && texts.v[texts.n])
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
static void store_sizes(struct setter *t, const struct ct_yaml_node *v, struct ct_size_list *slot)
{
	struct ct_size_list l = {0};

	if (v->kind != CT_YAML_LIST) {
		if (!is_scalar(t, v))
			return;
		l.v[l.n++].size = read_int(t, v);
	} else if (v->n > (size_t)t->k->max_n) {
		complain(t, v, "has %zu entries; the maximum is %d", v->n, t->k->max_n);
	} else {
		for (size_t i = 0; i < v->n && !t->failed; i++) {
			const struct ct_yaml_node *pair = v->items[i];
			int64_t epoch = 0, before = i > 0 ? l.v[i - 1].epoch : -1;

			if (pair->kind != CT_YAML_LIST || pair->n != 2 || !is_scalar(t, pair->items[0]) ||
			    !is_scalar(t, pair->items[1])) {
				complain(t, pair,
					 "must be a list of pairs [epoch, number], for example [[0, 128], [10, 160]]");
				return;
			}
			if (ct_parse_i64(pair->items[0]->text, &epoch) != CT_OK || epoch <= before || epoch > 1000000 ||
			    (i == 0 && epoch != 0))
				complain(t, pair->items[0],
					 "is not valid; the first epoch must be 0, and epochs must increase");
			l.v[l.n].epoch = epoch;
			l.v[l.n++].size = read_int(t, pair->items[1]);
		}
	}
	if (!t->failed)
		*slot = l;
}

static enum ct_status store_scalar(struct setter *t, const struct ct_yaml_node *v, void *slot)
{
	char *text;

	if (t->k->type == CT_KEY_STR) {
		CT_TRY(read_text(t, v, &text));
		if (!text)
			return CT_OK;
		ct_free(*(char **)slot);
		*(char **)slot = text;
	} else if (t->k->type == CT_KEY_ENUM) {
		int x = read_choice(t, v);

		if (!t->failed)
			*(int *)slot = x;
	} else if (t->k->flags & CT_KEY_RANGE) {
		read_range(t, v, slot);
	} else if (t->k->type == CT_KEY_INT) {
		int64_t x = read_int(t, v);

		if (!t->failed)
			*(int64_t *)slot = x;
	} else if (t->k->type == CT_KEY_BOOL) {
		bool x = read_bool(t, v);

		if (!t->failed)
			*(bool *)slot = x;
	} else {
		double x = read_float(t, v);

		if (!t->failed)
			*(double *)slot = x;
	}
	return CT_OK;
}

enum ct_status ct__key_store(size_t key, struct ct_config *c, const struct ct_yaml_node *v, const struct ct_source *s,
			     struct ct_problems *p)
{
	struct setter t = {.k = ct__key_at(key), .s = s, .p = p};
	void *slot = ct__key_slot(t.k, c);
	struct ct_str b = {0};
	char *where;

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
		complain(&t, v, "is %s instead of a list; write it in the form [a, b] (%s)",
			 v->kind == CT_YAML_MAP ? "a group of keys" : "a single value", ct_str_text(&b));
		ct_str_release(&b);
	}
	CT_TRY_ALLOC(where = ct__source_where(s, v));
	ct__config_note(c, key, s->layer, where);
	ct__config_origins(c)[key].bad = t.failed;
	return CT_OK;
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
