/* Selects the samples of each rank. The results depend only on (seed, epoch, step), so a checkpoint stores only the
 * step, and no state has to be updated when an epoch begins. Each epoch has one global permutation. It is cut into
 * global batches, each global batch is cut into one slice per rank, and each slice into micro-batches (gradient
 * accumulation). The global batches are therefore the same for every world size. */
#ifndef CT_DATA_LOADER_SAMPLER_H
#define CT_DATA_LOADER_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

struct ct_sampler {
	uint32_t n;            /* number of samples in the data set */
	uint32_t global_batch; /* number of samples in an optimizer step, over all ranks and micro-batches */
	uint32_t world, rank, accumulate;
	uint64_t seed;
	bool shuffle, drop_last;
	/* window > 0: the groups (shards) are shuffled, and then the samples of `window` successive groups are shuffled
	 * together. Reads are then sequential, which suits slow disks. 0: one permutation of all samples. The array
	 * group_first [n_groups + 1], whose values go from 0 to n, is borrowed; NULL: one group. */
	uint32_t window, n_groups;
	const uint32_t *group_first;
	/* balanced: every class that has samples occurs equally often in an epoch, up to one sample. An epoch still has
	 * n samples: those of small classes occur several times, and of those of large classes, a part is drawn at
	 * random. Samples by_class[class_first[k]] to by_class[class_first[k + 1] - 1] are those of class k. The arrays
	 * [n] and [n_classes + 1] are borrowed; ct_class_order_make (data/loader/class_order.h) makes them. */
	bool balanced;
	int n_classes;
	const uint32_t *by_class, *class_first;
};

struct ct_sampler_slice {
	uint32_t first;    /* position of the micro-batch's first sample in the epoch's permutation */
	uint32_t count;    /* may be 0 in the last step of an epoch */
	uint32_t in_batch; /* position of the first sample inside the global batch */
	uint32_t n_global; /* number of samples in the step over all ranks: the divisor of the mean */
};

/* Fails with CT_CONFIG and the reason if s is invalid: a number is 0, the rank is not below the world size, a batch has
 * fewer samples than there are ranks, or drop_last leaves no step. Call the functions below only after this has
 * succeeded. */
enum ct_status ct_sampler_check(const struct ct_sampler *s) CT_MUST_CHECK;
/* Returns the number of steps per epoch (0 only if drop_last leaves none). */
uint64_t ct_sampler_steps(const struct ct_sampler *s);
/* Returns the largest number of samples in a micro-batch of any rank. */
uint32_t ct_sampler_max_rows(const struct ct_sampler *s);
/* Returns the slice of rank s->rank for the given step of an epoch and the given micro-batch. If a batch cannot be
 * divided evenly, the lower ranks and the earlier micro-batches get one more sample. */
struct ct_sampler_slice ct_sampler_slice(const struct ct_sampler *s, uint64_t step, uint32_t micro);
/* Writes the sample order of the epoch to perm [n]: a random permutation, the identity if `shuffle` is false, or, if
 * `balanced` is true, a random order in which samples may be missing or occur several times. */
void ct_sampler_order(const struct ct_sampler *s, uint32_t epoch, uint32_t *perm);
/* Returns the seed of the augmentation of the sample at a position of the order of an epoch. With balanced sampling, a
 * sample may occur several times in an epoch, and is augmented differently each time. */
uint64_t ct_sampler_augment_seed(const struct ct_sampler *s, uint64_t position);

#endif
