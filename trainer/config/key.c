/* Describes, resets and formats a single key of the schema. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/config/config_impl.h"

bool ct__word_at(const char *words, size_t i, char *buf, size_t size)
{
	size_t len;

	for (; i > 0 && words; i--) {
		words = strchr(words, '|');
		words = words ? words + 1 : NULL;
	}
	if (!words)
		return false;
	len = strcspn(words, "|");
	CT_ASSERT(len < size);
	memcpy(buf, words, len);
	buf[len] = '\0';
	return true;
}

bool ct__word_in(const char *words, const char *text)
{
	char word[64];

	for (size_t i = 0; ct__word_at(words, i, word, sizeof(word)); i++) {
		if (strcmp(word, text) == 0)
			return true;
	}
	return false;
}

const char *ct__key_only(const struct ct_key *k, size_t *controller)
{
	const char *eq = strchr(k->only, '=');
	size_t len = (size_t)(eq - k->only);

	*controller = SIZE_MAX;
	for (size_t i = 0; i < ct__key_count(); i++) {
		if (strlen(ct__key_at(i)->name) == len && strncmp(ct__key_at(i)->name, k->only, len) == 0)
			*controller = i;
	}
	CT_ASSERT(*controller != SIZE_MAX);
	return eq + 1;
}

void ct__key_add_range(const struct ct_key *k, struct ct_str *out)
{
	bool open_lo = k->flags & CT_KEY_OPEN_LO, open_hi = k->flags & CT_KEY_OPEN_HI;

	ct_str_add(out, open_lo ? "above " : "from ");
	ct_str_add_f64(out, k->lo);
	ct_str_add(out, !open_lo ? " to " : open_hi ? " and below " : " and at most ");
	ct_str_add_f64(out, k->hi);
	if (open_hi && !open_lo) {
		ct_str_add(out, ", excluding ");
		ct_str_add_f64(out, k->hi);
	}
}

void ct__key_describe(const struct ct_key *k, struct ct_str *out)
{
	static const char *const kinds[] = {
		[CT_KEY_INT] = "integer",
		[CT_KEY_FLOAT] = "number",
		[CT_KEY_MIB] = "number of MiB",
		[CT_KEY_SECONDS] = "number of seconds",
		[CT_KEY_BOOL] = "true or false",
		[CT_KEY_STR] = "string",
		[CT_KEY_ENUM] = "string",
		[CT_KEY_INTS] = "list of integers",
		[CT_KEY_FLOATS] = "list of numbers",
		[CT_KEY_STRS] = "list of strings",
		[CT_KEY_SIZES] = "integer",
	};

	if (k->choices) {
		for (size_t i = 0; k->choices[i]; i++)
			ct_str_addf(out, "%s%s", i > 0 ? ", " : "", k->choices[i]);
		if (k->flags & CT_KEY_OTHERS)
			ct_str_add(out, " or another string");
		return;
	}
	ct_str_add(out, kinds[k->type]);
	if (k->type == CT_KEY_STRS && k->flags & CT_KEY_AUTO)
		ct_str_add(out, ", or auto");
	if (k->type == CT_KEY_BOOL || k->type == CT_KEY_STR || k->type == CT_KEY_STRS)
		return;
	ct_str_add(out, " ");
	ct__key_add_range(k, out);
	if (k->type == CT_KEY_MIB)
		ct_str_add(out, ", or a size such as 512KiB or 1GiB");
	if (k->type == CT_KEY_SECONDS)
		ct_str_add(out, ", or a time such as 30s or 10min");
	if (k->flags & CT_KEY_AUTO)
		ct_str_add(out, ", or auto");
	if (k->flags & CT_KEY_RANGE)
		ct_str_add(out, ", or MIN..MAX");
	if (k->type == CT_KEY_SIZES)
		ct_str_add(out, ", or a list of pairs [epoch, number]");
}

void ct__str_list_release(struct ct_str_list *l)
{
	for (int i = 0; i < l->n; i++)
		ct_free(l->v[i]);
	ct_free(l->v);
	*l = (struct ct_str_list){0};
}

enum ct_status ct__key_reset(size_t key, struct ct_config *c, bool unset)
{
	static const struct ct_source source = {.name = CT_CONFIG_DEFAULT, .layer = CT_LAYER_DEFAULT};
	const struct ct_key *k = ct__key_at(key);
	struct ct_problems p = {0};
	enum ct_status st;

	ct__key_release(k, c);
	if (k->type == CT_KEY_STR)
		CT_TRY_ALLOC(*(char **)ct__key_slot(k, c) = ct_strdup(""));
	if (unset && k->flags & CT_KEY_AUTO && k->type == CT_KEY_INT)
		*(int64_t *)ct__key_slot(k, c) = CT_CFG_AUTO;
	if (unset || !k->def)
		return CT_OK;
	st = ct__key_store_text(key, c, k->def, &source, &p);
	CT_ASSERT(p.n == 0); /* the default comes from the schema */
	ct__problems_release(&p);
	return st;
}

