/* A data set of compressed images in memory, of many sizes, some of them bad. */
#ifndef CT_TESTS_DATA_ENCODED_H
#define CT_TESTS_DATA_ENCODED_H

#include "tests/data/fixture.h"

#include "data/dataset_impl.h"

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

#endif
