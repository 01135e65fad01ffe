/* Chains of entries in slots, whose number doubles when there are more entries than slots. Values have reference
 * counts, so replies that have not been sent yet share the value with the table, even after the key has another one.
 * *used counts keys, values and buffers of a server; whatever allocates or frees one of them must change it by the same
 * size. */
#include "dist/store/table.h"

#include <string.h>

#include "base/rng.h"

struct ct_store_entry {
	struct ct_store_entry *next;
	uint64_t hash;
	struct ct_blob *value;
	char key[];
};

struct ct_blob *ct_blob_make(size_t *used, const void *p, size_t len)
{
	struct ct_blob *b = ct_calloc(1, sizeof(*b) + len);

	if (!b)
		return NULL;
	b->refs = 1;
	b->len = len;
	b->used = used;
	*used += sizeof(*b) + len;
	if (p && len > 0)
		memcpy(b->data, p, len);
	return b;
}

struct ct_blob *ct_blob_ref(struct ct_blob *b)
{
	b->refs++;
	return b;
}

void ct_blob_unref(struct ct_blob *b)
{
	if (!b || --b->refs > 0)
		return;
	*b->used -= sizeof(*b) + b->len;
	ct_free(b);
}

static size_t entry_bytes(const char *key)
{
	return sizeof(struct ct_store_entry) + strlen(key) + 1;
}

enum ct_status ct_store_table_init(struct ct_store_table *t, size_t *used)
{
	*t = (struct ct_store_table){.n_slots = 64, .used = used};
	CT_TRY_ALLOC(t->slots = ct_calloc(t->n_slots, sizeof(struct ct_store_entry *)));
	return CT_OK;
}

static void entry_free(struct ct_store_table *t, struct ct_store_entry *e)
{
	*t->used -= entry_bytes(e->key);
	ct_blob_unref(e->value);
	ct_free(e);
}

void ct_store_table_release(struct ct_store_table *t)
{
	for (size_t i = 0; t->slots && i < t->n_slots; i++) {
		while (t->slots[i]) {
			struct ct_store_entry *e = t->slots[i];

			t->slots[i] = e->next;
			entry_free(t, e);
		}
	}
	ct_free(t->slots);
	*t = (struct ct_store_table){0};
}

/* Returns the link that points to the key's entry, or the NULL link where it would be added. */
static struct ct_store_entry **find(const struct ct_store_table *t, const char *key, uint64_t hash)
{
	struct ct_store_entry **at = &t->slots[hash % t->n_slots];

	while (*at && ((*at)->hash != hash || strcmp((*at)->key, key) != 0))
		at = &(*at)->next;
	return at;
}

struct ct_blob *ct_store_table_get(const struct ct_store_table *t, const char *key)
{
	struct ct_store_entry *e = *find(t, key, ct_hash64(key, strlen(key)));

	return e ? e->value : NULL;
}

/* Failing to grow is harmless: the chains only get longer. */
static void grow(struct ct_store_table *t)
{
	size_t n_slots = t->n_slots * 2;
	struct ct_store_entry **slots = ct_calloc(n_slots, sizeof(struct ct_store_entry *));

	if (!slots)
		return;
	for (size_t i = 0; i < t->n_slots; i++) {
		while (t->slots[i]) {
			struct ct_store_entry *e = t->slots[i];

			t->slots[i] = e->next;
			e->next = slots[e->hash % n_slots];
			slots[e->hash % n_slots] = e;
		}
	}
	ct_free(t->slots);
	t->slots = slots;
	t->n_slots = n_slots;
}

enum ct_status ct_store_table_set(struct ct_store_table *t, const char *key, struct ct_blob *value)
{
	uint64_t hash = ct_hash64(key, strlen(key));
	struct ct_store_entry **at = find(t, key, hash), *e = *at;

	if (e) {
		ct_blob_unref(e->value);
		e->value = value;
		return CT_OK;
	}
	e = ct_calloc(1, entry_bytes(key));
	if (!e) {
		ct_blob_unref(value);
		return CT_NOMEM;
	}
	memcpy(e->key, key, strlen(key) + 1);
	e->hash = hash;
	e->value = value;
	*at = e;
	*t->used += entry_bytes(key);
	if (++t->n > t->n_slots)
		grow(t);
	return CT_OK;
}

bool ct_store_table_delete(struct ct_store_table *t, const char *key)
{
	struct ct_store_entry **at = find(t, key, ct_hash64(key, strlen(key))), *e = *at;

	if (!e)
		return false;
	*at = e->next;
	t->n--;
	entry_free(t, e);
	return true;
}
