/* Chooses the size of the reduce buckets from the measured durations of all-reduces. The function has no side effects.
 *
 * An all-reduce of n bytes takes about alpha + n beta (Hockney's model). Large buckets pay alpha less often. Small
 * buckets can be posted earlier, and leave less to do when the backward pass has ended. The function simulates a step
 * for each size: a bucket is reduced when its gradients are complete and the bucket before it is done, and the size
 * with the earliest end is best. If gradients become complete at a constant rate, this is near sqrt(total alpha /
 * beta).
 *
 * The duration of the backward pass is not known at the start of a run. The simulation assumes that it takes as long as
 * the all-reduces of all gradients at the highest measured rate. Then the size matters most: a much longer backward
 * pass hides everything but the last bucket, and a much shorter one hides almost nothing. */
#ifndef CT_DIST_BUCKET_SIZE_H
#define CT_DIST_BUCKET_SIZE_H

#include <stdint.h>

#include "dist/bucket.h"

/* The measured duration of an all-reduce of this size. */
struct ct_allreduce_time {
	size_t bytes;
	int64_t ns;
};

/* Returns the duration of an all-reduce, by linear interpolation between the measured ones [n], which are in ascending
 * order of size. n is at least 1. Up to the smallest size, the duration is constant; beyond the largest, it grows in
 * proportion to the last interval, or to the size if n is 1. */
double ct_allreduce_ns(const struct ct_allreduce_time *times, int n, double bytes);

/* Chooses *cap_bytes for ct_bucket_plan from 1, 2, 4, ..., 64 MiB; if two sizes end at the same time, the smaller one.
 * ready [n_slices] is the fraction of the backward pass after which a slice is complete. n_slices is at least 1. Fails
 * like ct_bucket_plan. */
enum ct_status ct_bucket_choose_size(const struct ct_bucket_slice *slices, const double *ready, int n_slices,
				     size_t first_cap_bytes, const struct ct_allreduce_time *times, int n_times,
				     size_t *cap_bytes) CT_MUST_CHECK;

/* Simulates the all-reduces of a step, one bucket at a time, in order. A bucket is reduced after the fraction of the
 * backward pass at which the last of its slices is complete, ready [slices]. Returns the time from the start of the
 * backward pass to the end of the last all-reduce, in the unit of `backward` and of cost(user, bucket). */
double ct_bucket_end(const struct ct_bucket *buckets, int n, const double *ready, double backward,
		     double (*cost)(const void *user, const struct ct_bucket *b), const void *user);

#endif
