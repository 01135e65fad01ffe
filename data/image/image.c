/* The format is decided by the first bytes, not by names. A decoder is opened, which reads the header and checks the
 * size, and then decodes once; each opening closes what was open before, so one decoder serves many images without new
 * allocations. Boxes of the caller refer to the oriented image. They are mapped to the stored image, only that part is
 * decoded, and the pixels are turned afterwards, so orientation costs nothing for the usual images. With opts.fast, a
 * JPEG is decoded at the strongest reduction that still has the pixels which the resize wants. */
#include "data/image/image.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/image/codec.h"
#include "data/image/exif_impl.h"

#define DEFAULT_PIXELS ((uint64_t)64 << 20)
#define MOST_PIXELS ((uint64_t)CT_IMAGE_MAX_SIDE * CT_IMAGE_MAX_SIDE)
#define DEFAULT_SCANS 100 /* encoders write up to about 20 */

struct ct_image_decoder {
	struct ct_image_opts opts;
	ct_jpeg *jpeg;
	ct_png *png;
	struct ct_image_header header;
	int orientation; /* to apply */
	bool opened;
	struct ct_scratch turned;
};

enum ct_status ct_image_decoder_create(const struct ct_image_opts *opts, ct_image_decoder **out)
{
	ct_image_decoder *d;
	enum ct_status st;

	CT_TRY_ALLOC(d = CT_NEW(ct_image_decoder));
	d->opts = *opts;
	if (d->opts.max_pixels == 0)
		d->opts.max_pixels = DEFAULT_PIXELS;
	if (d->opts.max_pixels > MOST_PIXELS)
		d->opts.max_pixels = MOST_PIXELS;
	if (d->opts.max_scans == 0)
		d->opts.max_scans = DEFAULT_SCANS;
	CT_TRY_GOTO(ct_jpeg_create(&d->opts, &d->jpeg), st, fail);
	CT_TRY_GOTO(ct_png_create(&d->opts, &d->png), st, fail);
	*out = d;
	return CT_OK;
fail:
	ct_image_decoder_destroy(d);
	return st;
}

void ct_image_decoder_destroy(ct_image_decoder *d)
{
	if (!d)
		return;
	ct_jpeg_destroy(d->jpeg);
	ct_png_destroy(d->png);
	ct_scratch_release(&d->turned);
	ct_free(d);
}

/* Formats by their first bytes (the magic numbers of their specifications). Formats without a decoder are included
 * so that messages can name them. */
static const struct {
	const char *name;
	size_t at, n;
	const char *magic;
} formats[] = {
	{"jpeg", 0, 2, "\xff\xd8"},   {"png", 0, 8, "\x89PNG\r\n\x1a\n"},
	{"gif", 0, 4, "GIF8"},        {"bmp", 0, 2, "BM"},
	{"tiff", 0, 4, "II*\0"},      {"tiff", 0, 4, "MM\0*"},
	{"webp", 8, 4, "WEBP"},       {"avif", 4, 8, "ftypavif"},
	{"heic", 4, 8, "ftypheic"},   {"jpeg2000", 4, 4, "jP  "},
	{"jpegxl", 0, 2, "\xff\x0a"}, {"jpegxl", 4, 4, "JXL "},
};

static enum ct_status sniff(const uint8_t *p, size_t n, enum ct_image_format *out)
{
	const char *name = NULL;

	if (n == 0)
		return CT_FAIL_TAG(CT_DATA, NULL, "empty", "the image has no bytes");
	for (size_t i = 0; i < CT_ARRAY_LEN(formats) && !name; i++) {
		if (n >= formats[i].at + formats[i].n && memcmp(p + formats[i].at, formats[i].magic, formats[i].n) == 0)
			name = formats[i].name;
	}
	if (!name)
		return CT_FAIL_TAG(CT_DATA, NULL, "jpeg-magic", "neither JPEG nor PNG: the first bytes are %02x %02x",
				   p[0], n > 1 ? p[1] : 0);
	if (strcmp(name, "jpeg") != 0 && strcmp(name, "png") != 0) {
		char tag[CT_ERROR_TAG_MAX];

		snprintf(tag, sizeof(tag), "format-%s", name);
		CT_FAIL_TAG(CT_DATA, NULL, tag, "this is a %s file, but only JPEG and PNG are supported", name);
		return ct_error_hint("convert it to JPEG or PNG");
	}
	*out = name[0] == 'j' ? CT_IMAGE_JPEG : CT_IMAGE_PNG;
	return CT_OK;
}

