/* Data sets behind one table: open, read a sample by index, digest. Any number of threads may read one set at once, and
 * different sets may be opened at once. Registry: the array in dataset.c. */
#ifndef CT_DATA_DATASET_H
#define CT_DATA_DATASET_H

#include <stdint.h>

#include "base/status.h"

enum ct_sample_kind { CT_SAMPLE_U8_HWC, CT_SAMPLE_F32 };

struct ct_dataset_spec {
	const char *name; /* "mnist", "fashion_mnist", "idx", "synthetic", "synthetic_regression" */
	const char *dir;  /* folder of the files */
	/* IDX: prefix of the file names ("train", "t10k"; NULL: as `train` says), or a path prefix:
	 * PREFIX-images-idx3-ubyte[.gz] and PREFIX-labels-idx1-ubyte[.gz]; '.' instead of '-' before idx is accepted.
	 */
	const char *split;
	bool train;         /* synthetic: which half of the stream */
	uint32_t n;         /* synthetic: number of samples */
	int c, h, w;        /* synthetic: shape; IDX: expected shape, 0 = any */
	int n_classes;      /* synthetic; IDX: labels must be below it (0: 10) */
	int n_targets;      /* synthetic_regression */
	uint64_t seed;      /* synthetic */
	uint64_t max_bytes; /* refuse data sets that would take more memory; 0: 16 GiB */
};

struct ct_dataset_info {
	char name[32];
	uint32_t n;
	enum ct_sample_kind kind;
	int c, h, w;
	int n_classes;         /* 0: regression */
	int n_targets;         /* 0: class labels */
	size_t sample_bytes;   /* of x */
	float mean[4], std[4]; /* usual normalisation of pixels in 0..1 */
	bool in_memory;
	uint64_t bytes; /* memory held */
};

typedef struct ct_dataset ct_dataset;

/* Missing files: CT_NOT_FOUND that names the file and both ways to get it; malformed ones: CT_DATA with path and what
 * is wrong; an unknown name or a wrong number: CT_CONFIG. Files are checked whole before this returns. */
enum ct_status ct_dataset_open(const struct ct_dataset_spec *spec, ct_dataset **out) CT_MUST_CHECK;
void ct_dataset_close(ct_dataset *d);
const struct ct_dataset_info *ct_dataset_info(const ct_dataset *d);
/* Sample i: x gets info.sample_bytes; label (class) or target [n_targets], whichever the set has; either may be NULL.
 */
enum ct_status ct_dataset_read(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target) CT_MUST_CHECK;
/* Hex digest of the content (CRC-32s and sizes are enough), to compare ranks and to bind a checkpoint to its data. */
void ct_dataset_digest(const ct_dataset *d, char hex[65]);
/* Registry walk: NULL past the end. */
const char *ct_dataset_name_at(size_t i);

#endif
