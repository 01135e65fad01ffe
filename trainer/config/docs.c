/* Writes docs/CONFIG.md and the text of `ctrain help KEY` from the schema table. */
#include <stdio.h>
#include <string.h>

#include "trainer/config/config_impl.h"

static const char intro[] =
	"# Configuration\n"
	"\n"
	"<!-- Written by `ctrain config docs > docs/CONFIG.md`; a test checks this. Change trainer/config/keys.def instead. -->\n"
	"\n"
	"One YAML file describes a run: `ctrain CONFIG.yaml`. `ctrain check CONFIG.yaml` reports all mistakes in it at once,\n"
	"`ctrain config dump CONFIG.yaml --origins` shows every value and where it came from, and `ctrain help KEY` explains\n"
	"one key.\n"
	"\n"
	"**Precedence:** command line (`KEY=VALUE`, options such as `--procs`) > environment > file > default. Any key can be\n"
	"set on the command line: `ctrain configs/mnist_ddp.yaml optim.lr=0.1 model.hidden=[256,128]`.\n"
	"\n"
	"**Inheritance:** `base: other.yaml` includes another file. Its path is relative to this file. Keys in this file override\n"
	"keys in the included file.\n"
	"\n"
	"**Types** depend on the key, not on the form of the value: `1e-4` is a number, and for a key of type string, the value `no` is\n"
	"the string \"no\". Booleans are `true` and `false`. A size or a time is a number in the unit of its key, or a number with a\n"
	"unit: `512KiB`, `4MiB`, `1GiB`, `500ms`, `30s`, `10min`, `1h`. Paths are relative to the current directory.\n"
	"\n"
	"**Keys that exclude each other** (such as `batch.global` and `batch.per_rank`): ctrain uses the key from the source with the\n"
	"higher precedence. If both keys are in the same source, this is an error. The same rule applies to keys that belong to\n"
	"another model, data set, optimizer or schedule than the selected one.\n"
	"\n"
	"**YAML:** the file is one document of at most 1 MiB in UTF-8. Anchors and aliases work; tags and merge keys (`<<`) are refused.\n"
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

void ct__key_add_default(const struct ct_key *k, struct ct_str *out, const char *quote)
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
	ct__key_add_default(k, out, "`");
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

/* "`wd`, `l2`" from "wd l2". */
static void add_words(const char *words, struct ct_str *out)
{
	for (const char *s = words; *s; s += strcspn(s, " "), s += *s == ' ')
		ct_str_addf(out, "%s`%.*s`", s > words ? ", " : "", (int)strcspn(s, " "), s);
}

static void add_synonyms(struct ct_str *out)
{
	const struct ct_synonym *s;
	const struct ct_value_synonym *v;

	ct_str_add(
		out,
		"\n## Names from other tools\n\nPyTorch, timm, Lightning, Keras and others use these names. ctrain "
		"refuses them, and the message names the key\nto write instead. A name with a dot is only recognized in its "
		"section.\n\n| other tools | ctrain | remark |\n| --- | --- | --- |\n");
	for (size_t i = 0; (s = ct__synonym_at(i)); i++) {
		ct_str_add(out, "| ");
		add_words(s->words, out);
		ct_str_addf(out, " | %s%s%s | ", s->key ? "`" : "", s->key ? s->key : "none", s->key ? "`" : "");
		if (s->note)
			add_cell(out, s->note);
		ct_str_add(out, s->note ? " |\n" : "|\n");
	}
	ct_str_add(out, "\n| key | value in other tools | value in ctrain |\n| --- | --- | --- |\n");
	for (size_t i = 0; (v = ct__value_synonym_at(i)); i++) {
		ct_str_addf(out, "| `%s` | ", v->key);
		add_words(v->words, out);
		ct_str_addf(out, " | `%s` |\n", v->choice);
	}
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
	add_synonyms(out);
	return ct_str_status(out);
}

static void add_wrapped(struct ct_str *out, size_t indent, const char *fmt, ...) CT_PRINTF(3, 4);
static void add_wrapped(struct ct_str *out, size_t indent, const char *fmt, ...)
{
	struct ct_str text = {0};
	va_list ap;

	va_start(ap, fmt);
	ct_str_addv(&text, fmt, ap);
	va_end(ap);
	ct_str_addf(out, "%*s", (int)indent, "");
	ct_str_add_wrapped(out, ct_str_text(&text), indent, indent > 0 ? indent : 4);
	ct_str_release(&text);
}

/* The lines of a key's help page after its description. */
static void add_values(const struct ct_key *k, struct ct_str *out)
{
	struct ct_config_key other;
	struct ct_str text = {0};

	ct__key_describe(k, &text);
	ct_str_add(&text, "; default: ");
	ct__key_add_default(k, &text, "");
	add_wrapped(out, 4, "%s", ct_str_text(&text));
	ct_str_clear(&text);
	if (k->example && strpbrk(k->example, " \""))
		ct_str_addf(out, "    example: '%s=%s'\n", k->name, k->example);
	else if (k->example)
		ct_str_addf(out, "    example: %s=%s\n", k->name, k->example);
	for (const char *s = k->only; s && *s; s++) {
		if (*s == '|' || *s == '=')
			ct_str_add(&text, *s == '|' ? ", " : " ");
		else
			ct_str_add_bytes(&text, s, 1);
	}
	if (k->only)
		add_wrapped(out, 4, "only with %s", ct_str_text(&text));
	if (k->env)
		add_wrapped(out, 4, "environment: %s", k->env);
	for (size_t i = 0; ct_config_key_at(i, &other); i++) {
		if (strcmp(other.name, k->name) == 0 && other.other_names)
			add_wrapped(out, 4, "other tools: %s", other.other_names);
	}
	ct_str_release(&text);
}

bool ct_config_help(const char *name, struct ct_str *out)
{
	size_t len = strlen(name);
	bool found = false;
	const struct ct_section *s;

	for (size_t i = 0; (s = ct__section_at(i)); i++) {
		if (strcmp(s->name, name) == 0)
			add_wrapped(out, 0, "%s: %s", s->name, s->doc);
	}
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);

		if (strncmp(k->name, name, len) != 0 || (k->name[len] != '\0' && k->name[len] != '.'))
			continue;
		ct_str_addf(out, "\n%s\n", k->name);
		add_wrapped(out, 4, "%s", k->doc);
		add_values(k, out);
		found = true;
	}
	return found;
}
