#include "dist/bucket.h"

#include <stdint.h>

#include "base/mem.h"

static enum ct_status check(const size_t *offset, const size_t *n, int n_slices)
{
	size_t end = 0;

	for (int i = 0; i < n_slices; i++) {
		if (offset[i] < end || n[i] > SIZE_MAX / sizeof(float) - offset[i])
			return CT_FAIL(
				CT_BUG,
				"gradient slice %d at %zu of %zu elements overlaps the one before, which ends at %zu",
				i, offset[i], n[i], end);
		end = offset[i] + n[i];
	}
	return CT_OK;
}

static bool is_full(const struct ct_bucket *b, size_t cap, size_t next_bytes)
{
	size_t bytes = b->n * sizeof(float);

	return bytes >= cap || (bytes >= cap / 2 && next_bytes >= cap);
}

enum ct_status ct_bucket_plan(const size_t *offset, const size_t *n, int n_slices, size_t first_cap_bytes,
			      size_t cap_bytes, struct ct_bucket **out, int *n_buckets)
{
	struct ct_bucket *all, *b = NULL;
	int count = 0;

	*out = NULL;
	*n_buckets = 0;
	CT_TRY(check(offset, n, n_slices));
	CT_TRY_ALLOC(all = CT_NEW_ARRAY(struct ct_bucket, (size_t)n_slices));
	for (int i = 0; i < n_slices; i++) {
		if (b && is_full(b, count == 1 ? first_cap_bytes : cap_bytes, n[i] * sizeof(float)))
			b = NULL;
		if (!b) {
			b = &all[count++];
			b->offset = offset[i];
			b->first_slice = i;
		}
		b->n = offset[i] + n[i] - b->offset;
		b->n_slices++;
	}
	*out = all;
	*n_buckets = count;
	return CT_OK;
}
