/* Samples are sorted by class with a counting sort, which keeps their order within a class. A random sample is drawn by
 * one step of a Fisher-Yates shuffle, so none is drawn twice. Each draw has a generator of its own, keyed by the class
 * and the number of the draw; so the images of a class do not change when the number of images, or that of other
 * classes, does. The number of columns is a multiple of the classes if each class has its own columns; otherwise it
 * divides the number of classes if possible, or, if the number of images is given, is about its square root. */
#include "trainer/tools/dataset/sample_choice.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

enum { ROWS = 4 };

/* The samples of each class. */
struct classes {
	uint32_t *samples; /* [number of samples], sorted by class */
	uint32_t *first;   /* [n + 1] index in `samples` of the first sample of each class */
	uint32_t *used;    /* [n] samples[first .. first + used] have been chosen */
	int *chosen;       /* [k] classes to show, ascending */
	int n, k;
};

static void release(struct classes *s)
{
	ct_free(s->chosen);
	ct_free(s->used);
	ct_free(s->first);
	ct_free(s->samples);
}

static enum ct_status label_of(const ct_dataset *d, uint32_t i, int32_t *label)
{
	*label = 0;
	return ct_dataset_info(d)->n_classes > 0 ? ct_dataset_label(d, i, label) : CT_OK;
}

static enum ct_status sort_samples(const ct_dataset *d, struct classes *s)
{
	const struct ct_dataset_info *info = ct_dataset_info(d);
	int32_t label;

	s->n = info->n_classes > 0 ? info->n_classes : 1;
	CT_TRY_ALLOC(s->samples = CT_NEW_ARRAY(uint32_t, info->n));
	CT_TRY_ALLOC(s->first = CT_NEW_ARRAY(uint32_t, (size_t)s->n + 1));
	CT_TRY_ALLOC(s->used = CT_NEW_ARRAY(uint32_t, (size_t)s->n));
	CT_TRY_ALLOC(s->chosen = CT_NEW_ARRAY(int, (size_t)s->n));
	for (uint32_t i = 0; i < info->n; i++) {
		CT_TRY(label_of(d, i, &label));
		if (label < 0 || label >= s->n)
			return CT_FAIL(CT_DATA, "sample %u has the label %d, but there are %d classes", i, label, s->n);
		s->first[label + 1]++;
	}
	for (int k = 0; k < s->n; k++)
		s->first[k + 1] += s->first[k];
	for (uint32_t i = 0; i < info->n; i++) {
		CT_TRY(label_of(d, i, &label));
		s->samples[s->first[label] + s->used[label]++] = i;
	}
	for (int k = 0; k < s->n; k++) {
		if (s->used[k] > 0)
			s->chosen[s->k++] = k;
		s->used[k] = 0;
	}
	return CT_OK;
}

/* Returns a random sample of a class that has not been returned before. */
static uint32_t draw(struct classes *s, int class, uint64_t seed)
{
	const uint32_t n = s->first[class + 1] - s->first[class], used = s->used[class];
	uint32_t *v = s->samples + s->first[class], at, swap;
	struct ct_rng r;

	if (used == n)
		return CT_NO_SAMPLE;
	ct_rng_init(&r, seed, CT_RNG_SHOW, (uint32_t)class, used);
	at = used + ct_rng_below(&r, n - used);
	swap = v[at];
	v[at] = v[used];
	v[used] = swap;
	s->used[class]++;
	return swap;
}

static int ascending(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Keeps `count` random classes. */
static void choose_classes(struct classes *s, int count, uint64_t seed)
{
	struct ct_rng r;

	ct_rng_init(&r, seed, CT_RNG_SHOW, UINT32_MAX, 0);
	for (int i = 0; i < count; i++) {
		const int at = i + (int)ct_rng_below(&r, (uint32_t)(s->k - i)), swap = s->chosen[i];

		s->chosen[i] = s->chosen[at];
		s->chosen[at] = swap;
	}
	s->k = count;
	qsort(s->chosen, (size_t)s->k, sizeof(*s->chosen), ascending);
}

static enum ct_status choose(struct classes *s, uint64_t seed, int count, int max_columns, struct ct__choice *out)
{
	const bool by_column = s->k <= max_columns && (count == 0 || count >= s->k);
	int per_class = 1; /* columns */

	out->columns = max_columns;
	if (by_column) {
		while ((per_class + 1) * s->k <= max_columns && (count == 0 || (per_class + 1) * s->k <= count))
			per_class++;
		out->columns = per_class * s->k;
	} else if (count > 0) {
		while (out->columns > 1 && (out->columns - 1) * (out->columns - 1) >= count)
			out->columns--;
	} else {
		while (out->columns > max_columns / 2 && s->k % out->columns != 0)
			out->columns--;
		out->columns = s->k % out->columns == 0 ? out->columns : max_columns;
	}
	out->n = count > 0 ? count : ROWS * out->columns;
	if (!by_column && out->n < s->k)
		choose_classes(s, out->n, seed);
	CT_TRY_ALLOC(out->ids = CT_NEW_ARRAY(uint32_t, (size_t)out->n));
	for (int i = 0; i < out->n; i++) {
		const int class = s->chosen[by_column ? i % out->columns / per_class : i % s->k];

		out->ids[i] = draw(s, class, seed);
	}
	return CT_OK;
}

enum ct_status ct_choose_samples(const ct_dataset *d, uint64_t seed, int count, int max_columns, struct ct__choice *out)
{
	struct classes s = {0};
	enum ct_status st;

	*out = (struct ct__choice){0};
	st = sort_samples(d, &s);
	if (st == CT_OK)
		st = choose(&s, seed, count, max_columns, out);
	release(&s);
	return st;
}
