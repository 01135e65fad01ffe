/* The loader: threads prepare batches ahead of time in a ring of slots, and ct_loader_next delivers them in order. The
 * contents of a batch depend only on the sampler, the augmentation and the position of the batch, never on the number
 * of threads. With 0 threads, ct_loader_next prepares the batch itself.
 *
 * A batch stays valid until ct_loader_release returns its slot to the ring. Batches are stored in host memory that the
 * device allocates (pinned if the device benefits from it), so copies to the device can be posted directly from them.
 * Release a batch only after the copy has completed: having posted it is not enough.
 *
 * Instead of pixels, the loader can deliver descriptions of the rows (opts.describe), from which a device computes the
 * pixels. All random numbers are the same.
 *
 * After ct_loader_create, the loader allocates memory only for bad samples, and when a larger image needs larger
 * buffers. */
#ifndef CT_DATA_LOADER_LOADER_H
#define CT_DATA_LOADER_LOADER_H

#include "base/device/device.h"
#include "data/loader/sampler.h"
#include "data/transform/transform.h"

/* The image size that applies from this epoch on. */
struct ct_loader_size {
	uint32_t epoch;
	int h, w;
};

/* What to do with a bad sample, that is, one that cannot be read or decoded. */
enum ct_bad_sample {
	CT_BAD_FAIL,    /* ct_loader_next fails with CT_DATA, names the sample, and keeps failing until a seek */
	CT_BAD_REPLACE, /* training: another sample takes its place. The replacement is drawn at random, keyed by (seed,
			 * epoch, position in the epoch), so every rank and every resumed run draws the same one. */
	CT_BAD_DROP     /* evaluation: the sample is skipped, and the batch has fewer rows */
};

struct ct_loader_opts {
	struct ct_sampler sampler;
	struct ct_transform transform;      /* images only */
	const struct ct_loader_size *sizes; /* copied; sorted by epoch. n_sizes 0: always the size in transform */
	int n_sizes;
	/* Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of rows 2k and 2k+1 of the global batch. The values
	 * are those of alpha: the share of each pair is drawn from Beta(alpha, alpha). 0: off. If both are on, one of
	 * them is chosen at random for each pair. The result does not depend on the number of ranks or micro-batches:
	 * if the two rows of a pair are in different slices, both slices compute the pair. A batch may therefore need
	 * up to two additional images. The last row of an odd batch is not mixed (its mix is 1). */
	float mixup, cutmix;
	/* Deliver descriptions of rows (batch.rows) instead of pixels. Fails unless ct_transform_why_not_described
	 * returns NULL. */
	bool describe;
	enum ct_bad_sample bad;
	/* REPLACE, DROP: limit on the number of bad samples since ct_loader_create. When it is exceeded, ct_loader_next
	 * fails with CT_DATA, even after a seek. Each rank counts each bad sample once. */
	uint64_t max_bad;
	/* REPLACE, DROP: a bit for each sample that is known to be bad, [n / 32 + 1], zeroed by the caller. It is
	 * borrowed, and may be kept for further loaders of the same data set, which then do not read these samples
	 * again. NULL: the loader has its own. */
	_Atomic uint32_t *known_bad;
	/* REPLACE, DROP: ct_loader_next calls this once for each bad sample. `text` describes where the sample is
	 * stored and why it is bad; it is empty if another loader has found the sample. */
	void (*on_bad)(void *user, uint32_t sample, const char *text);
	void *user;
	int n_threads;
	int depth;         /* batches that are prepared in advance, including one that is out; at least 2; 0: 4 */
	int max_out;       /* batches that may be out (delivered, but not released yet) at the same time; 0: 1. Each
			    * additional one adds a slot. */
	ct_device *device; /* its host memory is used for batches; borrowed. NULL: ordinary memory */
};

/* Pointers are valid until ct_loader_release. */
struct ct_loader_batch {
	const void *x; /* uint8 [n,H,W,C] or float [n,...]; 64-byte aligned; NULL with opts.describe */
	const struct ct_image_row *rows; /* [n] with opts.describe, otherwise NULL */
	int h, w;                        /* size of this batch's images */
	const int32_t *labels;           /* [n] or NULL */
	const int32_t *labels_b;         /* [n] the second label of a mixed row, or NULL: no mixing */
	const float *mix;                /* [n] share of `labels` in the row; 1 - mix is the share of labels_b */
	const float *targets;            /* [n,n_targets] or NULL */
	const uint32_t *samples;         /* [n] data set indices; always in ordinary memory */
	uint32_t n, n_global; /* rows in this batch; rows of the step over all ranks (DROP: before dropping) */
	uint32_t n_bad;       /* bad samples in this batch, replaced or dropped, including those that were already
			       * known */
	uint32_t in_batch;    /* position of row 0 in the global batch */
	uint32_t epoch;
	uint64_t step; /* counted from the start of the epoch */
	uint32_t micro;
	bool last_of_step, last_of_epoch;
	void *slot; /* private to the loader; NULL if the batch is not out */
};

struct ct_loader_stats { /* since create, for all threads */
	struct ct_transform_times times;
	int64_t assemble_ns; /* time spent on mixing images */
	int64_t wait_ns;     /* time spent in ct_loader_next waiting for a batch or, without threads, preparing it */
	uint64_t batches, bad;
	int n_threads;
};

typedef struct ct_loader ct_loader;

/* A loader may be used by one thread at a time. Borrows the data set. Fails with CT_CONFIG if an option is invalid. */
enum ct_status ct_loader_create(const ct_dataset *d, const struct ct_loader_opts *opts, ct_loader **out) CT_MUST_CHECK;
/* Also frees the memory of batches that are still out. NULL is allowed. */
void ct_loader_destroy(ct_loader *l);
/* Makes micro-batch 0 of this step the next batch to deliver. Takes constant time, except that the order of a new epoch
 * must be computed. Fails with CT_BUG if a batch is out. */
enum ct_status ct_loader_seek(ct_loader *l, uint32_t epoch, uint64_t step) CT_MUST_CHECK;
/* Delivers the next batch. The last batch of an epoch is followed by the first batch of the next epoch. Fails with
 * CT_BUG if max_out batches have not been released. Fails with CT_TIMEOUT after the deadline; the call may then be
 * repeated. With 0 threads, the deadline is ignored. With CT_BAD_FAIL, fails with CT_DATA if a sample is unreadable;
 * the message names the sample. Errors that are not caused by a sample (CT_IO, CT_NOMEM) are returned for every value
 * of opts.bad. After either kind of error, every call fails with it until ct_loader_seek is called. On failure, *out is
 * zeroed. */
enum ct_status ct_loader_next(ct_loader *l, int64_t deadline_ns, struct ct_loader_batch *out) CT_MUST_CHECK;
/* Returns the batch's slot to the loader and sets the batch's pointers to NULL; its other fields do not change. Batches
 * may be released in any order. Does nothing if the batch is not out (zeroed, or already released). */
void ct_loader_release(ct_loader *l, struct ct_loader_batch *b);

void ct_loader_stats(ct_loader *l, struct ct_loader_stats *out);

#endif
