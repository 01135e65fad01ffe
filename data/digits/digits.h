/* `ctrain data digits`: draws images that look like handwritten digits and writes them as four gzip IDX files with
 * MNIST's file names. Each digit is a set of strokes with a random affine and elastic deformation, thickness and noise,
 * all derived from a seed. The pixels are the same for any number of threads and on any machine. A linear classifier
 * gets about 94 % of them right, a small convnet 99.7 %.
 *
 * Every file says in its gzip header that it was drawn, so that a set of drawn digits can be replaced by another one and
 * a real data set is never overwritten by accident. */
#ifndef CT_DATA_DIGITS_DIGITS_H
#define CT_DATA_DIGITS_DIGITS_H

#include <stdint.h>

#include "base/status.h"

struct ct_digits_opts {
	const char *dir;
	uint32_t n_train, n_test; /* 60,000 and 10,000 */
	uint64_t seed;
	int threads; /* 0: all CPUs */
	bool force;  /* also replace files that were not drawn by ct_digits_write */
};
/* Draws the digit 0..9 into out [28*28]: ink is 255, paper 0. A sample of a seed is always the same. */
void ct_digits_draw(uint64_t seed, uint32_t sample, int digit, uint8_t *out);
/* Creates opts->dir where it is missing. Files that an earlier call wrote are replaced, each atomically. CT_USAGE, before
 * anything is written, where a file of the set exists that no such call wrote (see `force`), or where the directory has
 * a file of the set under another name, which would be read instead of the new one. */
enum ct_status ct_digits_write(const struct ct_digits_opts *opts) CT_MUST_CHECK;

#endif
