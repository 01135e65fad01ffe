/* Findings are added without a check of memory by the caller: if there is none, a spare finding takes the strings, and
 * the list remembers the failure. Strings contain names from other hosts, so control characters are escaped. Sorting
 * moves errors to the front and keeps the order otherwise, since checks are in the order of causes. */
#include "trainer/tools/doctor/finding.h"

#include <stdio.h>
#include <string.h>

static enum ct_status grow(struct ct_findings *list)
{
	CT_TRY_GROW(list->all, list->n, list->cap);
	return CT_OK;
}

struct ct_finding *ct_finding_add(struct ct_findings *list, enum ct_severity severity, enum ct_status status,
				  const struct ct_facts *node)
{
	struct ct_finding *f = &list->spare;

	if (grow(list) < 0) {
		ct_error_clear();
		list->failed = true;
	} else {
		f = &list->all[list->n++];
	}
	*f = (struct ct_finding){
		.check = "", .severity = severity, .status = status, .node = node ? (int)node->node : -1};
	if (node)
		memcpy(f->host, node->host, sizeof(f->host));
	return f;
}

static void set(char *buf, size_t len, const char *fmt, va_list ap) CT_PRINTF(3, 0);
static void set(char *buf, size_t len, const char *fmt, va_list ap)
{
	char text[1024];

	(void)vsnprintf(text, sizeof(text), fmt, ap);
	ct_name_escape(text, strlen(text), buf, len);
}

void ct_finding_what(struct ct_finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set(f->what, sizeof(f->what), fmt, ap);
	va_end(ap);
}

void ct_finding_why(struct ct_finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set(f->why, sizeof(f->why), fmt, ap);
	va_end(ap);
}

void ct_finding_fix(struct ct_finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set(f->fix, sizeof(f->fix), fmt, ap);
	va_end(ap);
}

size_t ct_findings_count(const struct ct_findings *list, enum ct_severity severity)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++)
		n += list->all[i].severity == severity;
	return n;
}

enum ct_status ct_findings_worst(const struct ct_findings *list)
{
	return list->n > 0 && list->all[0].severity > CT_FINDING_NOTE ? list->all[0].status : CT_OK;
}

void ct_findings_sort(struct ct_findings *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct ct_finding f = list->all[i];
		size_t k = i;

		for (; k > 0 && list->all[k - 1].severity < f.severity; k--)
			list->all[k] = list->all[k - 1];
		list->all[k] = f;
	}
}

static const char *severity_name(enum ct_severity s)
{
	return s == CT_FINDING_ERROR ? "error" : s == CT_FINDING_WARNING ? "warning" : "note";
}

void ct_findings_text(const struct ct_findings *list, struct ct_str *out)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct ct_finding *f = &list->all[i];

		ct_str_addf(out, "%s [%s] ", severity_name(f->severity), f->check);
		if (f->node >= 0)
			ct_str_addf(out, "node %d (%s): ", f->node, f->host);
		ct_str_addf(out, "%s\n    why: %s\n    fix: %s\n", f->what, f->why, f->fix);
	}
}

ct_json *ct_findings_json(const struct ct_findings *list)
{
	ct_json *a = ct_json_array();

	for (size_t i = 0; i < list->n; i++) {
		const struct ct_finding *f = &list->all[i];
		ct_json *o = ct_json_object();

		ct_json_set_str(o, "check", f->check);
		ct_json_set_str(o, "severity", severity_name(f->severity));
		ct_json_set_str(o, "status", ct_status_name(f->status));
		ct_json_set_i64(o, "exit_code", ct_status_exit_code(f->status));
		if (f->node >= 0) {
			ct_json_set_i64(o, "node", f->node);
			ct_json_set_str(o, "host", f->host);
		}
		ct_json_set_str(o, "what", f->what);
		ct_json_set_str(o, "why", f->why);
		ct_json_set_str(o, "fix", f->fix);
		ct_json_push(a, o);
	}
	return a;
}

void ct_findings_release(struct ct_findings *list)
{
	ct_free(list->all);
	*list = (struct ct_findings){0};
}
