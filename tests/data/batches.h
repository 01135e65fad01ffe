/* Reads the batches of a loader one at a time. */
#ifndef CT_TESTS_DATA_BATCHES_H
#define CT_TESTS_DATA_BATCHES_H

#include "base/clock.h"
#include "data/loader/loader.h"

/* Releases b (zeroed before the first call) and waits for the next batch. */
static inline enum ct_status next_batch(ct_loader *l, struct ct_loader_batch *b)
{
	ct_loader_release(l, b);
	return ct_loader_next(l, CT_FOREVER, b);
}

#endif
