/* The plan cache: a file with the choices that were made by measurement for one kind of device, for example the
 * configurations of cuDNN's graphs for a GPU, or the plans of nets for a processor. It is
 * $XDG_CACHE_HOME/ctrain/plans/KEY.txt, or ~/.cache/ctrain/plans/KEY.txt; the key names the device and the version of
 * its library. The file is replaced atomically, and its last line is a checksum of all lines before it.
 *
 * No function fails because of the file. If it is damaged or belongs to another key, a warning names it, and the cache
 * is empty. If it cannot be written, one warning says so. */
#ifndef CT_NN_PLAN_CACHE_H
#define CT_NN_PLAN_CACHE_H

#include "base/status.h"

typedef struct ct_plan_cache ct_plan_cache;

/* key: for example "NVIDIA H200, sm_90, cuDNN 9.19.0". The cache is empty until it is loaded. Owned by the caller. */
enum ct_status ct_plan_cache_create(const char *key, ct_plan_cache **out) CT_MUST_CHECK;
void ct_plan_cache_destroy(ct_plan_cache *c);           /* ends the claims; NULL is allowed */
const char *ct_plan_cache_path(const ct_plan_cache *c); /* "" if there is no directory for it */

/* Reads the file again. What this process has put remains. */
enum ct_status ct_plan_cache_load(ct_plan_cache *c) CT_MUST_CHECK;
/* The configuration of an entry, or NULL. Owned by c until the entry is changed. */
const char *ct_plan_cache_find(const ct_plan_cache *c, const char *name);
/* Adds or changes an entry. Neither string may contain a tab or a newline. */
enum ct_status ct_plan_cache_put(ct_plan_cache *c, const char *name, const char *config) CT_MUST_CHECK;

/* Writes the entries of the file and those of this process, of which the latter replace the former. Returns false if
 * they could not be written; then this is not tried again. */
bool ct_plan_cache_save(ct_plan_cache *c);

/* Claims are how processes divide work: each of them makes the choices that it has claimed, and finds those of the
 * others in the file. So a process that waits for others must have ended its claims on what it has not saved. A process
 * that ends loses its claims. Returns false if the cache cannot be written. Does nothing if claims have begun. */
bool ct_plan_cache_begin_claims(ct_plan_cache *c);
/* Returns false if another process has claimed this name. True if there are no claims, or no locks in this file system.
 * A choice that another process has saved and given back can be claimed, so load the cache after that. */
bool ct_plan_cache_claim(ct_plan_cache *c, const char *name);
void ct_plan_cache_end_claims(ct_plan_cache *c);

#endif
