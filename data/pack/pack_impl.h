/* The list of images to pack, the plan of shards, and the writer of one shard. */
#ifndef CT_DATA_PACK_PACK_IMPL_H
#define CT_DATA_PACK_PACK_IMPL_H

#include "base/mem.h"
#include "data/files/class_list.h"
#include "data/pack/pack.h"

struct pack_item {
	char *path; /* path relative to src */
	char *key;  /* key of the members: unique, without whitespace, control bytes, or dots in its file name */
	uint64_t size;
	int64_t mtime_ns;
	int32_t label;
};

struct pack_list {
	struct pack_item *v; /* [n] in packing order */
	size_t n, cap;
	struct ct_class_list classes; /* n is 0 if labels are numbers without names */
	char *classes_text;           /* content of classes.txt, or NULL */
};

/* Sets the labels of all items from the map file at `path`. If list->classes is empty, fills it from the map as
 * well. */
enum ct_status ct__pack_map_apply(const char *path, struct pack_list *list) CT_MUST_CHECK;

/* Lists the images with their labels and keys, and shuffles the list if requested. Release `out` even after a
 * failure. */
enum ct_status ct__pack_list_make(const struct ct_pack_opts *opts, const char *classes,
				  struct pack_list *out) CT_MUST_CHECK;
void ct__pack_list_release(struct pack_list *list);
struct pack_shard {
	size_t first, n; /* range of items in the list */
};

/* The memory that one thread needs to write shards. */
typedef struct pack_worker pack_worker;
enum ct_status ct__pack_worker_create(const struct ct_pack_opts *opts, pack_worker **out) CT_MUST_CHECK;
void ct__pack_worker_destroy(pack_worker *w);
/* Writes the shard `path` (NAME.tar) and the other files that belong to it. Calls `done` after each item. */
enum ct_status ct__pack_worker_write(pack_worker *w, const struct pack_item *items, const struct pack_shard *shard,
				     const char *path, void (*done)(void *user), void *user) CT_MUST_CHECK;
/* Reads the number of samples of a finished shard from its index. */
enum ct_status ct__pack_shard_count(const char *path, uint64_t *n) CT_MUST_CHECK;

/* The names of shards: a prefix, a number with `width` digits, and a suffix. */
struct pack_pattern {
	char *prefix, *suffix;
	int width;
	uint32_t n; /* > 0: exactly this many shards */
};
enum ct_status ct__pack_pattern_parse(const char *text, struct pack_pattern *out) CT_MUST_CHECK;
void ct__pack_pattern_release(struct pack_pattern *p);
char *ct__pack_pattern_name(const struct pack_pattern *p, uint32_t i); /* owned by the caller */

/* Divides the list into *n shards. The caller owns the array *out. */
enum ct_status ct__pack_plan(const struct ct_pack_opts *opts, const struct pack_pattern *pattern,
			     const struct pack_list *list, struct pack_shard **out, uint32_t *n) CT_MUST_CHECK;

#endif
