/* The index of one shard (a WebDataset tar file): the position of each sample's image, and its label. Samples are found
 * by WebDataset's rule: the key is the member's name up to the first dot after the last slash, and the rest is the
 * extension (ignoring case). Adjacent members with the same key form a sample. A sample has an image (jpg, jpeg, png)
 * and a label (cls: a decimal number, optionally with whitespace around it), in any order. Other members and hidden
 * files are ignored.
 *
 * A sample that cannot be used is recorded in `skipped` with a reason "TAG: ...". TAG is no-image, no-label, duplicate,
 * empty, label, size or link; it contains no colon. A shard that is not a tar file or has no samples causes a CT_DATA
 * error, whose message is one of data/shards/tar.h or "PATH: empty: ...".
 *
 * Indexes are cached in files (shard_cache.c): in `.ctrain-index/` in the directory of the shards, or in a separate
 * directory. A cached index records the shard's name, size and modification time and has a checksum. If anything does
 * not match, the index is built again. A wds2idx file of DALI (SHARD.idx for SHARD.tar) is used only if each entry
 * matches the tar header that precedes its data, and if the file lists every image of the shard.
 *
 * Several threads may call these functions for different indexes. Several processes may build and cache the same index
 * at the same time. */
#ifndef CT_DATA_SHARDS_SHARD_INDEX_H
#define CT_DATA_SHARDS_SHARD_INDEX_H

#include "data/files/label.h"
#include "data/shards/tar.h"

struct ct_shard_sample {
	uint64_t offset; /* position of the image in the shard */
	uint32_t size;
	int32_t label;
	uint32_t key, key_len; /* offset in text; NUL-terminated */
};

struct ct_shard_skipped {
	uint64_t offset; /* position of the first member's header */
	uint32_t key, key_len;
	uint32_t reason; /* offset in text of "TAG: ...", NUL-terminated; escaped for printing */
	uint32_t reserved;
};

struct ct_shard_index {           /* owns its three arrays */
	uint64_t bytes, mtime_ns; /* size and modification time of the shard */
	uint32_t n, n_skipped;
	struct ct_shard_sample *samples;  /* [n] */
	struct ct_shard_skipped *skipped; /* [n_skipped] */
	char *text; /* all strings: the file name of the shard, then keys as in the tar file, and reasons */
	uint32_t text_len;
	uint32_t max_size; /* size of the largest image in bytes */
	int32_t max_label; /* largest label; -1: no samples */
	uint32_t crc;      /* CRC-32 of offsets, sizes and labels */
	/* number of names with control bytes, ".." or a leading "/": they are harmless here, but may not be for other
	 * programs */
	uint32_t n_unsafe;
	uint32_t n_repeated;  /* samples that share their key with another sample of the shard */
	uint32_t padding_cut; /* 1: the file ends inside the padding of its last member */
	uint32_t goes_on;     /* 1: there is data after the end mark */
};

void ct_shard_index_release(struct ct_shard_index *x);

/* Moves samples whose label is n_classes or larger from `samples` to `skipped`. */
enum ct_status ct_shard_index_limit_labels(struct ct_shard_index *x, int n_classes) CT_MUST_CHECK;

/* Builds the index from the tar headers and reads the labels. */
enum ct_status ct_shard_index_scan(ct_tar *t, struct ct_shard_index *out) CT_MUST_CHECK;
/* Builds the index from the content, text [n], of DALI's index of the shard (version 1.1 or 1.2). Messages contain
 * `path`. Fails with CT_DATA and the message "PATH: TAG: ...". TAG is empty, idx-version, idx-parse, idx-count,
 * idx-range or idx-stale. */
enum ct_status ct_shard_index_from_dali(ct_tar *t, const char *text, size_t n, const char *path,
					struct ct_shard_index *out) CT_MUST_CHECK;

enum ct_shard_source { CT_SHARD_SCANNED, CT_SHARD_CACHED, CT_SHARD_DALI };

/* Gets the index of the shard at `path` from a cached file, else from DALI's index, else by building it. Caches a new
 * index if possible. For index_dir, see struct ct_dataset_spec. */
enum ct_status ct_shard_index_open(const char *path, const char *index_dir, struct ct_shard_index *out,
				   enum ct_shard_source *source) CT_MUST_CHECK;

/* Serializes the index for a cache file; returns owned bytes. */
enum ct_status ct_shard_index_pack(const struct ct_shard_index *x, uint8_t **data, size_t *n) CT_MUST_CHECK;
/* Parses a cached index. Fails with CT_DATA if it is damaged, has another version, or does not belong to the shard
 * with this file name, size and modification time. */
enum ct_status ct_shard_index_unpack(const uint8_t *data, size_t n, const char *name, uint64_t bytes, uint64_t mtime_ns,
				     struct ct_shard_index *out) CT_MUST_CHECK;
/* Recomputes the checksum of a serialized index that was modified, so that fuzzing also reaches the code after the
 * checksum test. */
void ct_shard_index_seal(uint8_t *data, size_t n);
/* Returns the path of the cache file. The file is in dir or, if dir is NULL, next to the shard. The caller owns the
 * returned string. */
char *ct_shard_index_path(const char *shard, const char *dir);

#endif
