/* `known` has a bit for each sample, which threads read without the lock; a bit that is seen late only means that the
 * sample is read once more. Messages and uses are protected by the lock. Which thread finds a bad sample first depends
 * on timing, but reports do not: they are made by the caller's thread, batch by batch, in the order of rows and
 * attempts, and each sample is reported once. Rows of a neighboring slice are left to the rank that owns them. The
 * count therefore exceeds its limit at the same batch in each run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/loader/loader_impl.h"

enum ct_status ct__bad_list_init(struct ct_bad_list *b, uint32_t n)
{
	size_t words = (size_t)n / 32 + 1;

	if (!b->known)
		CT_TRY_ALLOC(b->known = b->own = ct_calloc(words, sizeof(*b->own)));
	CT_TRY_ALLOC(b->reported = CT_NEW_ARRAY(uint32_t, words));
	return CT_OK;
}

void ct__bad_list_release(struct ct_bad_list *b)
{
	for (size_t i = 0; i < b->n; i++)
		ct_free(b->entries[i].text);
	ct_free(b->entries);
	ct_free(b->last);
	ct_free(b->reported);
	ct_free((void *)b->own);
}

bool ct__bad_list_knows(struct ct_bad_list *b, uint32_t sample)
{
	return atomic_load_explicit(&b->known[sample / 32], memory_order_relaxed) >> sample % 32 & 1;
}

static enum ct_status append_entry(struct ct_bad_list *b, uint32_t sample, char *text)
{
	CT_TRY_GROW(b->entries, b->n, b->cap);
	b->entries[b->n++] = (struct ct_bad_entry){sample, text};
	return CT_OK;
}

enum ct_status ct__bad_list_add(struct ct_bad_list *b, const ct_dataset *d, uint32_t sample)
{
	enum ct_status st = CT_OK;
	bool known;
	char where[512], *text;

	ct_dataset_describe(d, sample, where, sizeof(where));
	CT_TRY_ALLOC(text = ct_strfmt("%s: %s", where, ct_error_message()));
	pthread_mutex_lock(&b->lock);
	known = ct__bad_list_knows(b, sample);
	if (!known)
		st = append_entry(b, sample, text);
	if (!known && st == CT_OK)
		atomic_fetch_or_explicit(&b->known[sample / 32], 1u << sample % 32, memory_order_relaxed);
	pthread_mutex_unlock(&b->lock);
	if (known || st < 0)
		ct_free(text);
	return st;
}

static enum ct_status append_use(struct ct_loader_slot *s, struct ct_bad_use use)
{
	CT_TRY_GROW(s->uses, s->n_uses, s->cap_uses);
	s->uses[s->n_uses++] = use;
	return CT_OK;
}

enum ct_status ct__bad_list_use(struct ct_bad_list *b, struct ct_loader_slot *s, struct ct_bad_use use)
{
	enum ct_status st;

	pthread_mutex_lock(&b->lock);
	st = append_use(s, use);
	pthread_mutex_unlock(&b->lock);
	return st;
}

static int by_row(const void *a, const void *b)
{
	const struct ct_bad_use *x = a, *y = b;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	return x->attempt < y->attempt ? -1 : x->attempt > y->attempt;
}

/* Removes the sample's text from the list and returns it, owned. */
static char *take_text(struct ct_bad_list *b, uint32_t sample)
{
	char *text = NULL;

	pthread_mutex_lock(&b->lock);
	for (size_t i = 0; i < b->n && !text; i++) {
		if (b->entries[i].sample == sample) {
			text = b->entries[i].text;
			b->entries[i] = b->entries[--b->n];
		}
	}
	pthread_mutex_unlock(&b->lock);
	return text;
}

enum ct_status ct__bad_list_report(struct ct_bad_list *b, const struct ct_loader_rows *rows, struct ct_loader_slot *s)
{
	qsort(s->uses, s->n_uses, sizeof(*s->uses), by_row);
	for (uint32_t i = 0; i < s->n_uses; i++) {
		uint32_t sample = s->uses[i].sample, bit = 1u << sample % 32;

		/* The neighboring rank reports its own rows. */
		if (s->uses[i].row >= s->batch.n || b->reported[sample / 32] & bit)
			continue;
		b->reported[sample / 32] |= bit;
		b->n_reported++;
		char *text = take_text(b, sample);
		if (rows->on_bad)
			rows->on_bad(rows->user, sample, text ? text : "");
		if (text) {
			ct_free(b->last);
			b->last = text;
		}
	}
	return ct__bad_list_check(b, rows);
}

enum ct_status ct__bad_list_check(const struct ct_bad_list *b, const struct ct_loader_rows *rows)
{
	if (rows->policy == CT_BAD_FAIL || b->n_reported <= rows->max_bad)
		return CT_OK;
	CT_FAIL(CT_DATA, "%" PRIu64 " samples of %s are unreadable, but only %" PRIu64 " are allowed%s%s",
		b->n_reported, rows->info->name, rows->max_bad, b->last ? "; the last one is " : "",
		b->last ? b->last : "");
	return ct_error_hint("`ctrain data check` lists all of them; data.max_bad=N allows more");
}
