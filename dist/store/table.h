/* The keys of a store server: a hash table that maps strings to shared, immutable byte strings. For use by one thread,
 * and only by files in dist/. */
#ifndef CT_DIST_STORE_TABLE_H
#define CT_DIST_STORE_TABLE_H

#include "base/mem.h"

/* A byte string that a key and several unsent replies may share. *used is the total size of all blobs of one server. */
struct ct_blob {
	size_t refs, len;
	size_t *used;
	uint8_t data[];
};
/* Makes a blob with one reference and a copy of p [len]. If p is NULL, the caller must fill in the bytes. Returns NULL
 * if out of memory. */
struct ct_blob *ct_blob_make(size_t *used, const void *p, size_t len);
struct ct_blob *ct_blob_ref(struct ct_blob *b);
void ct_blob_unref(struct ct_blob *b);

struct ct_store_table {
	struct ct_store_entry **slots;
	size_t n_slots, n;
	size_t *used; /* bytes of keys and values; this counter also includes the server's other memory */
};
enum ct_status ct_store_table_init(struct ct_store_table *t, size_t *used) CT_MUST_CHECK;
void ct_store_table_release(struct ct_store_table *t);
/* Returns the value, which is borrowed, or NULL if the key does not exist. */
struct ct_blob *ct_store_table_get(const struct ct_store_table *t, const char *key);
/* Takes over the caller's reference to `value`, even on failure. */
enum ct_status ct_store_table_set(struct ct_store_table *t, const char *key, struct ct_blob *value) CT_MUST_CHECK;
bool ct_store_table_delete(struct ct_store_table *t, const char *key);

#endif
