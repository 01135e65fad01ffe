/* The basic shapes of the digits. digits.c draws variations of them. */
#ifndef CT_DATA_DIGITS_STROKES_IMPL_H
#define CT_DATA_DIGITS_STROKES_IMPL_H

#include <stddef.h>
#include <stdint.h>

#define CT_DIGIT_MAX_POINTS 32

/* Control points in percent of the digit's box, y down. A stroke is a smooth curve through its points. */
struct ct_digit_point {
	int8_t x, y;
	int8_t last; /* 1: the stroke ends here */
};
struct ct_digit_shape {
	int n;
	struct ct_digit_point p[CT_DIGIT_MAX_POINTS];
};

/* Returns the *n shapes of a digit (0..9). */
const struct ct_digit_shape *ct__digit_shapes(int digit, uint32_t *n);

#endif
