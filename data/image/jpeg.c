/* JPEG decoding with libjpeg-turbo. Decoding a box follows its libjpeg.txt ("Partial image decompression"). Two rules
 * make the result bit-identical to a full decode. One more iMCU is decoded on each side, because fancy upsampling reads
 * neighbors. Rows are skipped only at the top, because a skip must not start inside a row group (libjpeg-turbo issue
 * 915). If the restart markers of the file allow it, libjpeg gets only the part that contains the box
 * (data/image/jpeg_part_impl.h). */
#include "data/image/codec.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/numbers.h"
#include "data/image/exif_impl.h"
#include "data/image/jpeg_part_impl.h"

#define WARNING_TAG CT_IMAGE_WARNING_TAG ": "
#define ROWS_A_CALL 16
/* Limit on the number of scans times the pixels of the image, in units of max_pixels. Every scan of a progressive image
 * processes all pixels; images usually have about ten scans. */
#define FULL_SIZE_SCANS 32

enum failure { FAIL_LIBRARY = 1, FAIL_TRUNCATED, FAIL_SCANS };

struct ct_jpeg {
	struct ct_image_opts opts;
	struct jpeg_decompress_struct d;
	struct jpeg_error_mgr errors;
	struct jpeg_source_mgr source;
	struct jpeg_progress_mgr progress;
	jmp_buf escape;   /* with an enum failure */
	bool created;     /* d must be destroyed */
	bool ended;       /* the file ended */
	bool ended_early; /* ... before the last rows of a scan */
	char warning[sizeof(WARNING_TAG) + JMSG_LENGTH_MAX];
	const uint8_t *bytes; /* of the opened file */
	size_t n;
	struct ct_jpeg_markers markers;
	struct ct_scratch part, rows;
};

static struct ct_jpeg *of(j_common_ptr d)
{
	return d->client_data;
}

static void on_error(j_common_ptr d)
{
	longjmp(of(d)->escape, FAIL_LIBRARY);
}

/* Keeps the first warning about invalid data that can still be decoded. As in Pillow, missing data at the end is an
 * error, because libjpeg would fill the rest of the image with zeros. */
static void on_message(j_common_ptr d, int level)
{
	struct ct_jpeg *j = of(d);

	if (level >= 0)
		return;
	if (d->err->msg_code == JWRN_HIT_MARKER && j->ended)
		longjmp(j->escape, FAIL_TRUNCATED);
	if (d->err->num_warnings++ > 0)
		return;
	memcpy(j->warning, WARNING_TAG, sizeof(WARNING_TAG));
	d->err->format_message(d, j->warning + strlen(WARNING_TAG));
}

static void print_nothing(j_common_ptr d)
{
	(void)d;
}

static void on_progress(j_common_ptr d)
{
	struct ct_jpeg *j = of(d);
	uint64_t pixels = (uint64_t)j->d.image_width * j->d.image_height, scans = (uint64_t)j->d.input_scan_number;

	if (scans > (uint64_t)j->opts.max_scans || scans * pixels > FULL_SIZE_SCANS * j->opts.max_pixels)
		longjmp(j->escape, FAIL_SCANS);
}

static void source_nothing(j_decompress_ptr d)
{
	(void)d;
}

/* All bytes are in memory, so this is the end of the file. Continues with an EOI marker. */
static boolean source_fill(j_decompress_ptr d)
{
	static const JOCTET eoi[2] = {0xff, JPEG_EOI};
	struct ct_jpeg *j = of((j_common_ptr)d);

	if (!j->ended && d->input_iMCU_row + 1 < d->total_iMCU_rows)
		j->ended_early = true;
	j->ended = true;
	WARNMS(d, JWRN_JPEG_EOF);
	j->source.next_input_byte = eoi;
	j->source.bytes_in_buffer = sizeof(eoi);
	return TRUE;
}

static void source_skip(j_decompress_ptr d, long n)
{
	struct jpeg_source_mgr *s = d->src;

	if (n <= 0)
		return;
	if ((size_t)n > s->bytes_in_buffer) {
		source_fill(d);
		return;
	}
	s->next_input_byte += n;
	s->bytes_in_buffer -= (size_t)n;
}

