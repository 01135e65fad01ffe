#include <stdatomic.h>

#include "base/work_queue.h"
#include "tests/base/check.h"

enum { N = 1000 };

struct jobs {
	atomic_int done[N], threads;
	size_t n, bad; /* the job that fails; N: none */
};

static enum ct_status do_jobs(ct_work_queue *q, void *arg)
{
	struct jobs *j = arg;
	size_t i;

	atomic_fetch_add(&j->threads, 1);
	while (ct_work_next(q, &i)) {
		assert_true(i < j->n);
		atomic_fetch_add(&j->done[i], 1);
		if (i == j->bad)
			return CT_FAIL(CT_DATA, "job %zu is damaged", i);
	}
	return CT_OK;
}

/* Each job is done once, on any number of threads. */
static void test_once(void **state)
{
	(void)state;
	for (int n_threads = -1; n_threads <= 8; n_threads++) {
		for (size_t n = 0; n <= N; n += n < 3 ? 1 : N - 3) {
			struct jobs j = {.n = n, .bad = N};

			assert_ok(ct_work_run(n, n_threads, "ct-test", do_jobs, &j));
			for (size_t i = 0; i < N; i++)
				assert_int_equal(j.done[i], i < n);
			assert_true(j.threads >= 1 && j.threads <= (n_threads > 1 ? n_threads : 1));
			assert_true(n < 1 || (size_t)j.threads <= n);
		}
	}
}

/* The error of a thread is that of the call, and no thread takes another job. */
static void test_failure(void **state)
{
	(void)state;
	for (int n_threads = 1; n_threads <= 4; n_threads++) {
		struct jobs j = {.n = N, .bad = 0};
		int done = 0;

		assert_fails(ct_work_run(N, n_threads, "ct-test", do_jobs, &j), CT_DATA, "job 0 is damaged");
		ct_error_clear();
		for (size_t i = 0; i < N; i++)
			done += j.done[i];
		assert_true(n_threads > 1 || done == 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
