/* JPEG encoding for `ctrain data pack` and tests: libjpeg-turbo with a growing buffer. */
#include "data/image/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/mem.h"

#define FIRST_BYTES ((size_t)64 << 10)
/* Adding restart markers needs all coefficients in memory. */
#define MAX_PIXELS ((uint64_t)64 << 20)
#define MAX_SCANS 100
#define FULL_SIZE_SCANS 32 /* times MAX_PIXELS */
/* Maximum number of pixels between restart markers. Each marker costs 5 bytes and some time. On average, half an
 * interval more than the box must be decoded on each side. In an image of 500 x 375 pixels with 4:2:0 subsampling, a
 * RandomResizedCrop decodes 53 % of all MCUs with this distance, 47 % with 16 pixels, and 86 % without markers. */
#define INTERVAL_PIXELS 96

struct ct_jpeg_writer {
	struct jpeg_compress_struct c;
	struct jpeg_decompress_struct d; /* the source of a seekable file */
	struct jpeg_progress_mgr progress;
	struct jpeg_error_mgr errors;
	struct jpeg_destination_mgr dest;
	jmp_buf escape;
	uint8_t *p;
	size_t cap;
	bool nomem;
};

static void on_error(j_common_ptr c)
{
	struct ct_jpeg_writer *w = c->client_data;

	longjmp(w->escape, 1);
}

/* A damaged file is kept as is; its readers report it. */
static void on_warning(j_common_ptr d, int level)
{
	if (level < 0)
		on_error(d);
}

static void on_progress(j_common_ptr d)
{
	struct ct_jpeg_writer *w = d->client_data;
	uint64_t pixels = (uint64_t)w->d.image_width * w->d.image_height, scans = (uint64_t)w->d.input_scan_number;

	if (scans > MAX_SCANS || scans * pixels > FULL_SIZE_SCANS * MAX_PIXELS)
		on_error(d);
}

/* Doubles the buffer; libjpeg calls this whenever it is full. */
static boolean dest_grow(j_compress_ptr c)
{
	struct ct_jpeg_writer *w = c->client_data;
	size_t used = w->cap, cap = used ? 2 * used : FIRST_BYTES;
	uint8_t *p = ct_realloc(w->p, cap, 1);

	if (!p) {
		w->nomem = true;
		longjmp(w->escape, 1);
	}
	w->p = p;
	w->cap = cap;
	w->dest.next_output_byte = p + used;
	w->dest.free_in_buffer = cap - used;
	return TRUE;
}

static void print_nothing(j_common_ptr c)
{
	(void)c;
}

static void dest_init(j_compress_ptr c)
{
	dest_grow(c);
}

static void dest_nothing(j_compress_ptr c)
{
	(void)c;
}

static void start(struct ct_jpeg_writer *w)
{
	jpeg_create_compress(&w->c);
	w->dest = (struct jpeg_destination_mgr){
		.init_destination = dest_init, .empty_output_buffer = dest_grow, .term_destination = dest_nothing};
	w->c.dest = &w->dest;
}

static void compress(struct ct_jpeg_writer *w, const uint8_t *rgb, int width, int height, int quality)
{
	start(w);
	w->c.image_width = (JDIMENSION)width;
	w->c.image_height = (JDIMENSION)height;
	w->c.input_components = 3;
	w->c.in_color_space = JCS_RGB;
	jpeg_set_defaults(&w->c);
	jpeg_set_quality(&w->c, quality, TRUE);
	w->c.optimize_coding = TRUE;
	jpeg_start_compress(&w->c, TRUE);
	while (w->c.next_scanline < w->c.image_height) {
		/* libjpeg does not modify the data; its parameter just lacks const. */
		JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)w->c.next_scanline * (size_t)width * 3);

		jpeg_write_scanlines(&w->c, &row, 1);
	}
	jpeg_finish_compress(&w->c);
}

static struct ct_jpeg_writer *writer_create(void)
{
	struct ct_jpeg_writer *w = CT_NEW(struct ct_jpeg_writer);

	if (!w)
		return NULL;
	w->c.err = w->d.err = jpeg_std_error(&w->errors);
	w->errors.error_exit = on_error;
	w->errors.output_message = print_nothing;
	w->c.client_data = w->d.client_data = w;
	return w;
}

/* Passes the result to the caller, unless `out` is NULL. */
static void writer_destroy(struct ct_jpeg_writer *w, uint8_t **out, size_t *n)
{
	jpeg_destroy_compress(&w->c);
	jpeg_destroy_decompress(&w->d);
	if (out) {
		*out = w->p;
		*n = w->cap - w->dest.free_in_buffer;
	} else {
		ct_free(w->p);
	}
	ct_free(w);
}

