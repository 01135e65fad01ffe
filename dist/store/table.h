/* The keys of a store server: a hash table from strings to shared immutable byte strings. One thread. For files of
 * dist/ only. */
#ifndef CT_DIST_STORE_TABLE_H
#define CT_DIST_STORE_TABLE_H

#include "base/mem.h"

/* Bytes that a key and several unsent replies may share. *used counts what all blobs of one server take. */
struct ct_blob {
	size_t refs, len;
	size_t *used;
	uint8_t data[];
};
/* One reference, bytes copied from p (NULL: to be filled in). NULL on out of memory. */
struct ct_blob *ct_blob_make(size_t *used, const void *p, size_t len);
struct ct_blob *ct_blob_ref(struct ct_blob *b);
void ct_blob_unref(struct ct_blob *b);

struct ct_store_table {
	struct ct_store_entry **slots;
	size_t n_slots, n;
	size_t *used; /* bytes of keys and values, shared with the server's other memory */
};
enum ct_status ct_store_table_init(struct ct_store_table *t, size_t *used) CT_MUST_CHECK;
void ct_store_table_release(struct ct_store_table *t);
/* Borrowed, NULL when absent. */
struct ct_blob *ct_store_table_get(const struct ct_store_table *t, const char *key);
/* Takes the reference in every case. */
enum ct_status ct_store_table_set(struct ct_store_table *t, const char *key, struct ct_blob *value) CT_MUST_CHECK;
bool ct_store_table_delete(struct ct_store_table *t, const char *key);
/* FNV-1a, 64 bits. */
uint64_t ct_text_hash(const char *s);

#endif
