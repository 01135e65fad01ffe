/* Checks that involve several keys: what the files check*.c share. */
#ifndef CT_TRAINER_CONFIG_CHECK_IMPL_H
#define CT_TRAINER_CONFIG_CHECK_IMPL_H

#include "trainer/config/config_impl.h"

struct ct_checker {
	struct ct_config *c;
	struct ct_origin *origins;
	struct ct_problems *p;
	const char *path;
};

const struct ct_origin *ct__check_origin(const struct ct_checker *k, const char *key);
/* Returns true if the value is valid and can be compared with others. */
bool ct__check_fine(const struct ct_checker *k, const char *key);
/* Reports a problem with the location of the key's value, or of the start of the file if the key is not set. */
void ct__check_problem(struct ct_checker *k, const char *key, const char *fmt, ...) CT_PRINTF(3, 4);

/* Checks the sections model, data, batch, optim, schedule and train. */
void ct__check_training(struct ct_checker *k);
/* Checks the sections launch and dist, and devices. */
void ct__check_launch(struct ct_checker *k);
/* Sets defaults that depend on other values: run.name on the file name, run.dir on run.name, data.dir on data.name, and
 * optim.lr on optim.name. */
enum ct_status ct__check_resolve(struct ct_checker *k) CT_MUST_CHECK;

#endif
