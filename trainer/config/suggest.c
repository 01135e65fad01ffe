/* Suggestions for keys that do not exist: the key that was probably meant. */
#include <string.h>
#include <strings.h>

#include "trainer/config/config_impl.h"

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

const char *ct_config_key_meant(const char *name)
{
	const struct ct_key *k = ct__key_find(name);
	const char *synonym = k ? NULL : ct__key_synonym(name);

	return k ? k->name : synonym ? synonym : same_last_part(name);
}

const char *ct_config_key_suggest(const char *name)
{
	const char *words[CT__KEYS_MAX], *near = ct__key_synonym(name);
	const size_t n_keys = ct__key_count();

	for (size_t i = 0; i < n_keys; i++)
		words[i] = ct__key_at(i)->name;
	if (!near)
		near = near_in_section(name);
	if (!near)
		near = same_last_part(name);
	return near ? near : ct_suggest(name, words, n_keys);
}

void ct__key_suggest(const char *name, struct ct_str *out)
{
	const char *near = ct_config_key_suggest(name);

	if (near)
		ct_str_addf(out, "; did you mean \"%s\"?", near);
	if (near && near == ct__key_synonym(name) && strcmp(near, "launch.procs") == 0)
		ct_str_add(out, " ctrain starts one process for each device, and sums the gradients over all of them");
}
