/* The basic shapes of the digits. digits.c draws variations of them. */
#ifndef CT_DATA_DIGITS_STROKES_IMPL_H
#define CT_DATA_DIGITS_STROKES_IMPL_H

#include <stddef.h>
#include <stdint.h>

#define CT_DIGIT_MAX_POINTS 32

/* Control points as percentages of the width and height of the digit's bounding box; y increases downwards. A stroke is
 * a smooth curve through its control points. */
struct ct_digit_point {
	int8_t x, y;
	int8_t last; /* 1: the stroke ends here */
};
struct ct_digit_shape {
	int n;
	struct ct_digit_point p[CT_DIGIT_MAX_POINTS];
};

/* Returns an array of the basic shapes of a digit (0..9) and stores their number in *n. */
const struct ct_digit_shape *ct__digit_shapes(int digit, uint32_t *n);

#endif
