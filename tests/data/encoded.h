/* A data set of compressed images in memory, with different sizes and some bad samples, and loaders that read it. */
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
	bool io;              /* fetching fails with CT_IO, which the sample did not cause */
};

/* Makes n images of 1 x 1 and more pixels with labels i % 10. Sizes, pixels and bytes are always the same. */
struct encoded_set *encoded_open(uint32_t n);
/* Makes samples bad from now on: every second one cannot be fetched, and the others are truncated. */
void encoded_spoil(struct encoded_set *s, const uint32_t *samples, size_t n);
void encoded_close(struct encoded_set *s);

/* Options for shuffled and augmented images of side ENCODED_SIDE from ENCODED_N samples, in batches of
 * ENCODED_BATCH. */
struct ct_loader_opts encoded_options(int n_threads);
ct_loader *encoded_loader(const struct encoded_set *s, const struct ct_loader_opts *o);

/* Opens and decodes a complete image. The image is copied to memory of exactly its size, so that a sanitizer detects
 * reads past its end. */
enum ct_status encoded_decode(ct_image_decoder *d, const void *p, size_t n);

#endif
