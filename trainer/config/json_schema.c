/* Writes docs/config.schema.json from the schema table. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "trainer/config/config_impl.h"

static ct_json *type_schema(const char *type)
{
	ct_json *j = ct_json_object();

	ct_json_set_str(j, "type", type);
	return j;
}

static void set_bound(ct_json *j, const struct ct_key *k, const char *name, double v)
{
	if (k->type == CT_KEY_INT || k->type == CT_KEY_INTS || k->type == CT_KEY_SIZES)
		ct_json_set_i64(j, name, (int64_t)v);
	else
		ct_json_set_f64(j, name, v);
}

static ct_json *number_schema(const struct ct_key *k)
{
	bool integer = k->type == CT_KEY_INT || k->type == CT_KEY_INTS || k->type == CT_KEY_SIZES;
	ct_json *j = type_schema(integer ? "integer" : "number");

	set_bound(j, k, k->flags & CT_KEY_OPEN_LO ? "exclusiveMinimum" : "minimum", k->lo);
	set_bound(j, k, k->flags & CT_KEY_OPEN_HI ? "exclusiveMaximum" : "maximum", k->hi);
	return j;
}

/* {"anyOf": [a, b]} */
static ct_json *either(ct_json *a, ct_json *b)
{
	ct_json *j = ct_json_object(), *list = ct_json_array();

	ct_json_push(list, a);
	ct_json_push(list, b);
	ct_json_set(j, "anyOf", list);
	return j;
}

/* Makes the schema of strings such as "cuda:0" for the choice "cuda:N". Returns NULL for other choices. */
static ct_json *numbered_schema(const char *choice)
{
	const size_t len = strlen(choice);
	char pattern[64];
	ct_json *j;

	if (len < 3 || strcmp(choice + len - 2, ":N") != 0)
		return NULL;
	snprintf(pattern, sizeof(pattern), "^%.*s[0-9]{1,4}$", (int)len - 1, choice);
	j = type_schema("string");
	ct_json_set_str(j, "pattern", pattern);
	return j;
}

static ct_json *choices_schema(const struct ct_key *k)
{
	ct_json *j = ct_json_object(), *list = ct_json_array(), *numbered = NULL;

	for (size_t i = 0; k->choices[i]; i++) {
		ct_json *one = numbered ? NULL : numbered_schema(k->choices[i]);

		if (one)
			numbered = one;
		else
			ct_json_push_str(list, k->choices[i]);
	}
	ct_json_set(j, "enum", list);
	return numbered ? either(j, numbered) : j;
}

static ct_json *auto_schema(void)
{
	ct_json *j = ct_json_object();

	ct_json_set_str(j, "const", "auto");
	return j;
}

/* 224, or [[0, 128], [10, 160]] */
static ct_json *sizes_schema(const struct ct_key *k)
{
	ct_json *pair = type_schema("array"), *list = type_schema("array");

	ct_json_set(pair, "items", type_schema("integer"));
	ct_json_set_i64(pair, "minItems", 2);
	ct_json_set_i64(pair, "maxItems", 2);
	ct_json_set(list, "items", pair);
	ct_json_set_i64(list, "maxItems", k->max_n);
	return either(number_schema(k), list);
}

/* ctrain accepts `7` or `no` as the value of a string key, but JSON Schema's string type does not, so other types are
 * allowed, too. */
static ct_json *value_schema(const struct ct_key *k)
{
	ct_json *j, *item;

	switch (k->type) {
	case CT_KEY_BOOL:
		return type_schema("boolean");
	case CT_KEY_STR:
		j = ct_json_array();
		ct_json_push_str(j, "string");
		ct_json_push_str(j, "number");
		ct_json_push_str(j, "boolean");
		if (ct__key_has_parts(k))
			ct_json_push_str(j, "object");
		item = ct_json_object();
		ct_json_set(item, "type", j);
		if (ct__key_has_parts(k))
			return item;
		if (k->choices && k->flags & CT_KEY_OTHERS)
			return either(choices_schema(k), item);
		if (!k->choices)
			return item;
		ct_json_destroy(item);
		return choices_schema(k);
	case CT_KEY_ENUM:
		return k->alias ? either(choices_schema(k), type_schema("boolean")) : choices_schema(k);
	case CT_KEY_MIB:
	case CT_KEY_SECONDS:
		item = type_schema("string");
		ct_json_set_str(item, "pattern",
				k->type == CT_KEY_MIB ? "^[0-9.eE+-]+ ?(KiB|MiB|GiB)$" : "^[0-9.eE+-]+ ?(ms|s|min|h)$");
		item = either(number_schema(k), item);
		return k->flags & CT_KEY_AUTO ? either(auto_schema(), item) : item;
	case CT_KEY_INTS:
	case CT_KEY_FLOATS:
	case CT_KEY_STRS:
		j = type_schema("array");
		ct_json_set(j, "items", k->type == CT_KEY_STRS ? type_schema("string") : number_schema(k));
		ct_json_set_i64(j, "minItems", k->min_n);
		ct_json_set_i64(j, "maxItems", k->max_n);
		return k->flags & CT_KEY_AUTO ? either(auto_schema(), j) : j;
	case CT_KEY_SIZES:
		return sizes_schema(k);
	default:
		if (k->flags & CT_KEY_RANGE) {
			item = type_schema("string");
			ct_json_set_str(item, "pattern", "^[0-9]+\\.\\.[0-9]+$");
			return either(number_schema(k), item);
		}
		return k->flags & CT_KEY_AUTO ? either(number_schema(k), auto_schema()) : number_schema(k);
	}
}

