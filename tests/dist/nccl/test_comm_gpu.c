/* Runs the cases of cases.h on memory of GPUs: for nccl, and for communicators of the CPU that are staged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/device/device.h"
#include "tests/dist/cases.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

static void test(const char *name, const char *backend, const int *nodes, bool posted)
{
	const struct subject s = {.name = name, .backend = backend, .nodes = nodes, .gpu = true, .posted = posted};

	if (comm_built(backend))
		run_cases(&s, fork_case);
}

static void test_nccl(void **state)
{
	(void)state;
	setenv("SOFT_NCCL_MISMATCH", "hang", 1); /* as NCCL does */
	test("nccl", "nccl", NULL, false);
	test("nccl, posted", "nccl", NULL, true);
}

static void test_staged(void **state)
{
	(void)state;
	test("shm, staged", "shm", NULL, true);
	test("gloo, staged", "gloo", NULL, true);
	test("hier, staged", "hier", (const int[]){0, 1, 1}, true);
}

/* Ranks of one host; the bits of the variant are those that compute on a GPU. Each must notice what the others have. */
static void choose(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	const bool on_gpu = s->variant >> world->id.rank & 1;
	struct ct_comm_opts o = {.timeout_ns = LONG};
	ct_comm *c;

	CHECK(ct_device_open(on_gpu ? "cuda" : "cpu", on_gpu ? world->id.rank : 0, &o.device) == CT_OK);
	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_OK);
	CHECK(strcmp(ct_comm_name(c), s->variant == 7 ? "nccl" : "shm") == 0);
	CHECK(barrier(c) == CT_OK);
	ct_comm_close(c);
	ct_device_close(o.device);
}

static void test_auto(void **state)
{
	(void)state;
	for (int with_gpu = 0; with_gpu < 8; with_gpu++)
		play("auto", 3, NULL, LONG, choose, with_gpu, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nccl),
		cmocka_unit_test(test_staged),
		cmocka_unit_test(test_auto),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
