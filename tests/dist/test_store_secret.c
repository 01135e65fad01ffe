/* The proof of the secret, under attack: an eavesdropper that records a connection, replays of both sides, a server
 * that does not know the secret, and one that returns the client's own proof. */
#include "base/log.h"
#include "base/thread.h"
#include "tests/dist/store_rig.h"

#define SECRET "of-this-run-only-5fbb21"

struct bytes {
	uint8_t b[65536];
	size_t n;
};

/* A man in the middle: passes on all bytes between one client and the server, and records them. */
struct relay {
	int listen_fd, port, to; /* to: port of the server */
	struct bytes up, down;   /* from the client, from the server */
	struct ct_thread thread;
};

static int listen_any(int *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(a);

	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, 5), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

/* Passes on what one side has sent. Returns false when this side has ended. */
static bool pass(int from, int to, struct bytes *record)
{
	ssize_t n = recv(from, record->b + record->n, sizeof(record->b) - record->n, 0);

	if (n > 0)
		(void)!send(to, record->b + record->n, (size_t)n, MSG_NOSIGNAL);
	record->n += n > 0 ? (size_t)n : 0;
	return n > 0;
}

static void *relay_main(void *arg)
{
	struct relay *r = arg;
	int client = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC), server = raw(r->to);
	struct pollfd p[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
	bool open = true;

	while (open && poll(p, 2, 20000) > 0) {
		if (p[0].revents)
			open = pass(client, server, &r->up);
		if (open && p[1].revents)
			open = pass(server, client, &r->down);
	}
	close(client);
	close(server);
	return NULL;
}

static void relay_start(struct relay *r, ct_store_server *srv)
{
	memset(r, 0, sizeof(*r));
	r->to = ct_store_server_port(srv);
	r->listen_fd = listen_any(&r->port);
	assert_ok(ct_thread_start(&r->thread, "relay", relay_main, r));
}

static void relay_stop(struct relay *r)
{
	ct_thread_join(&r->thread);
	close(r->listen_fd);
}

static ct_store_server *serve_secret(void)
{
	struct ct_store_opts o = opts_of("run-a", SECRET, 0);
	ct_store_server *s = NULL;

	assert_ok(ct_store_server_start("127.0.0.1", 0, &o, &s));
	return s;
}

/* Joins through the relay, works and leaves. */
static void record(struct relay *r, ct_store_server *srv, int member)
{
	struct ct_store_opts o = opts_of("run-a", SECRET, member);
	ct_store *s;

	relay_start(r, srv);
	assert_ok(ct_store_connect("127.0.0.1", r->port, &o, SOON, &s));
	assert_ok(ct_store_set(s, "key", "value", 5));
	ct_store_close(s);
	relay_stop(r);
}

static bool contains(const struct bytes *in, const void *what, size_t n)
{
	return memmem(in->b, in->n, what, n) != NULL;
}

static void test_secret_is_never_sent(void **state)
{
	ct_store_server *srv = serve_secret();
	uint8_t digest[CT_SHA256_BYTES];
	struct ct_sha256 h;
	static struct relay r;

	(void)state;
	record(&r, srv, 1);
	assert_true(contains(&r.up, "value", 5)); /* the recording is one of this connection */
	assert_true(contains(&r.up, "run-a", 5));
	for (size_t n = 8; n <= strlen(SECRET); n++) {
		assert_false(contains(&r.up, SECRET, n));
		assert_false(contains(&r.down, SECRET, n));
	}
	ct_sha256_init(&h);
	ct_sha256_update(&h, SECRET, strlen(SECRET));
	ct_sha256_final(&h, digest);
	assert_false(contains(&r.up, digest, sizeof(digest)) || contains(&r.down, digest, sizeof(digest)));
	ct_store_server_stop(srv, SOON);
}

