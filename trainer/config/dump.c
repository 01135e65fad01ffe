/* Writes a loaded configuration as YAML that loads to the same configuration, and as the lines that ranks and
 * checkpoints compare. */
#include <stdio.h>
#include <string.h>

#include "base/hash/sha256.h"
#include "trainer/config/config_impl.h"

/* Writes the section headings that are needed between the previous key and this one, for example "data:\n augment:\n".
 * Returns the depth of the key. */
static int open_sections(const char *last, const char *name, struct ct_str *out)
{
	const char *dot;
	int depth = 0;

	for (const char *part = name; (dot = strchr(part, '.')); part = dot + 1, depth++) {
		size_t prefix = (size_t)(dot - name) + 1;

		if (strncmp(last, name, prefix) == 0)
			continue;
		ct_str_addf(out, "%s%*s%.*s:\n", depth == 0 ? "\n" : "", 2 * depth, "", (int)(dot - part), part);
	}
	return depth;
}

/* Returns true if the key is omitted because another key is used instead. If the number of processes is not set, it is
 * written as `auto`. */
static bool is_hidden(const struct ct_key *k, const struct ct_config *c, enum ct_origin_kind kind)
{
	return ct__key_is_unset(k, c) && !(k->flags & CT_KEY_AUTO && kind != CT_ORIGIN_UNSET);
}

/* Returns true if some parts of the key apply. The key itself is then written next to them, as `path`. */
static bool is_own_part(const struct ct_key *k, const struct ct_config *c)
{
	size_t len = strlen(k->name);

	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *part = ct__key_at(i);

		if (strncmp(part->name, k->name, len) == 0 && part->name[len] == '.' && ct__key_applies(part, c))
			return true;
	}
	return false;
}

static void add_keys(const struct ct_config *c, bool with_defaults, bool with_origins, struct ct_str *out)
{
	char name[96], last[96] = "";

	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);
		const char *dot, *where = ct_config_origin(c, k->name);
		const enum ct_origin_kind kind = ct_config_origin_kind(c, k->name);
		int depth;

		if (!ct__key_applies(k, c) || is_hidden(k, c, kind) || (!with_defaults && kind == CT_ORIGIN_DEFAULT))
			continue;
		snprintf(name, sizeof(name), "%s%s", k->name, is_own_part(k, c) ? "." CT_KEY_OWN_PART : "");
		dot = strrchr(name, '.');
		depth = open_sections(last, name, out);
		ct_str_addf(out, "%*s%s: ", 2 * depth, "", dot ? dot + 1 : name);
		ct__key_format(k, c, true, out);
		if (with_origins) {
			ct_str_add(out, CT_CONFIG_ORIGIN_MARK);
			ct_str_add_escaped(out, where, strlen(where), 200);
		}
		ct_str_add(out, "\n");
		snprintf(last, sizeof(last), "%s", name);
	}
}

enum ct_status ct_config_dump(const struct ct_config *c, bool with_origins, struct ct_str *out)
{
	ct_str_add(out, "# A resolved ctrain configuration: every key that applies, including defaults.\n");
	add_keys(c, true, with_origins, out);
	return ct_str_status(out);
}

enum ct_status ct_config_dump_set(const struct ct_config *c, struct ct_str *out)
{
	add_keys(c, false, true, out);
	return ct_str_status(out);
}

/* Returns true if the number of epochs and steps changes the learning rate, and not only the end of the run. */
static bool total_matters(const struct ct_config *c)
{
	enum ct_schedule_kind kind = c->schedule.name;

	return kind != CT_LR_CONSTANT && kind != CT_LR_STEP && kind != CT_LR_MULTISTEP && kind != CT_LR_PLATEAU;
}

static bool is_default(const struct ct_key *k, const char *value)
{
	const bool list = k->type == CT_KEY_INTS || k->type == CT_KEY_FLOATS || k->type == CT_KEY_STRS;

	return strcmp(value, k->def ? k->def : list ? "[]" : "") == 0;
}

/* Adds the keys that have at least one of the flags. */
static enum ct_status add_lines(const struct ct_config *c, unsigned flags, struct ct_str *out)
{
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);

		struct ct_str value = {0};

		if (!(k->flags & flags) || !ct__key_applies(k, c))
			continue;
		ct__key_format(k, c, false, &value);
		if (!(k->flags & CT_KEY_ADDED && is_default(k, ct_str_text(&value))))
			ct_str_addf(out, "%s=%s\n", k->name, ct_str_text(&value));
		out->failed |= value.failed;
		ct_str_release(&value);
	}
	return ct_str_status(out);
}

enum ct_status ct_config_lines(const struct ct_config *c, struct ct_str *out)
{
	return add_lines(c, CT_KEY_LEARNED | (total_matters(c) ? CT_KEY_LEARNED_TOTAL : 0), out);
}

enum ct_status ct_config_run_lines(const struct ct_config *c, struct ct_str *out)
{
	return add_lines(c, CT_KEY_LEARNED | CT_KEY_LEARNED_TOTAL | CT_KEY_SHARED, out);
}

enum ct_status ct_config_digest(const struct ct_config *c, char hex[65])
{
	struct ct_str lines = {0};
	struct ct_sha256 h;
	enum ct_status st = ct_config_lines(c, &lines);

	if (st == CT_OK) {
		ct_sha256_init(&h);
		ct_sha256_update(&h, lines.s, lines.len);
		ct_sha256_final_hex(&h, hex);
	}
	ct_str_release(&lines);
	return st;
}
