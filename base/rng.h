/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11). A
 * stream is identified by (seed, purpose, a, b), and the n-th number of a stream is always the same. */
#ifndef CT_BASE_RNG_H
#define CT_BASE_RNG_H

#include <stdint.h>

#include "base/status.h"

/* Generates one block of four numbers by applying 10 rounds to the counter ctr with the key. */
void ct_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);
/* Generates 16 consecutive blocks, for values ctr[0] to ctr[0] + 15 (modulo 2^32) of the first counter word, and stores
 * them in this order. This is several times as fast as 16 calls of ct_philox4x32. */
void ct_philox4x32_x16(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[64]);

/* The purpose of a stream. Streams with different purposes are independent. Never change the value of a purpose,
 * because results depend on it. */
enum ct_rng_purpose {
	CT_RNG_PERMUTE = 1,
	CT_RNG_INIT,
	CT_RNG_AUGMENT,
	CT_RNG_DROPOUT,
	CT_RNG_SYNTH,
	CT_RNG_DIGITS,
	CT_RNG_TEST,
	CT_RNG_WINDOW, /* order of shards, and of samples within a shuffle window */
	CT_RNG_CROP,   /* random resized crop */
	CT_RNG_COLOR,
	CT_RNG_RAND_AUGMENT,
	CT_RNG_ERASE,
	CT_RNG_MIX,     /* mixup and CutMix of two samples */
	CT_RNG_REPLACE, /* replacements of unreadable samples */
	CT_RNG_SPLIT,   /* which samples are split off for evaluation */
	CT_RNG_BALANCE, /* balanced sampling */
	CT_RNG_SHOW     /* images that `ctrain data show` shows */
};

struct ct_rng {
	uint32_t key[2], ctr[4], block[4];
	unsigned used; /* how many numbers of `block` have been returned */
};
/* The key is the seed; the counter is (block number, purpose, a, b). a is usually an epoch or a layer, b a sample. */
void ct_rng_init(struct ct_rng *r, uint64_t seed, enum ct_rng_purpose purpose, uint32_t a, uint32_t b);
/* Makes the number with index n, counted from 0, the next one of the stream. This is how threads share a stream. */
void ct_rng_seek(struct ct_rng *r, uint64_t n);
uint32_t ct_rng_u32(struct ct_rng *r);
/* Returns a number that is uniformly distributed in [0, n), without bias (Lemire 2019). n must be positive. */
uint32_t ct_rng_below(struct ct_rng *r, uint32_t n);
/* Returns a number that is uniformly distributed in [0, 1), with 24 random bits. */
float ct_rng_uniform(struct ct_rng *r);
/* Writes the random permutation of 0..n-1 for (seed, epoch), computed with the Fisher-Yates algorithm, to perm [n]. */
void ct_rng_permutation(uint64_t seed, uint32_t epoch, uint32_t *perm, uint32_t n);
/* Returns the 64-bit FNV-1a hash of p [n], for streams that are identified by a name. */
uint64_t ct_hash64(const void *p, size_t n);

#endif
