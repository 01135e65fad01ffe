/* Each sample draws a number from the seed and its path. Samples are sorted by class and number, and the first ones of
 * each class become evaluation data. Because the number does not depend on the index, files that are added later move
 * only few other samples to the other part. Ties are broken by the index, so the result is the same everywhere. The
 * order of the samples that stay does not change. */
#include "data/formats/imagefolder_split_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

struct ticket {
	uint64_t random;
	int32_t label;
	uint32_t sample;
};

static int by_class(const void *a, const void *b)
{
	const struct ticket *x = a, *y = b;

	if (x->label != y->label)
		return x->label < y->label ? -1 : 1;
	if (x->random != y->random)
		return x->random < y->random ? -1 : 1;
	return x->sample < y->sample ? -1 : 1;
}

/* The number depends on the path, not on the index, so most samples stay in their part when files are added. */
static uint64_t draw(uint64_t seed, const char *path)
{
	uint64_t name = ct_hash64(path, strlen(path)), high;
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_SPLIT, (uint32_t)(name >> 32), (uint32_t)name);
	high = ct_rng_u32(&r);
	return high << 32 | ct_rng_u32(&r);
}

static uint32_t val_count(double fraction, uint32_t n)
{
	double k = floor(fraction * n + 0.5);

	if (n < 2)
		return 0;
	return k < 1 ? 1 : k > n - 1 ? n - 1 : (uint32_t)k;
}

static void mark_val(const struct ticket *t, uint32_t n, double fraction, uint8_t *is_val, uint32_t *n_single)
{
	*n_single = 0;
	for (uint32_t i = 0, end; i < n; i = end) {
		uint32_t n_val;

		for (end = i + 1; end < n && t[end].label == t[i].label; end++)
			;
		n_val = val_count(fraction, end - i);
		*n_single += end - i == 1;
		for (uint32_t k = i; k < i + n_val; k++)
			is_val[t[k].sample] = 1;
	}
}

enum ct_status ct__folder_split(const struct ct_folder_split *split, const char *paths, uint64_t *at, int32_t *labels,
				uint32_t *n, uint32_t *n_single)
{
	struct ticket *t;
	uint8_t *is_val;
	uint32_t kept = 0;

	CT_TRY_ALLOC(t = CT_NEW_ARRAY(struct ticket, *n));
	is_val = ct_calloc(*n, 1);
	if (!is_val) {
		ct_free(t);
		return CT_NOMEM;
	}
	for (uint32_t i = 0; i < *n; i++)
		t[i] = (struct ticket){.random = draw(split->seed, paths + at[i]), .label = labels[i], .sample = i};
	qsort(t, *n, sizeof(*t), by_class);
	mark_val(t, *n, split->fraction, is_val, n_single);
	for (uint32_t i = 0; i < *n; i++) {
		if (is_val[i] == split->train)
			continue;
		at[kept] = at[i];
		labels[kept++] = labels[i];
	}
	*n = kept;
	ct_free(is_val);
	ct_free(t);
	return CT_OK;
}
