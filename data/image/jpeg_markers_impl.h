/* The markers of a JPEG file before its first scan (ITU T.81, annex B), parsed before libjpeg reads the file. */
#ifndef CT_DATA_IMAGE_JPEG_MARKERS_IMPL_H
#define CT_DATA_IMAGE_JPEG_MARKERS_IMPL_H

#include <stddef.h>
#include <stdint.h>

struct ct_jpeg_markers {
	int sof;             /* frame type: the second byte of the marker, c0..cf; 0: not found */
	size_t frame, scan;  /* offsets of the contents of the frame header and of the first scan header; 0: not
			      * found */
	size_t data;         /* offset of the first scan's data */
	unsigned interval;   /* MCUs between restart markers; 0: none */
	const uint8_t *exif; /* TIFF block of the first EXIF segment, or NULL */
	size_t exif_bytes;
};

/* Finds the markers in bytes [n]. Never fails: the search ends at truncated or invalid data. */
struct ct_jpeg_markers ct__jpeg_markers_find(const uint8_t *bytes, size_t n);

#endif
