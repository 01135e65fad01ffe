/* A list of all problems of a configuration. They are reported together, one per line, as `where: error: text`. */
#ifndef CT_TRAINER_CONFIG_PROBLEMS_IMPL_H
#define CT_TRAINER_CONFIG_PROBLEMS_IMPL_H

#include "base/mem.h"

#define CT_MAX_PROBLEMS 50 /* maximum number of problems shown; further ones are only counted */

/* A zero-initialized list is empty. */
struct ct_problems {
	struct ct_str text;
	size_t n;
};

/* Adds a problem. where is "file:line:column", "argument 3" or "environment CTRAIN_LOG", for example. */
void ct__problems_add(struct ct_problems *p, const char *where, const char *fmt, ...) CT_PRINTF(3, 4);
/* Returns CT_OK if there are no problems. Otherwise returns CT_CONFIG, and the error message lists them. */
enum ct_status ct__problems_status(const struct ct_problems *p) CT_MUST_CHECK;
void ct__problems_release(struct ct_problems *p);

#endif
