/* The checks of doctor. Each judges the facts of all nodes and has no other input, so that tests can plant faults. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_CHECKS_H
#define CT_TRAINER_TOOLS_DOCTOR_CHECKS_H

#include "trainer/tools/doctor/finding.h"

struct ct_check {
	const char *name; /* in findings, and for `ctrain explain` */
	const char *doc;  /* what it finds */
	const char *fix;  /* how this is usually repaired */
	/* Judges all nodes at once. */
	void (*judge)(const struct ct_cluster *c, struct ct_findings *out);
	/* Judges one node that has reported. */
	void (*judge_node)(const struct ct_facts *n, struct ct_findings *out);
	/* Compares another node with node 0. Both have reported. */
	void (*compare)(const struct ct_facts *n, const struct ct_facts *first, struct ct_findings *out);
};

/* Returns check i of the table, or NULL if i is past its end. */
const struct ct_check *ct_check_at(size_t i);
/* Runs all checks. Fails with CT_NOMEM. The result is sorted: errors first. */
enum ct_status ct_checks_run(const struct ct_cluster *c, struct ct_findings *out) CT_MUST_CHECK;

#endif
