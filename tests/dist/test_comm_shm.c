/* Properties of the communicator shm alone. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/dist/ranks.h"
#include "tests/dist/scene.h"

/* Rank 1 closes and ends; the other two have business of their own. */
static void left_in_order(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, world->peers[1].pid, 0), .events = POLLIN};
	uint8_t x[8] = {0};
	char *v;
	size_t len;
	ct_work *w;

	if (world->id.rank == 1) {
		ct_comm_close(c);
		return;
	}
	CHECK(p.fd >= 0 && poll(&p, 1, (int)(LONG / CT_MS)) == 1);
	if (world->id.rank == 0) {
		CHECK(run(ct_comm_recv(c, x, 8, CT_U8, 2, 0, &w), &w) == CT_OK);
	} else {
		/* No one sets this key: rank 0 waits long enough to check its peers' processes. */
		CHECK(ct_store_get(world->store, "never", ct_deadline_in(CT_SEC / 5), &v, &len) == CT_TIMEOUT);
		CHECK(run(ct_comm_send(c, x, 8, CT_U8, 0, 0, &w), &w) == CT_OK);
	}
	CHECK(barrier(c) == CT_PEER_LOST);
	CHECK(says("rank 1 (pid") && says("closed the communicator"));
	ct_comm_close(c);
}

static void test_left(void **state)
{
	(void)state;
	play("shm", 3, NULL, LONG, left_in_order, 0, 0, NULL);
}

/* Bytes of memory that this process's shared segment has got. */
static long long segment_bytes(void)
{
	char path[64], target[128];
	struct stat sb;

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = '\0';
		if (strstr(target, "memfd:ctrain") && fstat(fd, &sb) == 0)
			return (long long)sb.st_blocks * 512;
	}
	return -1;
}

/* Slots and staging have their memory before the first collective: running out is an error, not SIGBUS in a step. */
static void reserved(struct ct_world *world, void *arg)
{
	ct_comm *c = open_comm(world, arg);

	CHECK(segment_bytes() >= 3LL * 2 * (512 << 10) + 3LL * 64 * 2048);
	CHECK(barrier(c) == CT_OK);
	ct_comm_close(c);
}

static void test_segment_is_reserved(void **state)
{
	(void)state;
	play("shm", 3, NULL, LONG, reserved, 0, 0, NULL);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_segment_is_reserved),
		cmocka_unit_test(test_disagree_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
