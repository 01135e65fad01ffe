/* The size of data that is not there yet, for `ctrain plan --assume train=1281167,val=50000,classes=1000`. */
#ifndef CT_TRAINER_PLAN_ASSUME_H
#define CT_TRAINER_PLAN_ASSUME_H

#include "data/dataset.h"
#include "trainer/config/config.h"

struct ct_assumed {
	int64_t train, val, classes; /* 0: not given */
	int64_t size;                /* 0, or width and height of images */
};

/* Parses the option's value. Fails with CT_USAGE. */
enum ct_status ct_assume_parse(const char *text, struct ct_assumed *out) CT_MUST_CHECK;
/* Stores what is known of the training or evaluation data from the config and the assumption. Fails with CT_USAGE if
 * something is missing, and names it. */
enum ct_status ct_assume_info(const struct ct_assumed *a, const struct ct_config *c, bool train,
			      struct ct_dataset_info *out) CT_MUST_CHECK;
/* Loads the config; an assumed size of images is the same as data.train.size. The caller owns *out. */
enum ct_status ct_assume_load(const struct ct_assumed *a, const char *path, const struct ct_config_set *given, size_t n,
			      struct ct_config **out) CT_MUST_CHECK;

#endif
