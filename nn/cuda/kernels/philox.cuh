/* Philox4x32-10 (Salmon et al., SC11). It generates the same bits as base/rng.c. */
#ifndef CT_NN_CUDA_KERNELS_PHILOX_CUH
#define CT_NN_CUDA_KERNELS_PHILOX_CUH

#include <stdint.h>

struct philox_block {
	uint32_t word[4];
};

static inline __device__ struct philox_block philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
						    uint32_t k1)
{
	for (int round = 0; round < 10; round++) {
		const uint64_t m0 = (uint64_t)0xD2511F53u * c0, m1 = (uint64_t)0xCD9E8D57u * c2;

		c0 = (uint32_t)(m1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)m1;
		c2 = (uint32_t)(m0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)m0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return {{c0, c1, c2, c3}};
}

#endif
