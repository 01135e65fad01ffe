/* The report of runs: one HTML file that needs nothing else, and results.csv and results.png for a single run
 * (docs/REPORT.md). */
#ifndef CT_TRAINER_TOOLS_REPORT_REPORT_H
#define CT_TRAINER_TOOLS_REPORT_REPORT_H

#include "trainer/run/evaluation/run_images.h"

/* Writes the report of n runs to the file `out`. All runs must have a metrics.jsonl. */
enum ct_status ct_report_write(const char *const *run_dirs, int n, const char *out) CT_MUST_CHECK;
/* Writes RUN/report.html, RUN/results.csv and RUN/results.png. If data is NULL, opens the data that the config of the
 * run names. *path is the path of the first file, owned by the caller. */
enum ct_status ct_report_write_run(const char *run_dir, const struct ct_image_source *data, char **path) CT_MUST_CHECK;

#endif
