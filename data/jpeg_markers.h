/* The markers of a JPEG file in front of its first scan (ITU T.81, annex B), read before libjpeg sees them. */
#ifndef CT_DATA_JPEG_MARKERS_H
#define CT_DATA_JPEG_MARKERS_H

#include <stddef.h>
#include <stdint.h>

struct ct_jpeg_markers {
	int sof;             /* frame type: the marker's second byte, c0..cf; 0: none found */
	const uint8_t *exif; /* TIFF block of the first EXIF segment, or NULL */
	size_t exif_bytes;
};

/* Never fails: what is cut off or makes no sense ends the search. */
struct ct_jpeg_markers ct_jpeg_markers_find(const uint8_t *bytes, size_t n);

#endif
