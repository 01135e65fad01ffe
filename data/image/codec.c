#include "data/image/codec.h"

#define MOST_SPARE ((size_t)4 << 20)

enum ct_status ct_scratch_reserve(struct ct_scratch *s, size_t bytes)
{
	if (bytes <= s->cap)
		return CT_OK;
	ct_scratch_release(s);
	/* Allocates more than needed, so that a series of growing images does not allocate each time. */
	bytes += bytes / 2 < MOST_SPARE ? bytes / 2 : MOST_SPARE;
	CT_TRY_ALLOC(s->p = ct_calloc_aligned(64, bytes));
	s->cap = bytes;
	return CT_OK;
}

void ct_scratch_release(struct ct_scratch *s)
{
	ct_free_aligned(s->p);
	*s = (struct ct_scratch){0};
}

enum ct_status ct_image_check_dims(const char *tag, const struct ct_image_opts *opts, uint64_t w, uint64_t h)
{
	if (w > 0 && h > 0 && w <= CT_IMAGE_MAX_SIDE && h <= CT_IMAGE_MAX_SIDE && w * h <= opts->max_pixels)
		return CT_OK;
	CT_FAIL_TAG(CT_DATA, NULL, tag,
		    "%llu x %llu pixels; sizes from 1 x 1 to %llu pixels are supported, with at most %d per side",
		    (unsigned long long)w, (unsigned long long)h, (unsigned long long)opts->max_pixels,
		    CT_IMAGE_MAX_SIDE);
	return CT_DATA;
}
