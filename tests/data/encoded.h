/* A data set in memory that contains compressed images of different sizes and some bad samples, and loaders that read
 * it. */
#ifndef CT_TESTS_DATA_ENCODED_H
#define CT_TESTS_DATA_ENCODED_H

#include "tests/data/fixture.h"

#include "data/dataset_impl.h"
#include "data/loader/loader.h"

enum { ENCODED_N = 61, ENCODED_BATCH = 14, ENCODED_SIDE = 24 };

struct encoded_set {
	ct_dataset base;
	struct bytes *images; /* [n] */
	bool *rotten;         /* [n] true if fetching the image fails */
	bool io;              /* every fetch fails with CT_IO, an error that the sample has not caused */
};

/* Creates a set of n images of 1 x 1 or more pixels. The label of image i is i % 10. The sizes, pixels and bytes are
 * the same in every run. */
struct encoded_set *encoded_open(uint32_t n);
/* Makes the n given samples bad from now on: every second one cannot be fetched, and the others are truncated. */
void encoded_spoil(struct encoded_set *s, const uint32_t *samples, size_t n);
void encoded_close(struct encoded_set *s);

/* Returns options for a loader that shuffles and augments ENCODED_N samples and delivers images of ENCODED_SIDE x
 * ENCODED_SIDE pixels in batches of ENCODED_BATCH. */
struct ct_loader_opts encoded_options(int n_threads);
ct_loader *encoded_loader(const struct encoded_set *s, const struct ct_loader_opts *o);

/* Opens and decodes a complete image. The compressed bytes are first copied to memory of exactly their size, so that a
 * sanitizer detects reads past the end. */
enum ct_status encoded_decode(ct_image_decoder *d, const void *p, size_t n);

#endif
