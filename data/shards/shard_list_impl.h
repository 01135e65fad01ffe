/* Which shards a text such as "train-{000000..000999}.tar extra/{a,b}-*.tar" names: words between blanks, each with
 * brace lists (numbers keep their zeros) and globs, relative to a folder; a word that is a folder stands for its *.tar.
 * Empty text: the folder `train` (or `val`), else files with that word in their names. */
#ifndef CT_DATA_SHARDS_SHARD_LIST_IMPL_H
#define CT_DATA_SHARDS_SHARD_LIST_IMPL_H

#include "base/status.h"

/* Paths in the order of the text, of a glob by bytes; owned, ct_dir_list_free. CT_CONFIG: the text; CT_NOT_FOUND: files
 * that are missing, named; CT_UNSUPPORTED: addresses such as s3://. */
enum ct_status ct__shard_list(const char *dir, const char *text, bool train, char ***paths, size_t *n) CT_MUST_CHECK;

#endif
