/* A fast 64-bit fingerprint of memory, for comparisons between ranks: any change of a single 32-bit word changes it,
 * and other changes do so with a probability of about 1 - 2^-32. It is not cryptographic. Reads at the speed of memory.
 */
#ifndef CT_BASE_HASH_FINGERPRINT_H
#define CT_BASE_HASH_FINGERPRINT_H

#include <stddef.h>
#include <stdint.h>

/* Fingerprint of n 32-bit words. */
uint64_t ct_fingerprint(const void *words, size_t n);
/* Combines fingerprints; the order matters. */
uint64_t ct_fingerprint_mix(uint64_t a, uint64_t b);

#endif
