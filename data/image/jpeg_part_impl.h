/* Extracts a part of a JPEG file as a smaller file. If restart markers (ITU T.81, E.1.4 and F.1.1.5.1) divide the rows
 * of MCUs, each interval between two markers can be decoded separately, and adjacent intervals form an image. The cost
 * of decoding a box then depends only on its size, not on the data before it. `ctrain data pack --seekable` adds such
 * markers. */
#ifndef CT_DATA_IMAGE_JPEG_PART_IMPL_H
#define CT_DATA_IMAGE_JPEG_PART_IMPL_H

#include "data/image/codec.h"
#include "data/image/jpeg_markers_impl.h"

struct ct_jpeg_part {
	const uint8_t *bytes; /* stored in the scratch buffer; NULL: decode the complete file */
	size_t n;
	int x, y; /* position of the part's first pixel in the full image */
};

/* Extracts the box, and the pixels around it that upsampling reads, as a part to be decoded at 1/scale of its size.
 * Decoding the part gives the same pixels as decoding the full file. No part is extracted (bytes is NULL) if restart
 * markers are missing, unexpected or misnumbered, or if decoding only a part would save little. Fails with CT_NOMEM. */
enum ct_status ct__jpeg_part_cut(const struct ct_jpeg_markers *m, const uint8_t *bytes, size_t n, struct ct_box window,
				 int scale, struct ct_scratch *scratch, struct ct_jpeg_part *out) CT_MUST_CHECK;

#endif
