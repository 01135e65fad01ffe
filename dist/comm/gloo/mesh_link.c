/* The handshake of a connection between two ranks. All numbers are little-endian:
 *
 *   connecting rank                                         accepting rank
 *   hello: "CTRANK01", u32 from, u32 to, nonce [32]    -->
 *                                                      <--  challenge: nonce [32]
 *   proof [32] of the connecting rank                  -->
 *                                                      <--  welcome: proof [32] of the accepting rank
 *
 * A proof (dist/net/proof.h) covers both nonces and both ranks, and its key is derived from the secret of the run, the
 * attempt and this communicator (mesh.c). So it cannot be used for another connection, pair of ranks, communicator or
 * attempt, and its label prevents that it is sent back to its author. The accepting rank reveals nothing before the
 * proof is valid. The connecting rank uses the connection after the welcome, so both sides know that the other one has
 * accepted it. Either side may send data after the welcome, so neither reads beyond the handshake. */
#include "dist/comm/gloo/mesh_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define MAGIC "CTRANK01"
#define MAGIC_LEN 8
#define RANKS_LEN 8
#define LABEL_CONNECTING "ctrain rank connecting"
#define LABEL_ACCEPTING "ctrain rank accepting"

void ct__link_begin(struct ct_link *l, int fd, int from, int to)
{
	*l = (struct ct_link){.fd = fd, .stage = from < 0 ? CT_LINK_HELLO : CT_LINK_CONNECTED, .from = from, .to = to};
}

static void put_u32(uint8_t *p, int value)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)((uint32_t)value >> (8 * i));
}

static int get_u32(const uint8_t *p)
{
	return (int)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static enum ct_link_state broken(struct ct_link *l, const char *why)
{
	snprintf(l->why, sizeof(l->why), "%s", why);
	return CT_LINK_BROKEN;
}

/* These few bytes always fit into the buffer of a new socket. */
static enum ct_link_state send_bytes(struct ct_link *l, const uint8_t *p, size_t n)
{
	if (send(l->fd, p, n, MSG_NOSIGNAL) != (ssize_t)n)
		return broken(l, strerror(errno));
	return CT_LINK_PENDING;
}

/* Reads until l->in contains `want` bytes. Otherwise, *s is the state of the connection. */
static bool read_up_to(struct ct_link *l, size_t want, enum ct_link_state *s)
{
	while (l->n_in < want) {
		ssize_t n = recv(l->fd, l->in + l->n_in, want - l->n_in, MSG_DONTWAIT);

		if (n > 0) {
			l->n_in += (size_t)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			*s = CT_LINK_PENDING;
		else
			*s = broken(l, n == 0 ? "the other side has closed the connection" : strerror(errno));
		return false;
	}
	l->n_in = 0;
	return true;
}

static enum ct_link_state send_proof(struct ct_link *l, const char *key, const char *label)
{
	uint8_t ranks[RANKS_LEN], proof[CT_PROOF_BYTES];

	put_u32(ranks, l->from);
	put_u32(ranks + 4, l->to);
	ct_proof_make(key, label, &l->nonces, ranks, sizeof(ranks), proof);
	return send_bytes(l, proof, sizeof(proof));
}

static bool proof_is_valid(const struct ct_link *l, const char *key, const char *label)
{
	uint8_t message[RANKS_LEN + CT_PROOF_BYTES];

	put_u32(message, l->from);
	put_u32(message + 4, l->to);
	memcpy(message + RANKS_LEN, l->in, CT_PROOF_BYTES);
	return ct_proof_check(key, label, &l->nonces, message, sizeof(message));
}

static bool make_nonce(uint8_t nonce[CT_NONCE_BYTES])
{
	if (ct_nonce_make(nonce) == CT_OK)
		return true;
	ct_error_clear();
	return false;
}

static enum ct_link_state send_hello(struct ct_link *l)
{
	uint8_t hello[CT_LINK_HELLO_BYTES];
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0 || err != 0)
		return broken(l, strerror(err ? err : errno));
	if (!make_nonce(l->nonces.client))
		return broken(l, "there are no random numbers");
	memcpy(hello, MAGIC, MAGIC_LEN);
	put_u32(hello + MAGIC_LEN, l->from);
	put_u32(hello + MAGIC_LEN + 4, l->to);
	memcpy(hello + MAGIC_LEN + RANKS_LEN, l->nonces.client, CT_NONCE_BYTES);
	l->stage = CT_LINK_CHALLENGE;
	return send_bytes(l, hello, sizeof(hello));
}

static enum ct_link_state take_hello(struct ct_link *l, int size)
{
	l->from = get_u32(l->in + MAGIC_LEN);
	if (memcmp(l->in, MAGIC, MAGIC_LEN) != 0 || get_u32(l->in + MAGIC_LEN + 4) != l->to || l->from <= l->to ||
	    l->from >= size)
		return broken(l, "the hello is not that of a rank that connects to this one");
	memcpy(l->nonces.client, l->in + MAGIC_LEN + RANKS_LEN, CT_NONCE_BYTES);
	if (!make_nonce(l->nonces.server))
		return broken(l, "there are no random numbers");
	l->stage = CT_LINK_PROOF;
	return send_bytes(l, l->nonces.server, CT_NONCE_BYTES);
}

static enum ct_link_state take_challenge(struct ct_link *l, const char *key)
{
	memcpy(l->nonces.server, l->in, CT_NONCE_BYTES);
	l->stage = CT_LINK_WELCOME;
	return send_proof(l, key, LABEL_CONNECTING);
}

static enum ct_link_state take_proof(struct ct_link *l, const char *key)
{
	if (!proof_is_valid(l, key, LABEL_CONNECTING))
		return broken(l, "the other side does not know the secret of this run");
	if (send_proof(l, key, LABEL_ACCEPTING) == CT_LINK_BROKEN)
		return CT_LINK_BROKEN;
	return CT_LINK_PROVED;
}

static enum ct_link_state take_welcome(struct ct_link *l, const char *key)
{
	if (!proof_is_valid(l, key, LABEL_ACCEPTING))
		return broken(l, "the other side does not know the secret of this run");
	return CT_LINK_PROVED;
}

static size_t bytes_of(enum ct_link_stage stage)
{
	switch (stage) {
	case CT_LINK_CONNECTED:
		return 0;
	case CT_LINK_HELLO:
		return CT_LINK_HELLO_BYTES;
	case CT_LINK_CHALLENGE:
		return CT_NONCE_BYTES;
	case CT_LINK_PROOF:
	case CT_LINK_WELCOME:
		break;
	}
	return CT_PROOF_BYTES;
}

static enum ct_link_state take(struct ct_link *l, const char *key, int size)
{
	switch (l->stage) {
	case CT_LINK_CONNECTED:
		return send_hello(l);
	case CT_LINK_HELLO:
		return take_hello(l, size);
	case CT_LINK_CHALLENGE:
		return take_challenge(l, key);
	case CT_LINK_PROOF:
		return take_proof(l, key);
	case CT_LINK_WELCOME:
		break;
	}
	return take_welcome(l, key);
}

enum ct_link_state ct__link_advance(struct ct_link *l, const char *key, int size)
{
	enum ct_link_state s = CT_LINK_PENDING;

	while (s == CT_LINK_PENDING && read_up_to(l, bytes_of(l->stage), &s))
		s = take(l, key, size);
	return s;
}
