/* A mask depends only on seed, step, node, row of the global batch and index of the element in the logical layout, so
 * it is the same for every engine, number of ranks and number of pipeline stages (callers pass the node's number in the
 * complete model). nn/cuda/kernels/dropout.cu computes the same bits; both must change together. The mask of drop path
 * is the first element of the mask of a row. */
#include "nn/host/host.h"

#include <string.h>

#include "base/rng.h"

void ct_dropout_mask(uint64_t seed, uint64_t step, int node, uint64_t row, float p, size_t n, float *mask)
{
	/* Two levels are needed because one Philox counter is too small for everything. The first level derives a key
	 * from seed, step and node. */
	const uint32_t outer[4] = {CT_RNG_DROPOUT, (uint32_t)node, (uint32_t)step, (uint32_t)(step >> 32)};
	const uint32_t seed_key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t derived[4], word[64], keep_bits;
	const uint32_t drop_below = (uint32_t)((double)p * 4294967296.0); /* p < 1 */
	const float keep = 1.0f / (1.0f - p);

	ct_philox4x32(outer, seed_key, derived);
	memcpy(&keep_bits, &keep, sizeof(keep_bits));
	for (size_t i = 0; i < n; i += 64) {
		const uint32_t inner[4] = {(uint32_t)(i / 4), CT_RNG_DROPOUT, (uint32_t)row, (uint32_t)(row >> 32)};

		ct_philox4x32_x16(inner, derived, word);
		/* Avoid a branch, which would be unpredictable. */
		for (int j = 0; j < 64; j++)
			word[j] = -(uint32_t)(word[j] >= drop_below) & keep_bits;
		memcpy(mask + i, word, (n - i < 64 ? n - i : 64) * sizeof(float));
	}
}

void ct_drop_path_mask(uint64_t seed, uint64_t step, int node, uint64_t first, float p, int rows, float *mask)
{
	for (int i = 0; i < rows; i++)
		ct_dropout_mask(seed, step, node, first + (uint64_t)i, p, 1, &mask[i]);
}