/* The only jump target while libjpeg compresses. */
static enum ct_status try_compress(struct ct_jpeg_writer *w, const uint8_t *rgb, int width, int height, int quality)
{
	char text[JMSG_LENGTH_MAX];

	if (setjmp(w->escape) == 0) {
		compress(w, rgb, width, height, quality);
		return CT_OK;
	}
	if (w->nomem)
		return CT_NOMEM;
	w->errors.format_message((j_common_ptr)&w->c, text);
	return CT_FAIL(CT_USAGE, "cannot compress %d x %d pixels as JPEG: %s", width, height, text);
}

enum ct_status ct_image_encode_jpeg(const uint8_t *rgb, int w, int h, int quality, uint8_t **out, size_t *n)
{
	struct ct_jpeg_writer *writer;
	enum ct_status st;

	CT_ASSERT(w > 0 && h > 0 && quality >= 1 && quality <= 100);
	CT_TRY_ALLOC(writer = writer_create());
	st = try_compress(writer, rgb, w, h, quality);
	writer_destroy(writer, st == CT_OK ? out : NULL, n);
	return st;
}

/* Returns the number of MCUs between restart markers: the largest number within the limit that divides the row evenly.
 * If no such number exists, each row is one interval. */
static unsigned interval_of(const struct jpeg_decompress_struct *d)
{
	unsigned mcu = d->num_components == 1 ? DCTSIZE : (unsigned)d->max_h_samp_factor * DCTSIZE;
	unsigned row = (d->image_width + mcu - 1) / mcu, n = INTERVAL_PIXELS / mcu;

	while (n > 1 && row % n != 0)
		n--;
	return n > 1 ? n : row;
}

/* libjpeg writes the JFIF and Adobe markers. */
static void copy_markers(struct ct_jpeg_writer *w)
{
	for (jpeg_saved_marker_ptr m = w->d.marker_list; m; m = m->next) {
		if (m->marker == JPEG_APP0 && m->data_length >= 5 && memcmp(m->data, "JFIF", 5) == 0)
			continue;
		if (m->marker == JPEG_APP0 + 14 && m->data_length >= 5 && memcmp(m->data, "Adobe", 5) == 0)
			continue;
		jpeg_write_marker(&w->c, m->marker, m->data, m->data_length);
	}
}

/* Returns whether the file lacks a refinement scan that it should contain. */
static bool lacks_scans(const struct jpeg_decompress_struct *d)
{
	for (int c = 0; d->coef_bits && c < d->num_components; c++) {
		for (int k = 0; k < DCTSIZE2; k++) {
			if (d->coef_bits[c][k] != 0)
				return true;
		}
	}
	return false;
}

/* Returns false if the file should be kept as is. */
static bool transcode(struct ct_jpeg_writer *w, const uint8_t *bytes, size_t n)
{
	jvirt_barray_ptr *coefficients;

	w->errors.emit_message = on_warning;
	jpeg_create_decompress(&w->d);
	w->progress.progress_monitor = on_progress;
	w->d.progress = &w->progress;
	jpeg_mem_src(&w->d, bytes, n);
	for (int i = 0; i < 16; i++)
		jpeg_save_markers(&w->d, JPEG_APP0 + i, 0xffff);
	jpeg_save_markers(&w->d, JPEG_COM, 0xffff);
	jpeg_read_header(&w->d, TRUE);
	if ((w->d.num_components != 1 && w->d.num_components != 3) || w->d.data_precision != 8 ||
	    (uint64_t)w->d.image_width * w->d.image_height > MAX_PIXELS ||
	    (w->d.image_width <= INTERVAL_PIXELS && w->d.image_height <= INTERVAL_PIXELS))
		return false;
	coefficients = jpeg_read_coefficients(&w->d);
	if (lacks_scans(&w->d))
		return false;
	start(w);
	jpeg_copy_critical_parameters(&w->d, &w->c);
	w->c.optimize_coding = TRUE;
	w->c.restart_interval = interval_of(&w->d);
	jpeg_write_coefficients(&w->c, coefficients);
	copy_markers(w);
	jpeg_finish_compress(&w->c);
	jpeg_finish_decompress(&w->d);
	return true;
}

static bool try_transcode(struct ct_jpeg_writer *w, const uint8_t *bytes, size_t n)
{
	return setjmp(w->escape) == 0 && transcode(w, bytes, n);
}

enum ct_status ct_image_make_seekable(const uint8_t *bytes, size_t n, uint8_t **out, size_t *n_out)
{
	struct ct_jpeg_writer *w;
	bool made, nomem;

	*out = NULL;
	CT_TRY_ALLOC(w = writer_create());
	made = try_transcode(w, bytes, n);
	nomem = w->nomem || (!made && w->errors.msg_code == JERR_OUT_OF_MEMORY);
	writer_destroy(w, made ? out : NULL, n_out);
	return nomem ? CT_NOMEM : CT_OK;
}
