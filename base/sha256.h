/* SHA-256, computed by libnettle, as bytes or as a hexadecimal string. sha256.c is the only file that includes
 * nettle. */
#ifndef CT_BASE_SHA256_H
#define CT_BASE_SHA256_H

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

#endif
