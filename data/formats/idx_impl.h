/* IDX, the format of MNIST's files (http://yann.lecun.com/exdb/mnist): a big-endian magic number 0x000008DD (unsigned
 * bytes, DD dimensions), DD 32-bit sizes, then the bytes. Images are [N,H,W], labels [N]. Other code uses this format
 * through ct_dataset_open. */
#ifndef CT_DATA_FORMATS_IDX_IMPL_H
#define CT_DATA_FORMATS_IDX_IMPL_H

#include "data/dataset.h"
#include "data/files/inflate.h"

struct ct_dataset_kind;

/* Creates a data set from two open files, which are borrowed, and checks them against `kind` and `spec`. */
enum ct_status ct__dataset_idx_load(const struct ct_dataset_kind *kind, const struct ct_dataset_spec *spec,
				    ct_inflate *images, ct_inflate *labels, ct_dataset **out) CT_MUST_CHECK;
/* Creates a data set of kind "idx" from two files in memory, for tests and fuzzers. The memory is not borrowed. */
enum ct_status ct__dataset_idx_open_memory(const struct ct_dataset_spec *spec, const void *images, size_t images_bytes,
					   const void *labels, size_t labels_bytes, ct_dataset **out) CT_MUST_CHECK;

#endif
