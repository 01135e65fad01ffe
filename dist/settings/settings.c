/* Names and values are copied, because the environment may change, and sorted, because its order has no meaning. Every
 * variable is checked, and all that are wrong are reported together. What is only doubtful becomes a warning when the
 * settings are logged. */
#include "dist/settings/settings.h"

#include <stdlib.h>
#include <string.h>

#define CT_LOG_COMPONENT "dist"
#include "base/log.h"
#include "dist/settings/settings_impl.h"

extern char **environ;

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct ct_setting *)a)->name, ((const struct ct_setting *)b)->name);
}

/* Takes a copy, because the environment may change. */
static enum ct_status add(struct ct_settings *s, size_t *cap, const char *entry)
{
	struct ct_setting *one;
	char *copy, *equals;

	CT_TRY_GROW(s->all, s->n, *cap);
	CT_TRY_ALLOC(copy = ct_strdup(entry));
	equals = strchr(copy, '=');
	*equals = '\0';
	one = &s->all[s->n++];
	*one = (struct ct_setting){.name = copy, .value = equals + 1};
	ct__setting_check(ct__setting_rule(one->name), one);
	return CT_OK;
}

enum ct_status ct_settings_read(const char *prefix, struct ct_settings *out)
{
	enum ct_status st = CT_OK;
	size_t cap = 0;

	*out = (struct ct_settings){0};
	for (size_t i = 0; environ && environ[i] && st == CT_OK; i++) {
		if (strncmp(environ[i], prefix, strlen(prefix)) == 0 && strchr(environ[i], '='))
			st = add(out, &cap, environ[i]);
	}
	if (st < 0)
		ct_settings_release(out);
	else if (out->n > 1)
		qsort(out->all, out->n, sizeof(*out->all), by_name);
	return st;
}

void ct_settings_release(struct ct_settings *s)
{
	for (size_t i = 0; i < s->n; i++)
		ct_free((char *)(uintptr_t)s->all[i].name);
	ct_free(s->all);
	*s = (struct ct_settings){0};
}

enum ct_status ct_settings_check(const struct ct_settings *s)
{
	struct ct_str text = {0}, hints = {0};

	for (size_t i = 0; i < s->n; i++) {
		const struct ct_setting *one = &s->all[i];

		if (one->state != CT_SETTING_WRONG)
			continue;
		ct_str_addf(&text, "%s%s", text.len ? "; " : "environment: ", one->why);
		if (one->hint[0])
			ct_str_addf(&hints, "%s%s", hints.len ? "; " : "", one->hint);
	}
	if (text.len) {
		CT_FAIL(CT_CONFIG, "%s", ct_str_text(&text));
		ct_error_hint("%s", ct_str_text(&hints));
	}
	ct_str_release(&hints);
	const bool wrong = text.len > 0;
	ct_str_release(&text);
	return wrong ? CT_CONFIG : CT_OK;
}

void ct_settings_log(const struct ct_settings *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct ct_setting *one = &s->all[i];

		CT_INFO("environment: %s=%s", one->name, one->value);
		if (one->state == CT_SETTING_DOUBTFUL)
			CT_WARN("environment: %s%s%s", one->why, one->hint[0] ? "; " : "", one->hint);
	}
}
