/* The binding of ranks on machines that hwloc describes: synthetic ones, and one in an XML file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/plan/binding.h"

#define TWO_SOCKETS "pack:2 [numa] core:4 pu:1"
#define TWO_SOCKETS_SMT "pack:2 [numa] core:4 pu:2"                         /* cores are CPUs 0 and 1, 2 and 3, ... */
#define AS_LINUX_COUNTS CT_SOURCE_DIR "/tests/trainer/plan/two_sockets.xml" /* cores are CPUs 0 and 8, 1 and 9, ... */
#define ONE_SOCKET "pack:1 [numa] core:8 pu:1"
#define FOUR_NODES "pack:2 group:2 [numa] core:3 pu:1"
#define NONE "none: "

enum { AUTO = CT_CFG_BIND_AUTO, NUMA = CT_CFG_BIND_NUMA, CORE = CT_CFG_BIND_CORE, OFF = CT_CFG_BIND_OFF };

static void open_machine(const char *machine, struct ct_topology *out)
{
	const char *variable = machine[0] == '/' ? "HWLOC_XMLFILE" : "HWLOC_SYNTHETIC";

	setenv(variable, machine, 1);
	if (ct_topology_open(machine[0] == '/', out) < 0)
		fail_msg("%s: %s", machine, ct_error_message());
	unsetenv(variable);
	assert_true(out->foreign);
}

/* CPUs first to last. */
struct range {
	int first, last;
};

static struct ct_cpu_set set_of(const struct range *ranges, size_t n)
{
	struct ct_cpu_set out = {0};

	for (size_t i = 0; i < n; i++) {
		for (int cpu = ranges[i].first; cpu <= ranges[i].last; cpu++)
			ct_cpu_set_add(&out, cpu);
	}
	return out;
}

struct binding_case {
	const char *machine;
	struct range allowed[2]; /* empty: all CPUs */
	int mode, ranks, threads;
	bool other_launcher;
	const int *near;
	/* For each rank, its description; one that begins with NONE holds for all of them. After " | ", the CPUs of its
	 * compute threads. */
	const char *want[8];
};

static void describe(const struct ct_binding_job *job, int rank, struct ct_str *out)
{
	struct ct_binding b;
	char text[256];

	ct_binding_make(job, rank, &b);
	ct_binding_text(&b, text, sizeof(text));
	ct_str_add(out, text);
	for (int i = 0; i < b.n_threads; i++) {
		const struct ct_cpu_set one = ct_binding_of_thread(job, &b, i);

		ct_cpu_set_text(&one, text, sizeof(text));
		ct_str_addf(out, "%s%s", i == 0 ? " | " : " ", text);
	}
}

static void check(const struct binding_case *c)
{
	struct ct_topology machine;
	struct ct_binding_job job = {.cpus = &machine,
				     .mode = (enum ct_cfg_bind)c->mode,
				     .ranks = c->ranks,
				     .threads = c->threads,
				     .other_launcher = c->other_launcher,
				     .near = c->near};

	open_machine(c->machine, &machine);
	job.n_machine = machine.n;
	if (c->allowed[0].last > 0) {
		const struct ct_cpu_set allowed = set_of(c->allowed, c->allowed[1].last > 0 ? 2 : 1);

		ct_topology_restrict(&machine, &allowed);
	}
	for (int r = 0; r < c->ranks; r++) {
		const bool all = strncmp(c->want[0], NONE, strlen(NONE)) == 0 && !c->want[1];
		const char *want = c->want[all ? 0 : r];
		struct ct_str text = {0};

		describe(&job, r, &text);
		if (strcmp(ct_str_text(&text), want) != 0)
			fail_msg("%s, mode %d, %d ranks x %d threads, rank %d: \"%s\" instead of \"%s\"", c->machine,
				 c->mode, c->ranks, c->threads, r, ct_str_text(&text), want);
		ct_str_release(&text);
	}
	ct_topology_close(&machine);
}

#define SEVERAL NONE "this rank needs CPUs of several NUMA nodes"

