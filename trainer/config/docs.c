/* Writes docs/CONFIG.md, docs/config.schema.json and the text of `ctrain help KEY` from the schema table. */
#include <string.h>

#include "base/json.h"
#include <stdio.h>

#include "trainer/config/config_impl.h"

static const char intro[] =
	"# Configuration\n"
	"\n"
	"<!-- Written by `ctrain config docs > docs/CONFIG.md`; a test checks this. Change trainer/config/schema.c instead. -->\n"
	"\n"
	"One YAML file describes a run: `ctrain CONFIG.yaml`. `ctrain check CONFIG.yaml` reports all mistakes in it at once,\n"
	"`ctrain config dump CONFIG.yaml --origins` shows every value and where it came from, and `ctrain help KEY` explains\n"
	"one key.\n"
	"\n"
	"**Precedence:** command line (`KEY=VALUE`, options such as `--procs`) > environment > file > default. Any key can be\n"
	"set on the command line: `ctrain configs/mnist_ddp.yaml optim.lr=0.1 model.hidden=[256,128]`.\n"
	"\n"
	"**Inheritance:** `base: other.yaml` includes another file. Its path is relative to this file. Keys of this file override\n"
	"those of the other one.\n"
	"\n"
	"**Types** come from these tables, not from the form of the value: `1e-4` is a number, and the value `no` of a string key is the\n"
	"string \"no\". Booleans are `true` and `false`. A size or a time is a number in the unit of its key, or a number with a\n"
	"unit: `512KiB`, `4MiB`, `1GiB`, `500ms`, `30s`, `10min`, `1h`. Paths are relative to the current directory.\n"
	"\n"
	"**Keys that exclude each other** (such as `batch.global` and `batch.per_rank`): the key from the source with the higher\n"
	"precedence is used, and both in the same source are an error. The same rule applies to keys that belong to another\n"
	"model, data set, optimizer or schedule than the selected one.\n"
	"\n"
	"**YAML:** one document of at most 1 MiB in UTF-8; anchors and aliases work, tags and merge keys (`<<`) are refused.\n"
	"\n"
	"**Editors** complete and check keys with [config.schema.json](config.schema.json). Start the file with\n"
	"`# yaml-language-server: $schema=PATH/TO/docs/config.schema.json`.\n";

/* Escapes the characters that have a meaning in a Markdown table. */
static void add_cell(struct ct_str *out, const char *text)
{
	for (; *text; text++) {
		if (strchr("|<*_[", *text))
			ct_str_add(out, "\\");
		ct_str_add_bytes(out, text, 1);
	}
}

/* "default `0.05`", "default empty". */
static void add_default(const struct ct_key *k, struct ct_str *out, const char *quote)
{
	bool list = k->type == CT_KEY_INTS || k->type == CT_KEY_FLOATS || k->type == CT_KEY_STRS;

	if (k->flags & CT_KEY_REQUIRED)
		ct_str_add(out, "required");
	else if (k->def)
		ct_str_addf(out, "%s%s%s%s%s", quote, list ? "[" : "", k->def, list ? "]" : "", quote);
	else
		ct_str_add(out, "empty");
}

/* "data.name `mnist`, `idx`" from "data.name=mnist|idx". */
static void add_condition(const char *only, struct ct_str *out)
{
	const char *eq = strchr(only, '=');

	ct_str_addf(out, "`%.*s` ", (int)(eq - only), only);
	for (const char *s = eq + 1; *s; s += strcspn(s, "|"), s += *s == '|')
		ct_str_addf(out, "%s`%.*s`", s > eq + 1 ? ", " : "", (int)strcspn(s, "|"), s);
}

static void add_groups(struct ct_str *out)
{
	const char *name, *only;

	ct_str_add(out, "\n**Groups** that the tables refer to:\n\n");
	for (size_t i = 0; (name = ct__only_group_at(i, &only)); i++) {
		ct_str_addf(out, "- %s: ", name);
		add_condition(only, out);
		ct_str_add(out, "\n");
	}
}

