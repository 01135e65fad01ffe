/* Incorrect uses of the backend API of the stand-in. test_consult.c runs the same ones with the real library. */
#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/cudnn/misuse.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"

/* In a child: the case may end the process. */
static void run_case(void *arg)
{
	const struct misuse *m = arg;
	static struct builder b;
	char reason[512];

	builder_begin(&b, &linked_library);
	m->run(&b);
	if (b.status != m->status)
		fprintf(stderr, "%s: status %d instead of %d\n", m->name, (int)b.status, (int)m->status);
	cudnnGetLastErrorString(reason, sizeof(reason));
	if (b.status != CUDNN_STATUS_SUCCESS && !reason[0])
		fprintf(stderr, "%s: no reason\n", m->name);
	builder_end(&b);
	if (soft_cudnn_live() != 0)
		fprintf(stderr, "%s: descriptors are left\n", m->name);
}

static void check(const struct misuses *m)
{
	int n_bad = 0;

	for (int i = 0; i < m->n; i++) {
		struct child c = run_child(run_case, (void *)(uintptr_t)&m->all[i]);
		bool is_good = m->all[i].message ? c.status != 0 && strstr(c.output, m->all[i].message)
						 : c.status == 0 && !c.output[0];

		n_bad += !is_good;
		if (!is_good)
			printf("%s: status %d: %s\n", m->all[i].name, c.status, c.output);
	}
	assert_int_equal(n_bad, 0);
}

static void test_descriptors(void **state)
{
	(void)state;
	check(&misused_descriptors);
}

static void test_operations(void **state)
{
	(void)state;
	check(&misused_operations);
}

static void test_graphs(void **state)
{
	(void)state;
	check(&misused_graphs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_descriptors), cmocka_unit_test(test_operations),
					   cmocka_unit_test(test_graphs)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
