#include "dist/bucket_size.h"

#include <math.h>

#include "base/mem.h"

enum { MIN_MIB = 1, MAX_MIB = 64 };

static double bytes_of(const struct ct_bucket *b)
{
	return (double)b->n * (double)ct_dtype_bytes(b->dtype);
}

double ct_allreduce_ns(const struct ct_allreduce_time *times, int n, double bytes)
{
	const struct ct_allreduce_time *a = times, *b;
	int i = 1;

	if (bytes <= (double)a->bytes)
		return (double)a->ns;
	if (n == 1)
		return (double)a->ns * bytes / (double)a->bytes;
	while (i < n - 1 && bytes > (double)times[i].bytes)
		i++;
	a = &times[i - 1];
	b = &times[i];
	return (double)a->ns + (double)(b->ns - a->ns) * (bytes - (double)a->bytes) / (double)(b->bytes - a->bytes);
}

static double least_ns_per_byte(const struct ct_allreduce_time *times, int n)
{
	double least = INFINITY;

	for (int i = 0; i < n; i++)
		least = fmin(least, (double)times[i].ns / (double)times[i].bytes);
	return least;
}

/* Simulates a step with buckets of this size. Sets *end_ns to the end of the last all-reduce. */
static enum ct_status find_end(const struct ct_bucket_slice *slices, const double *ready, int n_slices,
			       size_t first_cap, size_t cap, const struct ct_allreduce_time *times, int n_times,
			       double *end_ns)
{
	struct ct_bucket *buckets;
	double all = 0, full = 0;
	int n;

	*end_ns = 0;
	CT_TRY(ct_bucket_plan(slices, n_slices, first_cap, cap, &buckets, &n));
	for (int i = 0; i < n; i++)
		all += bytes_of(&buckets[i]);
	const double backward_ns = all * least_ns_per_byte(times, n_times);
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < buckets[i].n_slices; k++)
			full = fmax(full, ready[buckets[i].first_slice + k]);
		*end_ns = fmax(*end_ns, backward_ns * full) + ct_allreduce_ns(times, n_times, bytes_of(&buckets[i]));
	}
	ct_free(buckets);
	return CT_OK;
}

enum ct_status ct_bucket_choose_size(const struct ct_bucket_slice *slices, const double *ready, int n_slices,
				     size_t first_cap_bytes, const struct ct_allreduce_time *times, int n_times,
				     size_t *cap_bytes)
{
	double least = INFINITY, end;

	for (size_t mib = MIN_MIB; mib <= MAX_MIB; mib *= 2) {
		CT_TRY(find_end(slices, ready, n_slices, first_cap_bytes, mib << 20, times, n_times, &end));
		if (end < least) {
			least = end;
			*cap_bytes = mib << 20;
		}
	}
	return CT_OK;
}