/* Takes ownership of where and name. */
static void set_origin(struct ct_config *c, size_t key, enum ct_origin_kind kind, int layer, char *where, char *name)
{
	struct ct_origin *o = &ct__config_origins(c)[key];

	ct_free(o->where);
	ct_free(o->name);
	o->where = where;
	o->name = name;
	o->line = o->column = 0;
	o->kind = kind;
	o->layer = layer;
}

enum ct_status ct__config_note_place(struct ct_config *c, size_t key, int layer, struct ct_place at)
{
	struct ct_origin *o = &ct__config_origins(c)[key];
	enum ct_origin_kind kind = at.line > 0 ? CT_ORIGIN_FILE : CT_ORIGIN_OTHER;
	char *name, *where;

	if (layer == CT_LAYER_DEFAULT)
		kind = CT_ORIGIN_DEFAULT;
	CT_TRY_ALLOC(name = ct_strdup(at.name));
	where = at.line > 0 ? ct_strfmt("%s:%d:%d", at.name, at.line, at.column) : ct_strdup(at.name);
	if (!where) {
		ct_free(name);
		return CT_NOMEM;
	}
	set_origin(c, key, kind, layer, where, name);
	o->line = at.line;
	o->column = at.column;
	return CT_OK;
}

void ct__config_note_default(struct ct_config *c, size_t key, enum ct_origin_kind kind, char *where)
{
	set_origin(c, key, kind, CT_LAYER_DEFAULT, where, NULL);
}

bool ct__key_is_unset(const struct ct_key *k, const struct ct_config *c)
{
	const void *slot = ct__key_slot(k, c);

	if (!(k->flags & CT_KEY_HIDE_UNSET))
		return false;
	switch (k->type) {
	case CT_KEY_STR:
		return (*(char *const *)slot)[0] == '\0';
	case CT_KEY_INT:
		return *(const int64_t *)slot == (k->flags & CT_KEY_AUTO ? CT_CFG_AUTO : 0);
	default:
		return *(const double *)slot == 0;
	}
}

bool ct__key_applies(const struct ct_key *k, const struct ct_config *c)
{
	size_t controller;
	const char *kinds;

	if (!k->only)
		return true;
	kinds = ct__key_only(k, &controller);
	return ct__word_in(kinds, ct__config_choice(c, controller));
}

void ct__key_release(const struct ct_key *k, struct ct_config *c)
{
	void *slot = ct__key_slot(k, c);

	switch (k->type) {
	case CT_KEY_STR:
		ct_free(*(char **)slot);
		*(char **)slot = NULL;
		break;
	case CT_KEY_STRS:
		ct__str_list_release(slot);
		break;
	case CT_KEY_INTS:
		*(struct ct_int_list *)slot = (struct ct_int_list){0};
		break;
	case CT_KEY_FLOATS:
		*(struct ct_float_list *)slot = (struct ct_float_list){0};
		break;
	case CT_KEY_SIZES:
		*(struct ct_size_list *)slot = (struct ct_size_list){0};
		break;
	case CT_KEY_ENUM:
		*(int *)slot = CT_CFG_UNSET;
		break;
	case CT_KEY_INT:
		memset(slot, 0, (k->flags & CT_KEY_RANGE ? 2 : 1) * sizeof(int64_t));
		break;
	case CT_KEY_BOOL:
		*(bool *)slot = false;
		break;
	default:
		*(double *)slot = 0;
	}
}

/* Returns true if the string can be written as a plain YAML scalar, even for readers that guess the type of a value. */
static bool plain_enough(const char *s)
{
	static const char *const guessed = "true|false|yes|no|on|off|null|y|n";
	char lower[8];
	size_t n = strlen(s);

	if (n == 0 || s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")] != '\0')
		return false;
	if ((s[0] >= '0' && s[0] <= '9') || s[0] == '-' || (s[0] == '.' && s[1] != '/' && s[1] != '.'))
		return false;
	if (n >= sizeof(lower))
		return true;
	for (size_t i = 0; i <= n; i++)
		lower[i] = (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] + 32 : s[i]);
	return !ct__word_in(guessed, lower);
}

