/* Data sets behind one table: open, read a sample by index, digest. Any number of threads may read one set at once, and
 * different sets may be opened at once. Registry: the array in dataset.c. */
#ifndef CT_DATA_DATASET_H
#define CT_DATA_DATASET_H

#include <stdint.h>

#include "base/status.h"

/* ENCODED: compressed images of various sizes, through ct_dataset_fetch and data/transform/transform.h. */
enum ct_sample_kind { CT_SAMPLE_U8_HWC, CT_SAMPLE_F32, CT_SAMPLE_ENCODED };

struct ct_dataset_spec {
	const char *name; /* a name of the registry (dataset.c) */
	const char *dir;  /* folder of the files */
	/* shards: brace lists and globs ("train-{000000..000999}.tar"), several separated by blanks, relative to dir;
	 * imagefolder: folder with one folder a class (or a flat one), relative to dir. NULL: `train` or `val`. */
	const char *path;
	const char *index_dir; /* shards: where indexes are kept; NULL: beside the shards where that can be written,
				* else $XDG_CACHE_HOME/ctrain */
	const char *classes;   /* file with class names, one a line ("name" or "index wnid name"); NULL: none, or
				* classes.txt beside the data */
	int threads;           /* for building an index; 0: one */
	/* shards: told of each shard that cannot be indexed, in the order of the list: "PATH: TAG: ...". It then counts as
	 * one without samples, and so may all of them be. NULL: the first one fails the opening. */
	enum ct_status (*on_damaged)(void *user, const char *text);
	void *user;
	/* IDX: prefix of the file names ("train", "t10k"; NULL: as `train` says), or a path prefix:
	 * PREFIX-images-idx3-ubyte[.gz] and PREFIX-labels-idx1-ubyte[.gz]; '.' instead of '-' before idx is accepted.
	 * CIFAR: "train" (those of its files that are there), "test", or names of files; NULL: as `train` says. */
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
	/* Shards in order: sample group_first[g] is the first of group g; [n_groups + 1], owned by the set. One group
	 * where there are no shards (group_first NULL). */
	uint32_t n_groups;
	const uint32_t *group_first;
	uint32_t n_skipped;         /* samples that the index left out (no label, no image ...): ct_dataset_skipped */
	uint32_t max_encoded_bytes; /* of one sample, ENCODED; 0: not known */
};

/* Memory that grows: data is the owner's to free with ct_free. */
struct ct_bytes {
	uint8_t *data;
	size_t n, cap;
};
enum ct_status ct_bytes_reserve(struct ct_bytes *b, size_t cap) CT_MUST_CHECK;

typedef struct ct_dataset ct_dataset;

/* Missing files: CT_NOT_FOUND that names the file and both ways to get it; malformed ones: CT_DATA with path and what
 * is wrong; an unknown name or a wrong number: CT_CONFIG. Files are checked whole before this returns. */
enum ct_status ct_dataset_open(const struct ct_dataset_spec *spec, ct_dataset **out) CT_MUST_CHECK;
/* c, h, w of out where the headers of spec's files say them (IDX), with the errors that opening has; data sets of other
 * formats leave out as it is. */
enum ct_status ct_dataset_peek(const struct ct_dataset_spec *spec, struct ct_dataset_info *out) CT_MUST_CHECK;
/* Whether the files that spec names exist, with the errors that opening has where they do not. Reads no samples. */
enum ct_status ct_dataset_find(const struct ct_dataset_spec *spec) CT_MUST_CHECK;
void ct_dataset_close(ct_dataset *d);
const struct ct_dataset_info *ct_dataset_info(const ct_dataset *d);
/* Sample i: x gets info.sample_bytes; label (class) or target [n_targets], whichever the set has; either may be NULL.
 */
enum ct_status ct_dataset_read(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target) CT_MUST_CHECK;
/* ENCODED: the compressed bytes of sample i into *buf (grown as needed), and its label. CT_DATA when the sample is bad
 * (its shard was truncated or changed, its file is gone), and why, without its name: the caller may go on with
 * others. */
enum ct_status ct_dataset_fetch(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label) CT_MUST_CHECK;
/* Where sample i comes from, for messages: "train-000003.tar: key \"a/b\" at byte 51200". Names are escaped. */
void ct_dataset_describe(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* The key of sample i (shards: member name up to the extension; imagefolder: path below the folder), escaped. */
void ct_dataset_key(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* Problem i of info.n_skipped: "train-000003.tar: key \"b\" at byte 1024: label: \"cat\" is no number". */
void ct_dataset_skipped(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* NULL when the data does not say. */
const char *ct_dataset_class_name(const ct_dataset *d, int label);
/* CT_DATA when a class has one name here and another there, or `val` has more classes than `train`. */
enum ct_status ct_dataset_check_classes(const ct_dataset *train, const ct_dataset *val) CT_MUST_CHECK;
/* Hex digest of the content (CRC-32s and sizes are enough), to compare ranks and to bind a checkpoint to its data. */
void ct_dataset_digest(const ct_dataset *d, char hex[65]);
/* Registry walk: NULL past the end. */
const char *ct_dataset_name_at(size_t i);

#endif
