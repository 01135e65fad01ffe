/* The handshake of a connection between two ranks, whatever the other side sends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/comm/gloo/mesh_impl.h"

#define KEY "key of this communicator"
#define SIZE 4

/* Two ranks and the socket between them. */
struct pair {
	struct ct_link from, to;
};

static void pair_open(struct pair *p, int from, int to)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	ct__link_begin(&p->from, fds[0], from, to);
	ct__link_begin(&p->to, fds[1], -1, to);
}

static void pair_close(struct pair *p)
{
	close(p->from.fd);
	close(p->to.fd);
}

/* Continues both sides until neither can; each step of a side completes before the next one of the other. */
static void pair_run(struct pair *p, const char *from_key, const char *to_key, enum ct_link_state *from,
		     enum ct_link_state *to)
{
	*from = *to = CT_LINK_PENDING;
	for (int i = 0; i < 4; i++) {
		if (*from == CT_LINK_PENDING)
			*from = ct__link_advance(&p->from, from_key, SIZE);
		if (*from == CT_LINK_BROKEN)
			shutdown(p->from.fd, SHUT_RDWR);
		if (*to == CT_LINK_PENDING)
			*to = ct__link_advance(&p->to, to_key, SIZE);
		if (*to == CT_LINK_BROKEN)
			shutdown(p->to.fd, SHUT_RDWR);
	}
}

static void test_ranks_of_a_run(void **state)
{
	enum ct_link_state from, to;
	struct pair p;
	char byte = 0;

	(void)state;
	pair_open(&p, 3, 1);
	pair_run(&p, KEY, KEY, &from, &to);
	assert_int_equal(from, CT_LINK_PROVED);
	assert_int_equal(to, CT_LINK_PROVED);
	assert_int_equal(p.to.from, 3);
	/* Nothing is left over, and what follows is not read. */
	assert_int_equal(recv(p.from.fd, &byte, 1, 0), -1);
	assert_int_equal(recv(p.to.fd, &byte, 1, 0), -1);
	pair_close(&p);

	pair_open(&p, 3, 1);
	while ((to = ct__link_advance(&p.to, KEY, SIZE)) == CT_LINK_PENDING)
		(void)ct__link_advance(&p.from, KEY, SIZE);
	assert_int_equal(send(p.to.fd, "d", 1, 0), 1);
	assert_int_equal(ct__link_advance(&p.from, KEY, SIZE), CT_LINK_PROVED);
	assert_int_equal(recv(p.from.fd, &byte, 1, 0), 1);
	assert_int_equal(byte, 'd');
	pair_close(&p);
}

static void test_another_secret(void **state)
{
	enum ct_link_state from, to;
	struct pair p;

	(void)state;
	pair_open(&p, 1, 0);
	pair_run(&p, "another key", KEY, &from, &to);
	assert_int_equal(to, CT_LINK_BROKEN);
	assert_int_equal(from, CT_LINK_BROKEN);
	assert_string_equal(p.to.why, "the other side does not know the secret of this run");
	assert_string_equal(p.from.why, "the other side has closed the connection");
	pair_close(&p);
}

/* Reads what is there. */
static size_t take(int fd, uint8_t *buf, size_t len)
{
	ssize_t n = recv(fd, buf, len, MSG_DONTWAIT);

	return n > 0 ? (size_t)n : 0;
}

/* An accepting side that only sends back what it receives gets no further: the labels differ. */
static void test_reflection(void **state)
{
	struct ct_link l;
	uint8_t buf[256];
	size_t n;
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	ct__link_begin(&l, fds[0], 1, 0);
	assert_int_equal(ct__link_advance(&l, KEY, SIZE), CT_LINK_PENDING);
	assert_int_equal(take(fds[1], buf, sizeof(buf)), CT_LINK_HELLO_BYTES);
	/* Its own nonce is the challenge, and its own proof the welcome. */
	assert_int_equal(send(fds[1], buf + CT_LINK_HELLO_BYTES - CT_NONCE_BYTES, CT_NONCE_BYTES, 0), CT_NONCE_BYTES);
	assert_int_equal(ct__link_advance(&l, KEY, SIZE), CT_LINK_PENDING);
	n = take(fds[1], buf, sizeof(buf));
	assert_int_equal(n, CT_PROOF_BYTES);
	assert_int_equal(send(fds[1], buf, n, 0), (ssize_t)n);
	assert_int_equal(ct__link_advance(&l, KEY, SIZE), CT_LINK_BROKEN);
	close(fds[0]);
	close(fds[1]);
}

