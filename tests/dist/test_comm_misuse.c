/* The errors of communicators when ranks issue different or invalid operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/comm/comm_impl.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

/* ---- disagreement */

enum { KIND, FROM_ROOT, COUNT, TYPE, OPERATION, ROOT, SMALL, N_VARIANTS };

static void disagree(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	bool odd = world->id.rank == 1;
	static float x[4000], y[16000];
	enum ct_status st = CT_BUG;
	ct_work *w;

	CHECK(barrier(c) == CT_OK);
	switch (s->variant) {
	case KIND:
		st = odd ? run(ct_comm_allgather(c, x, y, 1000, CT_F32, &w), &w)
			 : run(ct_comm_allreduce(c, x, 1000, CT_F32, CT_SUM, &w), &w);
		break;
	case FROM_ROOT: /* the root of a broadcast waits for no one */
		st = odd ? run(ct_comm_broadcast(c, x, 1000, CT_F32, 1, &w), &w)
			 : run(ct_comm_allreduce(c, x, 1000, CT_F32, CT_SUM, &w), &w);
		if (odd && st == CT_OK)
			st = barrier(c);
		break;
	case COUNT:
		st = run(ct_comm_allreduce(c, x, odd ? 3001 : 3000, CT_F32, CT_SUM, &w), &w);
		break;
	case TYPE:
		st = run(ct_comm_allreduce(c, x, 2000, odd ? CT_I32 : CT_F32, CT_SUM, &w), &w);
		break;
	case OPERATION:
		st = run(ct_comm_allreduce(c, x, 2000, CT_F32, odd ? CT_MAX : CT_SUM, &w), &w);
		break;
	case ROOT:
		st = run(ct_comm_broadcast(c, x, 2000, CT_F32, odd ? 1 : 0, &w), &w);
		break;
	case SMALL:
		st = odd ? barrier(c) : run(ct_comm_allreduce(c, x, 1, CT_F32, CT_SUM, &w), &w);
		break;
	default:
		break;
	}
	/* Over several hosts the news may come as the loss of the rank that noticed; the run's watchdog brings the rest. */
	CHECK(st == CT_MISMATCH || (strcmp(s->backend, "hier") == 0 && st == CT_PEER_LOST));
	if (st == CT_MISMATCH) {
		CHECK(says("rank 0 (pid") && says("rank 1 (pid"));
		CHECK(s->variant != COUNT || strcmp(s->backend, "hier") == 0 || (says("[3000]") && says("[3001]")));
		CHECK(s->variant != KIND || strcmp(s->backend, "hier") == 0 ||
		      (says("allgather") && says("allreduce")));
		CHECK(ct_error_hint_text()[0]);
	}
	s->outcome[world->id.rank] = st;
	is_dead(c, st);
	ct_comm_close(c);
}

static void test_disagree_shm(void **state)
{
	(void)state;
	for (int v = 0; v < N_VARIANTS; v++) {
		play("shm", 2, NULL, LONG, disagree, v, 0, NULL);
		play("shm", 3, NULL, LONG, disagree, v, 0, NULL);
	}
}

static void test_disagree_gloo(void **state)
{
	(void)state;
	if (!comm_built("gloo"))
		skip();
	for (int v = 0; v < N_VARIANTS; v++) {
		play("gloo", 2, NULL, LONG, disagree, v, 0, NULL);
		play("gloo", 2, NULL, 5 * CT_SEC, disagree, v, 0, NULL);
	}
}

static void test_disagree_hier(void **state)
{
	int outcome[MAX_RANKS];

	(void)state;
	if (!comm_built("hier"))
		skip();
	play("hier", 3, two_hosts, LONG, disagree, COUNT, 0, outcome);
	assert_true(outcome[0] == CT_MISMATCH && outcome[1] == CT_MISMATCH);
}

static void disagree_message(struct ct_world *world, void *arg)
{
	struct scene *s = arg;
	ct_comm *c = open_comm(world, s);
	double x[10] = {0};
	ct_work *w;

	if (world->id.rank == 0)
		CHECK(run(ct_comm_send(c, x, 10, CT_F64, 1, 3, &w), &w) == CT_MISMATCH);
	else
		CHECK(run(ct_comm_recv(c, x, 9, CT_F64, 0, 3, &w), &w) == CT_MISMATCH);
	CHECK(says("f64[10]") && says("f64[9]") && says("tag 3"));
	ct_comm_close(c);
}

static void test_disagree_message(void **state)
{
	(void)state;
	play("shm", 2, NULL, LONG, disagree_message, 0, 0, NULL);
	if (comm_built("gloo"))
		play("gloo", 2, NULL, LONG, disagree_message, 0, 0, NULL);
}

static void disagree_memory(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	void *p;

	CHECK(ct_comm_mem_alloc(c, 10000, &p) == CT_OK);
	CHECK(ct_comm_mem_alloc(c, world->id.rank == 2 ? 5000 : 4000, &p) == CT_MISMATCH);
	CHECK(says("4000") && says("5000") && says("rank 2 (pid"));
	ct_comm_close(c);
}

static void test_disagree_memory(void **state)
{
	(void)state;
	play("shm", 3, NULL, LONG, disagree_memory, 0, 0, NULL);
}

/* ---- wrong requests */

