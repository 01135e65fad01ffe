/* Expands a list of shards such as "train-{000000..000999}.tar extra/{a,b}-*.tar": words separated by whitespace,
 * each with brace lists (numbers keep their leading zeros) and globs, relative to a directory. A word that is a
 * directory means all *.tar files in it. An empty list means the directory `train` (or `val`), else files with that
 * word in their names. */
#ifndef CT_DATA_SHARDS_SHARD_LIST_IMPL_H
#define CT_DATA_SHARDS_SHARD_LIST_IMPL_H

#include "base/status.h"

/* Paths in the order of the list, for a glob in strcmp order; owned, ct_dir_list_free. CT_CONFIG: invalid list;
 * CT_NOT_FOUND: names the missing files; CT_UNSUPPORTED: addresses such as s3://. */
enum ct_status ct__shard_list(const char *dir, const char *text, bool train, char ***paths, size_t *n) CT_MUST_CHECK;

#endif
