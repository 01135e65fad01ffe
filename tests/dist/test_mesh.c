/* Ranks that meet while strangers connect to their ports, or that cannot meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "dist/comm/gloo/mesh.h"
#include "dist/comm/gloo/mesh_impl.h"
#include "tests/dist/store_rig.h"

#define SIZE 4
#define SCOPE "comm/0/1"

/* A rank in a thread of this process. */
struct member {
	struct ct_comm comm;
	struct ct_world world;
	struct ct_mesh mesh;
	pthread_t thread;
	enum ct_status status;
	char message[512];
};

static const struct ct_peer peers[SIZE] = {{.rank = 0, .pid = 10, .host = "h0"},
					   {.rank = 1, .pid = 11, .host = "h1"},
					   {.rank = 2, .pid = 12, .host = "h2"},
					   {.rank = 3, .pid = 13, .host = "h3"}};

static void *meet(void *arg)
{
	struct member *m = arg;

	m->status = ct__mesh_connect(&m->comm, "127.0.0.1", &m->mesh);
	snprintf(m->message, sizeof(m->message), "%s", m->status < 0 ? ct_error_message() : "");
	return NULL;
}

static void member_start(struct member *m, ct_store_server *srv, int rank, int size, int64_t limit_ns)
{
	*m = (struct member){.comm = {.rank = rank, .size = size, .world = &m->world, .opts.connect_ns = limit_ns}};
	m->world.peers = (struct ct_peer *)(uintptr_t)peers;
	m->world.store = join(srv, rank);
	snprintf(m->comm.scope, sizeof(m->comm.scope), SCOPE);
	assert_int_equal(pthread_create(&m->thread, NULL, meet, m), 0);
}

static void member_join(struct member *m)
{
	assert_int_equal(pthread_join(m->thread, NULL), 0);
}

static void member_close(struct member *m)
{
	ct__mesh_release(&m->mesh);
	ct_store_close(m->world.store);
}

static int port_of_rank(ct_store *s, int rank)
{
	char name[64], *value;
	size_t len;
	int port;

	snprintf(name, sizeof(name), SCOPE "/mesh/addr%d", rank);
	assert_ok(ct_store_get(s, name, SOON, &value, &len));
	assert_memory_equal(value, "127.0.0.1 ", 10);
	port = (int)strtol(value + 10, NULL, 10);
	ct_free(value);
	return port;
}

/* What only the ranks of the run know. */
static void key_of_ranks(ct_store *s, char key[CT_TOKEN_HEX])
{
	char *number, purpose[256];
	size_t len;

	assert_ok(ct_store_get(s, SCOPE "/mesh/key", SOON, &number, &len));
	snprintf(purpose, sizeof(purpose), "ranks " SCOPE " %s", number);
	ct_store_derive_key(s, purpose, key);
	ct_free(number);
}

/* Connects as a rank to rank 0 by the handshake only. Returns the socket; *state is its result. */
static int connect_as(int rank, int port, const char *key, enum ct_link_state *state)
{
	struct ct_link l;
	struct pollfd p;
	int fd = raw(port);

	ct__link_begin(&l, fd, rank, 0);
	while ((*state = ct__link_advance(&l, key, SIZE)) == CT_LINK_PENDING) {
		p = (struct pollfd){.fd = fd, .events = POLLIN};
		assert_int_equal(poll(&p, 1, 20000), 1);
	}
	return fd;
}

static void check_mesh(struct member *m, int size)
{
	for (int r = 0; r < size; r++) {
		assert_int_equal(m[r].status, CT_OK);
		for (int q = 0; q < size; q++) {
			if (q != r)
				assert_int_equal(send(m[r].mesh.fd[q], &r, sizeof(r), MSG_NOSIGNAL), sizeof(r));
		}
	}
	for (int r = 0; r < size; r++) {
		assert_int_equal(m[r].mesh.fd[r], -1);
		assert_int_equal(ct__mesh_lost(&m[r].mesh), -1);
		for (int q = 0; q < size; q++) {
			int from = -1;
			struct pollfd p = {.fd = m[r].mesh.fd[q], .events = POLLIN};

			if (q == r)
				continue;
			assert_int_equal(poll(&p, 1, 20000), 1);
			assert_int_equal(recv(p.fd, &from, sizeof(from), 0), sizeof(from));
			assert_int_equal(from, q);
		}
	}
}

static void test_ranks_meet(void **state)
{
	struct member m[SIZE];
	ct_store_server *srv = serve();

	(void)state;
	for (int r = SIZE - 1; r >= 0; r--)
		member_start(&m[r], srv, r, SIZE, 20 * CT_SEC);
	for (int r = 0; r < SIZE; r++)
		member_join(&m[r]);
	check_mesh(m, SIZE);
	ct__mesh_shut(&m[2].mesh);
	assert_int_equal(ct__mesh_lost(&m[1].mesh), 2);
	for (int r = 0; r < SIZE; r++)
		member_close(&m[r]);
	ct_store_server_stop(srv, SOON);
}

