/* Plans the buckets in which gradients are all-reduced. Each bucket is a contiguous range of a gradient arena. The
 * buckets are in the order in which the backward pass completes them, which is known from the static graph. The
 * function has no side effects. The design follows PyTorch's DDP (Li et al., VLDB 2020): a small first bucket starts
 * communication early; the size cap is soft, because a parameter is never split. */
#ifndef CT_DIST_BUCKET_H
#define CT_DIST_BUCKET_H

#include "base/dtype.h"
#include "base/status.h"

struct ct_bucket {
	size_t offset, n;    /* in elements of the arena */
	enum ct_dtype dtype; /* in which all its slices are summed */
	int first_slice, n_slices;
};

/* A slice of a gradient arena, and the type in which it is summed. Slices of the same type must be in ascending order
 * and must not overlap. */
struct ct_bucket_slice {
	size_t offset, n;
	enum ct_dtype dtype;
};

/* Divides slices [n_slices], which are in completion order, into buckets. Gaps between slices (for alignment) are
 * allowed and become part of the buckets. The caps are in bytes; 0 means one slice per bucket. A bucket ends when it
 * has reached its cap, and before a slice of another type. A bucket that is at least half full also ends before a slice
 * that reaches the cap alone, so that the bucket does not wait for this large slice. The caller owns *out (ct_free). If
 * n_slices is 0, there are no buckets. Fails with CT_BUG if slices overlap or are not in ascending order. */
enum ct_status ct_bucket_plan(const struct ct_bucket_slice *slices, int n_slices, size_t first_cap_bytes,
			      size_t cap_bytes, struct ct_bucket **out, int *n_buckets) CT_MUST_CHECK;

#endif
