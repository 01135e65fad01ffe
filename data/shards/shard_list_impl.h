/* Expands a list of shards such as "train-{000000..000999}.tar extra/{a,b}-*.tar": words separated by whitespace, each
 * with brace lists (numbers keep their leading zeros) and globs, relative to a directory. A word that is a directory
 * means all *.tar files in it. An empty list means the directory `train` (or `val`) or, if that has no shards, files
 * with this word in their names. */
#ifndef CT_DATA_SHARDS_SHARD_LIST_IMPL_H
#define CT_DATA_SHARDS_SHARD_LIST_IMPL_H

#include "base/status.h"

/* Creates an array of paths in the order of the list; the files that match a glob are in strcmp order. Release it with
 * ct_dir_list_free. Fails with CT_CONFIG if the list is invalid, with CT_NOT_FOUND and the names of the files if any
 * are missing, and with CT_UNSUPPORTED for addresses such as s3://. */
enum ct_status ct__shard_list(const char *dir, const char *text, bool train, char ***paths, size_t *n) CT_MUST_CHECK;

#endif
