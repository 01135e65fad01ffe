/* One pass over the slices: before each slice, is_full decides whether the current bucket ends. The first bucket has
 * its own cap. A bucket reaches from the first element of its first slice to the last element of its last one,
 * including gaps. All ranks compute the plan separately and must get the same one, so it may depend on nothing but the
 * arguments. */
#include "dist/bucket.h"

#include <stdint.h>

#include "base/mem.h"

static enum ct_status check(const struct ct_bucket_slice *slices, int n_slices)
{
	size_t end[CT_N_DTYPES] = {0};

	for (int i = 0; i < n_slices; i++) {
		const struct ct_bucket_slice *s = &slices[i];

		if (s->offset < end[s->dtype] || s->n > SIZE_MAX / ct_dtype_bytes(s->dtype) - s->offset)
			return CT_FAIL(
				CT_BUG,
				"gradient slice %d at %zu of %zu elements overlaps the slice before it, which ends at %zu",
				i, s->offset, s->n, end[s->dtype]);
		end[s->dtype] = s->offset + s->n;
	}
	return CT_OK;
}

static bool is_full(const struct ct_bucket *b, size_t cap, const struct ct_bucket_slice *next)
{
	size_t bytes = b->n * ct_dtype_bytes(b->dtype);

	return next->dtype != b->dtype || bytes >= cap ||
	       (bytes >= cap / 2 && next->n * ct_dtype_bytes(next->dtype) >= cap);
}

enum ct_status ct_bucket_plan(const struct ct_bucket_slice *slices, int n_slices, size_t first_cap_bytes,
			      size_t cap_bytes, struct ct_bucket **out, int *n_buckets)
{
	struct ct_bucket *all, *b = NULL;
	int count = 0;

	*out = NULL;
	*n_buckets = 0;
	CT_TRY(check(slices, n_slices));
	CT_TRY_ALLOC(all = CT_NEW_ARRAY(struct ct_bucket, (size_t)n_slices));
	for (int i = 0; i < n_slices; i++) {
		const struct ct_bucket_slice *s = &slices[i];

		if (b && is_full(b, count == 1 ? first_cap_bytes : cap_bytes, s))
			b = NULL;
		if (!b) {
			b = &all[count++];
			b->offset = s->offset;
			b->dtype = s->dtype;
			b->first_slice = i;
		}
		b->n = s->offset + s->n - b->offset;
		b->n_slices++;
	}
	*out = all;
	*n_buckets = count;
	return CT_OK;
}
