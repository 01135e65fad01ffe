/* The loader: a ring of batches filled ahead by threads, delivered in order. The content depends only on sampler,
 * augmentation and position, never on the number of threads. With 0 threads batches are made inside ct_loader_next.
 * No allocation after create, but for buffers of a thread that meets a larger image, and for bad samples. */
#ifndef CT_DATA_LOADER_LOADER_H
#define CT_DATA_LOADER_LOADER_H

#include "data/loader/sampler.h"
#include "data/transform/transform.h"

/* From this epoch on, images of this size. */
struct ct_loader_size {
	uint32_t epoch;
	int h, w;
};

/* What happens to a sample that cannot be read or decoded. */
enum ct_bad_sample {
	CT_BAD_FAIL,    /* ct_loader_next fails with CT_DATA naming it, and stays so until a seek */
	CT_BAD_REPLACE, /* training: another sample takes its place, drawn from (seed, epoch, place in the epoch): the
			 * same one on every rank and after every resume */
	CT_BAD_DROP     /* evaluation: left out; the batch has fewer rows */
};

struct ct_loader_opts {
	struct ct_sampler sampler;
	struct ct_transform transform;      /* images only */
	const struct ct_loader_size *sizes; /* by rising epoch; copied. n_sizes 0: transform.h, w throughout */
	int n_sizes;
	/* Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of rows 2k and 2k+1 of the global batch, the share
	 * from Beta(alpha, alpha) drawn for each pair; 0: off. With both, each pair takes one of them at random. The
	 * result does not depend on the number of ranks or micro-batches: a pair that one of their borders cuts is made
	 * on both sides (so a batch may cost two more images). The last row of an odd batch is left alone: mix 1. */
	float mixup, cutmix;
	enum ct_bad_sample bad;
	/* REPLACE, DROP: more bad samples than this in this loader's life are CT_DATA, which stays. A sample counts once,
	 * on the ranks that came across it. */
	uint64_t max_bad;
	/* Told each bad sample once (REPLACE, DROP), from ct_loader_next; text: where it is and what is wrong. */
	void (*on_bad)(void *user, uint32_t sample, const char *text);
	void *user;
	int n_threads;
	int depth; /* batches of the ring, >= 2; 0: 4 */
};

/* Pointers are valid until the next call of ct_loader_next, ct_loader_seek or ct_loader_destroy. */
struct ct_loader_batch {
	const void *x;           /* uint8 [n,H,W,C] or float [n,...]; 64-byte aligned */
	int h, w;                /* of this batch's images */
	const int32_t *labels;   /* [n] or NULL */
	const int32_t *labels_b; /* [n] the other label of a mixed row, or NULL: nothing is mixed */
	const float *mix;        /* [n] share of `labels` in the row; 1 - mix is that of labels_b */
	const float *targets;    /* [n,n_targets] or NULL */
	const uint32_t *samples; /* [n] data-set indices */
	uint32_t n, n_global;    /* rows here; rows of the whole step over all ranks (DROP: before dropping) */
	uint32_t n_bad;          /* of the samples whose turn it was here: replaced or dropped, told before or not */
	uint32_t in_batch;       /* position of row 0 in the global batch */
	uint32_t epoch;
	uint64_t step; /* of the epoch */
	uint32_t micro;
	bool last_of_step, last_of_epoch;
};

struct ct_loader_stats { /* since create, all threads */
	struct ct_transform_times times;
	int64_t assemble_ns; /* mixing and handing over */
	int64_t wait_ns;     /* of the caller, for batches; without threads: for making them */
	uint64_t batches, bad;
	int n_threads;
};

typedef struct ct_loader ct_loader;

/* A loader is used by one thread at a time. Borrows the data set. Options that cannot be: CT_CONFIG. */
enum ct_status ct_loader_create(const ct_dataset *d, const struct ct_loader_opts *opts, ct_loader **out) CT_MUST_CHECK;
void ct_loader_destroy(ct_loader *l);
/* Next batch delivered is micro-batch 0 of this step (position for a resume, O(1) but for the permutation). */
enum ct_status ct_loader_seek(ct_loader *l, uint32_t epoch, uint64_t step) CT_MUST_CHECK;
/* Goes on into the next epoch by itself. Waiting past the deadline is CT_TIMEOUT, and may be tried again; a bad sample
 * is CT_DATA naming it, and stays until a seek; so do errors that are not the sample's fault (CT_IO, CT_NOMEM), whatever
 * becomes of bad ones. With 0 threads there is nothing to wait for: the deadline is not used.
 */
enum ct_status ct_loader_next(ct_loader *l, int64_t deadline_ns, struct ct_loader_batch *out) CT_MUST_CHECK;

void ct_loader_stats(ct_loader *l, struct ct_loader_stats *out);

#endif
