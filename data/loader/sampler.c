/* All orders are pure functions of seed and epoch. Windows are shuffled in place: the order of the groups is kept at
 * the end of the permutation while it is filled from the front. Each remaining group has at least one sample, so the
 * front never reaches a group that has not been read. Balanced orders give each class its share of the epoch; a class
 * that is too large contributes a random subset (Knuth's algorithm S), one that is too small repeats all its samples as
 * often as they fit. Then the whole order is shuffled. The parts of a batch differ by at most one sample and are
 * computed without a loop, so any rank can be asked about any step. */
#include "data/loader/sampler.h"

#include "base/rng.h"

enum ct_status ct_sampler_check(const struct ct_sampler *s)
{
	if (s->n == 0)
		return CT_FAIL(CT_DATA, "the data set is empty");
	if (s->global_batch == 0 || s->world == 0 || s->accumulate == 0)
		return CT_FAIL(CT_CONFIG,
			       "batch of %u samples on %u ranks in %u micro-batches: each number must be at least 1",
			       s->global_batch, s->world, s->accumulate);
	if (s->rank >= s->world)
		return CT_FAIL(CT_CONFIG, "rank %u is not below the world size %u", s->rank, s->world);
	if ((uint64_t)s->world * s->accumulate > s->global_batch) {
		CT_FAIL(CT_CONFIG, "a global batch of %u samples is too small for %u ranks x %u micro-batches",
			s->global_batch, s->world, s->accumulate);
		return ct_error_hint("raise batch.global, or lower the number of ranks or train.accumulate");
	}
	if (ct_sampler_steps(s) == 0) {
		CT_FAIL(CT_CONFIG,
			"a global batch of %u samples is larger than the data set (%u samples), and partial batches are dropped",
			s->global_batch, s->n);
		return ct_error_hint("lower batch.global or keep the last partial batch");
	}
	if (s->window && s->group_first && (s->n_groups == 0 || s->group_first[s->n_groups] != s->n))
		return CT_FAIL(CT_BUG, "the sampler has %u samples, but its groups do not end there", s->n);
	return CT_OK;
}

uint64_t ct_sampler_steps(const struct ct_sampler *s)
{
	return ((uint64_t)s->n + (s->drop_last ? 0 : s->global_batch - 1)) / s->global_batch;
}

/* Divides n items into k parts whose sizes differ by at most one, larger parts first. Returns the size of part i. */
static uint32_t part(uint32_t n, uint32_t k, uint32_t i, uint32_t *first)
{
	uint32_t size = n / k, rest = n % k;

	*first = i * size + (i < rest ? i : rest);
	return size + (i < rest);
}

uint32_t ct_sampler_max_rows(const struct ct_sampler *s)
{
	uint32_t first;
	uint32_t batch = s->global_batch < s->n ? s->global_batch : s->n;

	return part(part(batch, s->world, 0, &first), s->accumulate, 0, &first);
}

struct ct_sampler_slice ct_sampler_slice(const struct ct_sampler *s, uint64_t step, uint32_t micro)
{
	struct ct_sampler_slice out = {0};
	uint32_t of_rank, in_rank, first, start;
	uint64_t left;

	if (step >= ct_sampler_steps(s))
		return out;
	start = (uint32_t)(step * s->global_batch);
	left = s->n - start;
	out.n_global = left < s->global_batch ? (uint32_t)left : s->global_batch;
	of_rank = part(out.n_global, s->world, s->rank, &first);
	out.count = part(of_rank, s->accumulate, micro, &in_rank);
	out.in_batch = first + in_rank;
	out.first = start + out.in_batch;
	return out;
}

/* Fisher-Yates in place. `stream` is the number of the shuffle within the epoch. */
static void shuffle(const struct ct_sampler *s, uint32_t epoch, uint32_t stream, uint32_t *p, uint32_t n)
{
	struct ct_rng r;

	ct_rng_init(&r, s->seed, CT_RNG_WINDOW, epoch, stream);
	for (; n > 1; n--) {
		uint32_t k = ct_rng_below(&r, n), t = p[n - 1];

		p[n - 1] = p[k];
		p[k] = t;
	}
}

