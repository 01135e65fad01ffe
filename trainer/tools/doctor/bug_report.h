/* The text of `ctrain info --report`. */
#ifndef CT_TRAINER_TOOLS_DOCTOR_BUG_REPORT_H
#define CT_TRAINER_TOOLS_DOCTOR_BUG_REPORT_H

#include "base/mem.h"
#include "base/status.h"

/* Appends a report in Markdown: this build, this machine, `info` (the output of `ctrain info`), the environment
 * variables that change what ctrain and its libraries do, and, if run is not NULL, the state, the settings and the last
 * log lines of this run directory. Values that may be secrets are removed. Fails with CT_NOT_FOUND if run is not a run
 * directory. */
enum ct_status ct_bug_report(const char *info, const char *run, struct ct_str *out) CT_MUST_CHECK;

#endif
