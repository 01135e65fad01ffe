/* Two images are duplicates if the hashes of their contents are equal, so one sort by hash finds all groups, over both
 * sets. Within a group, the images of the first set come first. An image of another set than the first one of its group
 * makes the evaluation too good; other labels within a group are a mistake in the labels. Damaged images are not
 * compared. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "trainer/tools/init/stats.h"

struct entry {
	const uint8_t *hash;
	int32_t label;
	struct ct_stats_image image;
};

static int by_hash(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	const int order = memcmp(x->hash, y->hash, CT_SHA256_BYTES);

	if (order)
		return order;
	if (x->image.set != y->image.set)
		return x->image.set - y->image.set;
	return (x->image.image > y->image.image) - (x->image.image < y->image.image);
}

/* Adds the group e [n]. */
static enum ct_status add_group(struct ct_duplicates *d, const struct entry *e, uint32_t n, size_t *cap,
				size_t *cap_groups)
{
	bool labels = false;

	CT_TRY_GROW(d->first, d->n_groups + 1, *cap_groups);
	for (uint32_t i = 0; i < n; i++) {
		CT_TRY_GROW(d->images, d->n, *cap);
		d->images[d->n++] = e[i].image;
		labels |= e[i].label != e[0].label;
		d->n_across += e[i].image.set != e[0].image.set;
	}
	d->n_labels += labels;
	d->first[++d->n_groups] = d->n;
	return CT_OK;
}

static enum ct_status find_groups(const struct entry *e, uint32_t n, struct ct_duplicates *d)
{
	size_t cap = 0, cap_groups = 0;

	CT_TRY_GROW(d->first, 0, cap_groups);
	d->first[0] = 0;
	for (uint32_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && memcmp(e[i].hash, e[end].hash, CT_SHA256_BYTES) == 0; end++)
			;
		if (end - i > 1)
			CT_TRY(add_group(d, e + i, end - i, &cap, &cap_groups));
	}
	return CT_OK;
}

enum ct_status ct_duplicates_find(const struct ct_stats_set *sets, int n, struct ct_duplicates *out)
{
	uint32_t n_entries = 0, k = 0;
	struct entry *e;
	enum ct_status st;

	*out = (struct ct_duplicates){0};
	for (int s = 0; s < n; s++)
		n_entries += sets[s].survey.n;
	CT_TRY_ALLOC(e = CT_NEW_ARRAY(struct entry, n_entries));
	for (int s = 0; s < n; s++) {
		for (uint32_t i = 0; i < sets[s].survey.n; i++) {
			const struct ct_survey_image *im = &sets[s].survey.images[i];

			if (!im->damage)
				e[k++] = (struct entry){im->hash, im->label, {s, i}};
		}
	}
	qsort(e, k, sizeof(*e), by_hash);
	st = find_groups(e, k, out);
	ct_free(e);
	if (st < 0)
		ct_duplicates_release(out);
	return st;
}

void ct_duplicates_release(struct ct_duplicates *d)
{
	ct_free(d->images);
	ct_free(d->first);
	*d = (struct ct_duplicates){0};
}
