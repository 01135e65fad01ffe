/* PNG with libspng. Rows above the box are decoded and dropped, and rows below are not read. Interlaced images are
 * decoded completely. */
#include "data/image/codec.h"

#include <spng.h>

#include "base/mem.h"
#include "data/image/exif_impl.h"

/* A low limit for text, profiles and other chunks that are not used. */
#define CHUNK_BYTES ((size_t)16 << 20)

struct ct_png {
	struct ct_image_opts opts;
	spng_ctx *ctx;
	struct spng_ihdr ihdr;
	struct ct_scratch rows;
};

enum ct_status ct_png_create(const struct ct_image_opts *opts, ct_png **out)
{
	ct_png *p;

	CT_TRY_ALLOC(p = CT_NEW(ct_png));
	p->opts = *opts;
	*out = p;
	return CT_OK;
}

void ct_png_close(ct_png *p)
{
	spng_ctx_free(p->ctx);
	p->ctx = NULL;
}

void ct_png_destroy(ct_png *p)
{
	if (!p)
		return;
	ct_png_close(p);
	ct_scratch_release(&p->rows);
	ct_free(p);
}

static enum ct_status png_status(int rc)
{
	if (rc == SPNG_OK || rc == SPNG_EOI)
		return CT_OK;
	if (rc == SPNG_EMEM)
		return CT_FAIL(CT_NOMEM, "out of memory while reading a PNG image");
	if (rc == SPNG_EWIDTH || rc == SPNG_EHEIGHT || rc == SPNG_EUSER_WIDTH || rc == SPNG_EUSER_HEIGHT)
		return CT_FAIL_TAG(CT_DATA, NULL, "png-dims", "%s", spng_strerror(rc));
	return CT_FAIL_TAG(CT_DATA, NULL, rc == SPNG_IO_EOF ? "png-truncated" : "png-data", "%s", spng_strerror(rc));
}

enum ct_status ct_png_open(ct_png *p, const uint8_t *bytes, size_t n, struct ct_image_header *out)
{
	static const int components[] = {1, 0, 3, 1, 2, 0, 4}; /* by color type */
	struct spng_exif exif;

	ct_png_close(p);
	p->ctx = spng_ctx_new(0);
	if (!p->ctx)
		return png_status(SPNG_EMEM);
	CT_TRY(png_status(spng_set_chunk_limits(p->ctx, CHUNK_BYTES, CHUNK_BYTES)));
	CT_TRY(png_status(spng_set_png_buffer(p->ctx, bytes, n)));
	CT_TRY(png_status(spng_get_ihdr(p->ctx, &p->ihdr)));
	CT_TRY(ct_image_check_dims("png-dims", &p->opts, p->ihdr.width, p->ihdr.height));
	out->w = (int)p->ihdr.width;
	out->h = (int)p->ihdr.height;
	out->components = components[p->ihdr.color_type % CT_ARRAY_LEN(components)];
	out->progressive = p->ihdr.interlace_method != SPNG_INTERLACE_NONE;
	if (spng_get_exif(p->ctx, &exif) == SPNG_OK)
		out->orientation = ct__exif_orientation((const uint8_t *)exif.data, exif.length);
	return CT_OK;
}

static enum ct_status read_rows(ct_png *p, struct ct_box window, size_t pitch)
{
	CT_TRY(png_status(spng_decode_image(p->ctx, NULL, 0, SPNG_FMT_RGBA8, SPNG_DECODE_PROGRESSIVE)));
	for (int y = 0; y < window.y + window.h; y++) {
		size_t row = y < window.y ? 0 : (size_t)(y - window.y);

		CT_TRY(png_status(spng_decode_row(p->ctx, p->rows.p + row * pitch, pitch)));
	}
	return CT_OK;
}

enum ct_status ct_png_decode(ct_png *p, struct ct_box window, struct ct_pixels *out)
{
	size_t pitch = (size_t)p->ihdr.width * 4, first = 0;

	if (p->ihdr.interlace_method == SPNG_INTERLACE_NONE) {
		CT_TRY(ct_scratch_reserve(&p->rows, pitch * (size_t)window.h));
		CT_TRY(read_rows(p, window, pitch));
	} else {
		first = (size_t)window.y;
		CT_TRY(ct_scratch_reserve(&p->rows, pitch * p->ihdr.height));
		CT_TRY(png_status(spng_decode_image(p->ctx, p->rows.p, pitch * p->ihdr.height, SPNG_FMT_RGBA8, 0)));
	}
	*out = (struct ct_pixels){
		.rgbx = p->rows.p + first * pitch + (size_t)window.x * 4, .pitch = pitch, .box = window, .scale = 1};
	return CT_OK;
}

static int append(spng_ctx *ctx, void *user, void *src, size_t length)
{
	(void)ctx;
	ct_str_add_bytes(user, src, length);
	return 0;
}

enum ct_status ct_png_encode(const uint8_t *rgb, int w, int h, struct ct_str *out)
{
	struct spng_ihdr ihdr = {
		.width = (uint32_t)w, .height = (uint32_t)h, .bit_depth = 8, .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
	spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
	size_t bytes = (size_t)w * (size_t)h * 3;
	enum ct_status st;

	if (!ctx)
		return png_status(SPNG_EMEM);
	CT_TRY_GOTO(png_status(spng_set_png_stream(ctx, append, out)), st, done);
	CT_TRY_GOTO(png_status(spng_set_ihdr(ctx, &ihdr)), st, done);
	st = png_status(spng_encode_image(ctx, rgb, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
done:
	spng_ctx_free(ctx);
	return st;
}
