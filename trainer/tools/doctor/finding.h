/* The findings of doctor. Each has what is wrong, why it matters, and the command or setting that removes it. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_FINDING_H
#define CT_TRAINER_TOOLS_DOCTOR_FINDING_H

#include "base/json.h"
#include "trainer/tools/doctor/facts.h"

enum ct_severity {
	CT_FINDING_NOTE,    /* does not matter to this run */
	CT_FINDING_WARNING, /* training can go on, but may be slow, or fail later */
	CT_FINDING_ERROR    /* training fails */
};

struct ct_finding {
	const char *check; /* name of the check; a string literal */
	enum ct_severity severity;
	enum ct_status status;
	int node; /* -1: the finding concerns the whole run */
	char host[64];
	char what[512], why[320], fix[320];
};

struct ct_findings {
	struct ct_finding *all; /* [n] */
	size_t n, cap;
	bool failed; /* memory was not sufficient */
	struct ct_finding spare;
};

/* Adds a finding about a node, or, if it is NULL, about the whole run. The caller sets its strings with the functions
 * below. The result is valid until the next call. */
struct ct_finding *ct_finding_add(struct ct_findings *list, enum ct_severity severity, enum ct_status status,
				  const struct ct_facts *node);
void ct_finding_what(struct ct_finding *f, const char *fmt, ...) CT_PRINTF(2, 3);
void ct_finding_why(struct ct_finding *f, const char *fmt, ...) CT_PRINTF(2, 3);
void ct_finding_fix(struct ct_finding *f, const char *fmt, ...) CT_PRINTF(2, 3);

/* Returns the status of the worst finding: the first error, else the first warning, else CT_OK. The findings must be
 * sorted. */
enum ct_status ct_findings_worst(const struct ct_findings *list);
size_t ct_findings_count(const struct ct_findings *list, enum ct_severity severity);
/* Sorts errors before warnings before notes, and otherwise keeps the order. */
void ct_findings_sort(struct ct_findings *list);
void ct_findings_text(const struct ct_findings *list, struct ct_str *out);
ct_json *ct_findings_json(const struct ct_findings *list);
void ct_findings_release(struct ct_findings *list);

#endif
