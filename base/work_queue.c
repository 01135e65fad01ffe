/* Jobs are indexes that threads take from one atomic counter, which balances jobs of different lengths without a queue.
 * The calling thread works, too, so the work is done even if no thread can be started. Error chains belong to a thread:
 * that of the first thread that fails is copied, and restored on the calling thread. Which job fails first depends on
 * the scheduling; a caller that needs the same error every time has to store errors itself. */
#include "base/work_queue.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/thread.h"

struct ct_work_queue {
	size_t n;
	atomic_size_t next;
	ct_work_fn fn;
	void *arg;
	atomic_bool failed;
	struct ct_error error; /* of the thread that has set `failed`; read when all threads have ended */
};

bool ct_work_next(ct_work_queue *q, size_t *i)
{
	if (atomic_load(&q->failed))
		return false;
	*i = atomic_fetch_add(&q->next, 1);
	return *i < q->n;
}

static void *work(void *arg)
{
	ct_work_queue *q = arg;

	if (q->fn(q, q->arg) < 0) {
		if (!atomic_exchange(&q->failed, true))
			ct_error_save(&q->error);
		ct_error_clear();
	}
	return NULL;
}

enum ct_status ct_work_run(size_t n_jobs, int n_threads, const char *name, ct_work_fn fn, void *arg)
{
	ct_work_queue q = {.n = n_jobs, .fn = fn, .arg = arg};
	struct ct_thread threads[CT_WORK_THREADS - 1] = {0};
	int started = 0;

	while (started < n_threads - 1 && started < (int)CT_ARRAY_LEN(threads) && (size_t)started + 1 < n_jobs) {
		if (ct_thread_start(&threads[started], name, work, &q) < 0) {
			ct_error_clear();
			break;
		}
		started++;
	}
	work(&q);
	for (int i = 0; i < started; i++)
		ct_thread_join(&threads[i]);
	return atomic_load(&q.failed) ? ct_error_restore(&q.error) : CT_OK;
}
