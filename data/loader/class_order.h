/* The samples of a data set, sorted by class, from which a balanced sampler draws. */
#ifndef CT_DATA_LOADER_CLASS_ORDER_H
#define CT_DATA_LOADER_CLASS_ORDER_H

#include "data/dataset.h"
#include "data/loader/sampler.h"

struct ct_class_order {
	uint32_t *by_class, *first; /* as in struct ct_sampler */
};

/* If s is balanced, reads the labels of all samples of d, makes the arrays that s needs, and sets them in s, which
 * borrows them. Otherwise, does nothing. Fails with CT_CONFIG if d has no class labels. Call release even if this
 * fails. */
enum ct_status ct_class_order_make(const ct_dataset *d, struct ct_sampler *s, struct ct_class_order *out) CT_MUST_CHECK;
void ct_class_order_release(struct ct_class_order *o);

#endif
