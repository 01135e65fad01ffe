/* The communicator mpi: the conformance suite, and ranks that disagree, are late or abort. mpirun starts the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "dist/comm/comm_impl.h"
#include "tests/dist/await_all.h"
#include "tests/dist/conform.h"
#include "tests/dist/mpirun.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

/* shm must compute the same bits. */
static void conform_with_shm(struct ct_world *world, void *arg)
{
	uint64_t digests[2 * MAX_RANKS] = {0};
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
}

/* ---- disagreement */

enum { KIND, COUNT, TYPE, OPERATION, ROOT, AFTER_BROADCAST, N_VARIANTS };

/* What the two ranks issue at the same time. */
static enum ct_status issue(ct_comm *c, int variant, bool odd)
{
	static float x[4000], y[16000];
	ct_work *w;

	switch (variant) {
	case KIND:
		return odd ? run(ct_comm_allgather(c, x, y, 1000, CT_F32, &w), &w)
			   : run(ct_comm_allreduce(c, x, 1000, CT_F32, CT_SUM, &w), &w);
	case COUNT:
		return run(ct_comm_allreduce(c, x, odd ? 3001 : 3000, CT_F32, CT_SUM, &w), &w);
	case TYPE:
		return run(ct_comm_allreduce(c, x, 2000, odd ? CT_I32 : CT_F32, CT_SUM, &w), &w);
	case OPERATION:
		return run(ct_comm_allreduce(c, x, 2000, CT_F32, odd ? CT_MAX : CT_SUM, &w), &w);
	case ROOT: /* each rank is a root, which waits for no one, or waits for the other one */
		CT_TRY(run(ct_comm_broadcast(c, x, 2000, CT_F32, odd ? 1 : 0, &w), &w));
		return barrier(c);
	case AFTER_BROADCAST:
		if (!odd)
			return run(ct_comm_allreduce(c, x, 1000, CT_F32, CT_SUM, &w), &w);
		CT_TRY(run(ct_comm_broadcast(c, x, 1000, CT_F32, 1, &w), &w));
		return barrier(c);
	default:
		return CT_BUG;
	}
}

static void disagree(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);

	CHECK(barrier(c) == CT_OK);
	CHECK(issue(c, s->variant, world->id.rank == 1) == CT_MISMATCH);
	CHECK(says("rank 0 (pid") && says("rank 1 (pid"));
	CHECK(s->variant != COUNT || (says("[3000]") && says("[3001]")));
	CHECK(s->variant != KIND || (says("allgather") && says("allreduce")));
	is_dead(c, CT_MISMATCH);
	ct_comm_close(c);
}

static void disagree_message(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	double x[10] = {0};
	ct_work *w;

	if (world->id.rank == 0)
		CHECK(run(ct_comm_send(c, x, 10, CT_F64, 1, 3, &w), &w) == CT_MISMATCH);
	else
		CHECK(run(ct_comm_recv(c, x, 9, CT_F64, 0, 3, &w), &w) == CT_MISMATCH);
	CHECK(says("f64[10]") && says("f64[9]") && says("tag 3"));
	ct_comm_close(c);
}

/* ---- a rank that does not come, and the end from another thread */

static void late(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	char x[8] = {0};
	ct_work *w;

	if (world->id.rank == 0) {
		if (s->variant)
			CHECK(run(ct_comm_recv(c, x, 8, CT_U8, 1, 0, &w), &w) == CT_TIMEOUT);
		else
			CHECK(barrier(c) == CT_TIMEOUT);
		CHECK(says(s->variant ? "recv u8[8] from rank 1" : "barrier") && says("rank 1 (pid"));
		CHECK(says("not reached it"));
		is_dead(c, CT_TIMEOUT);
	}
	/* Rank 1 waits for the end of rank 0 through the store. */
	CHECK(await_all(world->store, "late", world->id.world) == CT_OK);
	ct_comm_close(c);
}

static void *abort_it(void *arg)
{
	struct ct_failure why = {.rank = 7, .pid = 4711, .status = CT_NUMERIC, .message = "loss is not finite"};

	snprintf(why.host, sizeof(why.host), "nowhere");
	ct_comm_abort(arg, &why);
	return NULL;
}

static void aborted(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	struct ct_thread t = {0};
	static float x[100000];
	ct_work *w;

	if (world->id.rank == 0) {
		CHECK(ct_comm_allreduce(c, x, 100000, CT_F32, CT_SUM, &w) == CT_OK);
		CHECK(ct_thread_start(&t, "aborter", abort_it, c) == CT_OK);
		CHECK(ct_work_wait(w) == CT_NUMERIC);
		CHECK(says("rank 7 (pid 4711 on host nowhere) failed: loss is not finite"));
		ct_thread_join(&t);
		is_dead(c, CT_NUMERIC);
	}
	CHECK(await_all(world->store, "aborted", world->id.world) == CT_OK);
	ct_comm_close(c);
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

static const struct mpi_scene scenes[] = {{"conform", conform_with_shm},
					  {"disagree", disagree},
					  {"disagree_message", disagree_message},
					  {"late", late},
					  {"aborted", aborted},
					  {"wrong_tag", wrong_tag},
					  {"wrong_world", wrong_world}};

static void test_conform(void **state)
{
	(void)state;
	for (int i = 0; i < N_MPIS; i++) {
		for (int size = 2; size <= 3 && mpi_installed(i); size++)
			assert_int_equal(mpi_play(i, size, "conform", LONG, 0), 0);
	}
}

/* The code of ctrain is the same for all libraries, so one of them is enough. */
static int any_mpi(void)
{
	for (int i = 0; i < N_MPIS; i++) {
		if (mpi_installed(i))
			return i;
	}
	skip();
	return -1;
}

static void test_disagree(void **state)
{
	int mpi = any_mpi();

	(void)state;
	for (int v = 0; v < N_VARIANTS; v++)
		mpi_play(mpi, 2, "disagree", LONG, v);
	mpi_play(mpi, 2, "disagree_message", LONG, 0);
}

static void test_late(void **state)
{
	int mpi = any_mpi();

	(void)state;
	mpi_play(mpi, 2, "late", CT_SEC, 0);
	mpi_play(mpi, 2, "late", CT_SEC, 1);
}

static void test_abort(void **state)
{
	(void)state;
	mpi_play(any_mpi(), 2, "aborted", LONG, 0);
}

static void test_refused(void **state)
{
	int mpi = any_mpi();

	(void)state;
	mpi_play(mpi, 2, "wrong_tag", LONG, 0);
	mpi_play(mpi, 2, "wrong_world", LONG, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conform), cmocka_unit_test(test_disagree), cmocka_unit_test(test_late),
		cmocka_unit_test(test_abort),   cmocka_unit_test(test_refused),
	};

	if (mpi_is_rank(argc, argv))
		return mpi_rank_main(argv, scenes, CT_ARRAY_LEN(scenes));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
