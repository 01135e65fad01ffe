/* Plans the buckets for each size, simulates a step with them (ct_bucket_end), and keeps the size that ends first;
 * sizes are tried in ascending order, so the smaller one wins a tie. ct_bucket_end is also the model of the all-reduces
 * in `ctrain plan`. */
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

double ct_bucket_end(const struct ct_bucket *buckets, int n, const double *ready, double backward,
		     double (*cost)(const void *user, const struct ct_bucket *b), const void *user)
{
	double end = 0;

	for (int i = 0; i < n; i++) {
		double complete = 0;

		for (int k = 0; k < buckets[i].n_slices; k++)
			complete = fmax(complete, ready[buckets[i].first_slice + k]);
		end = fmax(end, backward * complete) + cost(user, &buckets[i]);
	}
	return end;
}

struct measured {
	const struct ct_allreduce_time *times;
	int n;
};

static double measured_cost(const void *user, const struct ct_bucket *b)
{
	const struct measured *m = user;

	return ct_allreduce_ns(m->times, m->n, bytes_of(b));
}

/* Sets *end_ns to the end of the last all-reduce with buckets of this size. */
static enum ct_status find_end(const struct ct_bucket_slice *slices, const double *ready, int n_slices,
			       size_t first_cap, size_t cap, const struct measured *m, double *end_ns)
{
	struct ct_bucket *buckets;
	double all = 0;
	int n;

	CT_TRY(ct_bucket_plan(slices, n_slices, first_cap, cap, &buckets, &n));
	for (int i = 0; i < n; i++)
		all += bytes_of(&buckets[i]);
	*end_ns = ct_bucket_end(buckets, n, ready, all * least_ns_per_byte(m->times, m->n), measured_cost, m);
	ct_free(buckets);
	return CT_OK;
}

enum ct_status ct_bucket_choose_size(const struct ct_bucket_slice *slices, const double *ready, int n_slices,
				     size_t first_cap_bytes, const struct ct_allreduce_time *times, int n_times,
				     size_t *cap_bytes)
{
	const struct measured m = {times, n_times};
	double least = INFINITY, end;

	for (size_t mib = MIN_MIB; mib <= MAX_MIB; mib *= 2) {
		CT_TRY(find_end(slices, ready, n_slices, first_cap_bytes, mib << 20, &m, &end));
		if (end < least) {
			least = end;
			*cap_bytes = mib << 20;
		}
	}
	return CT_OK;
}
