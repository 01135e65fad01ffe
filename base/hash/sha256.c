/* A thin layer over libnettle. The state is a block of bytes in the header, so that callers can have it on their stack
 * without nettle's header; static assertions check that nettle's state fits in it and is aligned. Nothing here
 * allocates or fails. */
#include "base/hash/sha256.h"

#include <assert.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>

static_assert(sizeof(struct sha256_ctx) <= sizeof(((struct ct_sha256 *)0)->state), "nettle's state fits");
static_assert(_Alignof(struct sha256_ctx) <= 16, "nettle's state is aligned");

static struct sha256_ctx *context(struct ct_sha256 *h)
{
	return (struct sha256_ctx *)(void *)h->state;
}

void ct_sha256_init(struct ct_sha256 *h)
{
	sha256_init(context(h));
}

void ct_sha256_update(struct ct_sha256 *h, const void *p, size_t n)
{
	if (n > 0)
		sha256_update(context(h), n, p);
}

void ct_sha256_final(struct ct_sha256 *h, uint8_t out[CT_SHA256_BYTES])
{
	sha256_digest(context(h), CT_SHA256_BYTES, out);
}

void ct_sha256_final_hex(struct ct_sha256 *h, char out[CT_SHA256_HEX])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t raw[CT_SHA256_BYTES];

	ct_sha256_final(h, raw);
	for (size_t i = 0; i < CT_SHA256_BYTES; i++) {
		out[2 * i] = digits[raw[i] >> 4];
		out[2 * i + 1] = digits[raw[i] & 15];
	}
	out[2 * CT_SHA256_BYTES] = '\0';
}

void ct_hmac_sha256(const void *key, size_t key_len, const struct ct_hmac_part *parts, size_t n,
		    uint8_t out[CT_SHA256_BYTES])
{
	struct hmac_sha256_ctx h;

	hmac_sha256_set_key(&h, key_len, key);
	for (size_t i = 0; i < n; i++) {
		if (parts[i].len > 0)
			hmac_sha256_update(&h, parts[i].len, parts[i].p);
	}
	hmac_sha256_digest(&h, CT_SHA256_BYTES, out);
}

bool ct_sha256_equal(const uint8_t a[CT_SHA256_BYTES], const uint8_t b[CT_SHA256_BYTES])
{
	return memeql_sec(a, b, CT_SHA256_BYTES);
}
