#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu/features.h"
#include "base/parallel.h"
#include "base/process/spawn.h"
#include "base/thread.h"
#include "tests/base/check.h"

static void put(const char *root, const char *path, const char *text)
{
	char *full = ct_path_join(root, path), *dir = ct_path_dir(full);

	assert_ok(ct_dir_make(dir));
	assert_ok(ct_file_replace(full, text, strlen(text)));
	ct_free(dir);
	ct_free(full);
}

static double quota(const char *root, const char *groups)
{
	char *file, *mount = ct_path_join(root, "mount");
	double q;

	put(root, "groups", groups);
	file = ct_path_join(root, "groups");
	q = ct_cpu_quota(file, mount);
	ct_free(file);
	ct_free(mount);
	return q;
}

static void test_quota_v2(void **state)
{
	char *root = ct_path_join(*state, "v2");

	put(root, "mount/job/cpu.max", "max 100000\n");
	assert_true(quota(root, "0::/job\n") == 0);
	assert_true(quota(root, "0::/\n") == 0);
	put(root, "mount/job/cpu.max", "150000 100000\n");
	assert_true(quota(root, "0::/job\n") == 1.5);
	/* A parent group may have a lower limit. A group that does not exist has no limit. */
	put(root, "mount/job/step/cpu.max", "400000 100000\n");
	assert_true(quota(root, "0::/job/step\n") == 1.5);
	assert_true(quota(root, "0::/job/unseen/below\n") == 1.5);
	assert_true(quota(root, "0::/elsewhere\n") == 0);
	put(root, "mount/cpu.max", "50000 100000\n");
	assert_true(quota(root, "0::/elsewhere/on/the/host\n") == 0.5);
	assert_true(quota(root, "0::/\n") == 0.5);
	ct_free(root);
}

