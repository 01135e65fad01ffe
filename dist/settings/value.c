/* Checks the values of settings as NCCL reads them. NCCL ignores many values that it does not understand, so each kind
 * of value is parsed here in the way that NCCL parses it, and what it would ignore or take for something else is
 * reported. An empty value is the same as none. Values of unknown settings are not checked, but a name that resembles a
 * known one is doubtful. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "dist/settings/settings_impl.h"

void ct__setting_judge(struct ct_setting *s, enum ct_setting_state state, const char *why, ...)
{
	va_list ap;

	s->state = state;
	va_start(ap, why);
	vsnprintf(s->why, sizeof(s->why), why, ap);
	va_end(ap);
}

static bool same(const char *word, size_t len, const char *choice, bool exact)
{
	return strlen(choice) == len && (exact ? strncmp : strncasecmp)(word, choice, len) == 0;
}

static bool is_choice(const struct setting_rule *r, const char *word, size_t len)
{
	for (size_t i = 0; r->choices[i]; i++) {
		if (same(word, len, r->choices[i], r->exact))
			return true;
	}
	return false;
}

/* "did you mean", or all choices. "warning" begins with WARN, and "ipv6" is closest to AF_INET6. */
static void suggest(const struct setting_rule *r, const char *word, struct ct_setting *s)
{
	const char *near = NULL;
	struct ct_str all = {0};
	size_t n = 0;

	for (; r->choices[n]; n++) {
		const size_t len = strlen(r->choices[n]);

		ct_str_addf(&all, "%s%s", n ? ", " : "", r->choices[n]);
		if (len > 3 && strncasecmp(word, r->choices[n], len) == 0)
			near = r->choices[n];
	}
	if (!near)
		near = ct_suggest(word, r->choices, n);
	if (near)
		snprintf(s->hint, sizeof(s->hint), "did you mean %s?", near);
	else
		snprintf(s->hint, sizeof(s->hint), "NCCL knows %s", ct_str_text(&all));
	ct_str_release(&all);
}

static void bad_word(const struct setting_rule *r, const char *word, size_t len, struct ct_setting *s)
{
	char copy[64];

	snprintf(copy, sizeof(copy), "%.*s", (int)len, word);
	if (len == strlen(s->value))
		ct__setting_judge(s, CT_SETTING_WRONG, "%s=%.60s is not a value that NCCL knows", s->name, s->value);
	else
		ct__setting_judge(s, CT_SETTING_WRONG, "%s=%.60s: NCCL does not know \"%.40s\"", s->name, s->value,
				  copy);
	suggest(r, copy, s);
}

static void check_choice(const struct setting_rule *r, struct ct_setting *s)
{
	if (!is_choice(r, s->value, strlen(s->value)))
		bad_word(r, s->value, strlen(s->value), s);
}

/* One part of a list, without the name of the operation that precedes a colon. */
static void check_words(const struct setting_rule *r, const char *p, size_t len, struct ct_setting *s)
{
	const char *end = p + len, *colon = memchr(p, ':', len);

	p = colon ? colon + 1 : p;
	p += p < end && *p == '^';
	while (p < end && s->state == CT_SETTING_FINE) {
		const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;

		if (stop > p && !is_choice(r, p, (size_t)(stop - p)))
			bad_word(r, p, (size_t)(stop - p), s);
		p = stop + 1;
	}
}

static void check_list(const struct setting_rule *r, struct ct_setting *s)
{
	for (const char *p = s->value; *p; p += *p == ';') {
		const size_t len = strcspn(p, ";");

		check_words(r, p, len, s);
		p += len;
	}
}

/* NCCL uses the digits at the beginning, and 0 if there are none: it takes "true" for 0. */
static void check_number(struct ct_setting *s)
{
	char *end;
	const long long as = strtoll(s->value, &end, 0);

	while (*end == ' ' || *end == '\t')
		end++;
	if (!*end)
		return;
	ct__setting_judge(s, CT_SETTING_WRONG, "%s=%.60s is not a number (NCCL would use %lld)", s->name, s->value, as);
	if (strcasecmp(s->value, "true") == 0 || strcasecmp(s->value, "yes") == 0 || strcasecmp(s->value, "on") == 0)
		snprintf(s->hint, sizeof(s->hint), "write %s=1", s->name);
	else if (strcasecmp(s->value, "false") == 0 || strcasecmp(s->value, "no") == 0 ||
		 strcasecmp(s->value, "off") == 0)
		snprintf(s->hint, sizeof(s->hint), "write %s=0", s->name);
	else
		snprintf(s->hint, sizeof(s->hint), "write an integer, or unset %s", s->name);
}

static void check_file(struct ct_setting *s)
{
	if (access(s->value, R_OK) == 0)
		return;
	ct__setting_judge(s, CT_SETTING_WRONG, "%s=%.200s cannot be read: %m", s->name, s->value);
	snprintf(s->hint, sizeof(s->hint), "correct the path, or unset %s", s->name);
}

/* NCCL truncates the file when it opens it. */
static void check_log(struct ct_setting *s)
{
	if (strstr(s->value, "%p") || strncmp(s->value, "/dev/", 5) == 0 ||
	    strncmp(s->value, "/proc/self/fd/", 14) == 0)
		return;
	ct__setting_judge(s, CT_SETTING_DOUBTFUL, "%s=%.200s is one file, which each rank of a host overwrites",
			  s->name, s->value);
	snprintf(s->hint, sizeof(s->hint),
		 "add %%h.%%p (host and process), or unset it: ctrain writes NCCL's messages to RUN/log/");
}

static void check_name(struct ct_setting *s)
{
	const char *near = ct__setting_near(s->name);

	if (!near)
		return;
	ct__setting_judge(s, CT_SETTING_DOUBTFUL, "NCCL does not read %s", s->name);
	snprintf(s->hint, sizeof(s->hint), "did you mean %s?", near);
}

void ct__setting_check(const struct setting_rule *r, struct ct_setting *s)
{
	if (!r) {
		check_name(s);
		return;
	}
	if (!s->value[0])
		return;
	switch (r->kind) {
	case SETTING_TEXT:
		break;
	case SETTING_NUMBER:
		check_number(s);
		break;
	case SETTING_CHOICE:
		check_choice(r, s);
		break;
	case SETTING_LIST:
		check_list(r, s);
		break;
	case SETTING_LEVEL:
		if (s->value[0] < '0' || s->value[0] > '9')
			check_choice(r, s);
		break;
	case SETTING_INTERFACES:
	case SETTING_INTERFACE:
		ct__setting_check_interfaces(s);
		break;
	case SETTING_ADAPTERS:
		ct__setting_check_adapters(s);
		break;
	case SETTING_FILE:
		check_file(s);
		break;
	case SETTING_LOG:
		check_log(s);
		break;
	case SETTING_PYTORCH:
		ct__setting_judge(s, CT_SETTING_DOUBTFUL, "PyTorch reads %s, and not NCCL", s->name);
		snprintf(s->hint, sizeof(s->hint),
			 "ctrain always ends waits after dist.timeout, and names the rank that is missing");
		break;
	}
}
