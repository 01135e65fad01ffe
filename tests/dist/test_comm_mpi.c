/* The communicator mpi: the conformance suite, the cases of cases.h, and what mpi refuses. mpirun starts the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/comm/comm_impl.h"
#include "tests/dist/await_all.h"
#include "tests/dist/cases.h"
#include "tests/dist/conform.h"
#include "tests/dist/mpirun.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"
#include "tests/pause.h"

/* shm must compute the same bits, and so must mpi with other hosts: if each rank has its own, all messages go through
 * MPI; if two ranks share one, some go through rings. */
static void conform_with_shm(struct ct_world *world, void *arg)
{
	uint64_t digests[4 * MAX_RANKS] = {0};
	bool unsupported[MAX_RANKS] = {false};
	struct suite s = {.backend = "mpi", .digests = digests, .unsupported = unsupported};
	int rank = world->id.rank;

	(void)arg;
	conform(world, &s);
	CHECK(!unsupported[rank]);
	s.backend = "shm";
	s.run = 1;
	conform(world, &s);
	CHECK(digests[rank] != 0 && digests[rank] == digests[MAX_RANKS + rank]);
	s.backend = "mpi";
	for (int per_host = 1; per_host <= 2; per_host++) {
		for (int q = 0; q < world->id.world; q++)
			world->peers[q].node = q / per_host;
		s.run = 1 + per_host;
		conform(world, &s);
		CHECK(digests[rank] == digests[s.run * MAX_RANKS + rank]);
	}
}

/* ---- a tag that does not fit, and a world that is not MPI's */

static void wrong_tag(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	char x[8] = {0};
	ct_work *w;

	CHECK(ct_comm_send(c, x, 8, CT_U8, 1 - world->id.rank, 4096, &w) == CT_BUG);
	CHECK(says("4096") && says("4095"));
	ct_comm_close(c);
}

static void wrong_world(struct ct_world *world, void *arg)
{
	struct ct_comm_opts o = {.timeout_ns = LONG};
	ct_comm *c;

	(void)arg;
	world->id.rank = 1 - world->id.rank;
	CHECK(ct_comm_open("mpi", world, &o, &c) == CT_MISMATCH && c == NULL);
	CHECK(says("for MPI, but rank"));
	world->id.rank = 1 - world->id.rank;
}

/* ---- messages that are copied without waiting for the receiver */

/* No rank receives, so after some messages a send waits. variant: each rank is on its own host, so the messages go
 * through MPI. */
static void sender_alone(struct ct_world *world, void *arg)
{
	const struct scene *scene = arg;
	ct_comm *c;
	enum ct_status st = CT_OK;
	char x[8] = {0};
	int n_sent = 0;
	ct_work *w;

	for (int q = 0; q < world->id.world && scene->variant; q++)
		world->peers[q].node = q;
	c = open_comm(world, scene);
	if (world->id.rank == 0) {
		while (n_sent < 100 && (st = run(ct_comm_send(c, x, 8, CT_U8, 1, 0, &w), &w)) == CT_OK)
			n_sent++;
		CHECK(st == CT_TIMEOUT && n_sent > 0 && n_sent < 40);
		CHECK(says("send u8[8] to rank 1") && says("rank 1 (pid"));
	}
	CHECK(await_all(world->store, "sent", world->id.world) == CT_OK);
	ct_comm_close(c);
}

/* Waits until rank q has written its operations to the store (dist/comm/diagnose.c). */
static void await_look(const ct_comm *c, int q)
{
	char key[128];
	int64_t n = 0;

	snprintf(key, sizeof(key), "%s/waits/%d", c->scope, q);
	while (n == 0) {
		CHECK(ct_store_add(c->world->store, key, 0, &n) == CT_OK);
		pause_briefly();
	}
}

static enum ct_status message(ct_comm *c, int from, int to, void *x, size_t n)
{
	ct_work *w;

	return c->rank == from ? run(ct_comm_send(c, x, n, CT_U8, to, 3, &w), &w)
			       : run(ct_comm_recv(c, x, n, CT_U8, from, 3, &w), &w);
}

/* Rank 1 waits for a message that rank 0 has not sent yet. An earlier message had another length, which is no
 * disagreement. */
static void other_lengths(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	char x[10] = {0};

	if (c->rank < 2)
		CHECK(message(c, 0, 1, x, 10) == CT_OK);
	if (c->rank == 1)
		await_look(c, 0);
	if (c->rank == 2)
		await_look(c, 1);
	if (c->rank != 1)
		CHECK(message(c, 2, 0, x, 1) == CT_OK);
	if (c->rank < 2)
		CHECK(message(c, 0, 1, x, 9) == CT_OK);
	CHECK(barrier(c) == CT_OK);
	ct_comm_close(c);
}

static void test_conform(void **state)
{
	static const int sizes[N_MPIS][2] = {{2, 4}, {3, 4}};

	(void)state;
	for (int i = 0; i < N_MPIS; i++) {
		for (int k = 0; k < 2 && mpi_installed(i); k++)
			assert_int_equal(mpi_play(i, sizes[i][k], "conform", LONG, 0), 0);
	}
}

/* The code of ctrain is the same for all libraries, so one of them is enough. */
static int any_mpi(void)
{
	for (int i = 0; i < N_MPIS; i++) {
		if (mpi_installed(i))
			return i;
	}
	print_message("no MPI library can be used here\n");
	skip();
	return -1;
}

static void mpirun_case(const struct subject *s, const struct comm_case *k)
{
	(void)s;
	(void)mpi_play(any_mpi(), N_CASE_RANKS, k->name, k->timeout_ns, k->variant);
}

static void test_cases(void **state)
{
	(void)state;
	run_cases(&(struct subject){.name = "mpi", .backend = "mpi"}, mpirun_case);
}

static void test_refused(void **state)
{
	int mpi = any_mpi();

	(void)state;
	mpi_play(mpi, 2, "wrong_tag", LONG, 0);
	mpi_play(mpi, 2, "wrong_world", LONG, 0);
}

static void test_messages(void **state)
{
	(void)state;
	for (int i = 0; i < N_MPIS; i++) {
		for (int hosts = 0; hosts < 2 && mpi_installed(i); hosts++)
			mpi_play(i, 2, "sender_alone", CT_SEC, hosts);
	}
	mpi_play(any_mpi(), 3, "other_lengths", LONG, 0);
}

/* What a rank does that mpirun has started. */
static rank_fn find(const char *name)
{
	static const struct {
		const char *name;
		rank_fn fn;
	} own[] = {{"conform", conform_with_shm},
		   {"wrong_tag", wrong_tag},
		   {"wrong_world", wrong_world},
		   {"sender_alone", sender_alone},
		   {"other_lengths", other_lengths}};
	const struct comm_case *k = find_case(name);

	for (size_t i = 0; !k && i < CT_ARRAY_LEN(own); i++) {
		if (strcmp(own[i].name, name) == 0)
			return own[i].fn;
	}
	return k ? k->fn : NULL;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conform),
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_messages),
	};

	if (mpi_is_rank(argc, argv))
		return mpi_rank_main(argv, find(argv[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
