/* Segments of shared memory that cannot be opened. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/comm/comm_impl.h"
#include "dist/comm/segment_impl.h"
#include "tests/dist/await_all.h"
#include "tests/dist/ranks.h"

#define LONG (60 * CT_SEC)

static bool disk_full;

int __wrap_fallocate(int fd, int mode, off_t offset, off_t len);
int __real_fallocate(int fd, int mode, off_t offset, off_t len);

int __wrap_fallocate(int fd, int mode, off_t offset, off_t len)
{
	if (!disk_full)
		return __real_fallocate(fd, mode, offset, len);
	errno = ENOSPC;
	return -1;
}

/* Rank 0 cannot allocate memory that it has mapped. */
static void full(struct ct_world *w, void *arg)
{
	const struct ct_comm_opts o = {.timeout_ns = w->id.rank == 0 ? LONG : 200 * CT_MS};
	ct_comm *c;

	(void)arg;
	disk_full = w->id.rank == 0;
	CHECK(ct_comm_open("shm", w, &o, &c) == (w->id.rank == 0 ? CT_NOMEM : CT_TIMEOUT) && !c);
	CHECK(strstr(ct_error_message(), w->id.rank == 0 ? "cannot allocate" : "rank 0 (pid "));
	CHECK(await_all(w->store, "failed", w->id.world) == CT_OK);
}

/* Opens the segment with this name. */
static enum ct_status attach(struct ct_comm *c, const char *name, size_t bytes)
{
	struct ct_segment s;
	enum ct_status st;

	CHECK(ct_store_set(c->world->store, "name", name, strlen(name)) == CT_OK);
	st = ct__segment_attach(c, "name", 0, bytes, LONG, &s);
	CHECK(!s.map && s.fd < 0);
	return st;
}

static void wrong_names(struct ct_world *w, void *arg)
{
	struct ct_comm c = {.world = w, .rank = w->id.rank, .size = w->id.world};
	char name[96];

	(void)arg;
	CHECK(attach(&c, "1 2", 4096) == CT_MISMATCH);
	CHECK(attach(&c, "1 2 3 8192", 4096) == CT_MISMATCH);
	CHECK(attach(&c, "999999999 2 3 4096", 4096) == CT_PEER_LOST);
	snprintf(name, sizeof(name), "%d %d 3 4096", (int)getpid(), open("/proc/self/status", O_RDONLY));
	CHECK(attach(&c, name, 4096) < 0); /* another file, or one that cannot be written */
}

static void test_full(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(2, NULL, full, NULL, NULL), 0);
}

static void test_wrong_names(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(1, NULL, wrong_names, NULL, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_wrong_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
