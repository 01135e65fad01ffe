#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/base/check.h"

struct look {
	struct ct_queue *go; /* closed when the thread may end */
	bool blocked;
};

static void *look_at_signals(void *arg)
{
	struct look *look = arg;
	sigset_t now;
	void *p;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	look->blocked = sigismember(&now, SIGINT) && sigismember(&now, SIGTERM) && sigismember(&now, SIGUSR1) &&
			!sigismember(&now, SIGSEGV);
	return ct_queue_pop(look->go, &p, CT_FOREVER) == CT_CANCELLED ? look : NULL;
}

static void test_thread(void **state)
{
	struct ct_thread t = {0};
	struct look look = {0};
	char name[16];
	sigset_t mine;

	(void)state;
	ct_thread_join(&t);
	assert_ok(ct_queue_create(&look.go, 1));
	assert_ok(ct_thread_start(&t, "a-name-of-many-letters", look_at_signals, &look));
	assert_int_equal(pthread_getname_np(t.id, name, sizeof(name)), 0);
	assert_string_equal(name, "a-name-of-many-");
	ct_queue_close(look.go);
	ct_thread_join(&t);
	assert_false(t.running);
	ct_thread_join(&t);
	assert_true(look.blocked);
	ct_queue_destroy(look.go);
	pthread_sigmask(SIG_BLOCK, NULL, &mine);
	assert_false(sigismember(&mine, SIGINT));
}

static void test_queue_order(void **state)
{
	int items[5];
	struct ct_queue *q;
	void *p;

	(void)state;
	assert_ok(ct_queue_create(&q, 3));
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 3; i++)
			assert_ok(ct_queue_push(q, &items[i], 0));
		assert_fails(ct_queue_push(q, &items[3], 0), CT_TIMEOUT, "full");
		assert_ok(ct_queue_pop(q, &p, 0));
		assert_ptr_equal(p, &items[0]);
		assert_ok(ct_queue_push(q, &items[4], CT_FOREVER));
		assert_ok(ct_queue_pop(q, &p, CT_FOREVER));
		assert_ptr_equal(p, &items[1]);
		assert_ok(ct_queue_pop(q, &p, 0));
		assert_ptr_equal(p, &items[2]);
		assert_ok(ct_queue_pop(q, &p, 0));
		assert_ptr_equal(p, &items[4]);
		p = q;
		assert_fails(ct_queue_pop(q, &p, 0), CT_TIMEOUT, "empty");
		assert_ptr_equal(p, q);
	}
	ct_queue_destroy(q);
	ct_queue_destroy(NULL);
	ct_mem_fail_after(1);
	assert_int_equal(ct_queue_create(&q, 3), CT_NOMEM);
	assert_int_equal(ct_queue_create(&q, SIZE_MAX / 8), CT_NOMEM);
}

static void test_queue_deadline(void **state)
{
	int64_t at = ct_deadline_in(20 * CT_MS);
	struct ct_queue *q;
	void *p;

	(void)state;
	assert_ok(ct_queue_create(&q, 1));
	assert_int_equal(ct_queue_pop(q, &p, at), CT_TIMEOUT);
	assert_true(ct_now_ns() >= at);
	assert_ok(ct_queue_push(q, NULL, 0));
	at = ct_deadline_in(20 * CT_MS);
	assert_int_equal(ct_queue_push(q, NULL, at), CT_TIMEOUT);
	assert_true(ct_now_ns() >= at);
	ct_queue_destroy(q);
}

static void test_queue_close_drains(void **state)
{
	struct ct_queue *q;
	int item;
	void *p;

	(void)state;
	assert_ok(ct_queue_create(&q, 2));
	assert_ok(ct_queue_push(q, &item, 0));
	ct_queue_close(q);
	assert_fails(ct_queue_push(q, &item, CT_FOREVER), CT_CANCELLED, "closed");
	assert_ok(ct_queue_pop(q, &p, CT_FOREVER));
	assert_ptr_equal(p, &item);
	assert_fails(ct_queue_pop(q, &p, CT_FOREVER), CT_CANCELLED, "closed");
	ct_queue_close(q);
	ct_queue_destroy(q);
}

struct waiter {
	struct ct_thread thread;
	struct ct_queue *q;
	bool pushes;
	_Atomic long tid;
	enum ct_status st;
};

