/* JPEG files for `ctrain data pack` and tests: libjpeg-turbo into memory that grows. */
#include "data/image.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include "base/mem.h"

#define FIRST_BYTES ((size_t)64 << 10)

struct ct_jpeg_writer {
	struct jpeg_compress_struct c;
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

/* Doubles the buffer; libjpeg wants it whenever the old one is full. */
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

static void compress(struct ct_jpeg_writer *w, const uint8_t *rgb, int width, int height, int quality)
{
	jpeg_create_compress(&w->c);
	w->dest = (struct jpeg_destination_mgr){
		.init_destination = dest_init, .empty_output_buffer = dest_grow, .term_destination = dest_nothing};
	w->c.dest = &w->dest;
	w->c.image_width = (JDIMENSION)width;
	w->c.image_height = (JDIMENSION)height;
	w->c.input_components = 3;
	w->c.in_color_space = JCS_RGB;
	jpeg_set_defaults(&w->c);
	jpeg_set_quality(&w->c, quality, TRUE);
	w->c.optimize_coding = TRUE;
	jpeg_start_compress(&w->c, TRUE);
	while (w->c.next_scanline < w->c.image_height) {
		/* Not written to: the type lacks a const. */
		JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)w->c.next_scanline * (size_t)width * 3);

		jpeg_write_scanlines(&w->c, &row, 1);
	}
	jpeg_finish_compress(&w->c);
}

/* The only place that libjpeg jumps to. */
static enum ct_status try_compress(struct ct_jpeg_writer *w, const uint8_t *rgb, int width, int height, int quality)
{
	char text[JMSG_LENGTH_MAX];

	w->c.err = jpeg_std_error(&w->errors);
	w->errors.error_exit = on_error;
	w->errors.output_message = print_nothing;
	w->c.client_data = w;
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
	CT_TRY_ALLOC(writer = CT_NEW(struct ct_jpeg_writer));
	CT_TRY_GOTO(try_compress(writer, rgb, w, h, quality), st, done);
	*out = writer->p;
	*n = writer->cap - writer->dest.free_in_buffer;
	writer->p = NULL;
done:
	jpeg_destroy_compress(&writer->c);
	ct_free(writer->p);
	ct_free(writer);
	return st;
}
