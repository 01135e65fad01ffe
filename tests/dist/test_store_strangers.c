/* Clients that the store must refuse, and clients that must not disturb it: other protocols, malformed input and
 * excessive requests. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/thread.h"
#include "tests/dist/store_rig.h"
#include "tests/fuzz/store_input.h"

static void test_foreign_protocols(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 1);
	uint32_t x = 1;
	char noise[512];
	int fd;

	(void)state;
	fd = raw(ct_store_server_port(srv));
	assert_int_equal(send(fd, http, sizeof(http) - 1, MSG_NOSIGNAL), sizeof(http) - 1);
	expect_closed(fd);
	for (int i = 0; i < 50; i++) {
		for (size_t k = 0; k < sizeof(noise); k++) {
			x = x * 1664525u + 1013904223u;
			noise[k] = (char)(x >> 24);
		}
		/* Every other one knows the first words. */
		if (i % 2)
			memcpy(noise, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN);
		fd = raw(ct_store_server_port(srv));
		(void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
		expect_closed(fd);
		still_serves(s);
	}
	/* One client leaves in the middle of its handshake, and one sends nothing at all. */
	fd = raw(ct_store_server_port(srv));
	assert_int_equal(send(fd, CT_WIRE_MAGIC, 5, MSG_NOSIGNAL), 5);
	close(fd);
	close(raw(ct_store_server_port(srv)));
	still_serves(s);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

/* A forked process, for example a rank that has not called exec yet, keeps a connection open that the server has
 * closed. The server must not use what it has freed when the client goes on to send. AddressSanitizer reports it
 * otherwise. */
static void test_connection_kept_by_a_child(void **state)
{
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 1);
	int fd = raw(ct_store_server_port(srv));
	pid_t child;

	(void)state;
	ct_store_close(join(srv, 2)); /* by now, the server has accepted both */
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)pause();
		_exit(0);
	}
	assert_int_equal(send(fd, "GET /", 5, MSG_NOSIGNAL), 5);
	for (int i = 0; i < 10; i++)
		still_serves(s);
	(void)shutdown(fd, SHUT_WR);
	for (int i = 0; i < 10; i++)
		still_serves(s);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	close(fd);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

/* Silent connections take no more than their places: the oldest go when too many come, all go after 5 s. */
static void test_silent_crowd(void **state)
{
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 1), *t;
	int fds[300];

	(void)state;
	for (int i = 0; i < 300; i++)
		fds[i] = raw(ct_store_server_port(srv));
	for (int i = 0; i < 44; i++)
		expect_closed(fds[i]);
	/* They went to make room, not because their time was over: the youngest is there for a while yet. */
	for (int i = 0; i < 2000; i++)
		still_serves(s);
	assert_int_equal(poll(&(struct pollfd){.fd = fds[299], .events = POLLIN}, 1, 0), 0);
	t = join(srv, 2);
	still_serves(t);
	for (int i = 44; i < 300; i++)
		expect_closed(fds[i]);
	still_serves(s);
	ct_store_close(t);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

/* A client that leaves before its welcome has arrived has stopped waiting; it will connect again. */
static void test_gave_up_at_the_door(void **state)
{
	ct_store_server *srv = serve();
	ct_store *s = join(srv, 1);
	int64_t deadline = SOON;
	struct ct_failure f;
	int n;

	(void)state;
	close(raw_newcomer(srv, 3));
	do {
		struct ct_member_state *m;

		assert_ok(ct_store_members(s, &m, &n));
		ct_free(m);
	} while (n > 1 && ct_now_ns() < deadline);
	assert_int_equal(n, 1);
	assert_int_equal(ct_store_watch(s, ct_deadline_in(10 * CT_MS), &f), CT_TIMEOUT);
	ct_store_close(s);
	ct_store_server_stop(srv, SOON);
}

