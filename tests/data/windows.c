#include "tests/data/windows.h"

#include <stdlib.h>
#include <string.h>

ct_image_decoder *windows_decoder(struct ct_image_opts opts)
{
	ct_image_decoder *d;

	assert_ok(ct_image_decoder_create(&opts, &d));
	return d;
}

struct ct_image_header windows_open(ct_image_decoder *d, struct bytes b)
{
	struct ct_image_header h;

	assert_ok(ct_image_open(d, b.p, b.n, &h));
	return h;
}

uint8_t *windows_decode(ct_image_decoder *d, struct ct_box w)
{
	struct ct_pixels px;
	uint8_t *rgb = malloc((size_t)w.w * (size_t)w.h * 3);

	assert_non_null(rgb);
	assert_ok(ct_image_decode(d, w, 0, 0, &px));
	assert_int_equal(px.scale, 1);
	assert_memory_equal(&px.box, &w, sizeof(w));
	for (int y = 0; y < w.h; y++) {
		for (int x = 0; x < w.w; x++)
			memcpy(rgb + ((size_t)y * (size_t)w.w + (size_t)x) * 3, px.rgbx + (size_t)y * px.pitch + 4 * x,
			       3);
	}
	return rgb;
}

uint8_t *windows_whole(ct_image_decoder *d, struct bytes b, struct ct_image_header *h)
{
	*h = windows_open(d, b);
	return windows_decode(d, (struct ct_box){0, 0, h->w, h->h});
}

struct ct_box windows_random(struct ct_rng *rng, int w, int h)
{
	struct ct_box b;

	b.x = (int)ct_rng_below(rng, (uint32_t)w);
	b.y = (int)ct_rng_below(rng, (uint32_t)h);
	b.w = 1 + (int)ct_rng_below(rng, (uint32_t)(w - b.x));
	b.h = 1 + (int)ct_rng_below(rng, (uint32_t)(h - b.y));
	return b;
}

void windows_check(ct_image_decoder *d, struct bytes file, struct bytes whole_file, int n, struct ct_rng *rng)
{
	struct ct_image_header h;
	uint8_t *whole = windows_whole(d, whole_file, &h);

	for (int i = 0; i < n; i++) {
		struct ct_box b = windows_random(rng, h.w, h.h);
		uint8_t *part;

		windows_open(d, file);
		part = windows_decode(d, b);
		for (int y = 0; y < b.h; y++)
			assert_memory_equal(part + (size_t)(y * b.w) * 3,
					    whole + ((size_t)(b.y + y) * (size_t)h.w + (size_t)b.x) * 3,
					    (size_t)b.w * 3);
		free(part);
	}
	free(whole);
}
