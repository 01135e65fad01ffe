/* The counters and limits of memory control groups, v1 and v2, in files like those of the kernel. */
#include "tests/trainer/tmpdir.h"
#include "trainer/job/postmortem/oom.h"

#define GROUPS in_tmpdir("groups"), tmpdir

static void put(const char *name, const char *text)
{
	const char *path = in_tmpdir(name);
	char *dir = ct_path_dir(path);

	assert_ok(ct_dir_make(dir));
	assert_ok(ct_file_replace(path, text, strlen(text)));
	ct_free(dir);
}

static void test_v2(void **state)
{
	(void)state;
	put("groups", "0::/a/b\n");
	put("memory.max", "1000000\n"); /* of the group that contains everything, in a container */
	put("a/memory.max", "500000\n");
	put("a/b/memory.max", "max\n");
	assert_int_equal(ct_oom_kills(GROUPS), -1);
	put("a/b/memory.events", "low 0\nhigh 3\nmax 10\noom 4\noom_kill 2\noom_group_kill 0\n");
	assert_int_equal(ct_oom_kills(GROUPS), 2);
	assert_int_equal(ct_oom_limit(GROUPS), 500000);
	/* A path of the host that does not exist in the container: the group at the top applies. */
	put("groups", "0::/kubepods/pod7\n");
	put("memory.events", "oom_kill 7\n");
	assert_int_equal(ct_oom_kills(GROUPS), 7);
	assert_int_equal(ct_oom_limit(GROUPS), 1000000);
}

static void test_v1(void **state)
{
	(void)state;
	put("groups", "9:name=systemd:/x\n4:memory:/c/d\n2:cpu,cpuacct:/y\n0::/\n");
	put("memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("memory/c/memory.limit_in_bytes", "300000\n");
	put("memory/c/d/memory.limit_in_bytes", "9223372036854771712\n");
	put("memory/c/d/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
	/* v2 is mounted, too, but does not have the memory controller. */
	assert_int_equal(ct_oom_kills(GROUPS), 1);
	assert_int_equal(ct_oom_limit(GROUPS), 300000);
}

static void test_nothing(void **state)
{
	(void)state;
	assert_int_equal(ct_oom_kills("/nowhere/cgroup", tmpdir), -1);
	assert_int_equal(ct_oom_limit("/nowhere/cgroup", tmpdir), 0);
	put("groups", "no colons\n::\n1:\n0::/../..\n");
	(void)ct_oom_kills(GROUPS);
	assert_int_equal(ct_oom_limit(GROUPS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_v2, tmpdir_setup, tmpdir_teardown),
		cmocka_unit_test_setup_teardown(test_v1, tmpdir_setup, tmpdir_teardown),
		cmocka_unit_test_setup_teardown(test_nothing, tmpdir_setup, tmpdir_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
