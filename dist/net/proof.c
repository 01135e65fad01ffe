#include "dist/net/proof.h"

#include <string.h>

#include "dist/net/token.h"

enum ct_status ct_nonce_make(uint8_t nonce[CT_NONCE_BYTES])
{
	return ct_random_bytes(nonce, CT_NONCE_BYTES);
}

void ct_proof_make(const char *secret, const char *label, const struct ct_nonces *n, const void *message, size_t len,
		   uint8_t proof[CT_PROOF_BYTES])
{
	/* The label's NUL separates it from the nonces, which have a fixed length. */
	const struct ct_hmac_part parts[] = {
		{label, strlen(label) + 1}, {n->client, CT_NONCE_BYTES}, {n->server, CT_NONCE_BYTES}, {message, len}};

	ct_hmac_sha256(secret, strlen(secret), parts, sizeof(parts) / sizeof(parts[0]), proof);
}

bool ct_proof_check(const char *secret, const char *label, const struct ct_nonces *n, const void *message, size_t len)
{
	uint8_t expected[CT_PROOF_BYTES];

	if (len < CT_PROOF_BYTES)
		return false;
	len -= CT_PROOF_BYTES;
	ct_proof_make(secret, label, n, message, len, expected);
	return ct_sha256_equal(expected, (const uint8_t *)message + len);
}
