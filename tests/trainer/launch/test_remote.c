/* `ctrain launch`: lists of hosts, and the commands that are run on them. tests/e2e/test_ssh.py runs them over ssh. */
#include "tests/pause.h"
#include "tests/trainer/tmpdir.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "trainer/job/signals.h"
#include "trainer/launch/remote/command_impl.h"
#include "trainer/launch/remote/control.h"

static void test_hosts(void **state)
{
	struct ct_hosts h;

	(void)state;
	assert_ok(ct_hosts_parse("a:4,root@b:2,[fe80::1]:8,[::1]:1,10.0.0.1:3", &h));
	assert_int_equal(h.n, 5);
	assert_string_equal(h.all[0].name, "a");
	assert_int_equal(h.all[0].procs, 4);
	assert_string_equal(h.all[1].name, "root@b");
	assert_string_equal(ct_host_address(&h.all[1]), "b");
	assert_string_equal(h.all[2].name, "fe80::1");
	assert_int_equal(h.all[2].procs, 8);
	assert_string_equal(h.all[3].name, "::1");
	assert_string_equal(h.all[4].name, "10.0.0.1");
	ct_hosts_release(&h);
	assert_ok(ct_hosts_parse("a,b", &h));
	assert_int_equal(h.all[1].procs, 0);
	ct_hosts_release(&h);
}

static void test_bad_hosts(void **state)
{
	static const char *const bad[] = {
		"", "a,", ",a", "a:", "a:0", "a:x", "a:4,b", "a,b:4", "-oProxyCommand=x", "a:1025", "[]:4", ":4"};
	struct ct_hosts h;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++) {
		assert_fails(ct_hosts_parse(bad[i], &h), CT_USAGE, "--hosts: ");
		ct_hosts_release(&h);
	}
}

static void test_commands(void **state)
{
	const struct ct_config_set sets[] = {{"run.name", "it's mine", "argument 3"},
					     {"optim.lr", "0.1", "argument 4"}};
	struct ct_config cfg = {.launch.master_addr = ""};
	struct ct_remote_opts o = {
		.ssh = "ssh  -p 22", .config = "my config.yaml", .cfg = &cfg, .sets = sets, .n_sets = 2};
	struct ct__command c;
	struct ct_hosts h;

	(void)state;
	assert_ok(ct_hosts_parse("localhost:2,root@b:1", &h));
	o.hosts = &h;
	assert_ok(ct__command_make(&o, 0, &c));
	assert_int_equal(c.n, 3);
	assert_string_equal(c.argv[0], "sh");
	assert_true(ct_ends_with(c.argv[2],
				 " 'my config.yaml' 'run.name=it'\\''s mine' optim.lr=0.1 --procs 2,1 --nodes 2 "
				 "--node-rank 0 --master-addr localhost"));
	assert_null(c.argv[3]);
	ct__command_release(&c);
	cfg.launch.master_addr = "10.0.0.1";
	assert_ok(ct__command_make(&o, 1, &c));
	assert_string_equal(c.argv[0], "ssh");
	assert_string_equal(c.argv[1], "-p");
	assert_string_equal(c.argv[2], "22");
	assert_string_equal(c.argv[c.n - 3], "--");
	assert_string_equal(c.argv[c.n - 2], "root@b");
	assert_true(ct_ends_with(c.argv[c.n - 1], " --node-rank 1 --master-addr 10.0.0.1"));
	assert_null(strstr(c.argv[c.n - 1], "TOKEN"));
	ct__command_release(&c);
	ct_hosts_release(&h);
}

static void test_variables(void **state)
{
	struct ct_str text = {0};

	(void)state;
	setenv("NCCL_DEBUG", "INFO", 1);
	setenv("NCCL_TWO", "lines\nhere", 1);
	setenv("OTHER", "x", 1);
	unsetenv("CTRAIN_TOKEN");
	assert_ok(ct__command_variables(&text));
	assert_non_null(strstr(ct_str_text(&text), "NCCL_DEBUG=INFO\n"));
	assert_null(strstr(ct_str_text(&text), "NCCL_TWO"));
	assert_null(strstr(ct_str_text(&text), "OTHER"));
	assert_non_null(strstr(ct_str_text(&text), "CTRAIN_TOKEN="));
	assert_true(ct_ends_with(ct_str_text(&text), "\n\n"));
	ct_str_clear(&text);
	setenv("CTRAIN_TOKEN", "mine", 1);
	assert_ok(ct__command_variables(&text));
	assert_non_null(strstr(ct_str_text(&text), "CTRAIN_TOKEN=mine\n\n"));
	ct_str_release(&text);
}

static void test_large_variables(void **state)
{
	struct ct_str text = {0};
	char *large = malloc(61 << 10);

	(void)state;
	assert_non_null(large);
	memset(large, 'x', 61 << 10);
	large[(61 << 10) - 1] = '\0';
	setenv("NCCL_LARGE", large, 1);
	assert_fails(ct__command_variables(&text), CT_USAGE, "the largest one is NCCL_LARGE (");
	unsetenv("NCCL_LARGE");
	free(large);
	ct_str_release(&text);
}

/* Two requests that arrive before the main thread has looked at its signals are two signals. */
static void test_two_interrupts(void **state)
{
	static const char input[] = "CONTROL_TEST=1\n\nINT\nINT\n";
	int pipes[2], signals, unread = -1;

	(void)state;
	assert_ok(ct_signals_open(false, &signals));
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(write(pipes[1], input, sizeof(input) - 1), sizeof(input) - 1);
	assert_true(dup2(pipes[0], STDIN_FILENO) >= 0);
	setenv(CT_CONTROL_VARIABLE, "stdin", 1);
	assert_ok(ct_control_start());
	assert_string_equal(getenv("CONTROL_TEST"), "1");
	assert_null(getenv(CT_CONTROL_VARIABLE));
	/* Leaves time for the error that this test looks for, which reads the second line at once. */
	for (int i = 0; i < 500 && unread != 0; i++) {
		pause_briefly();
		assert_int_equal(ioctl(pipes[0], FIONREAD, &unread), 0);
	}
	assert_int_equal(ct_signals_wait(signals, ct_deadline_in(20 * CT_SEC)), SIGINT);
	assert_int_equal(ct_signals_wait(signals, ct_deadline_in(20 * CT_SEC)), SIGINT);
	ct_signals_close(signals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts),           cmocka_unit_test(test_bad_hosts),
		cmocka_unit_test(test_commands),        cmocka_unit_test(test_variables),
		cmocka_unit_test(test_large_variables), cmocka_unit_test(test_two_interrupts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
