/* 64 independent lanes each hash every 64th word by rotating and adding; a loop over the lanes has no dependency
 * between its iterations, so the compiler vectorizes it, and it is as fast as memory. Each step and the final mixing of
 * the lanes are bijections, so a change of one word always changes the result. The last incomplete group is padded with
 * zeros; the length is part of the hash, so that zeros at the end count. */
#include "base/hash/fingerprint.h"

#include <string.h>

#define LANES 64 /* independent sums, so that the loop is vectorized and does not wait for results */

uint64_t ct_fingerprint_mix(uint64_t a, uint64_t b)
{
	a = (a ^ b) * 0x9e3779b97f4a7c15;
	return a ^ a >> 32;
}

/* For a given word, the new value of a lane is a bijective function of the old one, and vice versa. Therefore a change
 * of one word is never lost. */
static uint32_t step(uint32_t lane, uint32_t word)
{
	return (lane << 7 | lane >> 25) + word;
}

uint64_t ct_fingerprint(const void *words, size_t n)
{
	uint32_t lanes[LANES] = {0}, part[LANES];
	const char *p = words;
	uint64_t sum = n;
	size_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		memcpy(part, p + i * sizeof(*part), sizeof(part));
		for (int k = 0; k < LANES; k++)
			lanes[k] = step(lanes[k], part[k]);
	}
	memset(part, 0, sizeof(part));
	if (i < n)
		memcpy(part, p + i * sizeof(*part), (n - i) * sizeof(*part));
	for (int k = 0; k < LANES; k++)
		sum = ct_fingerprint_mix(sum, step(lanes[k], part[k]));
	return sum;
}
