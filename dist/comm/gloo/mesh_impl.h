/* One connection of a mesh until it is proved. */
#ifndef CT_DIST_COMM_GLOO_MESH_IMPL_H
#define CT_DIST_COMM_GLOO_MESH_IMPL_H

#include "dist/net/proof.h"

#define CT_LINK_HELLO_BYTES (8 + 4 + 4 + CT_NONCE_BYTES)

/* What a side waits for. */
enum ct_link_stage {
	CT_LINK_CONNECTED, /* the side that connects */
	CT_LINK_CHALLENGE,
	CT_LINK_WELCOME,
	CT_LINK_HELLO, /* the side that accepts */
	CT_LINK_PROOF,
};

enum ct_link_state { CT_LINK_PENDING, CT_LINK_PROVED, CT_LINK_BROKEN };

struct ct_link {
	int fd; /* non-blocking, owned by the caller */
	enum ct_link_stage stage;
	int from, to; /* ranks: `from` connects to `to`. On the side that accepts, `from` is valid after the hello. */
	struct ct_nonces nonces;
	uint8_t in[CT_LINK_HELLO_BYTES];
	size_t n_in;
	char why[96]; /* the reason if it is broken */
};

/* Begins at a socket that is being connected (from > to), or at one that has been accepted (from < 0). */
void ct__link_begin(struct ct_link *l, int fd, int from, int to);
/* Continues as far as possible without blocking. `key` is the same string on all ranks, and secret. size: the number of
 * ranks. Reads nothing that follows the handshake. */
enum ct_link_state ct__link_advance(struct ct_link *l, const char *key, int size);

#endif
