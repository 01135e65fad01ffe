/* The proof that one side of a connection gives the other one that it knows the run's secret. Each side sends a nonce,
 * a random number that is used for one connection only. The proof is HMAC-SHA256(secret, label, nonce of the client,
 * nonce of the server, message), so the secret itself is never sent, a recorded proof is worthless on another
 * connection, and the message cannot be changed. The label states who proves what: a proof cannot be sent back to its
 * author. */
#ifndef CT_DIST_NET_PROOF_H
#define CT_DIST_NET_PROOF_H

#include "base/hash/sha256.h"
#include "base/status.h"

#define CT_NONCE_BYTES 32
#define CT_PROOF_BYTES CT_SHA256_BYTES
#define CT_PROOF_OF_CLIENT "ctrain store client"
#define CT_PROOF_OF_SERVER "ctrain store server"

struct ct_nonces {
	uint8_t client[CT_NONCE_BYTES], server[CT_NONCE_BYTES];
};

/* Fills the nonce from getrandom(2). */
enum ct_status ct_nonce_make(uint8_t nonce[CT_NONCE_BYTES]) CT_MUST_CHECK;
/* The secret is a string; "" for an open network, whose proofs anyone can make. */
void ct_proof_make(const char *secret, const char *label, const struct ct_nonces *n, const void *message, size_t len,
		   uint8_t proof[CT_PROOF_BYTES]);
/* Checks a message whose last CT_PROOF_BYTES bytes are the proof of the bytes before, in constant time. */
bool ct_proof_check(const char *secret, const char *label, const struct ct_nonces *n, const void *message, size_t len);

#endif
