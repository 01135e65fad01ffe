/* Explanations of statuses, exit codes and checks in plain words, for `ctrain explain` and docs/DOCTOR.md. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_EXPLAIN_H
#define CT_TRAINER_TOOLS_DOCTOR_EXPLAIN_H

#include "base/mem.h"

/* Appends the explanation of an exit code ("5"), a status ("PEER_LOST", in any case, also with the prefix CT_ or with
 * '-' for '_') or a check ("loopback-name"). Fails with CT_USAGE if there is none of this name; the hint has the
 * nearest one. */
enum ct_status ct_explain(const char *word, struct ct_str *out) CT_MUST_CHECK;
/* Appends docs/DOCTOR.md. */
void ct_explain_page(struct ct_str *out);

#endif
