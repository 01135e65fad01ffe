/* Helpers for tests of the store: a server of one run, its clients, and raw connections to which the test itself writes
 * frames. */
#ifndef CT_TESTS_DIST_STORE_RIG_H
#define CT_TESTS_DIST_STORE_RIG_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/store/wire.h"
#include "tests/base/check.h"

#define SOON ct_deadline_in(20 * CT_SEC)

static inline struct ct_store_opts opts_of(const char *run_id, const char *token, int member)
{
	struct ct_store_opts o = {.member = member, .pid = 1000 + member};

	snprintf(o.run_id, sizeof(o.run_id), "%s", run_id);
	snprintf(o.token, sizeof(o.token), "%s", token);
	snprintf(o.host, sizeof(o.host), "h%d", member);
	return o;
}

/* owner: the member in whose process the server runs, or -1. */
static inline ct_store_server *serve_for(int owner)
{
	struct ct_store_opts o = opts_of("run-a", "secret", owner);
	ct_store_server *s = NULL;

	assert_ok(ct_store_server_start(NULL, 0, &o, &s));
	return s;
}

static inline ct_store_server *serve(void)
{
	return serve_for(0);
}

static inline ct_store *join(ct_store_server *srv, int member)
{
	struct ct_store_opts o = opts_of("run-a", "secret", member);
	ct_store *s = NULL;

	assert_ok(ct_store_connect("127.0.0.1", ct_store_server_port(srv), &o, SOON, &s));
	return s;
}

static inline void must_hold(ct_store *s, const char *key, const char *value)
{
	char *got;
	size_t len;

	assert_ok(ct_store_get(s, key, SOON, &got, &len));
	assert_int_equal(len, strlen(value));
	assert_string_equal(got, value);
	ct_free(got);
}

/* A peer that sends nothing makes the test fail, not hang. */
static inline void limit_waits(int fd)
{
	const struct timeval limit = {.tv_sec = 20};

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
}

static inline int raw(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	limit_waits(fd);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* Checks that the peer ends the connection (with an orderly shutdown or a reset), possibly after sending some bytes. */
static inline void expect_closed(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char buf[4096];
	ssize_t n;

	do {
		assert_int_equal(poll(&p, 1, 20000), 1);
		n = recv(fd, buf, sizeof(buf), 0);
	} while (n > 0);
	close(fd);
}

static inline void still_serves(ct_store *s)
{
	int64_t n;

	assert_ok(ct_store_add(s, "alive", 1, &n));
}

static inline void send_frame(int fd, enum ct_wire_op op, uint64_t tag, const void *body, size_t len)
{
	const struct ct_wire_frame f = {.len = (uint32_t)len, .op = (uint16_t)op, .tag = tag};
	uint8_t header[CT_WIRE_HEADER_LEN];

	ct_wire_encode_header(header, &f);
	assert_int_equal(send(fd, header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
	if (len > 0)
		assert_int_equal(send(fd, body, len, MSG_NOSIGNAL), len);
}

/* Sends the magic and a nonce, and receives the server's nonce. */
static inline int raw_challenged(int port, struct ct_nonces *nonces)
{
	char answer[CT_WIRE_MAGIC_LEN + CT_WIRE_HEADER_LEN];
	int fd = raw(port);

	assert_ok(ct_nonce_make(nonces->client));
	assert_int_equal(send(fd, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN, MSG_NOSIGNAL), CT_WIRE_MAGIC_LEN);
	send_frame(fd, CT_WIRE_HELLO, 0, nonces->client, CT_NONCE_BYTES);
	assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	assert_memory_equal(answer, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN);
	assert_int_equal(recv(fd, nonces->server, CT_NONCE_BYTES, MSG_WAITALL), CT_NONCE_BYTES);
	return fd;
}

/* Makes the frame with which a member of the run answers the challenge. */
static inline void handshake_frame(struct ct_str *b, int member, const char *secret, const struct ct_nonces *nonces)
{
	struct ct_wire_handshake h = {.run_id = "run-a", .host = "raw", .member = member, .pid = 77};

	ct_wire_begin(b, CT_WIRE_HANDSHAKE, CT_OK, 0);
	ct_wire_put_handshake(b, &h);
	ct_wire_put_proof(b, secret, CT_PROOF_OF_CLIENT, nonces);
	ct_wire_end(b, 0);
}

/* Joins as a member over a raw connection, and reads only the beginning of the server's welcome. */
static inline int raw_newcomer(ct_store_server *srv, int member)
{
	struct ct_nonces nonces;
	int fd = raw_challenged(ct_store_server_port(srv), &nonces);
	struct ct_str b = {0};
	char answer[CT_WIRE_HEADER_LEN];

	handshake_frame(&b, member, "secret", &nonces);
	assert_int_equal(send(fd, b.s, b.len, MSG_NOSIGNAL), b.len);
	assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	ct_str_release(&b);
	return fd;
}

static inline int raw_member(ct_store_server *srv, int member)
{
	int fd = raw_newcomer(srv, member);

	send_frame(fd, CT_WIRE_READY, 0, NULL, 0);
	return fd;
}

#endif
