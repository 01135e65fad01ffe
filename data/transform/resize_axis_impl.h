/* One direction of a resize: which source pixels make which pixel of the result, and how much of each. The triangle
 * filter as Pillow computes it (Resample.c, precompute_coeffs), in fixed point, so that results do not depend on the
 * order of summation. */
#ifndef CT_DATA_TRANSFORM_RESIZE_AXIS_IMPL_H
#define CT_DATA_TRANSFORM_RESIZE_AXIS_IMPL_H

#include <stdint.h>

#include "base/status.h"

#define CT_RESIZE_BITS 22 /* after the point: 32 less 8 of the pixel, a sign and a bit for sums over one */

struct ct_resize_axis {
	int n;         /* pixels of the result */
	int taps;      /* weights of each, the same number for all: some are zero */
	int32_t *from; /* [n] source pixel of the first weight, counted from lo */
	int32_t *k;    /* [n][taps] */
	size_t cap_n, cap_k;
};

/* Source interval [at, at + len) becomes n pixels, only [lo, hi) having any weight, 0 <= lo; backwards when `mirror`. All
 * pixels that the weights belong to, those of zeros too, are in [lo, hi). The number of taps is a multiple of `unit`
 * where hi - lo allows it. The tables keep their memory. CT_NOMEM. */
enum ct_status ct__resize_axis_set(struct ct_resize_axis *a, double at, double len, int lo, int hi, int n, bool mirror,
				   int unit) CT_MUST_CHECK;
void ct__resize_axis_release(struct ct_resize_axis *a);
/* First pixel that has a weight, and the one behind the last. */
void ct__resize_axis_range(double at, double len, int lo, int hi, int n, int *first, int *end);

#endif