/* All that a rank has sent in one handshake is worthless in another one. */
static void test_replay(void **state)
{
	uint8_t hello[CT_LINK_HELLO_BYTES], challenge[CT_NONCE_BYTES], proof[CT_PROOF_BYTES];
	struct pair real, stolen;

	(void)state;
	pair_open(&real, 2, 1);
	assert_int_equal(ct__link_advance(&real.from, KEY, SIZE), CT_LINK_PENDING);
	assert_int_equal(take(real.to.fd, hello, sizeof(hello)), sizeof(hello));
	assert_int_equal(send(real.to.fd, "nonce of an earlier connection..", CT_NONCE_BYTES, 0), CT_NONCE_BYTES);
	assert_int_equal(ct__link_advance(&real.from, KEY, SIZE), CT_LINK_PENDING);
	assert_int_equal(take(real.to.fd, proof, sizeof(proof)), sizeof(proof));
	pair_close(&real);

	pair_open(&stolen, 2, 1);
	assert_int_equal(send(stolen.from.fd, hello, sizeof(hello), 0), sizeof(hello));
	assert_int_equal(ct__link_advance(&stolen.to, KEY, SIZE), CT_LINK_PENDING);
	assert_int_equal(take(stolen.from.fd, challenge, sizeof(challenge)), sizeof(challenge));
	assert_int_equal(send(stolen.from.fd, proof, sizeof(proof), 0), sizeof(proof));
	assert_int_equal(ct__link_advance(&stolen.to, KEY, SIZE), CT_LINK_BROKEN);
	assert_int_equal(take(stolen.from.fd, challenge, sizeof(challenge)), 0);
	pair_close(&stolen);
}

/* A relay that connects rank 2 to rank 1 instead of rank 0, or rank 3 as rank 2. */
static void test_other_ranks(void **state)
{
	static const struct {
		int meant_from, meant_to, from, to;
	} cases[] = {{2, 0, 2, 1}, {3, 1, 2, 1}};
	enum ct_link_state to;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct pair meant, real;
		uint8_t buf[CT_LINK_HELLO_BYTES];

		pair_open(&meant, cases[i].meant_from, cases[i].meant_to);
		pair_open(&real, cases[i].from, cases[i].to);
		(void)ct__link_advance(&meant.from, KEY, SIZE);
		assert_int_equal(take(meant.to.fd, buf, sizeof(buf)), sizeof(buf));
		buf[8] = (uint8_t)cases[i].from;
		buf[12] = (uint8_t)cases[i].to;
		assert_int_equal(send(real.from.fd, buf, sizeof(buf), 0), sizeof(buf));
		assert_int_equal(ct__link_advance(&real.to, KEY, SIZE), CT_LINK_PENDING);
		assert_int_equal(take(real.from.fd, buf, CT_NONCE_BYTES), CT_NONCE_BYTES);
		assert_int_equal(send(meant.to.fd, buf, CT_NONCE_BYTES, 0), CT_NONCE_BYTES);
		assert_int_equal(ct__link_advance(&meant.from, KEY, SIZE), CT_LINK_PENDING);
		assert_int_equal(take(meant.to.fd, buf, CT_PROOF_BYTES), CT_PROOF_BYTES);
		assert_int_equal(send(real.from.fd, buf, CT_PROOF_BYTES, 0), CT_PROOF_BYTES);
		to = ct__link_advance(&real.to, KEY, SIZE);
		assert_int_equal(to, CT_LINK_BROKEN);
		pair_close(&meant);
		pair_close(&real);
	}
}

/* Hellos that no rank of this communicator sends to rank 1, and parts of a handshake. */
static void test_bad_hellos(void **state)
{
	static const struct {
		const char *magic;
		uint8_t from, to, high;
	} cases[] = {{"CTRANK00", 2, 1, 0}, {"GET / HT", 2, 1, 0}, {"CTRANK01", 1, 1, 0},   {"CTRANK01", 0, 1, 0},
		     {"CTRANK01", 2, 0, 0}, {"CTRANK01", 4, 1, 0}, {"CTRANK01", 2, 1, 0xff}};
	uint8_t hello[CT_LINK_HELLO_BYTES] = {0};
	struct pair p;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		pair_open(&p, 2, 1);
		memcpy(hello, cases[i].magic, 8);
		hello[8] = cases[i].from;
		hello[11] = cases[i].high;
		hello[12] = cases[i].to;
		assert_int_equal(send(p.from.fd, hello, sizeof(hello), 0), sizeof(hello));
		assert_int_equal(ct__link_advance(&p.to, KEY, SIZE), CT_LINK_BROKEN);
		assert_int_equal(take(p.from.fd, hello, sizeof(hello)), 0);
		pair_close(&p);
	}
	pair_open(&p, 2, 1);
	assert_int_equal(send(p.from.fd, "CTRANK01", 8, 0), 8);
	assert_int_equal(ct__link_advance(&p.to, KEY, SIZE), CT_LINK_PENDING);
	shutdown(p.from.fd, SHUT_WR);
	assert_int_equal(ct__link_advance(&p.to, KEY, SIZE), CT_LINK_BROKEN);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks_of_a_run), cmocka_unit_test(test_another_secret),
		cmocka_unit_test(test_reflection),     cmocka_unit_test(test_replay),
		cmocka_unit_test(test_other_ranks),    cmocka_unit_test(test_bad_hellos),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
