/* The loader: threads prepare batches ahead of time in a ring of slots, and ct_loader_next delivers them in order. The contents depend
 * on the sampler, the augmentation and the position only, never on the number of threads. With 0 threads, ct_loader_next prepares the
 * batch itself.
 *
 * A batch stays valid until ct_loader_release gives its slot back. Its memory is host memory of a device (pinned where that matters), so
 * that a copy to the device can be posted straight from it. Release a batch when its copy has run, not when it has been posted.
 *
 * After create, the loader allocates only when a thread needs larger buffers for a larger image, and for bad samples. */
#ifndef CT_DATA_LOADER_LOADER_H
#define CT_DATA_LOADER_LOADER_H

#include "base/device/device.h"
#include "data/loader/sampler.h"
#include "data/transform/transform.h"

/* Image size from this epoch on. */
struct ct_loader_size {
	uint32_t epoch;
	int h, w;
};

/* What happens to a sample that cannot be read or decoded (a bad sample). */
enum ct_bad_sample {
	CT_BAD_FAIL, /* ct_loader_next fails with CT_DATA, names it, and keeps failing until a seek */
	CT_BAD_REPLACE, /* training: another sample takes its place. It is drawn from (seed, epoch, position in the epoch), so
			 * every rank and every resumed run draws the same one. */
	CT_BAD_DROP /* evaluation: skipped; the batch has fewer rows */
};

struct ct_loader_opts {
	struct ct_sampler sampler;
	struct ct_transform transform;      /* images only */
	const struct ct_loader_size *sizes; /* sorted by epoch; copied. n_sizes 0: transform.h and w in all epochs */
	int n_sizes;
	/* Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) of rows 2k and 2k+1 of the global batch. The share is
	 * drawn from Beta(alpha, alpha) for each pair; 0: off. If both are on, each pair gets one of them at random. The
	 * result does not depend on the number of ranks or micro-batches: a pair whose rows are in two slices is made on
	 * both sides, so a batch may cost two more images. The last row of an odd batch is not mixed (mix is 1). */
	float mixup, cutmix;
	enum ct_bad_sample bad;
	/* REPLACE, DROP: after more bad samples than this, counted from create on, ct_loader_next fails with CT_DATA, also
	 * after a seek. A sample counts once, on each rank that met it. */
	uint64_t max_bad;
	/* REPLACE, DROP: called from ct_loader_next, once for each bad sample. text: where it is and what is wrong. */
	void (*on_bad)(void *user, uint32_t sample, const char *text);
	void *user;
	int n_threads;
	int depth;         /* batches that are prepared ahead, >= 2; 0: 4. Includes one that is out. */
	int max_out;       /* batches that may be out at the same time; 0: 1. Each one more adds a slot. */
	ct_device *device; /* its host memory is used for batches; borrowed. NULL: ordinary memory */
};

/* Pointers are valid until ct_loader_release. */
struct ct_loader_batch {
	const void *x;           /* uint8 [n,H,W,C] or float [n,...]; 64-byte aligned */
	int h, w;                /* size of this batch's images */
	const int32_t *labels;   /* [n] or NULL */
	const int32_t *labels_b; /* [n] the second label of a mixed row, or NULL: no mixing */
	const float *mix;        /* [n] share of `labels` in the row; 1 - mix is the share of labels_b */
	const float *targets;    /* [n,n_targets] or NULL */
	const uint32_t *samples; /* [n] data set indices; never in memory of the device */
	uint32_t n, n_global;    /* rows in this batch; rows of the step over all ranks (DROP: before dropping) */
	uint32_t n_bad;          /* bad samples met in this batch, replaced or dropped, including known ones */
	uint32_t in_batch;       /* position of row 0 in the global batch */
	uint32_t epoch;
	uint64_t step; /* in the epoch */
	uint32_t micro;
	bool last_of_step, last_of_epoch;
	void *slot; /* private to the loader; NULL: not out */
};

struct ct_loader_stats { /* since create, all threads */
	struct ct_transform_times times;
	int64_t assemble_ns; /* mixing */
	int64_t wait_ns;     /* spent in ct_loader_next waiting for a batch; without threads: preparing it */
	uint64_t batches, bad;
	int n_threads;
};

typedef struct ct_loader ct_loader;

/* A loader is used by one thread at a time. Borrows the data set. Invalid options: CT_CONFIG. */
enum ct_status ct_loader_create(const ct_dataset *d, const struct ct_loader_opts *opts, ct_loader **out) CT_MUST_CHECK;
/* Batches may be out: their memory is freed. NULL is allowed. */
void ct_loader_destroy(ct_loader *l);
/* The next batch delivered is micro-batch 0 of this step. Takes constant time, but the order of a new epoch is computed again.
 * CT_BUG while a batch is out. */
enum ct_status ct_loader_seek(ct_loader *l, uint32_t epoch, uint64_t step) CT_MUST_CHECK;
/* Delivers the next batch and continues with the next epoch after the last one of an epoch. CT_BUG when max_out batches are out.
 * CT_TIMEOUT after the deadline; the call may be repeated. A bad sample is CT_DATA and names it, until a seek. So are errors that are not
 * the sample's fault (CT_IO, CT_NOMEM), however bad samples are treated. With 0 threads the deadline is not used. On failure *out is zero. */
enum ct_status ct_loader_next(ct_loader *l, int64_t deadline_ns, struct ct_loader_batch *out) CT_MUST_CHECK;
/* Gives the batch's slot back to the loader, in any order, and sets the batch's pointers to NULL; its numbers stay. A batch that is not
 * out (zeroed, or released before) is allowed. */
void ct_loader_release(ct_loader *l, struct ct_loader_batch *b);

void ct_loader_stats(ct_loader *l, struct ct_loader_stats *out);

#endif
