/* `ctrain data digits`: draws images that look like handwritten digits and writes them as four gzip IDX files with
 * MNIST's file names. Each digit is a set of strokes with a random affine and elastic deformation, thickness and noise,
 * all derived from a seed. The pixels are the same for any number of threads and on any machine. A linear classifier
 * classifies about 94 % of them correctly, and a small convnet 99.7 %.
 *
 * A comment in the gzip header marks each file as drawn. This allows drawn digits to be replaced, while a real data set
 * is never overwritten by accident. */
#ifndef CT_DATA_DIGITS_DIGITS_H
#define CT_DATA_DIGITS_DIGITS_H

#include <stdint.h>

#include "base/status.h"

struct ct_digits_opts {
	const char *dir;
	uint32_t n_train, n_test; /* MNIST: 60,000 and 10,000 */
	uint64_t seed;
	int threads; /* 0: all CPUs */
	bool force;  /* also replace files that were not drawn by ct_digits_write */
};
/* Draws a digit (0..9) into out [28*28]; the strokes have the value 255 and the background 0. The same arguments always
 * give the same image. */
void ct_digits_draw(uint64_t seed, uint32_t sample, int digit, uint8_t *out);
/* Writes the four files, each atomically. Creates opts->dir if it does not exist, and replaces files that an earlier
 * call has written. Fails with CT_USAGE, before anything is written, in two cases: a file to be replaced was not
 * written by this function (see `force`), or the directory contains a file of the data set under an alternative name,
 * which would be read instead of the new file. */
enum ct_status ct_digits_write(const struct ct_digits_opts *opts) CT_MUST_CHECK;

#endif