enum ct_status ct_jpeg_create(const struct ct_image_opts *opts, ct_jpeg **out)
{
	ct_jpeg *j;

	CT_TRY_ALLOC(j = CT_NEW(ct_jpeg));
	j->opts = *opts;
	*out = j;
	return CT_OK;
}

static void release(ct_jpeg *j)
{
	if (j->created)
		jpeg_destroy_decompress(&j->d);
	j->created = false;
}

void ct_jpeg_close(ct_jpeg *j)
{
	release(j);
	j->warning[0] = 0;
}

void ct_jpeg_destroy(ct_jpeg *j)
{
	if (!j)
		return;
	ct_jpeg_close(j);
	ct_scratch_release(&j->part);
	ct_scratch_release(&j->rows);
	ct_free(j);
}

const char *ct_jpeg_warning(const ct_jpeg *j)
{
	return j->warning[0] ? j->warning : NULL;
}

/* Returns the tag for a libjpeg error. */
static const char *tag_of(int code)
{
	switch (code) {
	case JERR_NO_IMAGE:
		return "jpeg-no-image";
	case JERR_EMPTY_IMAGE:
	case JERR_IMAGE_TOO_BIG:
	case JERR_NO_BACKING_STORE:
	case JERR_WIDTH_OVERFLOW:
		return "jpeg-dims";
	case JERR_ARITH_NOTIMPL:
	case JERR_BAD_PRECISION:
	case JERR_CCIR601_NOTIMPL:
	case JERR_CONVERSION_NOTIMPL:
	case JERR_FRACT_SAMPLE_NOTIMPL:
	case JERR_NOTIMPL:
	case JERR_NOT_COMPILED:
	case JERR_SOF_UNSUPPORTED:
		return "jpeg-unsupported";
	default:
		return "jpeg-header";
	}
}

/* Sets the error after libjpeg has left with longjmp. */
static enum ct_status failed(ct_jpeg *j, enum failure why)
{
	char text[JMSG_LENGTH_MAX];
	int code = j->errors.msg_code;

	if (why == FAIL_SCANS) {
		CT_FAIL_TAG(CT_DATA, NULL, "jpeg-scans",
			    "scan %d of an image of %u x %u pixels; more than %d scans, or fewer in a large image, "
			    "are refused",
			    j->d.input_scan_number, j->d.image_width, j->d.image_height, j->opts.max_scans);
	} else if (why == FAIL_TRUNCATED || j->ended) {
		CT_FAIL_TAG(CT_DATA, NULL, "jpeg-truncated", "the file ends in the middle of the image");
	} else {
		j->errors.format_message((j_common_ptr)&j->d, text);
		if (code == JERR_OUT_OF_MEMORY)
			CT_FAIL(CT_NOMEM, "out of memory while decoding a JPEG image: %s", text);
		else
			CT_FAIL_TAG(CT_DATA, NULL, tag_of(code), "%s", text);
	}
	release(j);
	return ct_error_status();
}

/* Creates a new decompressor for each image. Otherwise libjpeg would decode an image without tables with the tables of
 * the previous image, and pixels would depend on what this thread has decoded before. */
static void start(ct_jpeg *j, const uint8_t *bytes, size_t n)
{
	j->ended = j->ended_early = false;
	j->d.err = jpeg_std_error(&j->errors);
	j->errors.error_exit = on_error;
	j->errors.emit_message = on_message;
	j->errors.output_message = print_nothing;
	j->d.client_data = j;
	j->created = true;
	jpeg_create_decompress(&j->d);
	j->progress = (struct jpeg_progress_mgr){.progress_monitor = on_progress};
	j->d.progress = &j->progress;
	j->source = (struct jpeg_source_mgr){
		.next_input_byte = bytes,
		.bytes_in_buffer = n,
		.init_source = source_nothing,
		.fill_input_buffer = source_fill,
		.skip_input_data = source_skip,
		.resync_to_restart = jpeg_resync_to_restart,
		.term_source = source_nothing,
	};
	j->d.src = &j->source;
	/* Memory for the coefficients of a progressive image: four components, two bytes each, and padding to complete
	 * iMCUs. */
	j->d.mem->max_memory_to_use = (long)(j->opts.max_pixels * 8 + ((uint64_t)64 << 20));
}

