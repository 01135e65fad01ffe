/* Which samples a rank gets, as pure functions of (seed, epoch, step): a checkpoint stores only the step, and nothing needs to be set
 * for an epoch. One global permutation per epoch is cut into global batches, each of them into one slice per rank, and each slice into
 * micro-batches (gradient accumulation). So the global batches are the same for every world size. */
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
	/* window > 0: the groups (shards) are shuffled, then the samples of each `window` groups in that order, which makes
	 * reads sequential for slow disks. 0: one permutation of all samples. group_first [n_groups + 1], from 0 to n, is
	 * borrowed; NULL: one group. */
	uint32_t window, n_groups;
	const uint32_t *group_first;
};

struct ct_sampler_slice {
	uint32_t first;    /* position in the epoch's permutation of this micro-batch's first sample */
	uint32_t count;    /* may be 0 in the last step of an epoch */
	uint32_t in_batch; /* position of the first sample inside the global batch */
	uint32_t n_global; /* samples of the whole step over all ranks: the divisor of the mean */
};

/* CT_CONFIG with the reason if s does not describe training steps: a number is 0, the rank is outside of the world, there are more
 * ranks than samples in a batch, or drop_last leaves no step. The functions below may be called only after this has succeeded. */
enum ct_status ct_sampler_check(const struct ct_sampler *s) CT_MUST_CHECK;
/* Steps of an epoch (0 only if drop_last leaves none). */
uint64_t ct_sampler_steps(const struct ct_sampler *s);
/* The largest number of samples in a micro-batch of any rank. */
uint32_t ct_sampler_max_rows(const struct ct_sampler *s);
/* Slice of (step of the epoch, micro-batch) for s->rank. If the last batch cannot be divided evenly, the lower ranks and the earlier
 * micro-batches get one sample more. */
struct ct_sampler_slice ct_sampler_slice(const struct ct_sampler *s, uint64_t step, uint32_t micro);
/* The epoch's order: perm [n]. Identity without shuffle. */
void ct_sampler_order(const struct ct_sampler *s, uint32_t epoch, uint32_t *perm);

#endif