static void test_quota_v1(void **state)
{
	char *root = ct_path_join(*state, "v1");

	put(root, "mount/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
	put(root, "mount/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
	assert_true(quota(root, "5:cpuset:/a\n4:cpu,cpuacct:/a\n") == 0);
	put(root, "mount/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
	assert_true(quota(root, "5:cpuset:/a\n4:cpu,cpuacct:/a\n") == 3);
	assert_true(quota(root, "5:cpuset:/a\n4:cpuacct:/a\n") == 0);
	ct_free(root);
}

static void test_quota_of_nonsense(void **state)
{
	static const char *const lines[] = {"", "\n\n", "0", "0:", "0::", ":::::", "x:cpu:", "0::/\xff/../..\n"};
	char *root = ct_path_join(*state, "bad");

	put(root, "mount/cpu.max", "a lot");
	for (size_t i = 0; i < CT_ARRAY_LEN(lines); i++)
		assert_true(quota(root, lines[i]) == 0);
	put(root, "mount/cpu.max", "100000 0");
	assert_true(quota(root, "0::/") == 0);
	put(root, "mount/cpu.max", "100000");
	assert_true(quota(root, "0::/") == 0);
	assert_true(ct_cpu_quota("/nonexistent", "/nonexistent") == 0);
	ct_free(root);
}

static void test_mask(void **state)
{
	cpu_set_t old, one;
	char list[256], expected[16], tiny[2];
	int cpu = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
	assert_in_range(ct_cpu_count(), 1, CPU_COUNT(&old));
	ct_cpu_list(list, sizeof(list));
	assert_string_not_equal(list, "");
	while (!CPU_ISSET(cpu, &old))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(ct_cpu_count(), 1);
	ct_cpu_list(list, sizeof(list));
	snprintf(expected, sizeof(expected), "%d", cpu);
	assert_string_equal(list, expected);
	assert_int_equal(sched_setaffinity(0, sizeof(old), &old), 0);
	/* An entry that does not fit is omitted completely. */
	ct_cpu_list(tiny, sizeof(tiny));
	assert_true(strlen(tiny) < sizeof(tiny));
	if (CPU_COUNT(&old) == 2 && CPU_ISSET(0, &old) && CPU_ISSET(1, &old)) {
		ct_cpu_list(list, sizeof(list));
		assert_string_equal(list, "0-1");
	}
}

/* A limit hides what the processor has above it, and cannot be above what the processor has. */
static void test_limit(void **state)
{
	static const unsigned features[] = {[CT_ISA_AVX2] = CT_CPU_AVX2 | CT_CPU_FMA,
					    [CT_ISA_AVX512] = CT_CPU_AVX512,
					    [CT_ISA_AVX512_BF16] = CT_CPU_AVX512BF16,
					    [CT_ISA_AMX] = CT_CPU_AMX_BF16};
	const enum ct_isa best = ct_cpu_isa();

	(void)state;
	for (enum ct_isa limit = CT_ISA_AMX; limit > CT_ISA_AUTO; limit--) {
		if (limit > best) {
			assert_fails(ct_cpu_set_limit(limit), CT_UNSUPPORTED, ct_isa_name(limit));
			assert_int_equal(ct_cpu_limit(), CT_ISA_AUTO);
			continue;
		}
		assert_ok(ct_cpu_set_limit(limit));
		assert_int_equal(ct_cpu_limit(), limit);
		assert_int_equal(ct_cpu_isa(), limit);
		for (enum ct_isa isa = CT_ISA_AVX2; isa <= CT_ISA_AMX; isa++)
			assert_true(ct_cpu_has(features[isa]) == (isa <= limit));
		assert_true(limit >= CT_ISA_AVX512 || !ct_cpu_has(CT_CPU_AVX512VNNI));
		assert_true(limit >= CT_ISA_AVX512 || !ct_cpu_has(CT_CPU_AVX512VBMI));
	}
	assert_ok(ct_cpu_set_limit(CT_ISA_AUTO));
	assert_int_equal(ct_cpu_isa(), best);
}

static void *get_mask(void *arg)
{
	struct ct_cpu_set *mask = arg;

	*mask = (struct ct_cpu_set){0};
	assert_int_equal(sched_getaffinity(0, sizeof(*mask), mask->part), 0);
	return NULL;
}

static void get_masks(void *arg, int64_t begin, int64_t end)
{
	for (int64_t i = begin; i < end; i++)
		get_mask((struct ct_cpu_set *)arg + i);
}

/* The last test, because a process can be bound only once. */
static void test_bind(void **state)
{
	const struct ct_cpu_set before = ct_cpu_mask();
	struct ct_cpu_set one[2] = {0}, of_range[2], mask;
	struct ct_thread t = {0};
	const int n = ct_cpu_count();
	char list[256], list_after[256];

	(void)state;
	ct_cpu_list(list, sizeof(list));
	for (int cpu = 0, found = 0; cpu < CT_CPUS_MAX && found < 2; cpu++) {
		if (ct_cpu_set_has(&before, cpu))
			ct_cpu_set_add(&one[found++], cpu);
	}
	if (CPU_COUNT_S(sizeof(one[1]), one[1].part) == 0)
		skip();
	assert_fails(ct_cpu_bind(&(struct ct_cpu_set){0}), CT_UNSUPPORTED, "cannot bind");
	assert_ok(ct_cpu_bind(&one[0]));
	get_mask(&mask);
	assert_memory_equal(&mask, &one[0], sizeof(mask));
	/* Another program has the CPUs before. */
	const struct ct_spawn spawn = {.argv = (const char *const[]){"true", NULL}, .files = {-1, -1, -1}};
	pid_t child;
	assert_int_equal(ct_spawn(&spawn, &child), 0);
	assert_int_equal(sched_getaffinity(child, sizeof(mask), mask.part), 0);
	assert_memory_equal(&mask, &before, sizeof(mask));
	assert_int_equal(waitpid(child, NULL, 0), child);
	get_mask(&mask);
	assert_memory_equal(&mask, &one[0], sizeof(mask));
	/* The number of threads is still derived from the CPUs before. */
	assert_int_equal(ct_cpu_count(), n);
	ct_cpu_list(list_after, sizeof(list_after));
	assert_string_equal(list_after, list);

	/* The calling thread keeps the CPUs of the process, and so do the threads that it starts. */
	ct_parallel_pin(2, (const struct ct_cpu_set[]){one[1], one[1]});
	ct_parallel_for(2, 2, 1, get_masks, of_range);
	assert_memory_equal(&of_range[0], &one[0], sizeof(mask));
#ifdef CT_PARALLEL_PINS
	assert_memory_equal(&of_range[1], &one[1], sizeof(mask));
#endif
	assert_ok(ct_thread_start(&t, "test", get_mask, &mask));
	ct_thread_join(&t);
	assert_memory_equal(&mask, &one[0], sizeof(mask));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quota_v2),
		cmocka_unit_test(test_quota_v1),
		cmocka_unit_test(test_quota_of_nonsense),
		cmocka_unit_test(test_mask),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_bind),
	};

	return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
