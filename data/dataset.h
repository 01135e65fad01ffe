/* Data sets. A set is opened by name, and its samples are read by index. Several threads may read from the same set
 * concurrently, and several sets may be open at the same time. The registry of data sets is the array in dataset.c. */
#ifndef CT_DATA_DATASET_H
#define CT_DATA_DATASET_H

#include <stdint.h>

#include "base/status.h"

/* ENCODED samples are compressed images of different sizes. ct_dataset_fetch reads their bytes; the functions of
 * data/transform/transform.h decode them. */
enum ct_sample_kind { CT_SAMPLE_U8_HWC, CT_SAMPLE_F32, CT_SAMPLE_ENCODED };

/* Why a sample or a shard cannot be used. Longer strings are truncated. */
struct ct_refusal {
	char where[1024];           /* "train-000003.tar: key \"b\" at byte 1024"; "" if the reason states it */
	char tag[CT_ERROR_TAG_MAX]; /* the kind, such as "label"; "" if it has none */
	char reason[1024];          /* "label: \"cat\" is not a number"; begins with the tag, if any */
};

struct ct_dataset_spec {
	const char *name; /* a name in the registry (dataset.c) */
	const char *dir;  /* directory that contains the files */
	/* shards: brace lists and globs ("train-{000000..000999}.tar"), separated by spaces, relative to dir.
	 * imagefolder: a directory, relative to dir, that has one sub-directory per class or directly contains the
	 * images. NULL: the sub-directory `train` or `val` of dir. */
	const char *path;
	/* imagefolder, evaluation data: the directory of the training data, relative to dir, whose sub-directories are
	 * the classes of both sets if there is no class list. NULL: the classes are those of this set. */
	const char *classes_of;
	/* imagefolder: above 0: `path` contains the training and the evaluation data. This fraction of the images of
	 * each class is evaluation data (train = false), and the rest is training data. Which ones depends only on
	 * `seed` and on their paths. */
	double val_fraction;
	/* imagefolder: CSV file with the labels of the images (data/files/label_list.h), relative to dir. The images
	 * may be anywhere below `path`. A split column divides them into training and evaluation data. NULL: the
	 * directories are the classes, or a flat directory contains val.txt or labels.txt. */
	const char *labels;
	/* imagefolder with `labels`, evaluation data: the list of the training data, whose classes are those of both
	 * sets. It may be the same file. NULL: the classes are those of `labels`. */
	const char *train_labels;
	const char *image_column, *class_column,
		*split_column; /* names of the columns of both lists; NULL: the usual ones */
	/* shards: directory for cached indexes. NULL: the directory that contains the shards if it is writable, else
	 * $XDG_CACHE_HOME/ctrain. */
	const char *index_dir;
	/* file of class names, one per line ("name" or "index wnid name"); NULL: classes.txt in dir if it
	 * exists */
	const char *classes;
	int threads; /* threads for building indexes; 0: one */
	/* shards: called in list order for each shard that cannot be indexed. The shard is then treated as empty, and
	 * opening succeeds even if no shard can be indexed. NULL: opening fails at the first such shard. */
	enum ct_status (*on_damaged)(void *user, const struct ct_refusal *why);
	void *user;
	/* IDX: the prefix of the file names ("train" or "t10k"), or a path prefix. The files are
	 * PREFIX-images-idx3-ubyte[.gz] and PREFIX-labels-idx1-ubyte[.gz], or the same with '.' instead of '-' before
	 * "idx". CIFAR: "train" (all training files that exist), "test", or a list of file names. NULL: the field
	 * `train` selects the files. */
	const char *split;
	bool train;         /* true: training data; false: evaluation data */
	uint32_t n;         /* synthetic: number of samples */
	int c, h, w;        /* synthetic: shape; IDX: expected shape, 0 = any */
	int n_classes;      /* synthetic: number of classes; IDX: exclusive upper bound of the labels, 0: 10 */
	int n_targets;      /* synthetic_regression */
	uint64_t seed;      /* synthetic; imagefolder: of val_fraction */
	uint64_t max_bytes; /* limit on the memory that the data set uses; 0: 16 GiB */
};

