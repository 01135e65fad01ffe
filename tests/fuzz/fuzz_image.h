/* Decodes one input of the fuzzers fuzz_jpeg and fuzz_png. */
#ifndef CT_TESTS_FUZZ_FUZZ_IMAGE_H
#define CT_TESTS_FUZZ_FUZZ_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/transform/resize.h"

#define FUZZ_CHOICES 8
/* Maximum number of pixels; larger images would only take more time. */
#define FUZZ_PIXELS (1 << 18)
#define FUZZ_OUT (64 * 64 * 3)

/* Chooses a sub-interval of [0, n): byte `a` determines its start, and byte `b` its length. */
static void fuzz_span(int n, uint8_t a, uint8_t b, int *at, int *len)
{
	*at = (int)((int64_t)n * a / 256);
	*len = 1 + (int)((int64_t)(n - *at - 1) * b / 255);
}

/* Decodes the file and resizes the image to `out`. Returns true if an image was decoded. */
static bool fuzz_decode(ct_image_decoder *d, ct_resizer *r, const uint8_t *choice, const uint8_t *file, size_t n,
			uint8_t out[FUZZ_OUT])
{
	struct ct_resize q = {.out_w = 1 + choice[4] % 64, .out_h = 1 + choice[5] % 64, .flip = choice[6] & 4};
	struct ct_image_header h;
	struct ct_pixels px;

	if (ct_image_open(d, file, n, &h) < 0)
		return false;
	if (h.w < 1 || h.h < 1 || (int64_t)h.w * h.h > FUZZ_PIXELS || h.orientation < 1 || h.orientation > 8)
		__builtin_trap();
	fuzz_span(h.w, choice[0], choice[1], &q.limits.x, &q.limits.w);
	fuzz_span(h.h, choice[2], choice[3], &q.limits.y, &q.limits.h);
	q.x = q.limits.x;
	q.y = q.limits.y;
	q.w = q.limits.w;
	q.h = q.limits.h;
	if (choice[6] & 8) /* the box is narrower than the limits, and its width is fractional */
		q.w *= (1 + choice[7]) / 256.0;
	if (ct_image_decode(d, ct_resize_window(&q), q.out_w, q.out_h, &px) < 0)
		return false;
	if (ct_resize_run(r, &q, &px, out) < 0)
		__builtin_trap();
	return true;
}

/* Copies the file to a buffer of exactly its size, and overwrites its first bytes with `magic`. If `mend` is not NULL,
 * it corrects the copy. The file is decoded twice, because the result must not depend on what the decoder did
 * before. */
static int fuzz_image(const uint8_t *data, size_t size, const char *magic, size_t n_magic,
		      void (*mend)(uint8_t *file, size_t n))
{
	struct ct_image_opts opts = {.max_pixels = FUZZ_PIXELS, .max_scans = 20};
	ct_image_decoder *d;
	ct_resizer *r;
	uint8_t *file, *out[2];
	bool there[2];

	if (size < FUZZ_CHOICES + n_magic)
		return 0;
	opts.exif = data[6] & 1;
	opts.fast = data[6] & 2;
	file = ct_calloc(size - FUZZ_CHOICES, 1);
	if (!file || ct_image_decoder_create(&opts, &d) < 0 || ct_resizer_create(&r) < 0)
		__builtin_trap();
	memcpy(file, data + FUZZ_CHOICES, size - FUZZ_CHOICES);
	memcpy(file, magic, n_magic);
	if (mend)
		mend(file, size - FUZZ_CHOICES);
	for (int i = 0; i < 2; i++) {
		out[i] = ct_calloc(FUZZ_OUT, 1);
		there[i] = fuzz_decode(d, r, data, file, size - FUZZ_CHOICES, out[i]);
	}
	if (there[0] != there[1] || memcmp(out[0], out[1], FUZZ_OUT) != 0)
		__builtin_trap();
	ct_free(out[0]);
	ct_free(out[1]);
	ct_error_clear();
	ct_image_decoder_destroy(d);
	ct_resizer_destroy(r);
	ct_free(file);
	return 0;
}

#endif