enum ct_status ct_image_open(ct_image_decoder *d, const void *bytes, size_t n, struct ct_image_header *out)
{
	struct ct_image_header *h = &d->header;

	d->opened = false;
	ct_jpeg_close(d->jpeg);
	ct_png_close(d->png);
	*h = (struct ct_image_header){.orientation = 1};
	CT_TRY(sniff(bytes, n, &h->format));
	if (h->format == CT_IMAGE_JPEG)
		CT_TRY(ct_jpeg_open(d->jpeg, bytes, n, h));
	else
		CT_TRY(ct_png_open(d->png, bytes, n, h));
	d->orientation = d->opts.exif ? h->orientation : 1;
	*out = *h;
	if (ct__exif_swaps(d->orientation)) {
		out->w = h->h;
		out->h = h->w;
	}
	d->opened = true;
	return CT_OK;
}

/* Returns the strongest reduction of a JPEG with which the box is still at least as large as wanted. */
static int fast_scale(struct ct_box window, int want_w, int want_h)
{
	int scale = 8;

	if (want_w <= 0 || want_h <= 0)
		return 1;
	while (scale > 1 && (window.w / scale < want_w || window.h / scale < want_h))
		scale /= 2;
	return scale;
}

/* Applies the orientation to *px. */
static enum ct_status turn(ct_image_decoder *d, struct ct_pixels *px)
{
	const struct ct_box b = px->box;
	int s = px->scale, w = (d->header.w + s - 1) / s, h = (d->header.h + s - 1) / s;

	CT_TRY(ct_scratch_reserve(&d->turned, (size_t)b.w * (size_t)b.h * 4));
	ct__exif_turn(d->orientation, px->rgbx, px->pitch, b.w, b.h, d->turned.p);
	px->rgbx = d->turned.p;
	px->box = ct__exif_turned_box(d->orientation, b, w, h);
	px->pitch = (size_t)px->box.w * 4;
	return CT_OK;
}

enum ct_status ct_image_decode(ct_image_decoder *d, struct ct_box window, int want_w, int want_h, struct ct_pixels *out)
{
	int scale = d->opts.fast ? fast_scale(window, want_w, want_h) : 1;
	struct ct_box b;

	CT_ASSERT(d->opened);
	d->opened = false;
	b = ct__exif_stored_box(d->orientation, window, d->header.w, d->header.h);
	CT_ASSERT(b.x >= 0 && b.y >= 0 && b.w > 0 && b.h > 0 && b.w <= d->header.w - b.x && b.h <= d->header.h - b.y);
	if (d->header.format == CT_IMAGE_JPEG)
		CT_TRY(ct_jpeg_decode(d->jpeg, b, scale, out));
	else
		CT_TRY(ct_png_decode(d->png, b, out));
	return d->orientation == 1 ? CT_OK : turn(d, out);
}

const char *ct_image_warning(const ct_image_decoder *d)
{
	return d->header.format == CT_IMAGE_JPEG ? ct_jpeg_warning(d->jpeg) : NULL;
}

enum ct_status ct_image_write(const char *path, const uint8_t *rgb, int w, int h)
{
	struct ct_str file = {0};
	enum ct_status st;

	CT_ASSERT(w > 0 && h > 0);
	if (ct_ends_with(path, ".png")) {
		CT_TRY_GOTO(ct_png_encode(rgb, w, h, &file), st, out);
	} else {
		ct_str_addf(&file, "P6\n%d %d\n255\n", w, h);
		ct_str_add_bytes(&file, rgb, (size_t)w * (size_t)h * 3);
	}
	CT_TRY_GOTO(ct_str_status(&file), st, out);
	st = ct_file_replace(path, file.s, file.len);
out:
	ct_str_release(&file);
	return st;
}
