/* Small functions for numbers. */
#ifndef CT_BASE_NUMBERS_H
#define CT_BASE_NUMBERS_H

static inline int ct_min_int(int a, int b)
{
	return a < b ? a : b;
}

/* Returns v limited to [low, high]. */
static inline double ct_clamp(double v, double low, double high)
{
	return v < low ? low : v > high ? high : v;
}

#endif
