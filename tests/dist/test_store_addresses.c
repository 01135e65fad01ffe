/* Servers with several addresses: some refuse, some drop packets, and at some another program answers. The addresses
 * are those of the loopback interface, 127.0.0.x. */
#include <errno.h>

#include "base/log.h"
#include "dist/net/race.h"
#include "dist/store/call_impl.h"
#include "tests/dist/store_rig.h"

#define FULL 8 /* more than the backlog of a socket of listen(fd, 0) */

static int listen_at(const char *addr, int port, int backlog)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(inet_pton(AF_INET, addr, &a.sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static int64_t reply_ns[8]; /* the time that each handshake had */
static int n_handshakes;

enum ct_status __real_ct__call_handshake(ct_store *s, enum ct_wire_role role, int64_t deadline_ns);
enum ct_status __wrap_ct__call_handshake(ct_store *s, enum ct_wire_role role, int64_t deadline_ns);
enum ct_status __wrap_ct__call_handshake(ct_store *s, enum ct_wire_role role, int64_t deadline_ns)
{
	if (n_handshakes < (int)CT_ARRAY_LEN(reply_ns))
		reply_ns[n_handshakes++] = deadline_ns - ct_now_ns();
	return __real_ct__call_handshake(s, role, deadline_ns);
}

/* An address that drops packets: its queue of connections is full. */
struct dead {
	int fd, filler[FULL];
};

static void dead_begin(struct dead *d, const char *addr, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

	d->fd = listen_at(addr, port, 0);
	assert_int_equal(inet_pton(AF_INET, addr, &a.sin_addr), 1);
	for (int i = 0; i < FULL; i++) {
		d->filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)!connect(d->filler[i], (struct sockaddr *)&a, sizeof(a));
	}
}

static void dead_end(struct dead *d)
{
	close(d->fd);
	for (int i = 0; i < FULL; i++)
		close(d->filler[i]);
}

static ct_store_server *serve_at(const char *addr)
{
	struct ct_store_opts o = opts_of("run-a", "secret", 0);
	ct_store_server *s = NULL;

	assert_ok(ct_store_server_start(addr, 0, &o, &s));
	return s;
}

/* The first address is still under way when the second one has won. */
static void test_dead_address(void **state)
{
	ct_store_server *srv = serve_at("127.0.0.2");
	int port = ct_store_server_port(srv), fd;
	const char *const hosts[] = {"127.0.0.3", "127.0.0.2"};
	struct ct_store_opts o = opts_of("run-a", "secret", 1);
	struct ct_race race;
	struct dead dead;
	ct_store *s, *aux;
	char addr[CT_ADDR_LEN];

	(void)state;
	dead_begin(&dead, "127.0.0.3", port);
	assert_ok(ct_race_begin(&race, hosts, 2, port));
	assert_int_equal(ct_race_next(&race, SOON, &fd), 1);
	assert_int_equal(race.e[0].err, EINPROGRESS);
	close(fd);
	ct_race_end(&race);
	assert_ok(ct_store_connect_any(hosts, 2, port, &o, SOON, &s));
	/* Further connections go to the address that has answered. */
	assert_ok(ct_store_connect_aux(s, SOON, &aux));
	still_serves(aux);
	assert_ok(ct_store_local_addr(aux, addr, sizeof(addr)));
	ct_store_close(aux);
	ct_store_close(s);
	dead_end(&dead);
	ct_store_server_stop(srv, SOON);
}

/* The store of another run, and a program that accepts connections but sends nothing. */
static void test_wrong_servers(void **state)
{
	ct_store_server *srv = serve_at("127.0.0.2"), *other = NULL;
	int port = ct_store_server_port(srv), silent;
	const char *const hosts[] = {"127.0.0.3", "127.0.0.2", "127.0.0.4"};
	struct ct_store_opts o = opts_of("run-a", "secret", 1), foreign = opts_of("run-b", "other", 0);
	ct_store *s;

	(void)state;
	assert_ok(ct_store_server_start("127.0.0.3", port, &foreign, &other));
	silent = listen_at("127.0.0.4", port, 5);
	assert_ok(ct_store_connect_any(hosts, 3, port, &o, SOON, &s));
	still_serves(s);
	ct_store_close(s);
	/* Without the right one, the refusal is the reason, not the address that is silent. */
	ct_store_server_stop(srv, SOON);
	assert_fails(ct_store_connect_any(hosts, 3, port, &o, ct_deadline_in(2 * CT_SEC), &s), CT_MISMATCH,
		     "wrong token");
	close(silent);
	ct_store_server_stop(other, SOON);
}

/* The first address refuses connections, and the second one accepts them but sends nothing. It leaves time to the
 * third. */
static void test_silent_address(void **state)
{
	ct_store_server *srv = serve_at("127.0.0.2");
	int port = ct_store_server_port(srv), silent;
	const char *const hosts[] = {"127.0.0.3", "127.0.0.4", "127.0.0.2"};
	struct ct_store_opts o = opts_of("run-a", "secret", 1);
	ct_store *s;

	(void)state;
	silent = listen_at("127.0.0.4", port, 5);
	n_handshakes = 0;
	assert_ok(ct_store_connect_any(hosts, 3, port, &o, SOON, &s));
	assert_true(n_handshakes >= 2 && reply_ns[0] <= CT_SEC);
	still_serves(s);
	ct_store_close(s);
	n_handshakes = 0;
	/* On a busy machine, the rest may be too short for the address that answers. */
	if (ct_store_connect_any(hosts, 3, port, &o, ct_deadline_in(1500 * CT_MS), &s) == CT_OK)
		ct_store_close(s);
	assert_true(n_handshakes >= 1 && reply_ns[0] <= 750 * CT_MS);
	close(silent);
	ct_store_server_stop(srv, SOON);
}

/* All addresses are named, with their errors. */
static void test_row_114_no_address_answers(void **state)
{
	ct_store_server *srv = serve_at("127.0.0.2");
	int port = ct_store_server_port(srv);
	const char *const hosts[] = {"127.0.0.3", "127.0.0.4", "no-such-host.invalid"};
	struct ct_store_opts o = opts_of("run-a", "secret", 1);
	struct dead dead;
	ct_store *s;

	(void)state;
	dead_begin(&dead, "127.0.0.3", port);
	assert_fails(ct_store_connect_any(hosts, 3, port, &o, ct_deadline_in(CT_SEC), &s), CT_TIMEOUT,
		     "127.0.0.3: no answer; 127.0.0.4: Connection refused");
	assert_fails(ct_store_connect_any(hosts + 2, 1, port, &o, ct_deadline_in(0), &s), CT_TIMEOUT,
		     "cannot resolve the host name");
	assert_fails(ct_store_connect_any(hosts, 0, port, &o, SOON, &s), CT_COMM, "no address");
	dead_end(&dead);
	ct_store_server_stop(srv, SOON);
}

/* An address that refuses starts the next one immediately. */
static void test_refused_address(void **state)
{
	ct_store_server *srv = serve_at("127.0.0.2");
	const char *const hosts[] = {"127.0.0.3", "127.0.0.4", "127.0.0.2"};
	struct ct_race race;
	int fd;

	(void)state;
	assert_ok(ct_race_begin(&race, hosts, 3, ct_store_server_port(srv)));
	assert_int_equal(ct_race_next(&race, SOON, &fd), 2);
	assert_int_equal(race.e[0].err, ECONNREFUSED);
	assert_int_equal(race.e[1].err, ECONNREFUSED);
	close(fd);
	ct_race_end(&race);
	ct_store_server_stop(srv, SOON);
}

/* A server without a port takes the first free one of its range. */
static void test_port_range(void **state)
{
	struct ct_store_opts o = opts_of("run-a", "secret", 0);
	ct_store_server *srv = serve_at("127.0.0.2"), *a = NULL, *b = NULL;
	int used = ct_store_server_port(srv);

	(void)state;
	o.ports = (struct ct_port_range){used, used + 20 < 65536 ? used + 20 : 65535};
	assert_ok(ct_store_server_start("127.0.0.2", 0, &o, &a));
	assert_in_range(ct_store_server_port(a), used + 1, o.ports.last);
	o.ports.last = used;
	assert_fails(ct_store_server_start("127.0.0.2", 0, &o, &b), CT_COMM, "all ports of dist.port_range");
	/* A given port is used as it is. */
	assert_ok(ct_store_server_start("127.0.0.3", used, &o, &b));
	ct_store_server_stop(a, SOON);
	ct_store_server_stop(b, SOON);
	ct_store_server_stop(srv, SOON);
}

/* An address that occurs twice is tried once. */
static void test_same_address(void **state)
{
	const char *const hosts[] = {"127.0.0.2", "127.0.0.3", "127.0.0.2", "::1"};
	struct ct_race race;

	(void)state;
	assert_ok(ct_race_begin(&race, hosts, 4, 1));
	assert_int_equal(race.n, 3);
	assert_int_equal(race.e[2].addr.ss_family, AF_INET6);
	ct_race_end(&race);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dead_address),   cmocka_unit_test(test_refused_address),
		cmocka_unit_test(test_wrong_servers),  cmocka_unit_test(test_row_114_no_address_answers),
		cmocka_unit_test(test_port_range),     cmocka_unit_test(test_same_address),
		cmocka_unit_test(test_silent_address),
	};

	if (ct_log_configure("error") != CT_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
