/* The communicator shm on a kernel with pages of 64 KiB. The functions below refuse what such a kernel refuses, and map
 * memory where it would. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/comm/comm.h"
#include "tests/dist/await_all.h"
#include "tests/dist/conform.h"
#include "tests/dist/ranks.h"

#define PAGE ((size_t)64 << 10)

/* Shared with the ranks: how often each check has been reached. */
static struct {
	_Atomic int mapped, advised;
} *n_calls;

long __wrap_sysconf(int name);
long __real_sysconf(int name);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __wrap_madvise(void *at, size_t bytes, int advice);
int __real_madvise(void *at, size_t bytes, int advice);

long __wrap_sysconf(int name)
{
	return name == _SC_PAGESIZE ? (long)PAGE : __real_sysconf(name);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	char *room;

	if (fd < 0)
		return __real_mmap(at, bytes, protection, flags, fd, offset);
	if ((size_t)offset % PAGE) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	n_calls->mapped += offset > 0;
	room = __real_mmap(NULL, bytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (room == MAP_FAILED)
		return room;
	return __real_mmap(room + (-(uintptr_t)room & (PAGE - 1)), bytes, protection, flags | MAP_FIXED, fd, offset);
}

int __wrap_madvise(void *at, size_t bytes, int advice)
{
	/* Advice that is refused has no effect that the suite would notice. */
	CHECK((uintptr_t)at % PAGE == 0);
	n_calls->advised++;
	return __real_madvise(at, bytes, advice);
}

/* Buffers that are no multiple of a page. */
static void odd_sizes(struct ct_world *w, void *arg)
{
	const struct ct_comm_opts o = {.timeout_ns = 60 * CT_SEC};
	char *p[3];
	ct_comm *c;

	(void)arg;
	CHECK(ct_comm_open("shm", w, &o, &c) == CT_OK);
	for (int i = 0; i < 3; i++) {
		void *mem;

		CHECK(ct_comm_mem_alloc(c, 10000, &mem) == CT_OK);
		p[i] = mem;
		memset(p[i], w->id.rank * 3 + i + 1, 10000);
	}
	CHECK(await_all(w->store, "written", w->id.world) == CT_OK);
	for (int i = 0; i < 3; i++)
		for (int at = 0; at < 10000; at++)
			CHECK(p[i][at] == w->id.rank * 3 + i + 1);
	ct_comm_close(c);
}

static void test_odd_sizes(void **state)
{
	(void)state;
	assert_int_equal(run_ranks(3, NULL, odd_sizes, NULL, NULL), 0);
}

static void test_conforms(void **state)
{
	(void)state;
	for (int size = 2; size <= 3; size++)
		assert_true(run_suite("shm", size, NULL));
	assert_true(n_calls->mapped > 0 && n_calls->advised > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_odd_sizes),
		cmocka_unit_test(test_conforms),
	};

	n_calls = shared_zeroed(sizeof(*n_calls));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
