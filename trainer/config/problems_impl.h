/* A list of what is wrong with a configuration, reported in one go: `where: error: text`, one a line. */
#ifndef CT_TRAINER_CONFIG_PROBLEMS_IMPL_H
#define CT_TRAINER_CONFIG_PROBLEMS_IMPL_H

#include "base/mem.h"

#define CT_MAX_PROBLEMS 50 /* shown; later ones are only counted */

/* Zero-initialised is empty. */
struct ct_problems {
	struct ct_str text;
	size_t n;
};

/* where: "file:line:column", "argument 3", "environment CTRAIN_LOG". */
void ct__problems_add(struct ct_problems *p, const char *where, const char *fmt, ...) CT_PRINTF(3, 4);
/* CT_OK when there are none, else CT_CONFIG with all of them as the error chain's message. */
enum ct_status ct__problems_status(const struct ct_problems *p) CT_MUST_CHECK;
void ct__problems_release(struct ct_problems *p);

#endif