/* A member whose messages are broken is lost, like one that crashed. */
static void test_broken_member(void **state)
{
	static const uint8_t rest[8] = {0xff, 0xff, 0xff, 0xff, 'k'};
	struct ct_failure f;

	(void)state;
	for (int how = 0; how < 5; how++) {
		ct_store_server *srv = serve();
		ct_store *s = join(srv, 1);
		int fd = raw_member(srv, 3);
		const struct ct_wire_frame huge = {.len = UINT32_MAX, .op = CT_WIRE_SET};
		uint8_t header[CT_WIRE_HEADER_LEN];

		ct_wire_encode_header(header, &huge);
		if (how == 0)
			send_frame(fd, (enum ct_wire_op)99, 1, NULL, 0);
		else if (how == 1)
			send_frame(fd, CT_WIRE_SET, 1, rest, sizeof(rest));
		else if (how == 2)
			send_frame(fd, CT_WIRE_HANDSHAKE, 1, rest, sizeof(rest));
		else if (how == 3)
			assert_int_equal(send(fd, header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
		else
			assert_int_equal(send(fd, header, 7, MSG_NOSIGNAL), 7);
		if (how == 4)
			close(fd);
		else
			expect_closed(fd);
		assert_ok(ct_store_watch(s, SOON, &f));
		assert_int_equal(f.rank, 3);
		assert_int_equal(f.pid, 77);
		assert_int_equal(f.status, how == 4 ? CT_PEER_LOST : CT_BUG);
		assert_non_null(strstr(f.message, how == 4 ? "is gone" : "malformed message"));
		still_serves(s);
		ct_store_drop(s);
		ct_store_server_stop(srv, SOON);
	}
}

/* A client that sends many requests and reads no replies occupies memory only for one copy of the value and its own
 * requests, and does not delay other clients. */
static void test_client_that_does_not_read(void **state)
{
	ct_store_server *srv = serve();
	size_t len = (size_t)4 << 20;
	char *value = ct_calloc(len, 1);
	ct_store *s = join(srv, 1);
	int fd = raw_member(srv, 3), n = 0;
	struct ct_str b = {0};
	struct ct_failure f;

	(void)state;
	assert_ok(ct_store_set(s, "big", value, len));
	ct_wire_begin(&b, CT_WIRE_GET, CT_OK, 1);
	ct_wire_put_str(&b, "big");
	ct_wire_put_u8(&b, 1);
	ct_wire_end(&b, 0);
	/* The server stops reading this client's requests: at some point our own socket is full. */
	while (send(fd, b.s, b.len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)b.len)
		n++;
	assert_true(errno == EAGAIN);
	assert_true(n > 1000);
	still_serves(s);
	/* 4 MiB are taken, not n times 4: there is room for 48 more. */
	for (int i = 0; i < 12; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%d", i);
		assert_ok(ct_store_set(s, key, value, len));
	}
	close(fd);
	assert_ok(ct_store_watch(s, SOON, &f));
	assert_int_equal(f.rank, 3);
	still_serves(s);
	ct_free(value);
	ct_str_release(&b);
	ct_store_drop(s);
	ct_store_server_stop(srv, SOON);
}

struct fake {
	int fd;
	struct ct_thread t;
	const char *says;
};

static void *answer_one(void *arg)
{
	struct fake *f = arg;
	int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0) {
		(void)!send(fd, f->says, strlen(f->says), MSG_NOSIGNAL);
		expect_closed(fd);
	}
	return NULL;
}

/* Something else listens where the store should be. */
static void test_foreign_server(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct ct_store_opts o = opts_of("run-a", "secret", 1);
	struct fake f = {.says = "HTTP/1.1 400 Bad Request\r\n\r\n"};
	socklen_t len = sizeof(a);
	ct_store *s = NULL;

	(void)state;
	f.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(f.fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(f.fd, 5), 0);
	assert_int_equal(getsockname(f.fd, (struct sockaddr *)&a, &len), 0);
	assert_ok(ct_thread_start(&f.t, "fake", answer_one, &f));
	assert_fails(ct_store_connect("127.0.0.1", ntohs(a.sin_port), &o, SOON, &s), CT_MISMATCH,
		     "is not a ctrain store");
	ct_thread_join(&f.t);
	/* Now it takes connections (the kernel does) and says nothing. */
	assert_fails(ct_store_connect("127.0.0.1", ntohs(a.sin_port), &o, ct_deadline_in(100 * CT_MS), &s), CT_TIMEOUT,
		     "accepts connections but does not answer");
	close(f.fd);
	assert_fails(ct_store_connect("127.0.0.1", ntohs(a.sin_port), &o, ct_deadline_in(100 * CT_MS), &s), CT_TIMEOUT,
		     "refused");
	assert_fails(ct_store_connect("no-such-host.invalid", 1, &o, ct_deadline_in(0), &s), CT_TIMEOUT,
		     "cannot resolve the host name");
	assert_fails(ct_store_connect("127.0.0.1", 0, &o, SOON, &s), CT_USAGE, "port 0");
}

/* The committed inputs of the fuzzer, and every prefix of a valid conversation, in both of its modes. */
static void test_parser(void **state)
{
	struct ct_wire_handshake h = {.run_id = "fuzz", .host = "h", .member = 2, .pid = 77};
	const struct ct_nonces nonces = {0}; /* the fuzzer's server has a nonce of zeros */
	struct ct_str b = {0}, talk = {0};

	(void)state;
	ct_str_add_bytes(&talk, "\001", 1);
	ct_str_add_bytes(&talk, CT_WIRE_MAGIC, CT_WIRE_MAGIC_LEN);
	ct_wire_begin(&b, CT_WIRE_HELLO, CT_OK, 0);
	ct_str_add_bytes(&b, nonces.client, sizeof(nonces.client));
	ct_wire_end(&b, 0);
	ct_str_add_bytes(&talk, b.s, b.len);
	ct_wire_begin(&b, CT_WIRE_HANDSHAKE, CT_OK, 0);
	ct_wire_put_handshake(&b, &h);
	ct_wire_put_proof(&b, "", CT_PROOF_OF_CLIENT, &nonces);
	ct_wire_end(&b, 0);
	ct_str_add_bytes(&talk, b.s, b.len);
	ct_wire_begin(&b, CT_WIRE_SET, CT_OK, 1);
	ct_wire_put_str(&b, "key");
	ct_wire_put_str(&b, "value");
	ct_wire_end(&b, 0);
	ct_str_add_bytes(&talk, b.s, b.len);
	ct_wire_begin(&b, CT_WIRE_BYE, CT_OK, 2);
	ct_wire_end(&b, 0);
	ct_str_add_bytes(&talk, b.s, b.len);
	for (size_t n = 0; n <= talk.len; n++)
		assert_ok(store_input((const uint8_t *)talk.s, n));
	/* A wrong byte in the magic, and an unknown operation after a handshake that the fuzzer adds itself. */
	talk.s[1] ^= 1;
	assert_fails(store_input((const uint8_t *)talk.s, talk.len), CT_COMM, "refused");
	ct_wire_begin(&b, (enum ct_wire_op)50, CT_OK, 2);
	ct_wire_end(&b, 0);
	ct_str_clear(&talk);
	ct_str_add_bytes(&talk, "\002", 1);
	ct_str_add_bytes(&talk, b.s, b.len);
	assert_fails(store_input((const uint8_t *)talk.s, talk.len), CT_COMM, "refused");
	ct_str_release(&b);
	ct_str_release(&talk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_foreign_protocols), cmocka_unit_test(test_connection_kept_by_a_child),
		cmocka_unit_test(test_silent_crowd),      cmocka_unit_test(test_gave_up_at_the_door),
		cmocka_unit_test(test_broken_member),     cmocka_unit_test(test_client_that_does_not_read),
		cmocka_unit_test(test_foreign_server),    cmocka_unit_test(test_parser),
	};

	/* These tests cause many warnings about refused clients. */
	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