static void test_numa(void **state)
{
	static const struct binding_case cases[] = {
		{TWO_SOCKETS, .mode = AUTO, 2, 4, .want = {"CPUs 0-3, NUMA node 0", "CPUs 4-7, NUMA node 1"}},
		{TWO_SOCKETS, .mode = NUMA, 2, 1, .want = {"CPUs 0-3, NUMA node 0", "CPUs 4-7, NUMA node 1"}},
		/* Some threads of a core each, and all threads of each core. */
		{TWO_SOCKETS_SMT, .mode = AUTO, 2, 3, .want = {"CPUs 0-7, NUMA node 0", "CPUs 8-15, NUMA node 1"}},
		{TWO_SOCKETS_SMT, .mode = AUTO, 2, 8, .want = {"CPUs 0-7, NUMA node 0", "CPUs 8-15, NUMA node 1"}},
		{AS_LINUX_COUNTS, .mode = AUTO, 2, 8,
		 .want = {"CPUs 0-3,8-11, NUMA node 0", "CPUs 4-7,12-15, NUMA node 1"}},
		/* Several ranks share a node. */
		{TWO_SOCKETS, .mode = AUTO, 4, 2,
		 .want = {"CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0", "CPUs 4-7, NUMA node 1",
			  "CPUs 4-7, NUMA node 1"}},
		{FOUR_NODES, .mode = AUTO, 4, 3,
		 .want = {"CPUs 0-2, NUMA node 0", "CPUs 3-5, NUMA node 1", "CPUs 6-8, NUMA node 2",
			  "CPUs 9-11, NUMA node 3"}},
		/* More ranks than cores, but not than CPUs. */
		{"pack:2 [numa] core:2 pu:2", .mode = NUMA, 5, 1,
		 .want = {"CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0",
			  "CPUs 4-7, NUMA node 1", "CPUs 4-7, NUMA node 1"}},
		/* A share on the border. */
		{TWO_SOCKETS, .mode = NUMA, 3, 2, .want = {"CPUs 0-3, NUMA node 0", SEVERAL, "CPUs 4-7, NUMA node 1"}},
		/* Each rank needs two nodes. */
		{FOUR_NODES, .mode = NUMA, 2, 6, .want = {SEVERAL, SEVERAL}},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check(&cases[i]);
}

static void test_core(void **state)
{
	static const struct binding_case cases[] = {
		{TWO_SOCKETS, .mode = CORE, 2, 4,
		 .want = {"CPUs 0-3, NUMA node 0, each compute thread on one core | 0 1 2 3",
			  "CPUs 4-7, NUMA node 1, each compute thread on one core | 4 5 6 7"}},
		{ONE_SOCKET, .mode = CORE, 3, 2,
		 .want = {"CPUs 0-1, NUMA node 0, each compute thread on one core | 0 1",
			  "CPUs 2-4, NUMA node 0, each compute thread on one core | 2 3",
			  "CPUs 5-7, NUMA node 0, each compute thread on one core | 5 6"}},
		/* One thread for each core first; a core with several hardware threads is not divided. */
		{AS_LINUX_COUNTS, .mode = CORE, 2, 4,
		 .want = {"CPUs 0-3,8-11, NUMA node 0, each compute thread on one core | 0,8 1,9 2,10 3,11",
			  "CPUs 4-7,12-15, NUMA node 1, each compute thread on one core | 4,12 5,13 6,14 7,15"}},
		{AS_LINUX_COUNTS, .mode = CORE, 4, 4,
		 .want = {"CPUs 0-1,8-9, NUMA node 0, each compute thread on one core | 0,8 0,8 1,9 1,9",
			  "CPUs 2-3,10-11, NUMA node 0, each compute thread on one core | 2,10 2,10 3,11 3,11",
			  "CPUs 4-5,12-13, NUMA node 1, each compute thread on one core | 4,12 4,12 5,13 5,13",
			  "CPUs 6-7,14-15, NUMA node 1, each compute thread on one core | 6,14 6,14 7,15 7,15"}},
		/* A rank may have cores of both sockets, and be alone. */
		{TWO_SOCKETS, .mode = CORE, 1, 4, .want = {"CPUs 0-7, each compute thread on one core | 0 2 4 6"}},
		{TWO_SOCKETS_SMT, .mode = CORE, 16, 1,
		 .want = {NONE "8 cores cannot be divided among 16 ranks with 1 thread each"}},
		{"pack:1 [numa] core:5 pu:2", .mode = CORE, 3, 3,
		 .want = {NONE "5 cores cannot be divided among 3 ranks with 3 threads each"}},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check(&cases[i]);
}

static void test_none(void **state)
{
	static const struct binding_case cases[] = {
		{TWO_SOCKETS, .mode = OFF, 2, 4, .want = {NONE "launch.bind is off"}},
		{TWO_SOCKETS, .mode = AUTO, 1, 8, .want = {NONE "there is only one rank"}},
		{ONE_SOCKET, .mode = AUTO, 2, 4, .want = {NONE "all CPUs are in one NUMA node"}},
		{ONE_SOCKET, .mode = NUMA, 2, 4, .want = {NONE "all CPUs are in one NUMA node"}},
		/* Other jobs may run on the cores that this one does not use. */
		{TWO_SOCKETS, .mode = AUTO, 5, 1,
		 .want = {NONE "with 5 compute threads, other programs may use many of the 8 cores"}},
		{TWO_SOCKETS, .mode = AUTO, 6, 1,
		 .want = {"CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0",
			  "CPUs 4-7, NUMA node 1", "CPUs 4-7, NUMA node 1", "CPUs 4-7, NUMA node 1"}},
		/* More threads than CPUs. */
		{TWO_SOCKETS, .mode = AUTO, 3, 3, .want = {NONE "3 ranks with 3 threads each, but only 8 CPUs"}},
		{TWO_SOCKETS, .mode = NUMA, 9, 1, .want = {NONE "9 ranks with 1 thread each, but only 8 CPUs"}},
		{TWO_SOCKETS, .mode = CORE, 1, 9, .want = {NONE "1 rank with 9 threads each, but only 8 CPUs"}},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check(&cases[i]);
}

/* Control groups, taskset, Slurm and other launchers. */
static void test_allowed_cpus(void **state)
{
	static const struct binding_case cases[] = {
		/* Half of each socket. */
		{TWO_SOCKETS, {{2, 5}}, AUTO, 2, 2, .want = {"CPUs 2-3, NUMA node 0", "CPUs 4-5, NUMA node 1"}},
		{TWO_SOCKETS,
		 {{2, 3}, {6, 7}},
		 CORE,
		 2,
		 2,
		 .want = {"CPUs 2-3, NUMA node 0, each compute thread on one core | 2 3",
			  "CPUs 6-7, NUMA node 1, each compute thread on one core | 6 7"}},
		/* One socket, and unequal parts of both. */
		{TWO_SOCKETS, {{4, 7}}, AUTO, 2, 2, .want = {NONE "all CPUs are in one NUMA node"}},
		{TWO_SOCKETS, {{1, 4}}, NUMA, 2, 2, .want = {"CPUs 1-3, NUMA node 0", SEVERAL}},
		/* Some hardware threads of a core. */
		{AS_LINUX_COUNTS,
		 {{0, 7}, {12, 13}},
		 CORE,
		 2,
		 4,
		 .want = {"CPUs 0-4,12, each compute thread on one core | 0 1 2 3",
			  "CPUs 5-7,13, NUMA node 1, each compute thread on one core | 5,13 5,13 6 7"}},
		/* One node has fewer CPUs than the other. */
		{AS_LINUX_COUNTS, {{0, 7}, {12, 15}}, NUMA, 2, 6, .want = {SEVERAL, "CPUs 4-7,12-15, NUMA node 1"}},
		/* More threads than these CPUs. */
		{TWO_SOCKETS, {{2, 5}}, AUTO, 2, 4, .want = {NONE "2 ranks with 4 threads each, but only 4 CPUs"}},
		{TWO_SOCKETS, {{1, 1}}, CORE, 2, 1, .want = {NONE "2 ranks with 1 thread each, but only 1 CPU"}},
		/* Slurm, mpirun or torchrun has bound each rank, or none of them. */
		{TWO_SOCKETS,
		 {{0, 3}},
		 CORE,
		 2,
		 2,
		 .other_launcher = true,
		 .want = {NONE "the launcher has already bound this rank to 4 of 8 CPUs"}},
		{TWO_SOCKETS,
		 {{2, 5}},
		 AUTO,
		 2,
		 2,
		 .other_launcher = true,
		 .want = {NONE "the launcher has already bound this rank to 4 of 8 CPUs"}},
		{TWO_SOCKETS, .mode = AUTO, 2, 4, .other_launcher = true,
		 .want = {"CPUs 0-3, NUMA node 0", "CPUs 4-7, NUMA node 1"}},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check(&cases[i]);
}

static void test_gpus(void **state)
{
	static const int crossed[] = {1, 1, 0, 0}, first[] = {0, 0, 0, 0}, unknown[] = {1, 1, -1, 0};
	static const struct binding_case cases[] = {
		{TWO_SOCKETS, .mode = AUTO, 4, 2, .near = crossed,
		 .want = {"CPUs 4-7, NUMA node 1", "CPUs 4-7, NUMA node 1", "CPUs 0-3, NUMA node 0",
			  "CPUs 0-3, NUMA node 0"}},
		/* The compute threads of a GPU's rank do not compute. */
		{TWO_SOCKETS, .mode = CORE, 4, 2, .near = crossed,
		 .want = {"CPUs 4-5, NUMA node 1", "CPUs 6-7, NUMA node 1", "CPUs 0-1, NUMA node 0",
			  "CPUs 2-3, NUMA node 0"}},
		/* The node has too few CPUs for all of its GPUs, or the place of a GPU is not known. */
		{TWO_SOCKETS, .mode = AUTO, 4, 2, .near = first,
		 .want = {"CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0", "CPUs 4-7, NUMA node 1",
			  "CPUs 4-7, NUMA node 1"}},
		{TWO_SOCKETS, .mode = AUTO, 4, 2, .near = unknown,
		 .want = {"CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0", "CPUs 4-7, NUMA node 1",
			  "CPUs 4-7, NUMA node 1"}},
		{TWO_SOCKETS, .mode = NUMA, 4, 1, .near = first,
		 .want = {"CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0", "CPUs 0-3, NUMA node 0",
			  "CPUs 0-3, NUMA node 0"}},
	};
	struct ct_topology machine;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check(&cases[i]);
	open_machine(AS_LINUX_COUNTS, &machine);
	assert_int_equal(ct_topology_node_near(&machine, "0000:3b:00.0"), 0);
	assert_int_equal(ct_topology_node_near(&machine, "0000:D8:00.0"), 1);
	assert_int_equal(ct_topology_node_near(&machine, "0000:01:00.0"), -1); /* equally near to both nodes */
	assert_int_equal(ct_topology_node_near(&machine, "0000:3c:00.0"), -1);
	assert_int_equal(ct_topology_node_near(&machine, ""), -1);
	ct_topology_close(&machine);
}

static void test_topology(void **state)
{
	const struct ct_cpu_set mask = ct_cpu_mask();
	struct ct_topology t;

	(void)state;
	open_machine(AS_LINUX_COUNTS, &t);
	assert_true(t.n == 16 && t.n_cores == 8 && t.n_nodes == 2);
	ct_topology_restrict(&t, &(struct ct_cpu_set){0});
	assert_true(t.n == 0 && t.n_cores == 0 && t.n_nodes == 0);
	ct_topology_close(&t);
	ct_topology_close(&t);
	/* This machine. */
	if (ct_topology_open(true, &t) < 0)
		fail_msg("%s", ct_error_message());
	assert_false(t.foreign);
	ct_topology_restrict(&t, &mask);
	assert_int_equal(t.n, CPU_COUNT_S(sizeof(mask), mask.part));
	assert_true(t.n_cores >= 1 && t.n_nodes >= 1);
	if (t.n_nodes > 1)
		assert_true(ct_topology_is_numa());
	ct_topology_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numa),         cmocka_unit_test(test_core), cmocka_unit_test(test_none),
		cmocka_unit_test(test_allowed_cpus), cmocka_unit_test(test_gpus), cmocka_unit_test(test_topology),
	};

	if (!ct_topology_library()) {
		print_message("SKIPPED: built without hwloc\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