static void wrong_requests(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg), *other;
	struct ct_comm_opts o = {.timeout_ns = LONG};
	float x[4] = {0};
	ct_work *w;

	CHECK(ct_comm_allreduce(c, x, SIZE_MAX / 2, CT_F32, CT_SUM, &w) == CT_BUG);
	CHECK(ct_comm_allreduce(c, NULL, 1, CT_F32, CT_SUM, &w) == CT_BUG);
	CHECK(ct_comm_allreduce(c, x, 4, CT_N_DTYPES, CT_SUM, &w) == CT_BUG);
	CHECK(ct_comm_allreduce(c, x, 4, CT_F32, (enum ct_redop)9, &w) == CT_BUG);
	CHECK(ct_comm_broadcast(c, x, 4, CT_F32, world->id.world, &w) == CT_BUG);
	CHECK(ct_comm_broadcast(c, x, 4, CT_F32, -1, &w) == CT_BUG);
	CHECK(ct_comm_send(c, x, 4, CT_F32, world->id.rank, 0, &w) == CT_BUG);
	CHECK(w == NULL);
	CHECK(ct_work_wait(NULL) == CT_OK);
	/* None of that hurt the communicator. */
	CHECK(barrier(c) == CT_OK);
	CHECK(ct_comm_open("gluu", world, &o, &other) == CT_CONFIG && other == NULL);
	CHECK(strstr(ct_error_hint_text(), "gloo"));
	CHECK(ct_comm_open("self", world, &o, &other) == CT_UNSUPPORTED && says("2"));
	world->peers[1].node = 1;
	CHECK(ct_comm_open("shm", world, &o, &other) == CT_UNSUPPORTED && says("host"));
	ct_comm_close(c);
}

static void wrong_iface(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct ct_comm_opts o = {.timeout_ns = LONG, .iface = "nosuch0"};
	ct_comm *c;

	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_CONFIG && c == NULL);
	CHECK(says("dist.iface") && says("\"nosuch0\"; its interfaces are ") && says("lo"));
	CHECK(strstr(ct_error_hint_text(), "leave dist.iface empty"));
	o.iface = "loo";
	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_CONFIG && c == NULL);
	CHECK(strstr(ct_error_hint_text(), "did you mean \"lo\"?"));
	/* Nothing was opened, so nothing is in the way of the right name. */
	o.iface = "lo";
	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_OK);
	CHECK(barrier(c) == CT_OK);
	ct_comm_close(c);
}

/* The variable that PyTorch reads. dist.iface takes precedence. */
static void wrong_iface_of_gloo(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct ct_comm_opts o = {.timeout_ns = LONG};
	ct_comm *c;

	setenv("GLOO_SOCKET_IFNAME", "nosuch0", 1);
	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_CONFIG && c == NULL);
	CHECK(says("GLOO_SOCKET_IFNAME: this host has no network interface \"nosuch0\"; its interfaces are "));
	o.iface = "lo";
	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_OK);
	CHECK(barrier(c) == CT_OK);
	ct_comm_close(c);
	o.iface = NULL;
	setenv("GLOO_SOCKET_IFNAME", "lo,nosuch0", 1);
	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_OK);
	CHECK(barrier(c) == CT_OK);
	ct_comm_close(c);
}

static void test_wrong_iface(void **state)
{
	(void)state;
	play("shm", 2, NULL, LONG, wrong_iface, 0, 0, NULL);
	if (!comm_built("gloo"))
		return;
	play("gloo", 2, NULL, LONG, wrong_iface, 0, 0, NULL);
	play("hier", 3, two_hosts, LONG, wrong_iface, 0, 0, NULL);
	play("gloo", 2, NULL, LONG, wrong_iface_of_gloo, 0, 0, NULL);
	play("hier", 3, two_hosts, LONG, wrong_iface_of_gloo, 0, 0, NULL);
}

static void test_wrong_requests(void **state)
{
	(void)state;
	play("shm", 2, NULL, LONG, wrong_requests, 0, 0, NULL);
	play("auto", 2, NULL, LONG, wrong_requests, 0, 0, NULL);
}

/* The messages about communicators that cannot be used name the others. */
static void open_unknown(struct ct_world *world, void *arg)
{
	const struct ct_comm_opts o = {.timeout_ns = LONG};
	const char *name;
	bool available;
	char why[256], hint[512];
	ct_comm *c;

	(void)arg;
	CHECK(ct_comm_open("qqqqqqq", world, &o, &c) == CT_CONFIG);
	CHECK(strstr(ct_error_message(), "there is no communicator \"qqqqqqq\""));
	snprintf(hint, sizeof(hint), "%s", ct_error_hint_text());
	for (size_t i = 0; ct_comm_backend_at(i, &name, &available, why, sizeof(why)); i++)
		CHECK(strstr(hint, name));
	ct_error_clear();
	CHECK(ct_comm_open("sh", world, &o, &c) == CT_CONFIG);
	CHECK(strcmp(ct_error_hint_text(), "did you mean \"shm\"?") == 0);
}

static void test_unknown(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(1, NULL, open_unknown, NULL, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disagree_shm),    cmocka_unit_test(test_disagree_gloo),
		cmocka_unit_test(test_disagree_hier),   cmocka_unit_test(test_disagree_message),
		cmocka_unit_test(test_disagree_memory), cmocka_unit_test(test_wrong_requests),
		cmocka_unit_test(test_wrong_iface),     cmocka_unit_test(test_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
