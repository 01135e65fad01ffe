/* SHA-256 and HMAC-SHA256, computed by libnettle. sha256.c is the only file that includes nettle. */
#ifndef CT_BASE_HASH_SHA256_H
#define CT_BASE_HASH_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_SHA256_BYTES 32
#define CT_SHA256_HEX 65 /* including the NUL */

struct ct_sha256 {
	_Alignas(16) unsigned char state[160];
};
void ct_sha256_init(struct ct_sha256 *h);
void ct_sha256_update(struct ct_sha256 *h, const void *p, size_t n);
void ct_sha256_final(struct ct_sha256 *h, uint8_t out[CT_SHA256_BYTES]);
void ct_sha256_final_hex(struct ct_sha256 *h, char out[CT_SHA256_HEX]);

/* Computes HMAC-SHA256 (RFC 2104) of the n parts, one after the other. */
struct ct_hmac_part {
	const void *p;
	size_t len;
};
void ct_hmac_sha256(const void *key, size_t key_len, const struct ct_hmac_part *parts, size_t n,
		    uint8_t out[CT_SHA256_BYTES]);
/* Compares two digests in constant time. */
bool ct_sha256_equal(const uint8_t a[CT_SHA256_BYTES], const uint8_t b[CT_SHA256_BYTES]);

#endif
