/* A counting sort: the numbers of samples of each class become the positions at which the classes begin, and a second
 * pass puts each sample at the next position of its class. The order within a class is that of the data set, so the
 * result is the same on all ranks. Labels are read twice, without their images. */
#include "data/loader/class_order.h"

#include "base/mem.h"

enum ct_status ct_class_order_make(const ct_dataset *d, struct ct_sampler *s, struct ct_class_order *out)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);
	const size_t n_classes = (size_t)info->n_classes;
	int32_t label;

	*out = (struct ct_class_order){0};
	if (!s->balanced)
		return CT_OK;
	if (n_classes == 0)
		return CT_FAIL(CT_CONFIG, "balanced sampling needs class labels, but %s has none", info->name);
	CT_TRY_ALLOC(out->first = CT_NEW_ARRAY(uint32_t, n_classes + 2));
	CT_TRY_ALLOC(out->by_class = CT_NEW_ARRAY(uint32_t, s->n));
	for (uint32_t i = 0; i < s->n; i++) {
		CT_TRY(ct_dataset_label(d, i, &label));
		out->first[label + 2]++;
	}
	for (size_t k = 2; k < n_classes + 2; k++)
		out->first[k] += out->first[k - 1];
	for (uint32_t i = 0; i < s->n; i++) { /* first[k + 1] moves from the start of class k to its end */
		CT_TRY(ct_dataset_label(d, i, &label));
		out->by_class[out->first[label + 1]++] = i;
	}
	s->n_classes = info->n_classes;
	s->by_class = out->by_class;
	s->class_first = out->first;
	return CT_OK;
}

void ct_class_order_release(struct ct_class_order *o)
{
	ct_free(o->first);
	ct_free(o->by_class);
	*o = (struct ct_class_order){0};
}
