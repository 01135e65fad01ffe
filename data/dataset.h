/* Data sets: open one, read a sample by index, compute a digest. Different threads may read one set at the same
 * time, and several sets may be open. The registry is the array in dataset.c. */
#ifndef CT_DATA_DATASET_H
#define CT_DATA_DATASET_H

#include <stdint.h>

#include "base/status.h"

/* ENCODED: compressed images of different sizes, read with ct_dataset_fetch and data/transform/transform.h. */
enum ct_sample_kind { CT_SAMPLE_U8_HWC, CT_SAMPLE_F32, CT_SAMPLE_ENCODED };

struct ct_dataset_spec {
	const char *name; /* a name in the registry (dataset.c) */
	const char *dir;  /* directory of the files */
	/* shards: brace lists and globs ("train-{000000..000999}.tar"), separated by spaces, relative to dir.
	 * imagefolder: directory with one sub-directory per class (or a flat one), relative to dir. NULL: `train` or
	 * `val`. */
	const char *path;
	/* shards: directory for cached indexes; NULL: the directory of the shards if it is writable, else
	 * $XDG_CACHE_HOME/ctrain */
	const char *index_dir;
	/* file of class names, one per line ("name" or "index wnid name"); NULL: classes.txt in dir if it
	 * exists */
	const char *classes;
	int threads; /* threads for building indexes; 0: one */
	/* shards: called for each shard that cannot be indexed, in list order, with "PATH: TAG: ...". The shard then
	 * counts as one without samples, and opening succeeds even if this is true of all shards. NULL: the first
	 * such shard makes opening fail. */
	enum ct_status (*on_damaged)(void *user, const char *text);
	void *user;
	/* IDX: prefix of the file names ("train", "t10k"; NULL: chosen by `train`), or a path prefix:
	 * PREFIX-images-idx3-ubyte[.gz] and PREFIX-labels-idx1-ubyte[.gz]; '.' instead of '-' before idx is
	 * accepted. CIFAR: "train" (those of its files that exist), "test", or file names; NULL: chosen by `train`. */
	const char *split;
	bool train;         /* synthetic: which half of the stream */
	uint32_t n;         /* synthetic: number of samples */
	int c, h, w;        /* synthetic: shape; IDX: expected shape, 0 = any */
	int n_classes;      /* synthetic; IDX: labels must be below it (0: 10) */
	int n_targets;      /* synthetic_regression */
	uint64_t seed;      /* synthetic */
	uint64_t max_bytes; /* refuse data sets that need more memory; 0: 16 GiB */
};

struct ct_dataset_info {
	char name[32];
	uint32_t n;
	enum ct_sample_kind kind;
	int c, h, w;
	int n_classes;         /* 0: regression */
	int n_targets;         /* 0: class labels */
	size_t sample_bytes;   /* of x */
	float mean[4], std[4]; /* default normalization, for pixel values in 0..1 */
	bool in_memory;
	uint64_t bytes; /* memory that the set occupies */
	/* Shards in order: sample group_first[g] is the first one of group g; [n_groups + 1], owned by the set. One
	 * group if the set has no shards (group_first NULL). */
	uint32_t n_groups;
	const uint32_t *group_first;
	uint32_t n_skipped;         /* samples that the index skips (no label, no image ...): ct_dataset_skipped */
	uint32_t max_encoded_bytes; /* of one sample, ENCODED; 0: unknown */
};

/* A growing buffer; its owner frees data with ct_free. */
struct ct_bytes {
	uint8_t *data;
	size_t n, cap;
};
enum ct_status ct_bytes_reserve(struct ct_bytes *b, size_t cap) CT_MUST_CHECK;

typedef struct ct_dataset ct_dataset;

/* A missing file is CT_NOT_FOUND with the name of the file and how to get it. A malformed file is CT_DATA with path
 * and reason. An unknown name or a wrong number is CT_CONFIG. All files are checked completely before this returns. */
enum ct_status ct_dataset_open(const struct ct_dataset_spec *spec, ct_dataset **out) CT_MUST_CHECK;
/* Reads c, h and w from the headers of the files (IDX), with the same errors as opening. Other formats leave out
 * unchanged. */
enum ct_status ct_dataset_peek(const struct ct_dataset_spec *spec, struct ct_dataset_info *out) CT_MUST_CHECK;
/* Checks that the files of spec exist, with the same errors as opening if they do not. Reads no samples. */
enum ct_status ct_dataset_find(const struct ct_dataset_spec *spec) CT_MUST_CHECK;
void ct_dataset_close(ct_dataset *d);
const struct ct_dataset_info *ct_dataset_info(const ct_dataset *d);
/* Sample i: x gets info.sample_bytes; label (class) or target [n_targets], whichever the set has; either may be NULL.
 */
enum ct_status ct_dataset_read(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target) CT_MUST_CHECK;
/* ENCODED: reads the compressed bytes of sample i into *buf (grown as needed), and its label. CT_DATA with a reason
 * (without the name of the sample) if the sample is unreadable: its shard was truncated or changed, or its file is
 * gone. Other samples can still be read. */
enum ct_status ct_dataset_fetch(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label) CT_MUST_CHECK;
/* Describes where sample i is stored, for messages: "train-000003.tar: key \"a/b\" at byte 51200". Names are
 * escaped. */
void ct_dataset_describe(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* The key of sample i, escaped. Shards: member name up to the extension; imagefolder: path relative to the
 * directory. */
void ct_dataset_key(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* Problem i of info.n_skipped: "train-000003.tar: key \"b\" at byte 1024: label: \"cat\" is not a number". */
void ct_dataset_skipped(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* NULL if the data set has no class names. */
const char *ct_dataset_class_name(const ct_dataset *d, int label);
/* CT_DATA if a class has different names in the two sets, or `val` has more classes than `train`. */
enum ct_status ct_dataset_check_classes(const ct_dataset *train, const ct_dataset *val) CT_MUST_CHECK;
/* Hex digest of the content (CRC-32s and sizes), to compare ranks and to bind a checkpoint to its data. */
void ct_dataset_digest(const ct_dataset *d, char hex[65]);
/* Iterates over the registry; NULL past the end. */
const char *ct_dataset_name_at(size_t i);

#endif
