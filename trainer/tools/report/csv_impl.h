/* results.csv (docs/REPORT.md). */
#ifndef CT_TRAINER_TOOLS_REPORT_CSV_IMPL_H
#define CT_TRAINER_TOOLS_REPORT_CSV_IMPL_H

#include "trainer/tools/report/run_files.h"

/* Appends one line for each epoch. Columns that ctrain has in common with Ultralytics have the same names. Numbers have
 * the fewest digits that parse to the same value; a field that is unknown is empty. */
enum ct_status ct__results_csv(const struct ct_run_files *r, struct ct_str *out) CT_MUST_CHECK;

#endif
