/* The markers of a JPEG file in front of its first scan (ITU T.81, annex B), read before libjpeg sees them. */
#ifndef CT_DATA_IMAGE_JPEG_MARKERS_IMPL_H
#define CT_DATA_IMAGE_JPEG_MARKERS_IMPL_H

#include <stddef.h>
#include <stdint.h>

struct ct_jpeg_markers {
	int sof;             /* frame type: the marker's second byte, c0..cf; 0: none found */
	size_t frame, scan;  /* where the contents of the frame's and of the first scan's header begin; 0: not found */
	size_t data;         /* behind the scan's header */
	unsigned interval;   /* MCUs between restart markers; 0: there are none */
	const uint8_t *exif; /* TIFF block of the first EXIF segment, or NULL */
	size_t exif_bytes;
};

/* Never fails: what is cut off or makes no sense ends the search. */
struct ct_jpeg_markers ct__jpeg_markers_find(const uint8_t *bytes, size_t n);

#endif
