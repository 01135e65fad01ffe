/* The interface that a data set format implements. The registry of data sets is the array in dataset.c. */
#ifndef CT_DATA_DATASET_IMPL_H
#define CT_DATA_DATASET_IMPL_H

#include "base/hash/sha256.h"
#include "data/dataset.h"

struct ct_dataset_kind;

struct ct_dataset_ops {
	enum ct_status (*open)(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
			       ct_dataset **out);
	/* (optional) Reads c, h and w from the headers of the files. */
	enum ct_status (*peek)(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
			       struct ct_dataset_info *out);
	/* (optional) Checks that the files exist. */
	enum ct_status (*find)(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec);
	void (*close)(ct_dataset *d);
	/* The caller has checked that i < info.n. */
	enum ct_status (*read)(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target);
	/* Adds the content of the data set to the hash. The name, the sizes and the shape have already been added. */
	void (*digest)(const ct_dataset *d, struct ct_sha256 *h);
	/* (optional) Prefetches sample i into the operating system's page cache; the loader calls this several samples
	 * in advance. */
	void (*prefetch)(const ct_dataset *d, uint32_t i);
	/* Implemented only by ENCODED sets. The caller of `label` has checked that i < info.n. The functions describe,
	 * key, skipped and class_name are optional for all sets. */
	enum ct_status (*fetch)(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label);
	int32_t (*label)(const ct_dataset *d, uint32_t i);
	void (*describe)(const ct_dataset *d, uint32_t i, char *text, size_t len);
	void (*key)(const ct_dataset *d, uint32_t i, char *text, size_t len);
	void (*skipped)(const ct_dataset *d, uint32_t i, struct ct_refusal *out);
	const char *(*class_name)(const ct_dataset *d, int label);
};

/* A data set that the configuration key data.name can select: its format and its known properties. */
struct ct_dataset_kind {
	const char *name;
	const struct ct_dataset_ops *ops;
	int c, h, w, n_classes; /* 0: given by the spec or the files */
	float mean, std;        /* for pixel values in 0..1, the same for all channels */
	const float *channels;  /* color images: [6] the mean of each channel, then the std of each channel; NULL: use
				 * mean and std above */
	const char *const *class_names; /* [n_classes] for formats without names of classes; NULL: unknown */
	const char *fetch;              /* option of scripts/get_mnist.sh that downloads this set; NULL: none */
};

/* The first member of the struct that each format defines for its data sets. */
struct ct_dataset {
	const struct ct_dataset_ops *ops;
	const struct ct_dataset_kind *kind;
	struct ct_dataset_info info;
};

extern const struct ct_dataset_ops ct__dataset_idx_ops, ct__dataset_cifar_ops, ct__dataset_shards_ops,
	ct__dataset_imagefolder_ops, ct__dataset_synth_ops, ct__dataset_regression_ops;

/* Returns the data set with this name, or NULL if the name is unknown. */
const struct ct_dataset_kind *ct__dataset_kind_find(const char *name);

#define CT_DATASET_MAX_BYTES ((uint64_t)16 << 30)

/* Fills d->info from the kind, the number of samples and their shape. Samples are uint8 unless n_targets is set. */
void ct__dataset_init(ct_dataset *d, const struct ct_dataset_kind *kind, uint32_t n, int c, int h, int w);
static inline void ct__dataset_prefetch(const ct_dataset *d, uint32_t i)
{
	if (d->ops->prefetch)
		d->ops->prefetch(d, i);
}

#endif
