/* The errors of the communicator nccl when it opens, and when NCCL itself reports an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/dist/await_all.h"
#include "tests/dist/stream_rig.h"

static void together(struct ct_world *world, const char *name)
{
	CHECK(await_all(world->store, name, world->id.world) == CT_OK);
}

static enum ct_status sum(struct rig *r)
{
	ct_work *w;

	return run(ct_comm_allreduce(r->c, r->x, N, CT_F32, CT_SUM, &w), &w);
}

/* ---- opening */

/* Rank 1 does not open the communicator. */
static void missing(struct ct_world *world, void *arg)
{
	struct rig r;

	open_device(world, arg, &r);
	if (world->id.rank != 1) {
		CHECK(open_comm_of(world, arg, &r) == CT_TIMEOUT && !r.c);
		CHECK(says("rank 1 (pid") && says("has not opened the communicator within 0.5 s"));
	}
	together(world, "end");
	close_rig(&r);
}

/* Rank 1 has another version of NCCL. */
static void other_version(struct ct_world *world, void *arg)
{
	struct rig r;

	open_device(world, arg, &r);
	if (world->id.rank == 1) {
		CHECK(ct_store_set(world->store, "comm/0/1/nccl/version/1", "22703", 5) == CT_OK);
	} else {
		CHECK(open_comm_of(world, arg, &r) == CT_MISMATCH && !r.c);
		CHECK(says("rank 1 (pid") && says("has NCCL 2.27.3, but rank 0 (pid") && says(") has NCCL 2."));
	}
	together(world, "end");
	close_rig(&r);
}

/* Rank 1 gets the unique id, but does not begin to connect. */
static void idle(struct ct_world *world, void *arg)
{
	char want[160];
	struct rig r;

	setenv("SOFT_NCCL_VERSION", "22809", 1);
	open_device(world, arg, &r);
	if (world->id.rank == 1) {
		CHECK(ct_store_set(world->store, "comm/0/1/nccl/version/1", "22809", 5) == CT_OK);
	} else {
		CHECK(open_comm_of(world, arg, &r) < 0 && !r.c);
		snprintf(want, sizeof(want), "; rank 1 (pid %d on %s) has not begun to connect", world->peers[1].pid,
			 world->peers[1].host);
		CHECK(says("ncclCommInitRankConfig has not finished within 0.5 s; "));
		CHECK(says(want) && !says("connecting rank"));
		CHECK(!strstr(ct_error_hint_text(), "NCCL_DEBUG"));
	}
	together(world, "end");
	close_rig(&r);
}

/* All ranks begin to connect, but NCCL does not finish. Variant 1: it has connected rank 2. */
static void stuck(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct rig r;
	int64_t n;

	setenv("SOFT_NCCL_FAULT", "init@1", 1);
	if (s->variant == 1 && world->id.rank == 2)
		CHECK(ct_store_add(world->store, "comm/0/1/nccl/connected/2", 1, &n) == CT_OK);
	open_device(world, arg, &r);
	CHECK(open_comm_of(world, arg, &r) < 0 && !r.c);
	CHECK(says("ncclCommInitRankConfig has not finished within 0.5 s; "));
	if (s->variant == 1)
		CHECK(says("; NCCL has not connected rank 0 (pid") && says("), rank 1 (pid") &&
		      !says("), rank 2 (pid"));
	else
		CHECK(says("; all ranks have begun, but no rank has connected"));
	CHECK(ct_error_status() != CT_TIMEOUT || strstr(ct_error_hint_text(), "NCCL_DEBUG=INFO"));
	together(world, "end");
	close_rig(&r);
}

/* NCCL reports an error while it connects: at once (variant 0), or later (1). */
static void refused(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct rig r;

	if (s->variant == 1)
		setenv("SOFT_NCCL_FAULT", "init@1:0:2", 1);
	else if (world->id.rank == 1)
		setenv("SOFT_GPU_FAULT", "ncclCommInitRankConfig:1:2", 1);
	open_device(world, arg, &r);
	if (world->id.rank == 1) {
		CHECK(open_comm_of(world, arg, &r) == CT_COMM && !r.c);
		CHECK(says("NCCL: ncclCommInitRankConfig: unhandled system error"));
		CHECK(strstr(ct_error_hint_text(), "NCCL_DEBUG"));
	} else {
		CHECK(open_comm_of(world, arg, &r) == CT_PEER_LOST && !r.c);
		CHECK(says("rank 1 (pid") && says("gave up: ") && says("unhandled system error"));
	}
	together(world, "end");
	close_rig(&r);
}

/* NCCL cannot prepare NVLink's multicast: when it connects (variant 0), or at the first operation. With variant 2, the
 * user has switched multicast off. */
static void no_multicast(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	struct rig r;

	if (world->id.rank == 1)
		setenv(s->variant == 0 ? "SOFT_NCCL_FAULT" : "SOFT_GPU_FAULT",
		       s->variant == 0 ? "init@1:0:1" : "ncclAllReduce:1:1", 1);
	if (s->variant == 2)
		setenv("NCCL_NVLS_ENABLE", "0", 1);
	open_device(world, arg, &r);
	if (world->id.rank == 1) {
		CHECK(open_comm_of(world, arg, &r) == CT_DEVICE && !r.c);
		CHECK(says("unhandled cuda error"));
		CHECK(!strstr(ct_error_hint_text(), "set NCCL_NVLS_ENABLE=0") == (s->variant == 2));
	} else {
		CHECK(open_comm_of(world, arg, &r) == CT_PEER_LOST && !r.c);
		CHECK(says("rank 1 (pid") && says("unhandled cuda error"));
	}
	together(world, "end");
	close_rig(&r);
}