static enum ct_status choose_colors(ct_jpeg *j)
{
	switch (j->d.jpeg_color_space) {
	case JCS_GRAYSCALE:
	case JCS_YCbCr:
	case JCS_RGB:
		j->d.out_color_space = JCS_EXT_RGBX;
		return CT_OK;
	case JCS_CMYK:
	case JCS_YCCK:
		j->d.out_color_space = JCS_CMYK;
		return CT_OK;
	default:
		return CT_FAIL_TAG(CT_DATA, NULL, "jpeg-unsupported", "%d components of an unknown color space",
				   j->d.num_components);
	}
}

enum ct_status ct_jpeg_open(ct_jpeg *j, const uint8_t *bytes, size_t n, struct ct_image_header *out)
{
	struct ct_jpeg_markers m = ct__jpeg_markers_find(bytes, n);
	int why;

	ct_jpeg_close(j);
	j->bytes = bytes;
	j->n = n;
	j->markers = m;
	/* Sequential and progressive frames with Huffman or arithmetic coding: both libjpeg-turbo 2 and 3 decode these
	 * types at 8 bits. */
	if (m.sof > 0xc2 && m.sof != 0xc9 && m.sof != 0xca)
		return CT_FAIL_TAG(CT_DATA, NULL, "jpeg-unsupported", "frame type SOF%d (lossless or hierarchical)",
				   m.sof - 0xc0);
	why = setjmp(j->escape);
	if (why != 0)
		return failed(j, (enum failure)why);
	start(j, bytes, n);
	jpeg_read_header(&j->d, TRUE);
	if (j->ended)
		longjmp(j->escape, FAIL_TRUNCATED);
	CT_TRY(ct_image_check_dims("jpeg-dims", &j->opts, j->d.image_width, j->d.image_height));
	if (j->d.data_precision != 8)
		return CT_FAIL_TAG(CT_DATA, NULL, "jpeg-unsupported", "%d bits per sample", j->d.data_precision);
	CT_TRY(choose_colors(j));
	out->w = (int)j->d.image_width;
	out->h = (int)j->d.image_height;
	out->components = j->d.num_components;
	out->progressive = j->d.progressive_mode;
	out->orientation = m.exif ? ct__exif_orientation(m.exif, m.exif_bytes) : 1;
	return CT_OK;
}

/* a*b/255 rounded, for 0..255. */
static unsigned multiply(unsigned a, unsigned b)
{
	unsigned t = a * b + 128;

	return ((t >> 8) + t) >> 8;
}

/* Converts in place. Files are assumed to store the amount of light instead of ink, as Adobe's do. Pillow and djpeg
 * make the same assumption. */
static void cmyk_to_rgbx(uint8_t *p, int n)
{
	for (; n > 0; n--, p += 4) {
		unsigned white = p[3];

		for (int c = 0; c < 3; c++)
			p[c] = (uint8_t)(white - multiply(255 - p[c], white));
	}
}

/* Reads the rows of the crop into j->rows. May call longjmp. */
static void read_rows(ct_jpeg *j, struct ct_box window, size_t pitch)
{
	JSAMPROW rows[ROWS_A_CALL];

	if (window.y > 0)
		jpeg_skip_scanlines(&j->d, (JDIMENSION)window.y);
	for (int y = 0; y < window.h;) {
		int n = window.h - y < ROWS_A_CALL ? window.h - y : ROWS_A_CALL;

		for (int i = 0; i < n; i++)
			rows[i] = j->rows.p + (size_t)(y + i) * pitch;
		n = (int)jpeg_read_scanlines(&j->d, rows, (JDIMENSION)n);
		for (int i = 0; i < n && j->d.out_color_space == JCS_CMYK; i++)
			cmyk_to_rgbx(rows[i], (int)j->d.output_width);
		y += n;
	}
}

/* Returns whether an image without EOI marker lacks data although libjpeg has not warned. */
static bool lacks_scans(const ct_jpeg *j)
{
	const struct jpeg_decompress_struct *d = &j->d;

	if (!j->ended)
		return false;
	/* Arithmetic decoding continues with zeros and does not warn. */
	if (d->arith_code && j->ended_early)
		return true;
	/* Images with one scan per component, or with refinements, may end between two scans. */
	for (int c = 0; d->coef_bits && c < d->num_components; c++) {
		for (int k = 0; k < DCTSIZE2; k++) {
			if (d->coef_bits[c][k] != 0)
				return true;
		}
	}
	return !d->coef_bits && jpeg_has_multiple_scans((j_decompress_ptr)d);
}

