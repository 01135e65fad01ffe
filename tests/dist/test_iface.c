/* Selections of network interfaces, with the loopback interface of this host, and on a host with two interfaces, which
 * is a network namespace; for that one, the test needs root and iproute2. */
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dist/net/net.h"
#include "tests/base/check.h"

static void test_loopback(void **state)
{
	static const char *const good[] = {"lo", "127.0.0.0/8", "127.0.0.1", "nosuch0,lo",
					   "10.255.0.0/31,127.0.0.1/32"};
	char addr[CT_ADDR_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_ok(ct_net_check_iface("key", good[i]));
		assert_ok(ct_net_choose("key", good[i], "10.0.0.1", addr));
		assert_string_equal(addr, "127.0.0.1");
	}
}

static void test_malformed(void **state)
{
	static const char *const bad[] = {"lo,",       ",lo",        "^",          "^lo,,x",  "10.1.0.0/33",
					  "10.1.0.0/", "10.1.0.0/x", "fd00::/129", "eth0/24", "10.1/16"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_fails(ct_net_check_iface("dist.iface", bad[i]), CT_CONFIG, "dist.iface: ");
	assert_fails(ct_net_check_iface("dist.iface", "10.1.0.0/33"), CT_CONFIG, "\"10.1.0.0/33\" is neither");
	assert_fails(ct_net_check_iface("dist.iface", "203.0.113.0/24"), CT_CONFIG,
		     "no address in \"203.0.113.0/24\"; its usable interfaces are ");
	assert_fails(ct_net_check_iface("dist.iface", "nosuch0"), CT_CONFIG, "no network interface \"nosuch0\"");
	assert_fails(ct_net_check_iface("dist.iface", "^0.0.0.0/0,::/0"), CT_CONFIG,
		     "dist.iface: \"^0.0.0.0/0,::/0\" excludes all interfaces of this host: ");
}

static bool chooses(const char *selection, const char *prefer, const char *expected)
{
	char addr[CT_ADDR_LEN];

	if (ct_net_choose("key", selection, prefer, addr) == CT_OK && strcmp(addr, expected) == 0)
		return true;
	fprintf(stderr, "\"%s\" with %s chooses %s, not %s\n", selection, prefer, addr, expected);
	return false;
}

static bool refuses(const char *selection, const char *expected)
{
	if (ct_net_check_iface("key", selection) == CT_CONFIG && strcmp(ct_error_message(), expected) == 0)
		return true;
	fprintf(stderr, "\"%s\": [%s], not [%s]\n", selection, ct_error_message(), expected);
	return false;
}

/* ifd has an address but is down, and ifb has none. */
static bool refuses_unusable(void)
{
	return refuses("ifd",
		       "key: this host has no address on the network interface \"ifd\"; its usable interfaces are lo, vb, va") &&
	       refuses("ifb",
		       "key: this host has no address on the network interface \"ifb\"; its usable interfaces are lo, vb, va") &&
	       refuses("if", "key: this host has no network interface \"if\"; its usable interfaces are lo, vb, va") &&
	       refuses("^lo,va,vb", "key: \"^lo,va,vb\" excludes all interfaces of this host: lo, vb, va") &&
	       refuses("^127.0.0.0/8,::1,va,10.9.2.0/24",
		       "key: \"^127.0.0.0/8,::1,va,10.9.2.0/24\" excludes all interfaces of this host: lo, vb, va");
}

/* Runs in a host of its own. Returns 77 if there can be no such host. */
static int on_two_interfaces(void)
{
	if (unshare(CLONE_NEWNET) != 0 ||
	    system("ip link set lo up && ip link add va type veth peer name vb && ip link set va up && ip link set vb up && "
		   "ip addr add 10.9.1.1/24 dev va && ip addr add 10.9.2.1/24 dev vb && "
		   "ip addr add fd77::1/64 dev va nodad && ip link add ifd type veth peer name ifb && "
		   "ip addr add 10.9.3.1/24 dev ifd") != 0)
		return 77;
	return chooses("va", "10.9.1.1", "10.9.1.1") && chooses("vb", "10.9.1.1", "10.9.2.1") &&
			       chooses("10.9.2.0/24", "10.9.1.1", "10.9.2.1") &&
			       chooses("10.9.0.0/16", "10.9.2.1", "10.9.2.1") &&
			       chooses("10.9.0.0/22", "10.9.2.1", "10.9.2.1") &&
			       chooses("10.9.0.0/23", "10.9.2.1", "10.9.1.1") && /* without 10.9.2.1 */
			       chooses("^va", "10.9.1.1", "10.9.2.1") &&
			       chooses("^10.9.1.0/24,fd00::/8", "::2", "10.9.2.1") &&
			       chooses("va", "fd77::2", "fd77::1") && chooses("^vb", "10.9.2.1", "10.9.1.1") &&
			       chooses("fd00::/8", "10.9.1.1", "fd77::1") &&
			       chooses("^lo,vb", "127.0.0.1", "10.9.1.1") &&
			       /* Without another interface, it keeps the address that it would use. */
			       chooses("^va,vb", "127.0.0.1", "127.0.0.1") && refuses_unusable()
		       ? 0
		       : 1;
}

static void test_two_interfaces(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(on_two_interfaces());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("no network namespace with two interfaces can be made here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_two_interfaces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