/* Adds the string in double quotes. Characters that YAML treats as line breaks or does not allow are written as
 * escapes. */
static void add_quoted(struct ct_str *out, const char *s)
{
	static const struct {
		const char *bytes, *escape;
	} special[] = {
		{"\xE2\x80\xA8", "\\u2028"},
		{"\xE2\x80\xA9", "\\u2029"},
		{"\xEF\xBB\xBF", "\\uFEFF"},
		{"\xEF\xBF\xBE", "\\uFFFE"},
		{"\xEF\xBF\xBF", "\\uFFFF"},
		{"\\", "\\\\"},
		{"\"", "\\\""},
	};

	ct_str_add(out, "\"");
	while (*s) {
		size_t i = 0;

		while (i < CT_ARRAY_LEN(special) && strncmp(s, special[i].bytes, strlen(special[i].bytes)) != 0)
			i++;
		if (i < CT_ARRAY_LEN(special)) {
			ct_str_add(out, special[i].escape);
			s += strlen(special[i].bytes);
		} else {
			ct_str_add_bytes(out, s++, 1);
		}
	}
	ct_str_add(out, "\"");
}

static void add_text(struct ct_str *out, const char *s, bool yaml)
{
	if (!yaml || plain_enough(s))
		ct_str_add(out, s);
	else
		add_quoted(out, s);
}

static void add_list(struct ct_str *out, const struct ct_key *k, const void *slot, bool yaml)
{
	const struct ct_int_list *ints = slot;
	const struct ct_float_list *floats = slot;
	const struct ct_str_list *texts = slot;
	int n = k->type == CT_KEY_INTS ? ints->n : k->type == CT_KEY_FLOATS ? floats->n : texts->n;

	ct_str_add(out, "[");
	for (int i = 0; i < n; i++) {
		ct_str_add(out, i > 0 ? ", " : "");
		if (k->type == CT_KEY_INTS)
			ct_str_addf(out, "%lld", (long long)ints->v[i]);
		else if (k->type == CT_KEY_FLOATS)
			ct_str_add_f64(out, floats->v[i]);
		else
			add_text(out, texts->v[i], yaml);
	}
	ct_str_add(out, "]");
}

/* A single size, which applies to the complete run, is written as a number. */
static void add_sizes(struct ct_str *out, const struct ct_size_list *l)
{
	if (l->n == 1) {
		ct_str_addf(out, "%lld", (long long)l->v[0].size);
		return;
	}
	ct_str_add(out, "[");
	for (int i = 0; i < l->n; i++)
		ct_str_addf(out, "%s[%lld, %lld]", i > 0 ? ", " : "", (long long)l->v[i].epoch,
			    (long long)l->v[i].size);
	ct_str_add(out, "]");
}

void ct__key_format(const struct ct_key *k, const struct ct_config *c, bool yaml, struct ct_str *out)
{
	const void *slot = ct__key_slot(k, c);

	switch (k->type) {
	case CT_KEY_INT:
		if (k->flags & CT_KEY_AUTO && *(const int64_t *)slot == CT_CFG_AUTO)
			ct_str_add(out, "auto");
		else if (k->flags & CT_KEY_RANGE && ((const int64_t *)slot)[1] > 0)
			ct_str_addf(out, "%lld..%lld", (long long)((const int64_t *)slot)[1],
				    (long long)*(const int64_t *)slot);
		else
			ct_str_addf(out, "%lld", (long long)*(const int64_t *)slot);
		break;
	case CT_KEY_BOOL:
		ct_str_add(out, *(const bool *)slot ? "true" : "false");
		break;
	case CT_KEY_STR:
		add_text(out, *(char *const *)slot, yaml);
		break;
	case CT_KEY_ENUM:
		add_text(out, ct_choice_name(k->choices, *(const int *)slot), yaml);
		break;
	case CT_KEY_INTS:
	case CT_KEY_FLOATS:
	case CT_KEY_STRS:
		add_list(out, k, slot, yaml);
		break;
	case CT_KEY_SIZES:
		add_sizes(out, slot);
		break;
	default:
		if (k->flags & CT_KEY_AUTO && *(const double *)slot == CT_CFG_AUTO)
			ct_str_add(out, "auto");
		else
			ct_str_add_f64(out, *(const double *)slot);
	}
}
