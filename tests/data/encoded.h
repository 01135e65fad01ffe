/* A data set of compressed images in memory, of many sizes, some of them bad, and loaders over it. */
#ifndef CT_TESTS_DATA_ENCODED_H
#define CT_TESTS_DATA_ENCODED_H

#include "tests/data/fixture.h"

#include "data/dataset_impl.h"
#include "data/loader/loader.h"

enum { ENCODED_N = 61, ENCODED_BATCH = 14, ENCODED_SIDE = 24 };

struct encoded_set {
	ct_dataset base;
	struct bytes *images; /* [n] */
	bool *rotten;         /* [n] fetching it fails */
	bool io;              /* ... with CT_IO: not the sample's fault */
};

/* n images from 1 x 1 on, labels i % 10; sizes, pixels and bytes are the same every time. */
struct encoded_set *encoded_open(uint32_t n);
/* Bad from now on: every second one cannot be fetched, the others are fetched cut off. */
void encoded_spoil(struct encoded_set *s, const uint32_t *samples, size_t n);
void encoded_close(struct encoded_set *s);

/* Shuffled and distorted images of ENCODED_SIDE from ENCODED_N samples, in batches of ENCODED_BATCH. */
struct ct_loader_opts encoded_options(int n_threads);
ct_loader *encoded_loader(const struct encoded_set *s, const struct ct_loader_opts *o);

/* Opens and decodes all of an image that lies in memory of its own size, so that a sanitizer sees what is read behind it. */
enum ct_status encoded_decode(ct_image_decoder *d, const void *p, size_t n);

#endif
