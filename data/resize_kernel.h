/* The two inner loops of a resize, on rows of RGBX pixels: plain C, AVX2 and AVX-512. All give the same bytes, since
 * they add integers. Rows of results are CT_RESIZE_ROW bytes apart or a multiple of it, and filled up to that. */
#ifndef CT_DATA_RESIZE_KERNEL_H
#define CT_DATA_RESIZE_KERNEL_H

#include <stdint.h>

#define CT_RESIZE_ROW 64
#define CT_RESIZE_PIXELS 4 /* made at a time: what n is rounded up to */

struct ct_resize_kernel {
	/* dst[i] = sum over t of src[from[i] + t] * k[i][t] for n pixels, a multiple of CT_RESIZE_PIXELS. k holds each
	 * weight four times, once a channel. */
	void (*across)(const uint8_t *src, const int32_t *from, const int32_t *k, int n, int taps, uint8_t *dst);
	/* dst[i] = sum over t of rows[t][i] * k[t] for n bytes, a multiple of CT_RESIZE_ROW. */
	void (*down)(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst);
	int unit; /* fastest when `taps` of across is a multiple of it */
};

extern const struct ct_resize_kernel ct_resize_plain;
/* The best for this processor, leaving out the `skip` best that were ever made: AVX-512, AVX2. */
const struct ct_resize_kernel *ct_resize_kernel_get(int skip);

#endif
