/* Random numbers from the standard normal distribution, by the method of Box and Muller (1958). */
#ifndef CT_BASE_RANDOM_NORMAL_H
#define CT_BASE_RANDOM_NORMAL_H

#include "base/rng.h"

/* Returns a number that is computed from the next two of the stream. */
float ct_rng_normal(struct ct_rng *r);
/* Writes the next n of these numbers to x. They are the same as those of n calls of ct_rng_normal, but computed several
 * times as fast. */
void ct_rng_normals(struct ct_rng *r, float *x, size_t n);

#endif
