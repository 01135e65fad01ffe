#include "data/sampler.h"

#include "base/rng.h"

enum ct_status ct_sampler_check(const struct ct_sampler *s)
{
	if (s->n == 0)
		return CT_FAIL(CT_DATA, "the data set is empty");
	if (s->global_batch == 0 || s->world == 0 || s->accumulate == 0)
		return CT_FAIL(CT_CONFIG, "batch of %u samples on %u ranks in %u micro-batches: all must be at least 1",
			       s->global_batch, s->world, s->accumulate);
	if (s->rank >= s->world)
		return CT_FAIL(CT_CONFIG, "rank %u of a world of %u", s->rank, s->world);
	if ((uint64_t)s->world * s->accumulate > s->global_batch) {
		(void)CT_FAIL(CT_CONFIG, "a global batch of %u samples is too small for %u ranks x %u micro-batches",
			      s->global_batch, s->world, s->accumulate);
		ct_error_hint("raise batch.global, or lower the number of ranks or train.accumulate");
		return CT_CONFIG;
	}
	if (ct_sampler_steps(s) == 0) {
		(void)CT_FAIL(
			CT_CONFIG,
			"a global batch of %u samples is larger than the data set (%u), and the last one is dropped",
			s->global_batch, s->n);
		ct_error_hint("lower batch.global or keep the last partial batch");
		return CT_CONFIG;
	}
	return CT_OK;
}

uint64_t ct_sampler_steps(const struct ct_sampler *s)
{
	return ((uint64_t)s->n + (s->drop_last ? 0 : s->global_batch - 1)) / s->global_batch;
}

/* Part i of n things cut into k parts whose sizes differ by one at most, larger ones first. */
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

void ct_sampler_order(const struct ct_sampler *s, uint32_t epoch, uint32_t *perm)
{
	if (s->shuffle) {
		ct_rng_permutation(s->seed, epoch, perm, s->n);
		return;
	}
	for (uint32_t i = 0; i < s->n; i++)
		perm[i] = i;
}
