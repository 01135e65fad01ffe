/* Builds the samples of an index from tar members, which come from tar headers or from DALI's index. */
#ifndef CT_DATA_SHARDS_SHARD_BUILD_IMPL_H
#define CT_DATA_SHARDS_SHARD_BUILD_IMPL_H

#include "base/mem.h"
#include "data/shards/shard_index.h"

struct ct_shard_build {
	ct_tar *tar; /* labels are read from it */
	struct ct_shard_index *x;
	uint32_t cap_samples, cap_skipped;
	struct ct_str text;
	/* The sample that is being collected. */
	struct ct_str key;
	uint64_t header; /* position of the header of its first member */
	bool open;
	uint32_t n_images, n_labels, n_links;
	uint64_t image_at, image_bytes, label_at, label_bytes;
};

enum ct_status ct__shard_build_init(struct ct_shard_build *b, ct_tar *t, struct ct_shard_index *x) CT_MUST_CHECK;
/* Splits the name of a member into key and extension by WebDataset's rule. Returns false if the name has no key or no
 * extension (hidden files, directories). */
bool ct__shard_split(const char *name, size_t n, size_t *n_key, const char **ext, size_t *n_ext);
enum ct_status ct__shard_build_add(struct ct_shard_build *b, const char *key, size_t n_key, const char *ext,
				   size_t n_ext, const struct ct_tar_member *m) CT_MUST_CHECK;
/* Ends the current sample, if any. */
enum ct_status ct__shard_build_flush(struct ct_shard_build *b) CT_MUST_CHECK;
/* Call after the last flush. Moves the strings to the index, which must have at least one sample. */
enum ct_status ct__shard_build_finish(struct ct_shard_build *b) CT_MUST_CHECK;
/* Releases the builder; the index stays with its owner. */
void ct__shard_build_release(struct ct_shard_build *b);
/* Computes max_size, max_label and crc over all samples. */
void ct__shard_index_sum(struct ct_shard_index *x);

#endif
