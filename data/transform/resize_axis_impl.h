/* One direction of a resize: which source pixels contribute to which result pixel, and with what weight. The
 * triangle filter is computed as in Pillow (Resample.c, precompute_coeffs), in fixed point, so that results do not
 * depend on the order of summation. */
#ifndef CT_DATA_TRANSFORM_RESIZE_AXIS_IMPL_H
#define CT_DATA_TRANSFORM_RESIZE_AXIS_IMPL_H

#include <stdint.h>

#include "base/status.h"

/* Fraction bits: 32, minus 8 for the pixel, 1 for the sign, and 1 because sums of weights may exceed one. */
#define CT_RESIZE_BITS 22

struct ct_resize_axis {
	int n;         /* pixels of the result */
	int taps;      /* weights per result pixel, the same number for all; some are zero */
	int32_t *from; /* [n] source pixel of the first weight, relative to lo */
	int32_t *k;    /* [n][taps] */
	size_t cap_n, cap_k;
};

/* Maps the source interval [at, at + len) to n pixels, in reverse order if `mirror`. The tables refer only to pixels in
 * [lo, hi), even where the weight is zero; lo is at least 0. The number of taps is a multiple of `unit` if hi - lo
 * allows it. The memory of the tables is reused. Fails with CT_NOMEM. */
enum ct_status ct__resize_axis_set(struct ct_resize_axis *a, double at, double len, int lo, int hi, int n, bool mirror,
				   int unit) CT_MUST_CHECK;
void ct__resize_axis_release(struct ct_resize_axis *a);
/* Computes the first pixel with a weight, and the one after the last. */
void ct__resize_axis_range(double at, double len, int lo, int hi, int n, int *first, int *end);

#endif
