/* A row depends only on the sample at its position in the epoch, never on the thread that fills it. Pairs for mixing
 * are counted from the start of the global batch, so they are the same for any number of ranks: a slice that cuts a
 * pair also loads the neighboring row. An atomic counter for each pair decides which of its two rows is filled second;
 * that thread mixes both, and acquire and release make the other row visible to it.
 *
 * A bad sample is replaced by one that is drawn from a generator keyed by the position, so all ranks and a resumed run
 * take the same one. Known bad samples are not read again, but count as an attempt, so the sequence of draws is the
 * same whether a sample was known before or not. */
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "data/loader/loader_impl.h"
#include "data/transform/mix.h"

#define MAX_ATTEMPTS 100 /* to replace a bad sample by a good one */

static bool mixes(const struct ct_loader_rows *rows)
{
	return rows->mixup > 0 || rows->cutmix > 0;
}

/* Position of a row in the global batch. */
static uint32_t position(const struct ct_loader_slot *s, uint32_t row)
{
	if (row < s->batch.n)
		return s->batch.in_batch + row;
	return s->before && row == s->batch.n ? s->batch.in_batch - 1 : s->batch.in_batch + s->batch.n;
}

uint32_t ct__loader_position(const struct ct_loader_slot *s, uint32_t row)
{
	return s->first - s->batch.in_batch + position(s, row);
}

void ct__loader_neighbors(const struct ct_loader_rows *rows, struct ct_loader_slot *s)
{
	uint32_t end = s->batch.in_batch + s->batch.n;
	bool mixed = mixes(rows) && s->batch.n > 0;
	bool after = mixed && end % 2 == 1 && end < s->batch.n_global;

	s->before = mixed && s->batch.in_batch % 2 == 1;
	s->n_work = s->batch.n + s->before + after;
}

/* Returns the partner of a row, that is, the other row of its pair (2k, 2k+1) in the global batch, or the row itself if
 * it has no partner. */
static uint32_t partner(const struct ct_loader_slot *s, uint32_t row)
{
	uint32_t at = position(s, row) ^ 1;

	if (at >= s->batch.n_global)
		return row;
	if (s->before && at == s->batch.in_batch - 1)
		return s->batch.n;
	if (at >= s->batch.in_batch + s->batch.n)
		return s->n_work - 1;
	return at - s->batch.in_batch;
}

static void set_mix(struct ct_loader_slot *s, uint32_t row, uint32_t other, float share)
{
	s->labels_b[row] = s->labels[other];
	s->mix[row] = share;
	if (s->rows) {
		s->rows[row].label_b = s->labels[other];
		s->rows[row].mix = share;
	}
}

/* Called when a row has been filled. Mixes its pair if the other row is already filled, so whichever row is filled
 * second does the work. */
static void mix_row(const struct ct_loader_rows *rows, struct ct_loader_worker *w, struct ct_loader_slot *s,
		    uint32_t row)
{
	uint32_t other = partner(s, row), even = position(s, row) & ~1u;
	uint32_t a = position(s, row) == even ? row : other, b = a == row ? other : row;
	_Atomic uint8_t *pair = &s->pairs[(even - (s->batch.in_batch & ~1u)) / 2];
	int64_t begin = ct_now_ns();
	struct ct_mix m;

	if (other == row) {
		set_mix(s, row, row, 1);
		return;
	}
	if (atomic_fetch_add_explicit(pair, 1, memory_order_acq_rel) == 0)
		return;
	ct_mix_draw(rows->mixup, rows->cutmix, rows->sampler.seed, s->batch.epoch, ct__loader_position(s, a),
		    s->batch.h, s->batch.w, &m);
	if (s->rows)
		ct_mix_describe(&m, &s->rows[a], &s->rows[b]);
	else
		ct_mix_apply(&m, s->batch.h, s->batch.w, rows->c, s->x + a * s->row_bytes, s->x + b * s->row_bytes);
	set_mix(s, a, b, m.share);
	set_mix(s, b, a, m.share);
	w->assemble_ns += ct_now_ns() - begin;
}

static uint64_t augment_seed(const struct ct_loader_rows *rows, const struct ct_loader_slot *s, uint32_t row)
{
	return ct_sampler_augment_seed(&rows->sampler, ct__loader_position(s, row));
}

