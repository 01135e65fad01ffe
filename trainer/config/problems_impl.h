/* A list of all problems of a configuration. They are reported together, as `where: error: text`. If the place is in a
 * file, its line follows with a mark below the place, as rustc shows it:
 *
 *   a.yaml:2:3: error: unknown key "optim.wd"; did you mean "optim.weight_decay"?
 *       2 |   wd: 0.1
 *         |   ^^
 */
#ifndef CT_TRAINER_CONFIG_PROBLEMS_IMPL_H
#define CT_TRAINER_CONFIG_PROBLEMS_IMPL_H

#include "base/mem.h"

#define CT_MAX_PROBLEMS 50      /* maximum number of problems shown; further ones are only counted */
#define CT_MAX_PROBLEM_FILES 17 /* maximum number of files whose lines are shown */

/* Where a problem is. It is shown as `name`, or as "name:line:column" if line is above 0. */
struct ct_place {
	const char *name; /* borrowed: a file name, "argument 3" or "environment CTRAIN_LOG", for example */
	int line, column; /* counted from 1; 0: there is no position */
};

/* A zero-initialized list is empty. */
struct ct_problems {
	struct ct_str text;
	size_t n, n_files;
	struct {
		const char *name, *text; /* borrowed */
	} files[CT_MAX_PROBLEM_FILES];
};

/* Shows lines of this text for places in the file `name`. Borrows both until the list is released. */
void ct__problems_add_file(struct ct_problems *p, const char *name, const char *text);
void ct__problems_add(struct ct_problems *p, const struct ct_place *at, const char *fmt, ...) CT_PRINTF(3, 4);
/* Adds a problem of a complete file, such as a missing key: there is no line to show. */
void ct__problems_add_whole(struct ct_problems *p, const char *file, const char *text);
/* Returns CT_OK if there are no problems. Otherwise returns CT_CONFIG, and the error message lists them and ends with
 * their number. */
enum ct_status ct__problems_status(const struct ct_problems *p) CT_MUST_CHECK;
void ct__problems_release(struct ct_problems *p);

#endif
