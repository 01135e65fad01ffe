/* The sections of a report. Each function appends a section to the page, or nothing if there is nothing to show. */
#ifndef CT_TRAINER_TOOLS_REPORT_PAGE_IMPL_H
#define CT_TRAINER_TOOLS_REPORT_PAGE_IMPL_H

#include "trainer/tools/report/html_impl.h"
#include "trainer/tools/report/run_files.h"

struct ct_image_source;

struct ct__page {
	struct ct__html html;
	const struct ct_run_files *runs; /* [n] */
	const char *const *names;        /* [n] how to call the runs */
	int n;
};

/* page_eval.c: the last evaluation of a single run, if there is one. */
enum ct_status ct__page_eval(struct ct__page *p, const struct ct_image_source *data) CT_MUST_CHECK;
/* Returns the name of the class, or a string in buf if it has none. */
const char *ct__class_name(const struct ct_run_files *r, int k, char *buf, size_t size);
/* page_config.c */
void ct__page_config(struct ct__page *p);
void ct__page_environment(struct ct__page *p);
/* page_events.c */
void ct__page_events(struct ct__page *p);
/* page_overview.c */
void ct__page_overview(struct ct__page *p);
void ct__page_epochs(struct ct__page *p);
/* The bottleneck report of the last epoch of a single run. */
void ct__page_bottleneck(struct ct__page *p);

/* Return the best accuracy of a run, or NaN, and the seconds of all its processes. */
double ct__run_best_top1(const struct ct_run_files *r);
double ct__run_seconds(const struct ct_run_files *r);
/* Begins a table whose first columns have these titles, separated by '|'. A title that begins with '#' is of numbers.
 */
void ct__page_table(struct ct__page *p, const char *titles);
/* Adds a cell with a number of `digits` significant digits, or an empty one if v is not finite. */
void ct__page_number(struct ct__page *p, double v, int digits);

#endif
