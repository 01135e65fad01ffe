/* Uses libjpeg to make JPEG files of every kind from a synthetic image, which is computed by a formula. */
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
	int scans;        /* number of scans that each contain one coefficient of one component (a decompression
			   * bomb) */
	int quality;      /* 0: 90 */
	const void *exif; /* contents of APP1 after "Exif\0\0" */
	size_t exif_bytes;
};

/* Makes a JPEG file in memory. Free it with bytes_release. */
struct bytes jpeg_make(const struct jpeg_spec *s);
/* Returns the value of channel c at pixel (x, y) of the synthetic image, which has gradients, edges and some noise. */
uint8_t picture(int x, int y, int c);
/* Returns the synthetic image as RGB [h,w,3]. Free it with ct_free. */
uint8_t *picture_rgb(int w, int h);

#endif
