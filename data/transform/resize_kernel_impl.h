/* The two inner loops of a resize: plain C, AVX2 and AVX-512. All give the same bytes, because they sum integers.
 * Source rows are RGBX, result rows RGB. */
#ifndef CT_DATA_TRANSFORM_RESIZE_KERNEL_IMPL_H
#define CT_DATA_TRANSFORM_RESIZE_KERNEL_IMPL_H

#include <stdint.h>

#include "data/image/codec.h"
#include "data/transform/resize_axis_impl.h"

#define CT_RESIZE_ROW 64    /* the size of a result row in bytes is rounded up to a multiple of this */
#define CT_RESIZE_PIXELS 16 /* the number of pixels that `across` computes is rounded up to a multiple of this */
/* Size of a row of n pixels in bytes, with room for the extra bytes that `across` writes. */
#define CT_RESIZE_PITCH(n) ((3 * ((n) + CT_RESIZE_PIXELS - 1) + 79) / CT_RESIZE_ROW * CT_RESIZE_ROW)

/* Tables for `across`, in the order in which it reads them. The last pixel is repeated to fill the row. */
struct ct_resize_table {
	struct ct_scratch mem; /* owns all arrays below */
	int n, taps;           /* n: the number of pixels, rounded up */
	int window;            /* AVX-512 kernel: source pixels that it permutes at a time */
	const int32_t *from;   /* [n], or in the kernel's format */
	const void *order, *k; /* in the kernel's format */
};

struct ct_resize_kernel {
	/* Builds the table of an axis for rows of `width` source pixels. The memory of the table is reused. Fails with
	 * CT_NOMEM. */
	enum ct_status (*tabulate)(struct ct_resize_table *t, const struct ct_resize_axis *a, int width) CT_MUST_CHECK;
	/* dst[r][i] = sum over t of src[r][from[i] + t] * k[i][t]. Computes two rows at a time, because reading the
	 * table takes as long as computing the sums. dst[r] has CT_RESIZE_PITCH bytes. */
	void (*across)(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2]);
	/* dst[i] = sum over t of rows[t][i] * k[t] for n bytes, a multiple of CT_RESIZE_ROW. */
	void (*down)(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst);
	int unit; /* the kernel is fastest if `taps` of the horizontal axis is a multiple of this */
};

extern const struct ct_resize_kernel ct__resize_plain;
/* Returns the best kernel that this CPU supports: AVX-512 (with VNNI and VBMI), AVX2 or plain C. The `skip` best ones
 * are excluded; tests use this to select the others. */
const struct ct_resize_kernel *ct__resize_kernel_get(int skip);
#if defined(__x86_64__)
extern const struct ct_resize_kernel ct__resize_avx512; /* resize_kernel_avx512.c */
#endif

#endif
