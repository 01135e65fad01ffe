/* The batches of which ct_rng_normals consists. */
#ifndef CT_BASE_RANDOM_NORMAL_IMPL_H
#define CT_BASE_RANDOM_NORMAL_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_RNG_BATCH 32 /* normal numbers of 16 blocks */

/* Computes a normal number from two numbers of a stream. */
float ct__rng_normal(uint32_t a, uint32_t b);

/* Computes x[i] = ct__rng_normal(a[i], b[i]). Returns false if some of these values are not known to be the same, and
 * must be computed one by one. */
typedef bool (*ct_rng_batch_fn)(const uint32_t a[CT_RNG_BATCH], const uint32_t b[CT_RNG_BATCH], float x[CT_RNG_BATCH]);

/* Returns function i of those that this CPU can run, in order of decreasing vector width, or NULL if there is no
 * function i. Use function 0; the others are for tests. */
ct_rng_batch_fn ct__rng_batch_at(size_t i);

#endif