static void order_windows(const struct ct_sampler *s, uint32_t epoch, uint32_t *perm)
{
	uint32_t n_groups = 0, at = 0, *groups;

	/* The order of the groups is stored at the end of perm. Empty groups are skipped, so each remaining group has
	 * at least one sample, and the samples written from the front never overwrite a group that has not been read
	 * yet. */
	for (uint32_t g = 0; g < s->n_groups; g++)
		n_groups += s->group_first[g + 1] > s->group_first[g];
	groups = perm + (s->n - n_groups);
	for (uint32_t g = 0, k = 0; g < s->n_groups; g++) {
		if (s->group_first[g + 1] > s->group_first[g])
			groups[k++] = g;
	}
	shuffle(s, epoch, 0, groups, n_groups);
	for (uint32_t k = 0, start = 0; k < n_groups; k++) {
		uint32_t g = groups[k];

		for (uint32_t i = s->group_first[g]; i < s->group_first[g + 1]; i++)
			perm[at++] = i;
		if ((k + 1) % s->window == 0 || k + 1 == n_groups) {
			shuffle(s, epoch, 1 + k / s->window, perm + start, at - start);
			start = at;
		}
	}
}

/* Appends `count` samples of `from` [n] to perm: all of them as often as possible, and then a random part of them
 * (algorithm S in Knuth, The Art of Computer Programming, section 3.4.2). */
static void draw_class(struct ct_rng *r, const uint32_t *from, uint32_t n, uint32_t count, uint32_t *perm)
{
	for (; count >= n; count -= n) {
		for (uint32_t i = 0; i < n; i++)
			*perm++ = from[i];
	}
	for (uint32_t i = 0; i < n && count; i++) {
		if (ct_rng_below(r, n - i) >= count)
			continue;
		*perm++ = from[i];
		count--;
	}
}

static void order_balanced(const struct ct_sampler *s, uint32_t epoch, uint32_t *perm)
{
	uint32_t n_classes = 0, at = 0, first;
	struct ct_rng r;

	for (int k = 0; k < s->n_classes; k++)
		n_classes += s->class_first[k + 1] > s->class_first[k];
	ct_rng_init(&r, s->seed, CT_RNG_BALANCE, epoch, 0);
	for (uint32_t k = 0, i = 0; (int)k < s->n_classes; k++) {
		const uint32_t n = s->class_first[k + 1] - s->class_first[k];
		uint32_t count;

		if (n == 0)
			continue;
		/* The classes with one more sample change from epoch to epoch. */
		count = part(s->n, n_classes, (i++ + epoch % n_classes) % n_classes, &first);
		draw_class(&r, s->by_class + s->class_first[k], n, count, perm + at);
		at += count;
	}
	for (uint32_t n = s->n; n > 1; n--) {
		uint32_t k = ct_rng_below(&r, n), t = perm[n - 1];

		perm[n - 1] = perm[k];
		perm[k] = t;
	}
}

void ct_sampler_order(const struct ct_sampler *s, uint32_t epoch, uint32_t *perm)
{
	if (s->balanced && s->by_class) {
		order_balanced(s, epoch, perm);
		return;
	}
	if (s->shuffle && s->window && s->group_first && s->n_groups > 1) {
		order_windows(s, epoch, perm);
		return;
	}
	if (s->shuffle) {
		ct_rng_permutation(s->seed, epoch, perm, s->n);
		return;
	}
	for (uint32_t i = 0; i < s->n; i++)
		perm[i] = i;
}

uint64_t ct_sampler_augment_seed(const struct ct_sampler *s, uint64_t position)
{
	return s->balanced ? s->seed + (position + 1) * 0x9e3779b97f4a7c15u : s->seed;
}
