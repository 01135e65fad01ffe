/* Suggestions for keys and files that do not exist: the key that was probably meant, and the example configs. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/process/program.h"
#include "trainer/config/config_impl.h"

#define SHOWN_VALUE 60 /* longest value that is repeated in a suggestion */

static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/* The key with the same last part, if there is exactly one. For `lr`, this is optim.lr. */
static const char *same_last_part(const char *name)
{
	const char *found = NULL;

	for (size_t i = 0; i < ct__key_count(); i++) {
		const char *key = ct__key_at(i)->name;

		if (strcmp(last_part(key), last_part(name)) != 0)
			continue;
		if (found)
			return NULL;
		found = key;
	}
	return found;
}

/* Nearest match among the keys and sections in the same section as name. */
static const char *near_in_section(const char *name)
{
	const char *words[CT__KEYS_MAX], *full[CT__KEYS_MAX], *near;
	const size_t n_keys = ct__key_count();
	size_t n = 0, prefix = (size_t)(last_part(name) - name);

	for (size_t i = 0; i < n_keys || ct__section_at(i - n_keys); i++) {
		const char *candidate = i < n_keys ? ct__key_at(i)->name : ct__section_at(i - n_keys)->name;

		if (strncmp(candidate, name, prefix) != 0 || strchr(candidate + prefix, '.'))
			continue;
		words[n] = candidate + prefix;
		full[n++] = candidate;
	}
	near = ct_suggest(name + prefix, words, n);
	/* A section whose name is the beginning of the word: `optimizer` suggests optim. */
	for (size_t i = 0; !near && i < n; i++) {
		if (strlen(words[i]) >= 3 && strncasecmp(words[i], name + prefix, strlen(words[i])) == 0)
			near = words[i];
	}
	for (size_t i = 0; near && i < n; i++) {
		if (words[i] == near)
			return full[i];
	}
	return NULL;
}

/* Returns true if a user's value for a key of another program can also be the value of this key. */
static bool fits(const char *key, const char *value)
{
	const struct ct_key *k = key ? ct__key_find(key) : NULL;
	double number;

	if (!k)
		return true;
	switch (k->type) {
	case CT_KEY_INT:
	case CT_KEY_FLOAT:
		if (ct_parse_f64(value, &number) == CT_OK)
			return true;
		ct_error_clear();
		return false;
	case CT_KEY_ENUM:
		return ct_choice_find(k->choices, value) >= 0;
	case CT_KEY_BOOL:
		return strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
	case CT_KEY_INTS:
	case CT_KEY_FLOATS:
		return value[0] == '[';
	default:
		return strcasecmp(value, "true") != 0 && strcasecmp(value, "false") != 0;
	}
}

struct ct_key_hint ct_config_key_meant(const char *name, const char *given)
{
	const struct ct_key *k = ct__key_find(name);
	const struct ct_synonym *s = k ? NULL : ct__key_synonym(name);

	if (!s)
		return (struct ct_key_hint){.key = k ? k->name : same_last_part(name), .value = given};
	if (!given || !fits(s->key, given))
		given = s->example;
	return (struct ct_key_hint){.key = s->key, .value = given, .note = s->note};
}

const char *ct_config_key_suggest(const char *name)
{
	const struct ct_synonym *s = ct__key_synonym(name);
	const char *words[CT__KEYS_MAX], *near;
	const size_t n_keys = ct__key_count();

	if (s)
		return s->key;
	for (size_t i = 0; i < n_keys; i++)
		words[i] = ct__key_at(i)->name;
	near = near_in_section(name);
	if (!near)
		near = same_last_part(name);
	return near ? near : ct_suggest(name, words, n_keys);
}

/* "Write wd: 0.1 in the section optim", or "Write optim.wd=0.1". */
static void add_line(const char *key, const char *value, bool is_file, struct ct_str *out)
{
	const char *last = last_part(key);
	struct ct_str shown = {0};

	ct_str_add_escaped(&shown, value, strlen(value), SHOWN_VALUE);
	if (is_file && last > key)
		ct_str_addf(out, " Write \"%s: %s\" in the section %.*s", last, ct_str_text(&shown),
			    (int)(last - key - 1), key);
	else if (is_file)
		ct_str_addf(out, " Write \"%s: %s\" at the top level", key, ct_str_text(&shown));
	else
		ct_str_addf(out, " Write %s=%s", key, ct_str_text(&shown));
	ct_str_release(&shown);
}

void ct__key_suggest(const char *name, const char *value, bool is_file, struct ct_str *out)
{
	const bool other = ct__key_synonym(name);
	const char *near = ct_config_key_suggest(name);
	struct ct_key_hint hint = {0};

	if (other)
		hint = ct_config_key_meant(name, value && strlen(value) <= SHOWN_VALUE ? value : NULL);
	if (near)
		ct_str_addf(out, "; did you mean \"%s\"?", near);
	if (near && hint.value)
		add_line(near, hint.value, is_file, out);
	if (hint.note)
		ct_str_addf(out, near ? " (%s)" : "; %s", hint.note);
}

bool ct_config_key_at(size_t i, struct ct_config_key *out)
{
	const struct ct_synonym *s;
	const struct ct_key *k;

	if (i >= ct__key_count())
		return false;
	k = ct__key_at(i);
	*out = (struct ct_config_key){
		.name = k->name, .doc = k->doc, .choices = k->choices, .boolean = k->type == CT_KEY_BOOL};
	for (size_t n = 0; !out->other_names && (s = ct__synonym_at(n)); n++)
		out->other_names = s->key && strcmp(s->key, k->name) == 0 ? s->words : NULL;
	return true;
}

char *ct_config_example(const char *name)
{
	char file[80];

	if (strchr(name, '/') || strchr(name, '.') || snprintf(file, sizeof(file), "configs/%s.yaml", name) >= 79)
		return NULL;
	return ct_program_file(file);
}

void ct_config_examples_like(const char *word, struct ct_str *out)
{
	char *one = ct_config_example("smoke"), *dir = one ? ct_path_dir(one) : NULL, **names = NULL;
	size_t n = 0;

	if (dir && ct_dir_list(dir, &names, &n) < 0)
		ct_error_clear();
	for (size_t i = 0; i < n; i++) {
		if (strstr(names[i], word) && strstr(names[i], ".yaml"))
			ct_str_addf(out, "%s%.*s", out->len > 0 ? ", " : "", (int)strcspn(names[i], "."), names[i]);
	}
	ct_dir_list_free(names, n);
	ct_free(dir);
	ct_free(one);
}