static const char *group_of(const char *condition)
{
	const char *name, *only;

	for (size_t i = 0; (name = ct__only_group_at(i, &only)); i++) {
		if (strcmp(only, condition) == 0)
			return name;
	}
	return NULL;
}

static void add_row(const struct ct_key *k, struct ct_str *out)
{
	struct ct_str b = {0};

	ct_str_addf(out, "| `%s` | ", k->name);
	ct__key_describe(k, &b);
	add_cell(out, ct_str_text(&b));
	ct_str_add(out, " | ");
	add_default(k, out, "`");
	ct_str_add(out, " | ");
	add_cell(out, k->doc);
	if (k->only && group_of(k->only)) {
		ct_str_addf(out, " *Only for %s.*", group_of(k->only));
	} else if (k->only) {
		ct_str_add(out, " *Only with ");
		add_condition(k->only, out);
		ct_str_add(out, ".*");
	}
	if (k->env)
		ct_str_addf(out, " *Environment: `%s`.*", k->env);
	ct_str_add(out, " |\n");
	ct_str_release(&b);
}

/* The innermost section that contains the key. */
static const struct ct_section *section_of(const struct ct_key *k)
{
	const struct ct_section *s, *best = NULL;

	for (size_t i = 0; (s = ct__section_at(i)); i++) {
		size_t len = strlen(s->name);

		if (strncmp(s->name, k->name, len) == 0 && k->name[len] == '.' && (!best || len > strlen(best->name)))
			best = s;
	}
	return best;
}

static void add_table_head(struct ct_str *out)
{
	ct_str_add(out, "\n| key | values | default | meaning |\n| --- | --- | --- | --- |\n");
}

enum ct_status ct_config_docs(struct ct_str *out)
{
	const struct ct_section *last = NULL;
	bool first = true;

	ct_str_add(out, intro);
	add_groups(out);
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);
		const struct ct_section *s = section_of(k);

		if (k->advanced)
			continue;
		if (first || s != last) {
			if (s)
				ct_str_addf(out, "\n## %s\n\n%s\n", s->name, s->doc);
			else
				ct_str_add(out, "\n## Top level\n");
			add_table_head(out);
		}
		add_row(k, out);
		last = s;
		first = false;
	}
	ct_str_add(out, "\n## Advanced keys\n\nThe defaults of these keys are right for almost all runs.\n");
	add_table_head(out);
	for (size_t i = 0; i < ct__key_count(); i++) {
		if (ct__key_at(i)->advanced)
			add_row(ct__key_at(i), out);
	}
	return ct_str_status(out);
}

bool ct_config_help(const char *name, struct ct_str *out)
{
	size_t len = strlen(name);
	bool found = false;
	const struct ct_section *s;

	for (size_t i = 0; (s = ct__section_at(i)); i++) {
		if (strcmp(s->name, name) == 0)
			ct_str_addf(out, "%s: %s\n", s->name, s->doc);
	}
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);

		if (strncmp(k->name, name, len) != 0 || (k->name[len] != '\0' && k->name[len] != '.'))
			continue;
		ct_str_addf(out, "\n%s\n    %s\n    ", k->name, k->doc);
		ct__key_describe(k, out);
		ct_str_add(out, "; default: ");
		add_default(k, out, "");
		if (k->only)
			ct_str_addf(out, "\n    only with %s", k->only);
		if (k->env)
			ct_str_addf(out, "\n    environment: %s", k->env);
		ct_str_add(out, "\n");
		found = true;
	}
	return found;
}

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
		return j;
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

static ct_json *key_schema(const struct ct_key *k)
{
	ct_json *j = value_schema(k);
	struct ct_str b = {0};

	ct_str_addf(&b, "%s (default: ", k->doc);
	add_default(k, &b, "");
	ct_str_add(&b, ")");
	ct_json_set_str(j, "description", ct_str_text(&b));
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