/* Returns the box in the coordinates of the image at 1/scale. */
static struct ct_box shrink(struct ct_box b, int scale, int w, int h)
{
	struct ct_box s = {b.x / scale, b.y / scale, 0, 0};

	s.w = ct_min_int((b.x + b.w + scale - 1) / scale, w) - s.x;
	s.h = ct_min_int((b.y + b.h + scale - 1) / scale, h) - s.y;
	return s;
}

/* Restricts decoding to the columns of the box and one more iMCU on each side, if libjpeg supports this correctly. With
 * a reduced scale, libjpeg assumes too small a width for components that it reduces less than others. If these must
 * still be upsampled (to more than twice the size in one direction), decoding stops inside the row. May call
 * longjmp. */
static void crop(struct jpeg_decompress_struct *d, struct ct_box window, int scale, JDIMENSION *x0, JDIMENSION *width)
{
	int margin = d->max_h_samp_factor * DCTSIZE;

	*x0 = 0;
	*width = d->output_width;
	if (scale > 1 && (d->max_h_samp_factor > 2 || d->max_v_samp_factor > 2))
		return;
	*x0 = (JDIMENSION)(window.x > margin ? window.x - margin : 0);
	*width = (JDIMENSION)ct_min_int(window.x + window.w + margin, (int)d->output_width) - *x0;
	jpeg_crop_scanline(d, x0, width);
}

/* Opens the part of the file that contains the box, if possible. May call longjmp. */
static enum ct_status open_part(ct_jpeg *j, struct ct_box window, int scale, struct ct_jpeg_part *out)
{
	CT_TRY(ct__jpeg_part_cut(&j->markers, j->bytes, j->n, window, scale, &j->part, out));
	if (!out->bytes)
		return CT_OK;
	release(j);
	start(j, out->bytes, out->n);
	jpeg_read_header(&j->d, TRUE);
	return choose_colors(j);
}

/* May call longjmp. Must not be inlined: variables of the function that calls setjmp must not change between setjmp and
 * longjmp. */
static __attribute__((noinline)) enum ct_status decode(ct_jpeg *j, struct ct_box window, int scale,
						       struct ct_pixels *out)
{
	struct ct_jpeg_part part;
	JDIMENSION x0, width;
	struct ct_box b;
	size_t pitch;

	CT_TRY(open_part(j, window, scale, &part));
	window.x -= part.x;
	window.y -= part.y;
	j->d.scale_num = 1;
	j->d.scale_denom = (unsigned)scale;
	/* Smoothing estimates missing parts of incomplete progressive images from neighboring blocks, which may be
	 * outside of the box. */
	j->d.do_block_smoothing = FALSE;
	jpeg_start_decompress(&j->d);
	b = shrink(window, scale, (int)j->d.output_width, (int)j->d.output_height);
	crop(&j->d, b, scale, &x0, &width);
	pitch = ((size_t)width * 4 + 63) / 64 * 64;
	CT_TRY(ct_scratch_reserve(&j->rows, pitch * (size_t)b.h));
	read_rows(j, b, pitch);

	if (lacks_scans(j))
		longjmp(j->escape, FAIL_TRUNCATED);
	if (j->d.output_scanline == j->d.output_height)
		jpeg_finish_decompress(&j->d); /* warns if the end is missing */
	release(j);
	*out = (struct ct_pixels){.rgbx = j->rows.p + ((size_t)b.x - x0) * 4, .pitch = pitch, .box = b, .scale = scale};
	out->box.x += part.x / scale;
	out->box.y += part.y / scale;
	return CT_OK;
}

enum ct_status ct_jpeg_decode(ct_jpeg *j, struct ct_box window, int scale, struct ct_pixels *out)
{
	int why = setjmp(j->escape);

	if (why != 0)
		return failed(j, (enum failure)why);
	return decode(j, window, scale, out);
}
