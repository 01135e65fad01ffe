/* Decodes one compressed image at a time: JPEG (libjpeg-turbo) and PNG (libspng), detected by their first bytes. Only
 * the requested box is decoded. Its pixels are bit-identical to those of a full decode.
 *
 * All images become RGB: grayscale is replicated, CMYK and YCCK are converted (their values are taken as inverted, as
 * Adobe stores them and as Pillow assumes), alpha is dropped, and 16 bits are reduced to 8. EXIF orientation is
 * ignored, as in torchvision and Pillow, unless requested.
 *
 * A decoder may be used by one thread only. It reuses its memory from image to image, so it allocates no more memory
 * once it has decoded the largest image. Input is not trusted: sizes are checked against the limits before memory is
 * allocated. */
#ifndef CT_DATA_IMAGE_IMAGE_H
#define CT_DATA_IMAGE_IMAGE_H

#include <stdint.h>

#include "base/status.h"

struct ct_image_opts {
	uint64_t max_pixels; /* limit on width * height; 0: 64 Mpixel (64 << 20). A side is at most 65500 pixels */
	int max_scans;       /* limit on the scans of a progressive JPEG; 0: 100. The number of scans times the number
			      * of pixels may not exceed 32 * max_pixels */
	bool exif;           /* apply the EXIF orientation */
	bool fast;           /* JPEG: decode at 1/2, 1/4 or 1/8 of the size if the box is at least twice as large as the
			      * wanted size (not exact) */
};

enum ct_image_format { CT_IMAGE_JPEG, CT_IMAGE_PNG };

struct ct_image_header {
	enum ct_image_format format;
	int w, h;       /* after orientation */
	int components; /* number of color components in the file */
	bool progressive;
	int orientation; /* EXIF 1..8; 1 if it is missing or invalid */
};

struct ct_box {
	int x, y, w, h;
};

/* The RGBX pixels of a box: 4 bytes each, the last one undefined. They are owned by the decoder and valid until the
 * next call that uses it. */
struct ct_pixels {
	const uint8_t *rgbx;
	size_t pitch; /* distance between rows in bytes */
	/* The box that was decoded, which may be larger than requested. If a fast decode has reduced the image, `box`
	 * is in pixels of the reduced image. */
	struct ct_box box;
	int scale;
};

typedef struct ct_image_decoder ct_image_decoder;

enum ct_status ct_image_decoder_create(const struct ct_image_opts *opts, ct_image_decoder **out) CT_MUST_CHECK;
void ct_image_decoder_destroy(ct_image_decoder *d);

/* Reads the header. Borrows `bytes` until the next open. Fails with CT_DATA if the image cannot be used. The reason
 * starts with a short tag, which ct_error_tag returns: "jpeg-truncated: ...", "jpeg-dims: 65500 x 65500 pixels; ...",
 * "format-gif: ...". Tags:
 *   empty                no bytes
 *   jpeg-magic           neither JPEG nor PNG nor a known format
 *   format-NAME          gif, bmp, tiff, webp, avif, heic, jpeg2000, jpegxl: not supported
 *   jpeg-, png-dims      size is zero or over the limits
 *   jpeg-, png-truncated the file ends before the image
 *   jpeg-no-image        complete, but without an image
 *   jpeg-header          invalid tables, sampling factors and so on
 *   jpeg-unsupported     12 bits, lossless, hierarchical, unusual numbers of components
 *   jpeg-scans           a progressive image with too many scans
 *   png-data             any other error of libspng
 * Most damage is found only when the image is decoded. Like Pillow, the decoder accepts, with a warning, a JPEG that
 * lacks only its end marker or has other damage that libjpeg can handle. */
enum ct_status ct_image_open(ct_image_decoder *d, const void *bytes, size_t n,
			     struct ct_image_header *out) CT_MUST_CHECK;
/* Decodes a rectangular region of the open image. May be called once after each ct_image_open. Fails with the same
 * errors as ct_image_open, or with CT_NOMEM, which does not mean that the image is damaged. The box must be inside the
 * image and not empty. want_w and want_h are the size to which the box will be resized; 0, 0: decode every pixel. */
enum ct_status ct_image_decode(ct_image_decoder *d, struct ct_box window, int want_w, int want_h,
			       struct ct_pixels *out) CT_MUST_CHECK;
#define CT_IMAGE_WARNING_TAG "jpeg-warning" /* the tag of all warnings */
/* Returns the codec's warning since the last ct_image_open ("jpeg-warning: premature end"), or NULL. */
const char *ct_image_warning(const ct_image_decoder *d);

/* Writes 8-bit RGB [h,w,3] as PNG if the path ends in .png, else as PPM. Fails with CT_IO. */
enum ct_status ct_image_write(const char *path, const uint8_t *rgb, int w, int h) CT_MUST_CHECK;
/* Compresses RGB [h,w,3] as baseline 4:2:0 JPEG with quality 1..100. *out is owned by the caller (ct_free). */
enum ct_status ct_image_encode_jpeg(const uint8_t *rgb, int w, int h, int quality, uint8_t **out,
				    size_t *n) CT_MUST_CHECK;
/* Adds restart markers, at least one per row of MCUs, so that a box can be decoded without decoding the parts of the
 * image above and beside it. Coefficients (and therefore pixels) and metadata do not change. Progressive files become
 * baseline files. *out is owned by the caller (ct_free). It is NULL if the file should be kept as is, because it is not
 * a JPEG, is damaged, incomplete or tiny, or has four components. Fails with CT_NOMEM. */
enum ct_status ct_image_make_seekable(const uint8_t *bytes, size_t n, uint8_t **out, size_t *n_out) CT_MUST_CHECK;

#endif
