/* A part of a JPEG file as a smaller file: where restart markers (ITU T.81, E.1.4 and F.1.1.5.1) part the rows of MCUs,
 * what lies between two of them can be decoded alone, and intervals side by side make a picture. So a window costs what
 * it holds, and not all that comes before it. `ctrain data pack --seekable` sets such markers. */
#ifndef CT_DATA_IMAGE_JPEG_PART_IMPL_H
#define CT_DATA_IMAGE_JPEG_PART_IMPL_H

#include "data/image/codec.h"
#include "data/image/jpeg_markers_impl.h"

struct ct_jpeg_part {
	const uint8_t *bytes; /* in the scratch; NULL: the file is to be decoded as it is */
	size_t n;
	int x, y; /* of its first pixel in the whole image */
};

/* The window and what upsampling looks at around it, decoded at 1/scale. Decodes to the same pixels as the whole. There
 * is no part where the file lacks markers, has them elsewhere or misnumbered, or where little would be saved. CT_NOMEM. */
enum ct_status ct__jpeg_part_cut(const struct ct_jpeg_markers *m, const uint8_t *bytes, size_t n, struct ct_box window,
				 int scale, struct ct_scratch *scratch, struct ct_jpeg_part *out) CT_MUST_CHECK;

#endif