static ct_json *object_schema(const char *doc)
{
	ct_json *j = type_schema("object");

	if (doc)
		ct_json_set_str(j, "description", doc);
	ct_json_set_bool(j, "additionalProperties", false);
	return j;
}

/* Returns true if a value in command-line syntax is a number. */
static bool is_number(const struct ct_key *k, const char *text, double *number)
{
	const bool yes = k->type != CT_KEY_STR && k->type != CT_KEY_ENUM && ct_parse_f64(text, number) == CT_OK;

	ct_error_clear();
	return yes;
}

/* Editors insert the default. */
static void set_default(ct_json *j, const struct ct_key *k)
{
	double number;

	if (!k->def || k->type == CT_KEY_INTS || k->type == CT_KEY_FLOATS || k->type == CT_KEY_STRS ||
	    k->type == CT_KEY_SIZES)
		return;
	if (k->type == CT_KEY_BOOL)
		ct_json_set_bool(j, "default", strcmp(k->def, "true") == 0);
	else if (!is_number(k, k->def, &number))
		ct_json_set_str(j, "default", k->def);
	else if (k->type == CT_KEY_INT)
		ct_json_set_i64(j, "default", (int64_t)number);
	else
		ct_json_set_f64(j, "default", number);
}

/* The command-line syntax of a list is JSON. */
static void set_examples(ct_json *j, const struct ct_key *k)
{
	ct_json *examples = ct_json_array(), *list = NULL;
	double number;

	if (k->example[0] == '[' && ct_json_parse(k->example, strlen(k->example), k->name, &list) == CT_OK)
		ct_json_push(examples, list);
	else if (!is_number(k, k->example, &number))
		ct_json_push_str(examples, k->example);
	else if (k->type == CT_KEY_INT)
		ct_json_push_i64(examples, (int64_t)number);
	else
		ct_json_push_f64(examples, number);
	ct_json_set(j, "examples", examples);
}

static ct_json *key_schema(const struct ct_key *k)
{
	ct_json *j = value_schema(k);
	struct ct_str b = {0};

	ct_str_addf(&b, "%s (default: ", k->doc);
	ct__key_add_default(k, &b, "");
	ct_str_add(&b, ")");
	ct_json_set_str(j, "description", ct_str_text(&b));
	set_default(j, k);
	if (k->example)
		set_examples(j, k);
	ct_str_release(&b);
	return j;
}

static ct_json *properties(const char *prefix);

/* Adds the key itself and the keys below it as the properties of an object. */
static void add_parts(const struct ct_key *k, ct_json *j)
{
	struct ct_str prefix = {0};
	ct_json *parts;

	ct_str_addf(&prefix, "%s.", k->name);
	parts = properties(ct_str_text(&prefix));
	ct_json_set(parts, CT_KEY_OWN_PART, type_schema("string"));
	ct_json_set(j, "properties", parts);
	ct_json_set_bool(j, "additionalProperties", false);
	ct_str_release(&prefix);
}

/* Returns the keys and sections directly below `prefix` ("" or, for example, "data."). */
static ct_json *properties(const char *prefix)
{
	ct_json *all = ct_json_object();
	size_t len = strlen(prefix);
	const struct ct_section *s;

	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);
		ct_json *j;

		if (strncmp(k->name, prefix, len) != 0 || strchr(k->name + len, '.'))
			continue;
		j = key_schema(k);
		if (ct__key_has_parts(k))
			add_parts(k, j);
		ct_json_set(all, k->name + len, j);
	}
	for (size_t i = 0; (s = ct__section_at(i)); i++) {
		struct ct_str deeper = {0};
		ct_json *j;

		if (strncmp(s->name, prefix, len) != 0 || strchr(s->name + len, '.'))
			continue;
		ct_str_addf(&deeper, "%s.", s->name);
		j = object_schema(s->doc);
		ct_json_set(j, "properties", properties(ct_str_text(&deeper)));
		ct_json_set(all, s->name + len, j);
		ct_str_release(&deeper);
	}
	return all;
}

enum ct_status ct_config_json_schema(struct ct_str *out)
{
	ct_json *root = ct_json_object(), *all = properties(""), *base = type_schema("string");
	enum ct_status st;

	ct_json_set_str(base, "description", "Another config file to inherit from; the path is relative to this file.");
	ct_json_set(all, "base", base);
	ct_json_set_str(root, "$schema", "http://json-schema.org/draft-07/schema#");
	ct_json_set_str(root, "$id", "urn:ctrain:config");
	ct_json_set_str(root, "title", "ctrain configuration");
	ct_json_set_str(root, "type", "object");
	ct_json_set_bool(root, "additionalProperties", false);
	ct_json_set(root, "properties", all);
	st = ct_json_dump(root, true, out);
	ct_json_destroy(root);
	if (st == CT_OK)
		ct_str_add(out, "\n");
	return st == CT_OK ? ct_str_status(out) : st;
}