/* Rank 0 cannot make the unique id: all ranks report why. */
static void no_id(struct ct_world *world, void *arg)
{
	struct rig r;

	if (world->id.rank == 0)
		setenv("SOFT_GPU_FAULT", "ncclGetUniqueId:1:2", 1);
	open_device(world, arg, &r);
	CHECK(open_comm_of(world, arg, &r) == CT_COMM && !r.c);
	CHECK(says("NCCL: ncclGetUniqueId: unhandled system error"));
	close_rig(&r);
}

/* A rank that dies while the others connect. */
static void killed_early(struct ct_world *world, void *arg)
{
	struct rig r;

	setenv("SOFT_NCCL_FAULT", "init@1", 1);
	open_device(world, arg, &r);
	if (world->id.rank == 1) {
		alarm(1); /* its default action ends the process */
		(void)!open_comm_of(world, arg, &r);
		CHECK(!"opened");
	}
	CHECK(open_comm_of(world, arg, &r) == CT_PEER_LOST && !r.c);
	CHECK(says("rank 1 "));
	close_rig(&r);
}

/* A rank without a GPU. */
static void on_cpu(struct ct_world *world, void *arg)
{
	struct ct_comm_opts o = {.timeout_ns = LONG};
	ct_comm *c;

	(void)arg;
	CHECK(ct_comm_open("nccl", world, &o, &c) == CT_UNSUPPORTED && !c);
	CHECK(says("needs GPUs, but this rank computes on the CPU"));
}

static void test_open(void **state)
{
	(void)state;
	play("nccl", 3, NULL, CT_SEC / 2, missing, 0, 0, NULL);
	play("nccl", 2, NULL, LONG, other_version, 0, 0, NULL);
	play("nccl", 3, NULL, CT_SEC / 2, idle, 0, 0, NULL);
	play("nccl", 2, NULL, CT_SEC / 2, stuck, 0, 0, NULL);
	play("nccl", 3, NULL, CT_SEC / 2, stuck, 1, 0, NULL);
	play("nccl", 2, NULL, LONG, refused, 0, 0, NULL);
	play("nccl", 2, NULL, LONG, refused, 1, 0, NULL);
	play("nccl", 2, NULL, LONG, no_multicast, 0, 0, NULL);
	play("nccl", 2, NULL, LONG, no_multicast, 1, 0, NULL);
	play("nccl", 2, NULL, LONG, no_multicast, 2, 0, NULL);
	play("nccl", 3, NULL, LONG, no_id, 0, 0, NULL);
	play("nccl", 2, NULL, LONG, killed_early, 0, 1, NULL);
	play("nccl", 2, NULL, LONG, on_cpu, 0, 0, NULL);
}

/* ---- errors of NCCL */

/* A call fails on rank 1. */
static void call_fails(struct ct_world *world, void *arg)
{
	struct rig r;

	if (world->id.rank == 1)
		setenv("SOFT_GPU_FAULT", "ncclAllReduce:3:1", 1); /* the first one is the barrier of the open */
	r = open_rig(world, arg);
	CHECK(sum(&r) == CT_OK);
	if (world->id.rank == 1) {
		CHECK(sum(&r) == CT_DEVICE);
		CHECK(says("allreduce: NCCL: posting: unhandled cuda error"));
	} else {
		CHECK(sum(&r) == CT_PEER_LOST && says("rank 1 (pid") && says("unhandled cuda error"));
	}
	together(world, "end");
	close_rig(&r);
}

/* An asynchronous error after the first sum: a wait notices it (variant 0), a poll by the watchdog (1), a wait for a
 * stream (2). The other rank may learn of it before its wait for this sum has returned. */
static void asynchronous(struct ct_world *world, void *arg)
{
	const struct scene *s = arg;
	enum ct_status st = CT_OK;
	struct rig r;
	ct_work *w;

	if (world->id.rank == 1)
		setenv("SOFT_NCCL_FAULT", "error@1:2:2", 1);
	r = open_rig(world, arg);
	if (world->id.rank == 1 && s->variant == 1) {
		CHECK(ct_comm_allreduce(r.c, r.x, N, CT_F32, CT_SUM, &w) == CT_OK);
		ct_device_drain(r.d); /* runs the operation */
		ct_comm_poll(r.c);
		is_dead(r.c, CT_COMM);
		CHECK(says("a running operation"));
	}
	while (st == CT_OK) {
		if (s->variant == 2) {
			st = ct_comm_post_allreduce(r.c, r.x, N, CT_F32, CT_SUM, r.a);
			st = st == CT_OK ? ct_stream_sync(r.a, CT_FOREVER) : st;
		} else {
			st = sum(&r);
		}
	}
	if (world->id.rank == 1)
		CHECK(st == CT_COMM && says("unhandled system error"));
	else
		CHECK(st == CT_PEER_LOST && says("rank 1 (pid") && says("unhandled system error"));
	together(world, "end");
	close_rig(&r);
}

static void test_errors(void **state)
{
	(void)state;
	play("nccl", 2, NULL, LONG, call_fails, 0, 0, NULL);
	for (int variant = 0; variant < 3; variant++)
		play("nccl", 2, NULL, LONG, asynchronous, variant, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
