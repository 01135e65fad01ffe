/* JPEG files of every kind, made by libjpeg from a picture that is a formula. */
#ifndef CT_TESTS_DATA_JPEG_MAKE_H
#define CT_TESTS_DATA_JPEG_MAKE_H

#include "tests/data/fixture.h"

enum jpeg_colors { JPEG_YCC, JPEG_RGB, JPEG_GRAY, JPEG_CMYK, JPEG_YCCK };

struct jpeg_spec {
	int w, h;
	enum jpeg_colors colors;
	int hs, vs; /* sampling factors of the first component; 0: 1 */
	bool progressive, arithmetic;
	int restart;      /* MCUs between restart markers */
	int scans;        /* so many scans of one component, one coefficient each (a bomb) */
	int quality;      /* 0: 90 */
	const void *exif; /* APP1 contents behind "Exif\0\0" */
	size_t exif_bytes;
};

/* bytes_release frees it. */
struct bytes jpeg_make(const struct jpeg_spec *s);
/* Channel c of the picture that all of them show: gradients, edges and some noise. */
uint8_t picture(int x, int y, int c);
/* The picture as RGB [h,w,3]; ct_free. */
uint8_t *picture_rgb(int w, int h);

#endif