static void *wait_in_queue(void *arg)
{
	struct waiter *w = arg;
	void *p;

	w->tid = syscall(SYS_gettid);
	w->st = w->pushes ? ct_queue_push(w->q, w, CT_FOREVER) : ct_queue_pop(w->q, &p, CT_FOREVER);
	return NULL;
}

/* Until the kernel says that the thread sleeps. */
static void await_sleep(struct waiter *w)
{
	char path[64], text[512];
	const char *state = NULL;

	while (w->tid == 0)
		sched_yield();
	snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", w->tid);
	while (!state || state[2] != 'S') {
		FILE *f = fopen(path, "r");

		assert_non_null(f);
		text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
		fclose(f);
		state = strrchr(text, ')');
		sched_yield();
	}
}

static void test_queue_close_wakes_all(void **state)
{
	struct ct_queue *full, *empty;
	struct waiter w[6] = {0};

	(void)state;
	assert_ok(ct_queue_create(&full, 1));
	assert_ok(ct_queue_create(&empty, 1));
	assert_ok(ct_queue_push(full, full, 0));
	for (size_t i = 0; i < CT_ARRAY_LEN(w); i++) {
		w[i].pushes = i % 2;
		w[i].q = w[i].pushes ? full : empty;
		assert_ok(ct_thread_start(&w[i].thread, "waiter", wait_in_queue, &w[i]));
	}
	for (size_t i = 0; i < CT_ARRAY_LEN(w); i++)
		await_sleep(&w[i]);
	ct_queue_close(full);
	ct_queue_close(empty);
	for (size_t i = 0; i < CT_ARRAY_LEN(w); i++) {
		ct_thread_join(&w[i].thread);
		assert_int_equal(w[i].st, CT_CANCELLED);
	}
	ct_queue_destroy(full);
	ct_queue_destroy(empty);
}

#define N_ITEMS 20000

struct traffic {
	struct ct_queue *q;
	_Atomic uint64_t sum;
	_Atomic int n;
};

static void *produce(void *arg)
{
	struct traffic *t = arg;

	for (uintptr_t i = 1; i <= N_ITEMS; i++) {
		if (ct_queue_push(t->q, (void *)i, CT_FOREVER) < 0)
			return NULL;
	}
	return NULL;
}

/* With short deadlines, so that time-outs and wake-ups meet. */
static void *consume(void *arg)
{
	struct traffic *t = arg;

	for (;;) {
		void *p;
		enum ct_status st = ct_queue_pop(t->q, &p, ct_deadline_in(1000));

		if (st == CT_CANCELLED)
			return NULL;
		if (st == CT_TIMEOUT)
			continue;
		t->sum += (uintptr_t)p;
		t->n++;
	}
}

static void test_queue_traffic(void **state)
{
	struct ct_thread producers[3] = {0}, consumers[3] = {0};
	struct traffic t = {0};

	(void)state;
	assert_ok(ct_queue_create(&t.q, 7));
	for (int i = 0; i < 3; i++) {
		assert_ok(ct_thread_start(&producers[i], "produce", produce, &t));
		assert_ok(ct_thread_start(&consumers[i], "consume", consume, &t));
	}
	for (int i = 0; i < 3; i++)
		ct_thread_join(&producers[i]);
	ct_queue_close(t.q);
	for (int i = 0; i < 3; i++)
		ct_thread_join(&consumers[i]);
	assert_int_equal(t.n, 3 * N_ITEMS);
	assert_int_equal(t.sum, (uint64_t)3 * N_ITEMS * (N_ITEMS + 1) / 2);
	ct_queue_destroy(t.q);
}

static void test_condition(void **state)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t c;

	(void)state;
	ct_cond_init(&c);
	pthread_mutex_lock(&m);
	assert_int_equal(ct_cond_wait_until(&c, &m, -5), ETIMEDOUT);
	assert_int_equal(ct_cond_wait_until(&c, &m, ct_now_ns()), ETIMEDOUT);
	pthread_mutex_unlock(&m);
	pthread_cond_destroy(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thread),
		cmocka_unit_test(test_queue_order),
		cmocka_unit_test(test_queue_deadline),
		cmocka_unit_test(test_queue_close_drains),
		cmocka_unit_test(test_queue_close_wakes_all),
		cmocka_unit_test(test_queue_traffic),
		cmocka_unit_test(test_condition),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
