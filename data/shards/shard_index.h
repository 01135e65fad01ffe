/* The index of one shard (a WebDataset tar): where each sample's image lies, and its label. Samples are found by
 * WebDataset's rule: the key is the member's name up to the first dot after the last slash, the rest is the extension
 * (in any case); neighbours with one key are one sample. A sample is an image (jpg, jpeg, png) and a label (cls: a
 * decimal number, blanks around it allowed), in any order; other members are left alone, and so are hidden files.
 *
 * A sample that cannot be used is left out and kept in `skipped` with its reason, which begins with a tag: no-image,
 * no-label, duplicate, empty, label, size, link. A shard that is no tar, or without any sample, is CT_DATA: the errors
 * of data/shards/tar.h, or "PATH: empty: ...".
 *
 * Finished indexes are kept in files (shard_cache.c): beside the shards in `.ctrain-index/`, or in a folder of their own.
 * Such a file is bound to the shard's name, size and modification time and has a checksum; when anything is wrong with
 * it, the index is made again. DALI's wds2idx files (SHARD.idx beside SHARD.tar) are taken where they are, after every
 * entry has been compared with the tar header it points behind, and when no image of the shard is missing in them.
 *
 * Threads: functions on different indexes at once; several processes may make and keep the same index at once. */
#ifndef CT_DATA_SHARDS_SHARD_INDEX_H
#define CT_DATA_SHARDS_SHARD_INDEX_H

#include "data/files/label.h"
#include "data/shards/tar.h"

struct ct_shard_sample {
	uint64_t offset; /* of the image in the shard */
	uint32_t size;
	int32_t label;
	uint32_t key, key_len; /* in text; a NUL follows */
};

struct ct_shard_skipped {
	uint64_t offset; /* of the sample's first member's header */
	uint32_t key, key_len;
	uint32_t reason; /* in text, NUL-terminated; safe to print */
	uint32_t reserved;
};

struct ct_shard_index {           /* owns its three blocks */
	uint64_t bytes, mtime_ns; /* of the shard */
	uint32_t n, n_skipped;
	struct ct_shard_sample *samples;  /* [n] */
	struct ct_shard_skipped *skipped; /* [n_skipped] */
	char *text;                       /* keys as in the tar, reasons; begins with the shard's file name */
	uint32_t text_len;
	uint32_t max_size; /* of an image */
	int32_t max_label; /* -1: no sample */
	uint32_t crc;      /* CRC-32 of offsets, sizes and labels */
	uint32_t n_unsafe; /* names with control bytes, ".." or "/" in front: harmless here, elsewhere not */
	uint32_t goes_on;  /* 1: there are data behind the end mark */
};

void ct_shard_index_release(struct ct_shard_index *x);

/* From the tar's headers; labels are read on the way. */
enum ct_status ct_shard_index_scan(ct_tar *t, struct ct_shard_index *out) CT_MUST_CHECK;
/* From DALI's index of the shard (versions 1.1 and 1.2), text [n], `path` for messages. CT_DATA "PATH: TAG: ..." with
 * tags empty, idx-version, idx-parse, idx-count, idx-range, idx-stale. */
enum ct_status ct_shard_index_from_dali(ct_tar *t, const char *text, size_t n, const char *path,
					struct ct_shard_index *out) CT_MUST_CHECK;

enum ct_shard_source { CT_SHARD_SCANNED, CT_SHARD_CACHED, CT_SHARD_DALI };

/* The index of the shard at path: from a kept file, else from DALI's, else made; what was made is kept where that can
 * be done. index_dir as in ct_dataset_spec. */
enum ct_status ct_shard_index_open(const char *path, const char *index_dir, struct ct_shard_index *out,
				   enum ct_shard_source *source) CT_MUST_CHECK;

/* The form that is kept: returns owned bytes. */
enum ct_status ct_shard_index_pack(const struct ct_shard_index *x, uint8_t **data, size_t *n) CT_MUST_CHECK;
/* CT_DATA when it is damaged, of another version, or of another shard than (file name, bytes, mtime_ns). */
enum ct_status ct_shard_index_unpack(const uint8_t *data, size_t n, const char *name, uint64_t bytes, uint64_t mtime_ns,
				     struct ct_shard_index *out) CT_MUST_CHECK;
/* Makes the checksum right (fuzzing: so that more than the checksum is looked at). */
void ct_shard_index_seal(uint8_t *data, size_t n);
/* Path of the kept file: beside the shard (dir NULL) or in dir; returns owned. */
char *ct_shard_index_path(const char *shard, const char *dir);

#endif