/* The client's bytes, sent again: the server's nonce is another one. */
static void test_replayed_client(void **state)
{
	ct_store_server *srv = serve_secret();
	struct ct_store_opts o = opts_of("run-a", SECRET, 2);
	static struct relay r;
	static struct bytes answer;
	struct ct_wire_frame f;
	size_t at = CT_WIRE_MAGIC_LEN;
	ct_store *s;
	int fd, n;

	(void)state;
	assert_ok(ct_store_connect("127.0.0.1", ct_store_server_port(srv), &o, SOON, &s));
	record(&r, srv, 1);
	for (int again = 0; again < 3; again++) {
		struct ct_member_state *m;

		fd = raw(ct_store_server_port(srv));
		(void)!send(fd, r.up.b, r.up.n, MSG_NOSIGNAL);
		for (answer.n = 0; (n = (int)recv(fd, answer.b + answer.n, sizeof(answer.b) - answer.n, 0)) > 0;)
			answer.n += (size_t)n;
		close(fd);
		ct_wire_decode_header(answer.b + at, &f);
		assert_int_equal(f.op, CT_WIRE_CHALLENGE);
		ct_wire_decode_header(answer.b + at + CT_WIRE_HEADER_LEN + f.len, &f);
		assert_int_equal(f.op, CT_WIRE_REFUSED);
		assert_false(contains(&answer, "run-a", 5));
		assert_ok(ct_store_members(s, &m, &n));
		assert_int_equal(n, 2);
		assert_true(m[0].rank == 1 && m[0].left && !m[0].connected);
		ct_free(m);
	}
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

/* A server that plays `sends`, of which the first `before` bytes come before the client's handshake. */
struct player {
	int fd, port;
	const struct bytes *sends;
	size_t before;
	bool reflect; /* takes the client's nonce as its own, and returns the client's body and proof as its welcome */
	struct ct_thread thread;
};

#define HELLO_LEN (CT_WIRE_MAGIC_LEN + CT_WIRE_HEADER_LEN + CT_NONCE_BYTES)

static void reflect(int fd)
{
	uint8_t hello[HELLO_LEN], header[CT_WIRE_HEADER_LEN], body[CT_WIRE_MAX_HANDSHAKE];
	struct ct_wire_frame f;

	assert_int_equal(recv(fd, hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
	(void)!send(fd, hello, CT_WIRE_MAGIC_LEN, MSG_NOSIGNAL);
	send_frame(fd, CT_WIRE_CHALLENGE, 0, hello + HELLO_LEN - CT_NONCE_BYTES, CT_NONCE_BYTES);
	assert_int_equal(recv(fd, header, sizeof(header), MSG_WAITALL), sizeof(header));
	ct_wire_decode_header(header, &f);
	assert_int_equal(recv(fd, body, f.len, MSG_WAITALL), f.len);
	send_frame(fd, CT_WIRE_WELCOME, 0, body, f.len);
}

static void *play_main(void *arg)
{
	struct player *p = arg;
	int fd = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC);
	uint8_t hello[HELLO_LEN], next;

	limit_waits(fd);
	if (p->reflect) {
		reflect(fd);
	} else {
		assert_int_equal(recv(fd, hello, sizeof(hello), MSG_WAITALL), sizeof(hello));
		(void)!send(fd, p->sends->b, p->before, MSG_NOSIGNAL);
		assert_int_equal(recv(fd, &next, 1, MSG_PEEK), 1);
		(void)!send(fd, p->sends->b + p->before, p->sends->n - p->before, MSG_NOSIGNAL);
	}
	expect_closed(fd);
	return NULL;
}

static void expect_impostor(struct player *p)
{
	struct ct_store_opts o = opts_of("run-a", SECRET, 1);
	ct_store *s = NULL;

	p->fd = listen_any(&p->port);
	assert_ok(ct_thread_start(&p->thread, "player", play_main, p));
	assert_fails(ct_store_connect("127.0.0.1", p->port, &o, SOON, &s), CT_MISMATCH, "does not know the secret");
	ct_thread_join(&p->thread);
	close(p->fd);
}

/* The server's bytes, sent again to a client with another nonce. */
static void test_replayed_server(void **state)
{
	ct_store_server *srv = serve_secret();
	static struct relay r;
	struct player p = {.sends = &r.down, .before = CT_WIRE_MAGIC_LEN + CT_WIRE_HEADER_LEN + CT_NONCE_BYTES};

	(void)state;
	record(&r, srv, 1);
	ct_store_server_stop(srv, SOON);
	expect_impostor(&p);
}

static void test_reflected_proof(void **state)
{
	struct player p = {.reflect = true};

	(void)state;
	expect_impostor(&p);
}

/* The proof is of this message: a member cannot be turned into another one on the way. */
static void test_changed_message(void **state)
{
	ct_store_server *srv = serve_secret();
	char answer[CT_WIRE_HEADER_LEN];
	struct ct_nonces nonces;
	struct ct_wire_frame f;
	struct ct_str b = {0};

	(void)state;
	for (int change = 0; change < 2; change++) {
		int fd = raw_challenged(ct_store_server_port(srv), &nonces);

		handshake_frame(&b, 1, SECRET, &nonces);
		if (change)
			b.s[CT_WIRE_HEADER_LEN + 4 + 5 + 1]++; /* the rank, after the run id and the role */
		assert_int_equal(send(fd, b.s, b.len, MSG_NOSIGNAL), b.len);
		assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
		ct_wire_decode_header((const uint8_t *)answer, &f);
		assert_int_equal(f.op, change ? CT_WIRE_REFUSED : CT_WIRE_WELCOME);
		close(fd);
	}
	ct_str_release(&b);
	ct_store_server_stop(srv, ct_deadline_in(0));
}

/* A client that skips the challenge, and one of another version, which learns the version of this server. */
static void test_wrong_beginnings(void **state)
{
	ct_store_server *srv = serve_secret();
	const struct ct_nonces zero = {0};
	char magic[CT_WIRE_MAGIC_LEN];
	struct ct_str b = {0};
	int fd = raw(ct_store_server_port(srv));

	(void)state;
	handshake_frame(&b, 1, SECRET, &zero);
	(void)!send(fd, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN, MSG_NOSIGNAL);
	(void)!send(fd, b.s, b.len, MSG_NOSIGNAL);
	assert_true(recv(fd, magic, 1, 0) <= 0);
	close(fd);
	fd = raw(ct_store_server_port(srv));
	(void)!send(fd, "CTSTORE3", 8, MSG_NOSIGNAL);
	assert_int_equal(recv(fd, magic, sizeof(magic), MSG_WAITALL), sizeof(magic));
	assert_memory_equal(magic, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN);
	expect_closed(fd);
	ct_str_release(&b);
	ct_store_server_stop(srv, SOON);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secret_is_never_sent), cmocka_unit_test(test_replayed_client),
		cmocka_unit_test(test_replayed_server),      cmocka_unit_test(test_reflected_proof),
		cmocka_unit_test(test_changed_message),      cmocka_unit_test(test_wrong_beginnings),
	};

	/* These tests cause many warnings about refused clients. */
	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
