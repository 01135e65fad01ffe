/* Decodes one compressed image at a time: JPEG (libjpeg-turbo) and PNG (libspng), told apart by their first bytes.
 * Only the window that is asked for is decoded, bit-identical to the same window of a full decode.
 *
 * All images become RGB: grayscale is tripled, CMYK and YCCK converted (taken as inverted, Adobe's way, like Pillow),
 * alpha dropped, 16 bits cut to 8. EXIF orientation is ignored, as torchvision and Pillow do, unless asked for.
 *
 * A decoder belongs to one thread; it keeps its memory between images, so that nothing is allocated once it has seen
 * the largest. Input is never trusted: sizes are compared with the limits before anything is allocated. */
#ifndef CT_DATA_IMAGE_IMAGE_H
#define CT_DATA_IMAGE_IMAGE_H

#include <stdint.h>

#include "base/status.h"

struct ct_image_opts {
	uint64_t max_pixels; /* width * height; 0: 64 Mpixel (64 << 20); a side is 65500 at most */
	int max_scans;       /* of a progressive JPEG; 0: 500; fewer where they cost more than 32 of max_pixels */
	bool exif;           /* turn and mirror as the EXIF orientation says */
	bool fast;           /* JPEG: decode at 1/2, 1/4, 1/8 where the window is at least twice `want` (not exact) */
};

enum ct_image_format { CT_IMAGE_JPEG, CT_IMAGE_PNG };

struct ct_image_header {
	enum ct_image_format format;
	int w, h;       /* as decoded: after orientation */
	int components; /* of the file */
	bool progressive;
	int orientation; /* EXIF 1..8; 1 where there is none, or a broken one */
};

struct ct_box {
	int x, y, w, h;
};

/* RGBX pixels (4 bytes, the last undefined) of a window, owned by the decoder until its next call. */
struct ct_pixels {
	const uint8_t *rgbx;
	size_t pitch;      /* bytes from row to row */
	struct ct_box box; /* which window of the image this is: may be larger than asked for. In units of
			    * `scale`: 1, or 2, 4, 8 where a fast decode has made the image smaller */
	int scale;
};

typedef struct ct_image_decoder ct_image_decoder;

enum ct_status ct_image_decoder_create(const struct ct_image_opts *opts, ct_image_decoder **out) CT_MUST_CHECK;
void ct_image_decoder_destroy(ct_image_decoder *d);

/* Reads the header; borrows bytes until the next open. CT_DATA when this is no image that can be used, with a reason
 * that begins with a short tag: "jpeg-truncated: ...", "jpeg-dims: 65500 x 65500 pixels; ...", "format-gif: ...". Tags:
 *   empty                no bytes
 *   jpeg-magic           neither JPEG nor PNG nor anything known
 *   format-NAME          gif, bmp, tiff, webp, avif, heic, jpeg2000, jpegxl: no decoder here
 *   jpeg-, png-dims      size zero or over the limits
 *   jpeg-, png-truncated the file ends before the image does
 *   jpeg-no-image        complete, but without a picture
 *   jpeg-header          tables, sampling factors and the like that cannot be
 *   jpeg-unsupported     12 bits, lossless, hierarchical, odd numbers of components
 *   jpeg-scans           a progressive image with too many scans
 *   png-data             anything else that libspng refuses
 * Most damage shows in decoding only. A JPEG that lacks just its end mark is fine, with a warning; so is one with other
 * damage that libjpeg gets over, as in Pillow. */
enum ct_status ct_image_open(ct_image_decoder *d, const void *bytes, size_t n,
			     struct ct_image_header *out) CT_MUST_CHECK;
/* Decodes the window of the opened image, once per open, with the same errors (CT_NOMEM: not the image's fault); the
 * window lies inside the image and is not empty. want: the size it will be resized to, {0,0} to get every pixel. */
enum ct_status ct_image_decode(ct_image_decoder *d, struct ct_box window, int want_w, int want_h,
			       struct ct_pixels *out) CT_MUST_CHECK;
/* What the codec complained about without giving up ("jpeg-warning: premature end"); NULL: nothing. Since the last
 * open. */
const char *ct_image_warning(const ct_image_decoder *d);

/* Writes 8-bit RGB [h,w,3] as PNG (path ending in .png) or PPM (any other). CT_IO. */
enum ct_status ct_image_write(const char *path, const uint8_t *rgb, int w, int h) CT_MUST_CHECK;
/* Compresses RGB [h,w,3] as baseline 4:2:0 JPEG; *out is owned by the caller (ct_free). quality 1..100. */
enum ct_status ct_image_encode_jpeg(const uint8_t *rgb, int w, int h, int quality, uint8_t **out,
				    size_t *n) CT_MUST_CHECK;
/* The same JPEG with restart markers once or more in each row of MCUs, so that a window is decoded without what lies
 * beside and above it: every coefficient, and so every pixel, stays as it is, and all metadata. Progressive files become
 * baseline ones. *out is owned by the caller (ct_free); NULL where the file stays better as it is: no JPEG, damaged,
 * incomplete, tiny, of four components. CT_NOMEM. */
enum ct_status ct_image_make_seekable(const uint8_t *bytes, size_t n, uint8_t **out, size_t *n_out) CT_MUST_CHECK;

#endif
