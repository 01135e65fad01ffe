/* Philox maps a counter and a key to four numbers; there is no other state, so that any number of any stream can be
 * computed directly, by any thread, in any order. Results of runs depend on every bit, so every path (the scalar one,
 * the one with SSE2, the permutation with prefetching) must give the same numbers as the plain definition. A
 * permutation draws its indexes in advance to prefetch memory, but in the same order. */
#include "base/rng.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define CHUNK 64 /* how many numbers the permutation draws in advance; a multiple of 4 */

void ct_philox4x32(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t m0 = (uint64_t)0xD2511F53u * c0, m1 = (uint64_t)0xCD9E8D57u * c2;

		c0 = (uint32_t)(m1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)m1;
		c2 = (uint32_t)(m0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)m0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

#ifdef __SSE2__
/* Computes eight blocks: two per vector, one in each 64-bit lane. The multiplication reads only the lower half of a
 * lane, so the upper halves are not cleared until the end. */
static void eight_blocks(uint32_t first, const uint32_t ctr[4], const uint32_t key[2], uint32_t out[32])
{
	const __m128i low = _mm_set1_epi64x(0xFFFFFFFF);
	const __m128i mul0 = _mm_set1_epi64x(0xD2511F53), mul1 = _mm_set1_epi64x(0xCD9E8D57);
	__m128i c0[4], c1[4], c2[4], c3[4];
	uint32_t k0 = key[0], k1 = key[1];

	for (uint32_t i = 0; i < 4; i++) {
		c0[i] = _mm_set_epi32(0, (int)(first + 2 * i + 1), 0, (int)(first + 2 * i));
		c1[i] = _mm_set1_epi64x(ctr[1]);
		c2[i] = _mm_set1_epi64x(ctr[2]);
		c3[i] = _mm_set1_epi64x(ctr[3]);
	}
	for (int round = 0; round < 10; round++) {
		const __m128i key0 = _mm_set1_epi64x(k0), key1 = _mm_set1_epi64x(k1);

		for (int i = 0; i < 4; i++) {
			__m128i m0 = _mm_mul_epu32(c0[i], mul0), m1 = _mm_mul_epu32(c2[i], mul1);

			c0[i] = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(m1, 32), c1[i]), key0);
			c1[i] = m1;
			c2[i] = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(m0, 32), c3[i]), key1);
			c3[i] = m0;
		}
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	for (int i = 0; i < 4; i++) {
		__m128i head = _mm_or_si128(_mm_and_si128(c0[i], low), _mm_slli_epi64(c1[i], 32));
		__m128i tail = _mm_or_si128(_mm_and_si128(c2[i], low), _mm_slli_epi64(c3[i], 32));

		_mm_storeu_si128((__m128i *)(void *)(out + 8 * i), _mm_unpacklo_epi64(head, tail));
		_mm_storeu_si128((__m128i *)(void *)(out + 8 * i + 4), _mm_unpackhi_epi64(head, tail));
	}
}

void ct_philox4x32_x16(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[64])
{
	eight_blocks(ctr[0], ctr, key, out);
	eight_blocks(ctr[0] + 8, ctr, key, out + 32);
}
#else
void ct_philox4x32_x16(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[64])
{
	for (uint32_t i = 0; i < 16; i++) {
		const uint32_t at[4] = {ctr[0] + i, ctr[1], ctr[2], ctr[3]};

		ct_philox4x32(at, key, out + 4 * i);
	}
}
#endif

void ct_rng_init(struct ct_rng *r, uint64_t seed, enum ct_rng_purpose purpose, uint32_t a, uint32_t b)
{
	*r = (struct ct_rng){
		.key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .ctr = {0, (uint32_t)purpose, a, b}, .used = 4};
}

void ct_rng_seek(struct ct_rng *r, uint64_t n)
{
	r->ctr[0] = (uint32_t)(n / 4);
	r->used = 4;
	for (uint64_t i = 0; i < n % 4; i++)
		ct_rng_u32(r);
}

uint32_t ct_rng_u32(struct ct_rng *r)
{
	if (r->used == 4) {
		ct_philox4x32(r->ctr, r->key, r->block);
		r->ctr[0]++;
		r->used = 0;
	}
	return r->block[r->used++];
}

/* Maps x to [0, n). Returns false if x must be rejected so that all results are equally likely. */
static bool scale(uint32_t x, uint32_t n, uint32_t *out)
{
	uint64_t m = (uint64_t)x * n;

	*out = (uint32_t)(m >> 32);
	return (uint32_t)m >= n || (uint32_t)m >= -n % n;
}

uint32_t ct_rng_below(struct ct_rng *r, uint32_t n)
{
	uint32_t v;

	CT_ASSERT(n > 0);
	while (!scale(ct_rng_u32(r), n, &v))
		;
	return v;
}

float ct_rng_uniform(struct ct_rng *r)
{
	return (float)(ct_rng_u32(r) >> 8) * 0x1p-24f;
}

void ct_rng_permutation(uint64_t seed, uint32_t epoch, uint32_t *perm, uint32_t n)
{
	uint32_t at[CHUNK];
	uint32_t left = n;
	struct ct_rng r;

	for (uint32_t i = 0; i < n; i++)
		perm[i] = i;
	ct_rng_init(&r, seed, CT_RNG_PERMUTE, epoch, 0);
	/* This is for (left = n; left > 1; left--) swap(perm[left - 1], perm[ct_rng_below(&r, left)]), with the indexes
	 * drawn in advance. Permuting a large set is limited by cache misses; known indexes allow prefetching. */
	while (left > 1) {
		uint32_t m = left - 1 < CHUNK ? left - 1 : CHUNK;

		for (uint32_t i = 0; i < m; i++) {
			at[i] = ct_rng_below(&r, left - i);
			__builtin_prefetch(&perm[at[i]], 1);
		}
		for (uint32_t i = 0; i < m; i++, left--) {
			uint32_t t = perm[left - 1];

			perm[left - 1] = perm[at[i]];
			perm[at[i]] = t;
		}
	}
}

uint64_t ct_hash64(const void *p, size_t n)
{
	const unsigned char *s = p;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 0x100000001b3u;
	return h;
}