static enum ct_status describe_row(const struct ct_loader_rows *rows, struct ct_loader_slot *s, uint32_t row,
				   uint32_t sample)
{
	struct ct_image_row *out = &s->rows[row];

	CT_TRY(ct_dataset_read(rows->data, sample, NULL, &s->labels[row], NULL));
	*out = (struct ct_image_row){.weight = 256, .label = s->labels[row], .label_b = s->labels[row], .mix = 1};
	ct_augment_describe(rows->describe, augment_seed(rows, s, row), s->batch.epoch, sample, s->batch.h, s->batch.w,
			    &out->own);
	out->other = out->own;
	return CT_OK;
}

static enum ct_status read_row(const struct ct_loader_rows *rows, struct ct_loader_worker *w, struct ct_loader_slot *s,
			       uint32_t row, uint32_t sample)
{
	uint8_t *x = s->rows ? NULL : s->x + row * s->row_bytes;
	int32_t *label = s->labels ? s->labels + row : NULL;
	float *target = s->targets ? s->targets + (size_t)row * (size_t)rows->info->n_targets : NULL;

	s->samples[row] = sample;
	if (s->rows)
		return describe_row(rows, s, row, sample);
	if (w->transformer)
		return ct_transformer_run(w->transformer, augment_seed(rows, s, row), s->batch.epoch, sample, x, label);
	return ct_dataset_read(rows->data, sample, x, label, target);
}

/* Adds the sample's name to the thread's error. */
static enum ct_status name_sample(const struct ct_loader_rows *rows, uint32_t sample)
{
	char where[512];

	ct_dataset_describe(rows->data, sample, where, sizeof(where));
	return ct_error_wrap("%s", where);
}

/* Records a bad sample and tries to replace it. */
static enum ct_status fill_some(const struct ct_loader_rows *rows, struct ct_bad_list *bad, struct ct_loader_worker *w,
				struct ct_loader_slot *s, uint32_t row, uint32_t sample)
{
	struct ct_rng r;

	for (uint32_t attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		if (!ct__bad_list_knows(bad, sample)) {
			enum ct_status st = read_row(rows, w, s, row, sample);

			if (st == CT_OK)
				return CT_OK;
			if (st != CT_DATA)
				return name_sample(rows, sample);
			CT_TRY(ct__bad_list_add(bad, rows->data, sample));
		}
		CT_TRY(ct__bad_list_use(bad, s, (struct ct_bad_use){row, attempt, sample}));
		if (rows->policy == CT_BAD_DROP) {
			s->dropped[row] = 1;
			return CT_OK;
		}
		if (attempt == 0)
			ct_rng_init(&r, rows->sampler.seed, CT_RNG_REPLACE, s->batch.epoch,
				    ct__loader_position(s, row));
		sample = ct_rng_below(&r, rows->sampler.n);
	}
	CT_FAIL(CT_DATA, "found no replacement for an unreadable sample: %d samples of %s in succession are unreadable",
		MAX_ATTEMPTS, rows->info->name);
	return ct_error_hint("`ctrain data check` reports what is wrong with them");
}

enum ct_status ct__loader_fill(const struct ct_loader_rows *rows, struct ct_bad_list *bad, struct ct_loader_worker *w,
			       struct ct_loader_slot *s, const uint32_t *order, uint32_t row)
{
	uint32_t sample = order[ct__loader_position(s, row)];

	if (rows->policy == CT_BAD_FAIL) {
		if (read_row(rows, w, s, row, sample) < 0)
			return name_sample(rows, sample);
	} else {
		s->dropped[row] = 0;
		CT_TRY(fill_some(rows, bad, w, s, row, sample));
	}
	if (mixes(rows))
		mix_row(rows, w, s, row);
	return CT_OK;
}

void ct__loader_compact(struct ct_loader_slot *s, const struct ct_dataset_info *info)
{
	size_t n_targets = (size_t)info->n_targets;
	uint32_t to = 0;

	for (uint32_t row = 0; row < s->batch.n; row++) {
		if (s->dropped[row])
			continue;
		if (to != row) {
			if (s->rows)
				s->rows[to] = s->rows[row];
			else
				memcpy(s->x + to * s->row_bytes, s->x + row * s->row_bytes, s->row_bytes);
			s->samples[to] = s->samples[row];
			if (s->labels)
				s->labels[to] = s->labels[row];
			if (s->targets)
				memcpy(s->targets + to * n_targets, s->targets + row * n_targets,
				       n_targets * sizeof(float));
		}
		to++;
	}
	s->batch.n = to;
}
