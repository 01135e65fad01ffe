/* The file pool: limits on the descriptors of many shards, and readers that wait for each other. */
#include "tests/data/tar_fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "data/files/file_pool.h"

#define N_MANY 60

struct reader {
	ct_dataset *d;
	unsigned seed;
	atomic_bool *failed;
};

static void *read_many(void *arg)
{
	struct reader *r = arg;
	struct ct_bytes b = {0};

	for (uint32_t k = 0; k < 600; k++) {
		uint32_t i;
		int32_t y;

		r->seed = r->seed * 1103515245u + 12345u;
		i = r->seed / 65536 % (2 * N_MANY);
		if (ct_dataset_fetch(r->d, i, &b, &y) < 0 || b.n != 700 + i % 2 || y != (int32_t)(i / 2 % 7 + i % 2))
			atomic_store(r->failed, true);
	}
	ct_free(b.data);
	return NULL;
}

struct pool_get {
	ct_file_pool *pool;
	enum ct_status st;
	atomic_bool done;
};

static void *get_second(void *arg)
{
	struct pool_get *g = arg;
	int fd;

	g->st = ct_file_pool_get(g->pool, 1, &fd);
	atomic_store(&g->done, true);
	if (g->st == CT_OK)
		ct_file_pool_put(g->pool, 1);
	return NULL;
}

/* Who finds the only descriptor in use waits for it. */
static bool waits_for_room(const char *dir)
{
	char *paths[2] = {ct_strfmt("%s/s-00.tar", dir), ct_strfmt("%s/s-01.tar", dir)};
	struct pool_get get = {0};
	ct_file_pool *p;
	pthread_t thread;
	bool right;
	int fd;

	if (ct_file_pool_create(paths, 2, 2, &p) < 0 || ct_file_pool_get(p, 0, &fd) < 0)
		return false;
	get.pool = p;
	pthread_create(&thread, NULL, get_second, &get);
	/* Time to fail, if it does: nothing here depends on it. */
	for (int i = 0; i < 5000 && !atomic_load(&get.done); i++)
		sched_yield();
	right = !atomic_load(&get.done);
	ct_file_pool_put(p, 0);
	pthread_join(thread, NULL);
	right = right && get.st == CT_OK;
	ct_file_pool_destroy(p);
	ct_free(paths[0]);
	ct_free(paths[1]);
	return right;
}

/* More shards than descriptors: in a process of its own, as limits do not come back. */
static int read_with_few_descriptors(const char *dir)
{
	struct ct_dataset_spec spec = {.name = "shards", .dir = dir, .path = "s-*.tar", .threads = 3};
	struct rlimit few = {24, 24};
	struct reader readers[4];
	pthread_t threads[4];
	atomic_bool failed = false;
	ct_dataset *d;
	int held[64], n_held = 0;

	if (setrlimit(RLIMIT_NOFILE, &few) != 0 || ct_dataset_open(&spec, &d) < 0)
		return 2;
	/* The rest of the program takes all but one: readers have to wait for each other. */
	while (n_held < 64 && (held[n_held] = open("/dev/null", O_RDONLY)) >= 0)
		n_held++;
	close(held[--n_held]);
	for (unsigned i = 0; i < 4; i++) {
		readers[i] = (struct reader){d, i, &failed};
		pthread_create(&threads[i], NULL, read_many, &readers[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ct_dataset_close(d);
	return failed ? 1 : waits_for_room(dir) ? 0 : 3;
}

static void test_few_descriptors(void **state)
{
	char *dir = temp_dir();
	int status;
	pid_t pid;

	(void)state;
	for (int i = 0; i < N_MANY; i++) {
		char *name = ct_strfmt("s-%02d.tar", i);

		shard_write(dir, name, "k", 2, i % 7);
		ct_free(name);
	}
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(read_with_few_descriptors(dir));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	temp_dir_remove(dir);
}

static int count_open(const int *fds, int n)
{
	int open = 0;

	for (int i = 0; i < n; i++)
		open += fcntl(fds[i], F_GETFD) != -1;
	return open;
}

static void test_file_pool(void **state)
{
	char *dir = temp_dir(), *paths[6];
	ct_file_pool *p;
	int fd[6], again;

	(void)state;
	for (int i = 0; i < 6; i++) {
		char name[2] = {(char)('a' + i), 0};

		file_write(dir, name, name, 1);
		paths[i] = ct_path_join(dir, name);
	}
	assert_ok(ct_file_pool_create(paths, 6, 2, &p));
	for (uint32_t i = 0; i < 4; i++) {
		char c;

		assert_ok(ct_file_pool_get(p, i, &fd[i]));
		assert_int_equal(pread(fd[i], &c, 1, 0), 1);
		assert_int_equal(c, 'a' + (int)i);
	}
	/* All in use: the limit has to give way, and is kept again afterwards. */
	assert_int_equal(count_open(fd, 4), 4);
	for (uint32_t i = 0; i < 4; i++)
		ct_file_pool_put(p, i);
	assert_int_equal(count_open(fd, 4), 2);
	/* 3 was opened after 2, but 2 is used again: opening 4 closes 3. */
	assert_ok(ct_file_pool_get(p, 2, &again));
	assert_int_equal(again, fd[2]);
	ct_file_pool_put(p, 2);
	assert_ok(ct_file_pool_get(p, 4, &fd[4]));
	assert_ok(ct_file_pool_get(p, 2, &again));
	assert_int_equal(again, fd[2]);
	ct_file_pool_put(p, 2);
	ct_file_pool_put(p, 4);
	assert_int_equal(unlink(paths[5]), 0);
	assert_int_equal(ct_file_pool_get(p, 5, &again), CT_DATA);
	ct_file_pool_destroy(p);
	for (int i = 0; i < 6; i++)
		ct_free(paths[i]);
	temp_dir_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few_descriptors),
		cmocka_unit_test(test_file_pool),
	};

	if (ct_log_configure("error") < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