/* More strangers than there is room for, of each kind, some of which stay until the end. */
static void test_strangers(void **state)
{
	enum { N = 300 };
	enum ct_link_state result;
	int held[N], port, fd;
	struct member m[3];
	ct_store_server *srv = serve();

	(void)state;
	member_start(&m[0], srv, 0, 3, 60 * CT_SEC);
	port = port_of_rank(m[0].world.store, 0);
	for (int i = 0; i < N; i++) {
		held[i] = raw(port);
		if (i % 3 == 1)
			assert_true(send(held[i], "CTRANK01\1\0\0\0\0\0\0\0", 16, MSG_NOSIGNAL) == 16);
		if (i % 3 == 2)
			assert_true(send(held[i], "GET / HTTP/1.1\r\nHost: of another program\r\n\r\n", 45,
					 MSG_NOSIGNAL) == 45);
		if (i % 7 == 3) {
			close(held[i]);
			held[i] = -1;
		}
	}
	/* One who knows the protocol and the ranks, but not the secret. */
	fd = connect_as(1, port, "a guess", &result);
	assert_int_equal(result, CT_LINK_BROKEN);
	close(fd);
	member_start(&m[1], srv, 1, 3, 60 * CT_SEC);
	member_start(&m[2], srv, 2, 3, 60 * CT_SEC);
	for (int r = 0; r < 3; r++)
		member_join(&m[r]);
	check_mesh(m, 3);
	for (int i = 0; i < N; i++) {
		if (held[i] >= 0)
			expect_closed(held[i]);
	}
	for (int r = 0; r < 3; r++)
		member_close(&m[r]);
	ct_store_server_stop(srv, SOON);
}

/* A rank whose first connection broke after it was proved. */
static void test_second_connection(void **state)
{
	enum ct_link_state result;
	char key[CT_TOKEN_HEX], byte;
	int first, second, other, port;
	struct pollfd p;
	struct member m;
	ct_store_server *srv = serve();

	(void)state;
	member_start(&m, srv, 0, 3, 60 * CT_SEC);
	port = port_of_rank(m.world.store, 0);
	key_of_ranks(m.world.store, key);
	first = connect_as(1, port, key, &result);
	assert_int_equal(result, CT_LINK_PROVED);
	second = connect_as(1, port, key, &result);
	assert_int_equal(result, CT_LINK_PROVED);
	expect_closed(first);
	other = connect_as(2, port, key, &result);
	assert_int_equal(result, CT_LINK_PROVED);
	member_join(&m);
	assert_int_equal(m.status, CT_OK);
	assert_int_equal(send(second, "2", 1, 0), 1);
	p = (struct pollfd){.fd = m.mesh.fd[1], .events = POLLIN};
	assert_int_equal(poll(&p, 1, 20000), 1);
	assert_int_equal(recv(m.mesh.fd[1], &byte, 1, 0), 1);
	assert_int_equal(byte, '2');
	close(second);
	close(other);
	member_close(&m);
	ct_store_server_stop(srv, SOON);
}

static void says_of(const struct member *m, enum ct_status st, const char *part)
{
	assert_int_equal(m->status, st);
	if (!strstr(m->message, part))
		fail_msg("message \"%s\" does not contain \"%s\"", m->message, part);
}

static void test_nobody_comes(void **state)
{
	struct member m;
	ct_store_server *srv = serve();

	(void)state;
	member_start(&m, srv, 0, 3, CT_SEC);
	member_join(&m);
	says_of(&m, CT_TIMEOUT, "rank 1 (pid 11 on h1) has not connected to 127.0.0.1 port ");
	says_of(&m, CT_TIMEOUT, " within 1 s (1 other rank is missing, too)");
	member_close(&m);
	ct_store_server_stop(srv, SOON);
}

static void test_nobody_listens(void **state)
{
	struct member m;
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 0);
	int bound, fd;
	char text[64], expected[96];

	(void)state;
	member_start(&m, srv, 1, 2, CT_SEC);
	member_join(&m);
	says_of(&m, CT_TIMEOUT, "rank 0 (pid 10 on h0) has not begun to connect to the others within 1 s");
	member_close(&m);

	assert_ok(ct_net_listen("127.0.0.1", 0, &fd, &bound));
	ct_net_close(&fd);
	snprintf(text, sizeof(text), "127.0.0.1 %d", bound);
	snprintf(expected, sizeof(expected),
		 "cannot connect to rank 0 (pid 10 on h0) at 127.0.0.1 port %d within 1 s: ", bound);
	assert_ok(ct_store_set(s, SCOPE "/mesh/key", "1", 1));
	assert_ok(ct_store_set(s, SCOPE "/mesh/addr0", text, strlen(text)));
	member_start(&m, srv, 1, 2, CT_SEC);
	member_join(&m);
	says_of(&m, CT_TIMEOUT, expected);
	member_close(&m);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

static void test_address_of_another_kind(void **state)
{
	struct member m;
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 0);

	(void)state;
	assert_ok(ct_store_set(s, SCOPE "/mesh/key", "1", 1));
	assert_ok(ct_store_set(s, SCOPE "/mesh/addr0", "127.0.0.1 99999", 15));
	member_start(&m, srv, 1, 2, 60 * CT_SEC);
	member_join(&m);
	says_of(&m, CT_MISMATCH, "rank 0 has published \"127.0.0.1 99999\" instead of its address and port");
	member_close(&m);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

static void test_run_fails_meanwhile(void **state)
{
	struct ct_failure f = {.rank = 1, .pid = 11, .status = CT_IO, .host = "h1", .message = "rank 1 has no disk"};
	struct member m;
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 1);

	(void)state;
	member_start(&m, srv, 0, 2, 60 * CT_SEC);
	(void)port_of_rank(s, 0);
	assert_ok(ct_store_report(s, &f));
	member_join(&m);
	says_of(&m, CT_PEER_LOST, "rank 1 has no disk");
	member_close(&m);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks_meet),          cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_second_connection),   cmocka_unit_test(test_nobody_comes),
		cmocka_unit_test(test_nobody_listens),      cmocka_unit_test(test_address_of_another_kind),
		cmocka_unit_test(test_run_fails_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
