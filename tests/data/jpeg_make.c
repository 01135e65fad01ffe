#include "tests/data/jpeg_make.h"

#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

uint8_t picture(int x, int y, int c)
{
	unsigned noise = ((unsigned)x * 2654435761u ^ (unsigned)y * 2246822519u ^ (unsigned)c * 3266489917u) >> 27;

	switch (c) {
	case 0:
		return (uint8_t)(3 * x + noise);
	case 1:
		return (uint8_t)((x / 7 + y / 5) % 2 ? 220 - noise : 30 + noise);
	case 2:
		return (uint8_t)(255 - 2 * y - (int)noise);
	default:
		return (uint8_t)(200 + (x * y) % 50);
	}
}

uint8_t *picture_rgb(int w, int h)
{
	uint8_t *p = ct_calloc((size_t)w * (size_t)h, 3);

	assert_non_null(p);
	for (int i = 0; i < w * h * 3; i++)
		p[i] = picture(i / 3 % w, i / 3 / w, i % 3);
	return p;
}

static void set_colors(struct jpeg_compress_struct *c, const struct jpeg_spec *s)
{
	static const J_COLOR_SPACE in[] = {JCS_RGB, JCS_RGB, JCS_GRAYSCALE, JCS_CMYK, JCS_CMYK},
				   stored[] = {JCS_YCbCr, JCS_RGB, JCS_GRAYSCALE, JCS_CMYK, JCS_YCCK};

	c->in_color_space = in[s->colors];
	c->input_components = s->colors == JPEG_GRAY ? 1 : s->colors >= JPEG_CMYK ? 4 : 3;
	jpeg_set_defaults(c);
	jpeg_set_colorspace(c, stored[s->colors]);
	for (int i = 0; i < c->num_components; i++)
		c->comp_info[i].h_samp_factor = c->comp_info[i].v_samp_factor = 1;
	c->comp_info[0].h_samp_factor = s->hs ? s->hs : 1;
	c->comp_info[0].v_samp_factor = s->vs ? s->vs : 1;
}

/* DC of everything, then the first AC coefficients of the first component bit by bit and over again: each scan is
 * legal, together they are far more than any encoder makes. */
static jpeg_scan_info *many_scans(const struct jpeg_spec *s)
{
	jpeg_scan_info *scans = calloc((size_t)s->scans + 1, sizeof(*scans));

	assert_non_null(scans);
	scans[0] = (jpeg_scan_info){.comps_in_scan = 1};
	for (int i = 1; i <= s->scans; i++) {
		int k = 1 + (i - 1) % 63, bit = 10 - (i - 1) / 63;

		scans[i] = (jpeg_scan_info){
			.comps_in_scan = 1, .Ss = k, .Se = k, .Ah = bit == 10 ? 0 : bit + 1, .Al = bit};
	}
	return scans;
}

struct bytes jpeg_make(const struct jpeg_spec *s)
{
	struct jpeg_compress_struct c;
	struct jpeg_error_mgr errors;
	jpeg_scan_info *scans = NULL;
	unsigned char *out = NULL;
	unsigned long n = 0;
	struct bytes b;
	JSAMPLE *row;

	c.err = jpeg_std_error(&errors);
	jpeg_create_compress(&c);
	jpeg_mem_dest(&c, &out, &n);
	c.image_width = (JDIMENSION)s->w;
	c.image_height = (JDIMENSION)s->h;
	set_colors(&c, s);
	jpeg_set_quality(&c, s->quality ? s->quality : 90, TRUE);
	if (s->progressive)
		jpeg_simple_progression(&c);
	if (s->scans) {
		c.scan_info = scans = many_scans(s);
		c.num_scans = s->scans + 1;
	}
	c.arith_code = s->arithmetic;
	c.restart_interval = (unsigned)s->restart;
	jpeg_start_compress(&c, TRUE);
	if (s->exif) {
		struct bytes app = bytes_join((struct bytes){(uint8_t *)"Exif\0", 6},
					      (struct bytes){(uint8_t *)(uintptr_t)s->exif, s->exif_bytes});

		jpeg_write_marker(&c, JPEG_APP0 + 1, app.p, (unsigned)app.n);
		bytes_release(&app);
	}
	row = calloc((size_t)s->w, 4);
	assert_non_null(row);
	while (c.next_scanline < c.image_height) {
		for (int i = 0; i < s->w * c.input_components; i++)
			row[i] = picture(i / c.input_components, (int)c.next_scanline, i % c.input_components);
		jpeg_write_scanlines(&c, &row, 1);
	}
	jpeg_finish_compress(&c);
	jpeg_destroy_compress(&c);
	b = bytes_copy(out, n);
	free(row);
	free(scans);
	free(out);
	return b;
}
