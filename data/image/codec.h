/* The interface between image.c and the codecs, jpeg.c and png.c. Codecs return pixels as they are stored and do not
 * apply the EXIF orientation. Otherwise, the rules of image.h apply. Error messages start with a tag. codec.c has
 * helpers that both codecs use. */
#ifndef CT_DATA_IMAGE_CODEC_H
#define CT_DATA_IMAGE_CODEC_H

#include "base/mem.h"
#include "data/image/image.h"

/* The longest side, in pixels, that libjpeg supports. The limit is also used for PNG, because the tables for resizing
 * grow with the side length. */
#define CT_IMAGE_MAX_SIDE 65500

/* A buffer that grows on demand. Its contents are lost when it grows. */
struct ct_scratch {
	uint8_t *p;
	size_t cap;
};
/* Ensures that the buffer has at least `bytes` bytes, aligned to 64 bytes. Fails with CT_NOMEM. */
enum ct_status ct_scratch_reserve(struct ct_scratch *s, size_t bytes) CT_MUST_CHECK;
void ct_scratch_release(struct ct_scratch *s);

/* Fails with CT_DATA and the tag, "jpeg-dims" or "png-dims", if the width or height is zero or the image exceeds the
 * limits. */
enum ct_status ct_image_check_dims(const char *tag, const struct ct_image_opts *opts, uint64_t w,
				   uint64_t h) CT_MUST_CHECK;

typedef struct ct_jpeg ct_jpeg;
enum ct_status ct_jpeg_create(const struct ct_image_opts *opts, ct_jpeg **out) CT_MUST_CHECK;
void ct_jpeg_destroy(ct_jpeg *j);
enum ct_status ct_jpeg_open(ct_jpeg *j, const uint8_t *bytes, size_t n, struct ct_image_header *out) CT_MUST_CHECK;
/* Decodes a rectangular region, given in pixels of the full-size image, at 1/scale of its size. scale is 1, 2, 4 or
 * 8. */
enum ct_status ct_jpeg_decode(ct_jpeg *j, struct ct_box window, int scale, struct ct_pixels *out) CT_MUST_CHECK;
/* Closes the open image and clears the warning; may be called at any time. */
void ct_jpeg_close(ct_jpeg *j);
const char *ct_jpeg_warning(const ct_jpeg *j);

typedef struct ct_png ct_png;
enum ct_status ct_png_create(const struct ct_image_opts *opts, ct_png **out) CT_MUST_CHECK;
void ct_png_destroy(ct_png *p);
enum ct_status ct_png_open(ct_png *p, const uint8_t *bytes, size_t n, struct ct_image_header *out) CT_MUST_CHECK;
enum ct_status ct_png_decode(ct_png *p, struct ct_box window, struct ct_pixels *out) CT_MUST_CHECK;
void ct_png_close(ct_png *p);
/* Compresses RGB [h,w,3] and appends the file to *out. */
enum ct_status ct_png_encode(const uint8_t *rgb, int w, int h, struct ct_str *out) CT_MUST_CHECK;

#endif
