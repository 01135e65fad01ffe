/* The errors of communicators that cannot be opened, and the choice of "auto". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/device/device.h"
#include "base/mem.h"
#include "dist/comm/comm_impl.h"
#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

static void not_for_this_world(struct ct_world *world, void *arg)
{
	struct ct_comm_opts o = {.timeout_ns = LONG};
	ct_comm *c;

	(void)arg;
	CHECK(ct_comm_open("gluu", world, &o, &c) == CT_CONFIG && c == NULL);
	CHECK(strstr(ct_error_hint_text(), "gloo"));
	CHECK(ct_comm_open("self", world, &o, &c) == CT_UNSUPPORTED && says("2"));
	world->peers[1].node = 1;
	CHECK(ct_comm_open("shm", world, &o, &c) == CT_UNSUPPORTED && says("host"));
	world->n_hosts = 2;
	o.ports = (struct ct_port_range){30000, 30009};
	CHECK(ct_comm_open("mpi", world, &o, &c) == CT_CONFIG && says("dist.port_range=30000-30009"));
	CHECK(strstr(ct_error_hint_text(), "net.ipv4.ip_local_port_range=\"30000 30009\""));
	CHECK(ct_comm_open("nccl", world, &o, &c) == CT_CONFIG && says("\"nccl\""));
}

static void test_not_for_this_world(void **state)
{
	(void)state;
	play("shm", 2, NULL, LONG, not_for_this_world, 0, 0, NULL);
}

static void wrong_iface(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct ct_comm_opts o = {.timeout_ns = LONG, .iface = "nosuch0"};
	ct_comm *c;

	CHECK(ct_comm_open(s->backend, world, &o, &c) == CT_CONFIG && c == NULL);
	CHECK(says("dist.iface") && says("\"nosuch0\"; its usable interfaces are ") && says("lo"));
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
	CHECK(says("GLOO_SOCKET_IFNAME: this host has no network interface \"nosuch0\"; its usable interfaces are "));
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

/* Rank 0, and ranks 1 and 2, are two parts of the world. All ranks have one device, so the latter cannot use nccl. */
static void agree_in_parts(struct ct_world *world, void *arg)
{
	const int part_of[] = {0, 1, 1}, part = part_of[world->id.rank];
	const char *want = part == 0 ? "" : "rank 1 and rank 2 share a GPU";
	struct ct_comm_opts o = {.timeout_ns = LONG, .scope = part == 0 ? "a" : "b"};
	struct ct_world w;
	char why[320], *value;
	bool can_use;
	size_t len;

	(void)arg;
	CHECK(ct_device_open("cpu", 0, &o.device) == CT_OK);
	CHECK(ct_world_part(world, part_of, part, &w) == CT_OK);
	if (part == 1) {
		CHECK(ct_store_get(world->store, "agreed", ct_deadline_in(LONG), &value, &len) == CT_OK);
		ct_free(value);
	}
	CHECK(ct__comm_agree_on_nccl(&w, &o, NULL, &can_use, why, sizeof(why)) == CT_OK);
	CHECK(can_use == (part == 0) && strcmp(why, want) == 0);
	if (part == 0)
		CHECK(ct_store_set(world->store, "agreed", "", 0) == CT_OK);
	CHECK(ct__comm_agree_on_nccl(&w, &o, world->id.rank == 2 ? NULL : "old", &can_use, why, sizeof(why)) == CT_OK);
	CHECK(!can_use && strcmp(why, part == 0 ? "rank 0: old" : "rank 1: old") == 0);
	/* A rank decides by the code, so an empty reason does not mean that it can. */
	CHECK(ct__comm_agree_on_nccl(&w, &o, "", &can_use, why, sizeof(why)) == CT_OK);
	CHECK(!can_use && strcmp(why, part == 0 ? "rank 0: " : "rank 1: ") == 0);
	ct_free(w.peers);
	ct_device_close(o.device);
}

static void test_auto_in_parts(void **state)
{
	(void)state;
	play("auto", 3, NULL, LONG, agree_in_parts, 0, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_for_this_world),
		cmocka_unit_test(test_wrong_iface),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_auto_in_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
