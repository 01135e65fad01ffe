/* Conversion to booleans, choices and strings. */
#include <string.h>
#include <strings.h>

#include "trainer/config/value_impl.h"

bool ct__value_bool(struct ct_setter *t, const struct ct_yaml_node *v)
{
	static const char *const yes[] = {"yes", "on", "y", "1", "true"}, *const no[] = {"no", "off", "n", "0",
											 "false"};

	if (strcmp(v->text, "true") == 0 || strcmp(v->text, "false") == 0)
		return v->text[0] == 't';
	for (size_t i = 0; i < CT_ARRAY_LEN(yes); i++) {
		if (strcasecmp(v->text, yes[i]) == 0 || strcasecmp(v->text, no[i]) == 0) {
			ct__value_complain(t, v, "is not true or false; write %s",
					   strcasecmp(v->text, yes[i]) == 0 ? "true" : "false");
			return false;
		}
	}
	ct__value_complain(t, v, "is not true or false");
	return false;
}

static void unknown_choice(struct ct_setter *t, const struct ct_yaml_node *v)
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
		ct__value_complain(t, v, "is not available: %s", t->k->why);
	else if (near)
		ct__value_complain(t, v, "is unknown; did you mean \"%s\"? (%s)", near, ct_str_text(&b));
	else
		ct__value_complain(t, v, "is unknown; choose one of %s", ct_str_text(&b));
	ct_str_release(&b);
}

bool ct__text_is_plain(const char *text, size_t n)
{
	for (size_t i = 0; i < n;) {
		char shown[5];
		const size_t taken = ct_escape_next(text + i, n - i, shown);

		if (taken == 1 && shown[0] == '\\' && text[i] != '\\')
			return false;
		i += taken;
	}
	return true;
}

/* Checks that the string can be used in paths, logs and lines of text. */
static bool plain_text(struct ct_setter *t, const struct ct_yaml_node *v)
{
	if (v->len > CT_MAX_TEXT) {
		ct__value_complain(t, v, "is longer than %d bytes", CT_MAX_TEXT);
		return false;
	}
	if (!ct_utf8_valid(v->text, v->len)) {
		ct__value_complain(t, v, "is not valid UTF-8");
		return false;
	}
	if (!ct__text_is_plain(v->text, v->len)) {
		ct__value_complain(t, v, "contains a control character or a line break");
		return false;
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

/* Returns the choice that the string stands for, in which upper and lower case are equal ("NCCL"), or NULL. A choice
 * that ends with ":N", such as "cuda:N", stands for all numbers. */
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

int ct__value_choice(struct ct_setter *t, const struct ct_yaml_node *v)
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

enum ct_status ct__value_text(struct ct_setter *t, const struct ct_yaml_node *v, char **out)
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
