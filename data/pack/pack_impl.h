/* Inside of data/pack*.c: the list of what is to be packed. */
#ifndef CT_DATA_PACK_PACK_IMPL_H
#define CT_DATA_PACK_PACK_IMPL_H

#include "base/mem.h"
#include "data/files/class_list.h"
#include "data/pack/pack.h"

struct pack_item {
	char *path; /* below src */
	char *key;  /* of the member: unique, without blanks, control bytes, and dots in its last part */
	uint64_t size;
	int64_t mtime_ns;
	int32_t label;
};

struct pack_list {
	struct pack_item *v; /* in the order of packing */
	size_t n, cap;
	struct ct_class_list classes; /* n 0: labels are numbers, nobody named them */
	char *classes_text;           /* content of classes.txt, or NULL */
};

/* Sets the labels of all items by the map; fills list->classes from it when they are empty. */
enum ct_status ct__pack_map_apply(const char *path, struct pack_list *list) CT_MUST_CHECK;

/* Lists, labels, keys, shuffles. Release `out` in every case. */
enum ct_status ct__pack_list_make(const struct ct_pack_opts *opts, const char *classes,
				  struct pack_list *out) CT_MUST_CHECK;
void ct__pack_list_release(struct pack_list *list);
struct pack_shard {
	size_t first, n; /* items */
};

/* One thread's memory for writing shards. */
typedef struct pack_worker pack_worker;
enum ct_status ct__pack_worker_create(const struct ct_pack_opts *opts, pack_worker **out) CT_MUST_CHECK;
void ct__pack_worker_destroy(pack_worker *w);
/* Writes path (NAME.tar) with its companions; `done` is called after each item. *n_written samples are in it. */
enum ct_status ct__pack_worker_write(pack_worker *w, const struct pack_item *items, const struct pack_shard *shard,
				     const char *path, void (*done)(void *user), void *user) CT_MUST_CHECK;
/* Of a finished shard, from its index. */
enum ct_status ct__pack_shard_count(const char *path, uint64_t *n) CT_MUST_CHECK;

/* Names of shards: prefix, number with `width` digits, suffix. */
struct pack_pattern {
	char *prefix, *suffix;
	int width;
	uint32_t n; /* > 0: exactly so many */
};
enum ct_status ct__pack_pattern_parse(const char *text, struct pack_pattern *out) CT_MUST_CHECK;
void ct__pack_pattern_release(struct pack_pattern *p);
char *ct__pack_pattern_name(const struct pack_pattern *p, uint32_t i); /* owned */

/* Cuts the list into shards: owned. */
enum ct_status ct__pack_plan(const struct ct_pack_opts *opts, const struct pack_pattern *pattern,
			     const struct pack_list *list, struct pack_shard **out, uint32_t *n) CT_MUST_CHECK;

#endif
