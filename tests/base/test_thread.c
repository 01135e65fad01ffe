#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/base/check.h"

struct look {
	pthread_mutex_t go; /* held until the thread may end, so that its name can be read */
	bool blocked;
};

static void *look_at_signals(void *arg)
{
	struct look *look = arg;
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	look->blocked = sigismember(&now, SIGINT) && sigismember(&now, SIGTERM) && sigismember(&now, SIGUSR1) &&
			!sigismember(&now, SIGSEGV);
	pthread_mutex_lock(&look->go);
	pthread_mutex_unlock(&look->go);
	return look;
}

static void test_thread(void **state)
{
	struct ct_thread t = {0};
	struct look look = {.go = PTHREAD_MUTEX_INITIALIZER};
	char name[16];
	sigset_t mine;

	(void)state;
	ct_thread_join(&t);
	pthread_mutex_lock(&look.go);
	assert_ok(ct_thread_start(&t, "a-name-of-many-letters", look_at_signals, &look));
	assert_int_equal(pthread_getname_np(t.id, name, sizeof(name)), 0);
	assert_string_equal(name, "a-name-of-many-");
	pthread_mutex_unlock(&look.go);
	ct_thread_join(&t);
	assert_false(t.running);
	ct_thread_join(&t);
	assert_true(look.blocked);
	pthread_sigmask(SIG_BLOCK, NULL, &mine);
	assert_false(sigismember(&mine, SIGINT));
}

struct hand_over {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool given;
};

static void *give(void *arg)
{
	struct hand_over *h = arg;

	pthread_mutex_lock(&h->lock);
	h->given = true;
	pthread_cond_signal(&h->changed);
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/* The thread cannot signal before this one waits, because this one holds the lock until then. */
static void test_signal(void **state)
{
	const int64_t waits[] = {CT_FOREVER, ct_deadline_in(60 * CT_SEC)};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(waits); i++) {
		struct hand_over h = {.lock = PTHREAD_MUTEX_INITIALIZER};
		struct ct_thread t = {0};

		ct_cond_init(&h.changed);
		pthread_mutex_lock(&h.lock);
		assert_ok(ct_thread_start(&t, "give", give, &h));
		while (!h.given)
			assert_int_equal(ct_cond_wait_until(&h.changed, &h.lock, waits[i]), 0);
		pthread_mutex_unlock(&h.lock);
		ct_thread_join(&t);
		pthread_cond_destroy(&h.changed);
	}
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
		cmocka_unit_test(test_signal),
		cmocka_unit_test(test_condition),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
