#include "tests/fuzz/store_input.h"

#include <string.h>

#include "dist/store/server_impl.h"

/* Feeds a valid handshake first, so that random input also reaches the requests that follow a handshake. */
static enum ct_status fuzz_handshake(struct ct_srv_conn *c)
{
	const struct ct_wire_handshake h = {.run_id = "fuzz", .host = "h", .pid = 1};
	const struct ct_wire_frame hello = {.op = CT_WIRE_HELLO, .len = CT_NONCE_BYTES};
	const struct ct_nonces nonces = {0};
	uint8_t header[CT_WIRE_HEADER_LEN];
	struct ct_str b = {0};
	enum ct_status st;

	ct_wire_begin(&b, CT_WIRE_HANDSHAKE, CT_OK, 0);
	ct_wire_put_handshake(&b, &h);
	ct_wire_put_proof(&b, "", CT_PROOF_OF_CLIENT, &nonces);
	ct_wire_end(&b, 0);
	st = ct_str_status(&b);
	if (st == CT_OK) {
		ct__srv_conn_input(c, (const uint8_t *)CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN);
		ct_wire_encode_header(header, &hello);
		ct__srv_conn_input(c, header, sizeof(header));
		ct__srv_conn_input(c, nonces.client, sizeof(nonces.client));
		ct__srv_conn_input(c, (const uint8_t *)ct_str_text(&b), b.len);
	}
	ct_str_release(&b);
	return st;
}

static enum ct_status fuzz_feed(ct_store_server *s, const uint8_t *data, size_t len)
{
	size_t cut = len > 1 ? data[0] : 0;
	struct ct_srv_conn *c;
	enum ct_status st = CT_OK;

	/* The first byte says where the bytes are split in two. If it is odd, they start with the handshake. */
	CT_TRY_ALLOC(c = ct__srv_conn_open(s, -1, "fuzz"));
	if (!(cut & 1))
		CT_TRY(fuzz_handshake(c));
	data += len > 0;
	len -= len > 0;
	cut = cut < len ? cut : len;
	ct__srv_conn_input(c, data, cut);
	ct__srv_conn_input(c, data + cut, len - cut);
	ct__srv_conn_flush(c);
	if (c->gone)
		st = CT_FAIL(CT_COMM, "refused: %s", strerror(c->err));
	ct__srv_finish_gone(s);
	return st;
}

enum ct_status store_input(const uint8_t *data, size_t len)
{
	const struct ct_store_opts opts = {.run_id = "fuzz", .host = "h", .member = 0, .pid = 1};
	ct_store_server *s;
	enum ct_status st;

	CT_TRY_ALLOC(s = CT_NEW(ct_store_server));
	st = ct__srv_init(s, &opts);
	s->quiet = true;
	if (st == CT_OK)
		st = fuzz_feed(s, data, len);
	ct__srv_release(s);
	ct_free(s);
	return st;
}
