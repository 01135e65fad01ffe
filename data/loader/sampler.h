/* Which samples a rank sees, as pure functions of (seed, epoch, step): nothing to save but the step, nothing to set
 * each epoch. One global permutation per epoch is cut into global batches, each of those into rank slices, each of
 * those into micro-batches (gradient accumulation). So any world size sees the same global batches. */
#ifndef CT_DATA_LOADER_SAMPLER_H
#define CT_DATA_LOADER_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

struct ct_sampler {
	uint32_t n;            /* samples of the data set */
	uint32_t global_batch; /* samples of an optimizer step over all ranks and micro-batches */
	uint32_t world, rank, accumulate;
	uint64_t seed;
	bool shuffle, drop_last;
	/* window > 0: groups (shards) are shuffled, then samples inside every `window` groups in that order:
	 * sequential reads for slow disks. 0: one permutation of everything. Borrowed; [n_groups + 1], from 0 to n;
	 * NULL: one group. */
	uint32_t window, n_groups;
	const uint32_t *group_first;
};

struct ct_sampler_slice {
	uint32_t first;    /* position in the epoch's permutation of this micro-batch's first sample */
	uint32_t count;    /* may be 0 in the last step of an epoch */
	uint32_t in_batch; /* position of the first sample inside the global batch */
	uint32_t n_global; /* samples of the whole step over all ranks: the divisor of the mean */
};

/* CT_CONFIG with the reason when no training step can come out of s: a number is 0, rank outside the world, more ranks
 * than samples in a batch, or drop_last leaves nothing. The functions below may be called only after this said yes. */
enum ct_status ct_sampler_check(const struct ct_sampler *s) CT_MUST_CHECK;
/* Steps of an epoch (0 only when drop_last leaves nothing). */
uint64_t ct_sampler_steps(const struct ct_sampler *s);
/* Most samples that a micro-batch of any rank can have. */
uint32_t ct_sampler_max_rows(const struct ct_sampler *s);
/* Slice of (step of the epoch, micro-batch) for s->rank. An uneven last batch gives the lower ranks (and the earlier
 * micro-batches) one more each. */
struct ct_sampler_slice ct_sampler_slice(const struct ct_sampler *s, uint64_t step, uint32_t micro);
/* The epoch's order: perm [n]. Identity without shuffle. */
void ct_sampler_order(const struct ct_sampler *s, uint32_t epoch, uint32_t *perm);

#endif
