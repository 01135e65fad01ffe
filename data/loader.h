/* The loader: a ring of batches filled ahead by threads, delivered in order. The content depends only on sampler,
 * augmentation and position, never on the number of threads. With 0 threads batches are made inside ct_loader_next.
 * No allocation after create. */
#ifndef CT_DATA_LOADER_H
#define CT_DATA_LOADER_H

#include "data/augment.h"
#include "data/dataset.h"
#include "data/sampler.h"

struct ct_loader_opts {
	struct ct_sampler sampler;
	struct ct_augment augment; /* images only */
	int n_threads;
	int depth; /* batches of the ring, >= 2; 0: 4 */
};

/* Pointers are valid until the next call of ct_loader_next, ct_loader_seek or ct_loader_destroy. */
struct ct_loader_batch {
	const void *x;           /* uint8 [n,H,W,C] or float [n,...]; 64-byte aligned */
	const int32_t *labels;   /* [n] or NULL */
	const float *targets;    /* [n,n_targets] or NULL */
	const uint32_t *samples; /* [n] data-set indices */
	uint32_t n, n_global;    /* rows here; rows of the whole step over all ranks */
	uint32_t in_batch;       /* position of row 0 in the global batch */
	uint32_t epoch;
	uint64_t step; /* of the epoch */
	uint32_t micro;
	bool last_of_step, last_of_epoch;
};

typedef struct ct_loader ct_loader;

/* A loader is used by one thread at a time. Borrows the data set. Options that cannot be: CT_CONFIG. */
enum ct_status ct_loader_create(const ct_dataset *d, const struct ct_loader_opts *opts, ct_loader **out) CT_MUST_CHECK;
void ct_loader_destroy(ct_loader *l);
/* Next batch delivered is micro-batch 0 of this step (position for a resume, O(1) but for the permutation). */
enum ct_status ct_loader_seek(ct_loader *l, uint32_t epoch, uint64_t step) CT_MUST_CHECK;
/* Goes on into the next epoch by itself. Waiting past the deadline is CT_TIMEOUT, and may be tried again; a bad sample
 * is CT_DATA naming it, and stays until a seek. With 0 threads there is nothing to wait for: the deadline is not used.
 */
enum ct_status ct_loader_next(ct_loader *l, int64_t deadline_ns, struct ct_loader_batch *out) CT_MUST_CHECK;

#endif
