/* The two inner loops of a resize: plain C, AVX2 and AVX-512. All give the same bytes, since they add integers. Rows of
 * the source are RGBX, rows of results RGB. */
#ifndef CT_DATA_TRANSFORM_RESIZE_KERNEL_IMPL_H
#define CT_DATA_TRANSFORM_RESIZE_KERNEL_IMPL_H

#include <stdint.h>

#include "data/image/codec.h"
#include "data/transform/resize_axis_impl.h"

#define CT_RESIZE_ROW 64    /* bytes of a row of results are rounded up to it */
#define CT_RESIZE_PIXELS 16 /* pixels across are rounded up to it */
/* Bytes of a row of n pixels with room for what `across` writes behind the last one. */
#define CT_RESIZE_PITCH(n) ((3 * ((n) + CT_RESIZE_PIXELS - 1) + 79) / CT_RESIZE_ROW * CT_RESIZE_ROW)

/* What `across` needs to know, in the order in which it reads it. The last pixel is repeated to fill the row. */
struct ct_resize_table {
	struct ct_scratch mem; /* of all below */
	int n, taps;           /* n: rounded up */
	int window;            /* of the AVX-512 kernel: source pixels that it permutes at a time */
	const int32_t *from;   /* [n], or the kernel's */
	const void *order, *k; /* the kernel's */
};

struct ct_resize_kernel {
	/* The table for an axis on rows of `width` source pixels. It keeps its memory. CT_NOMEM. */
	enum ct_status (*tabulate)(struct ct_resize_table *t, const struct ct_resize_axis *a, int width) CT_MUST_CHECK;
	/* dst[r][i] = sum over t of src[r][from[i] + t] * k[i][t], for two rows, since reading the table takes as long as
	 * the sums; dst[r] has CT_RESIZE_PITCH bytes. */
	void (*across)(const struct ct_resize_table *t, const uint8_t *const src[2], uint8_t *const dst[2]);
	/* dst[i] = sum over t of rows[t][i] * k[t] for n bytes, a multiple of CT_RESIZE_ROW. */
	void (*down)(const uint8_t *const *rows, const int32_t *k, int taps, int n, uint8_t *dst);
	int unit; /* fastest when `taps` of the axis across is a multiple of it */
};

extern const struct ct_resize_kernel ct__resize_plain;
/* The best for this processor, leaving out the `skip` best that were ever made: AVX-512 (with VNNI and VBMI), AVX2. */
const struct ct_resize_kernel *ct__resize_kernel_get(int skip);
#if defined(__x86_64__)
extern const struct ct_resize_kernel ct__resize_avx512; /* resize_kernel_avx512.c */
#endif

#endif
