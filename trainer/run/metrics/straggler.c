/* A step takes the same time on all ranks, because they wait for each other, so the durations of steps do not show
 * which rank is slow. The busy times without the waits do. The rank with the longest one is compared with the median
 * of the others, which an outlier among many ranks hardly moves. Its phase is the one with the largest excess over the
 * others. Its bucket is the first one where at least half of the delay has already been built up. */
#include "trainer/run/metrics/straggler.h"

#include <stddef.h>
#include <stdlib.h>

#define LEAST_S 100e-6 /* shorter delays do not matter, and may come from the clock */

const char *ct_pace_name(enum ct_pace p)
{
	static const char *const names[] = {"data", "forward", "backward", "optimizer", "other work"};

	return names[p];
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The values of all ranks. */
struct table {
	const double *all;
	double *scratch;
	int n_ranks, n_values;
};

static double value(const struct table *t, int rank, int i)
{
	return t->all[(size_t)rank * (size_t)t->n_values + (size_t)i];
}

/* The median of value i over all ranks but one. */
static double median_without(const struct table *t, int rank, int i)
{
	size_t n = 0;

	for (int r = 0; r < t->n_ranks; r++)
		if (r != rank)
			t->scratch[n++] = value(t, r, i);
	qsort(t->scratch, n, sizeof(*t->scratch), compare);
	return (t->scratch[(n - 1) / 2] + t->scratch[n / 2]) / 2;
}

static double excess(const struct table *t, int rank, int i)
{
	return value(t, rank, i) - median_without(t, rank, i);
}

bool ct_straggler_find(const double *all, int n_ranks, int n_buckets, double factor, double *scratch,
		       struct ct_straggler *out)
{
	const struct table t = {
		.all = all, .scratch = scratch, .n_ranks = n_ranks, .n_values = CT_PACE_BUCKETS + n_buckets};
	int slow = 0;

	for (int r = 1; r < n_ranks; r++)
		slow = value(&t, r, CT_PACE_BUSY) > value(&t, slow, CT_PACE_BUSY) ? r : slow;
	const double busy = value(&t, slow, CT_PACE_BUSY), others = median_without(&t, slow, CT_PACE_BUSY);
	*out = (struct ct_straggler){.rank = slow, .late_s = busy - others, .bucket = n_buckets - 1};
	if (out->late_s < LEAST_S || busy < factor * others)
		return false;
	out->ratio = others > 0 ? busy / others : 0;
	for (int p = 1; p < CT_PACE_PHASES; p++)
		if (excess(&t, slow, p) > excess(&t, slow, (int)out->phase))
			out->phase = (enum ct_pace)p;
	out->phase_s = value(&t, slow, (int)out->phase);
	out->others_s = median_without(&t, slow, (int)out->phase);
	for (int b = n_buckets - 1; b >= 0; b--)
		if (excess(&t, slow, CT_PACE_BUCKETS + b) >= out->late_s / 2)
			out->bucket = b;
	return true;
}