struct ct_dataset_info {
	char name[32];
	uint32_t n;
	enum ct_sample_kind kind;
	int c, h, w;
	int n_classes;         /* 0: regression */
	int n_targets;         /* 0: class labels */
	size_t sample_bytes;   /* size of one sample */
	float mean[4], std[4]; /* default normalization, for pixel values in 0..1 */
	bool in_memory;
	uint64_t bytes; /* memory that the set occupies */
	/* Each shard is a group of consecutive samples. The first sample of group g is group_first[g]; the array
	 * [n_groups + 1] is owned by the set. A set without shards has one group, and group_first is NULL. */
	uint32_t n_groups;
	const uint32_t *group_first;
	uint32_t n_skipped;         /* samples without a usable image or label; see ct_dataset_skipped */
	uint32_t max_encoded_bytes; /* ENCODED: size of the largest sample; 0: unknown */
};

/* A buffer that grows on demand. Its owner frees `data` with ct_free. */
struct ct_bytes {
	uint8_t *data;
	size_t n, cap;
};
enum ct_status ct_bytes_reserve(struct ct_bytes *b, size_t cap) CT_MUST_CHECK;

typedef struct ct_dataset ct_dataset;

/* Opens a data set and checks all of its files completely. Fails with CT_NOT_FOUND if a file is missing; the message
 * names the file and explains how to obtain it. Fails with CT_DATA if a file is malformed; the message contains the
 * path and the reason. Fails with CT_CONFIG if the name is unknown or a number is invalid. */
enum ct_status ct_dataset_open(const struct ct_dataset_spec *spec, ct_dataset **out) CT_MUST_CHECK;
/* Reads c, h and w from the headers of the files. Fails with the same errors as ct_dataset_open. Only IDX supports
 * this; for other formats, `out` is left unchanged. */
enum ct_status ct_dataset_peek(const struct ct_dataset_spec *spec, struct ct_dataset_info *out) CT_MUST_CHECK;
/* Checks that the files described by `spec` exist, without reading any samples. If a file is missing, fails with the
 * same errors as ct_dataset_open. */
enum ct_status ct_dataset_find(const struct ct_dataset_spec *spec) CT_MUST_CHECK;
void ct_dataset_close(ct_dataset *d);
const struct ct_dataset_info *ct_dataset_info(const ct_dataset *d);
/* Reads sample i into x (info.sample_bytes bytes), and its label into *label or its targets into target [n_targets],
 * whichever the set has. x (for images), label and target may be NULL. */
enum ct_status ct_dataset_read(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target) CT_MUST_CHECK;
/* ENCODED sets: reads the compressed bytes of sample i into *buf, which grows as needed, and its label into *label.
 * Returns CT_DATA if the sample is unreadable: its shard was truncated or changed, or its file was deleted. The message
 * gives the reason but not the name of the sample. Other samples can still be read. */
enum ct_status ct_dataset_fetch(const ct_dataset *d, uint32_t i, struct ct_bytes *buf, int32_t *label) CT_MUST_CHECK;
/* Returns the label of sample i in *label without reading its image. Fails with CT_BUG if the set has no labels. */
enum ct_status ct_dataset_label(const ct_dataset *d, uint32_t i, int32_t *label) CT_MUST_CHECK;
/* Describes where sample i is stored, for messages: "train-000003.tar: key \"a/b\" at byte 51200". Names are
 * escaped. */
void ct_dataset_describe(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* Writes the escaped key of sample i to `text`. In shards, the key is the member name without its extension; in an
 * imagefolder, it is the path relative to the directory. */
void ct_dataset_key(const ct_dataset *d, uint32_t i, char *text, size_t len);
/* Describes the skipped sample with index i (below info.n_skipped). The strings are escaped. */
void ct_dataset_skipped(const ct_dataset *d, uint32_t i, struct ct_refusal *out);
/* Returns the name of a class, or NULL if the data set has no class names. */
const char *ct_dataset_class_name(const ct_dataset *d, int label);
/* Fails with CT_DATA if a class has different names in the two sets, or if `val` has more classes than `train`. */
enum ct_status ct_dataset_check_classes(const ct_dataset *train, const ct_dataset *val) CT_MUST_CHECK;
/* Computes a hexadecimal digest of the content (its CRC-32s and sizes). The digest is used to check that all ranks have
 * the same data and that a checkpoint was written for this data. */
void ct_dataset_digest(const ct_dataset *d, char hex[65]);
/* Returns the name of data set i in the registry, or NULL if i is past the end. */
const char *ct_dataset_name_at(size_t i);

#endif
