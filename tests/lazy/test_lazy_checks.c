/* Tests that the lazy device finds the mistakes that lazy_impl.h lists. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lazy/lazy_rig.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifndef WITH_ASAN
#define WITH_ASAN 0
#endif

/* Returns the status of a child that runs fn(r, p) with the default signal actions. */
static int child_status(void (*fn)(struct rig *r, void *p), struct rig *r, void *p)
{
	int status = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		fn(r, p);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void read_byte(struct rig *r, void *p)
{
	(void)r;
	(void)*(volatile char *)p;
}

static void write_byte(struct rig *r, void *p)
{
	(void)r;
	*(volatile char *)p = 1;
}

static void close_device(struct rig *r, void *p)
{
	(void)p;
	ct_device_close(r->d);
}

static void test_closed_memory(void **state)
{
	struct rig *r = open_rig(1);
	int status;
	void *p;

	(void)state;
	assert_ok(ct_device_mem_alloc(r->d, 100, true, &p));
	for (int i = 0; i < 2; i++) {
		status = child_status(read_byte, r, p);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		status = child_status(write_byte, r, p);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		/* The memory is inaccessible again after work has run. */
		assert_ok(ct_device_fill(r->d, p, 1, 100, r->a));
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
	}
	/* Memory that was not freed fails an assertion. */
	status = child_status(close_device, r, NULL);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ct_device_mem_free(r->d, p);
	close_rig(r);
}

static void expect_bytes(struct rig *r, const void *device, int byte, size_t n)
{
	unsigned char *host;
	void *p;

	assert_ok(ct_device_host_alloc(r->d, n, &p));
	host = p;
	assert_int_equal(host[0] | host[n - 1], 0);
	assert_ok(ct_device_copy(r->d, host, device, n, r->a));
	assert_ok(ct_stream_sync(r->a, CT_FOREVER));
	for (size_t i = 0; i < n; i++)
		assert_int_equal(host[i], byte);
	ct_device_host_free(r->d, host);
}

static void test_poison(void **state)
{
	struct rig *r = open_rig(1);
	struct ct_device_info info;
	void *p, *q, *z;

	(void)state;
	assert_ok(ct_device_mem_alloc(r->d, 1000, false, &p));
	assert_ok(ct_device_mem_alloc(r->d, 100000, true, &z));
	assert_int_equal((uintptr_t)p % 256, 0);
	assert_int_equal((uintptr_t)z % 256, 0);
	expect_bytes(r, p, 0xFF, 1000);
	expect_bytes(r, z, 0, 100000);
	assert_ok(ct_device_fill(r->d, p, 3, 1000, r->a));
	expect_bytes(r, p, 3, 1000);
	ct_device_mem_free(r->d, p);
	/* The same addresses are allocated again, and poisoned again. */
	assert_ok(ct_device_mem_alloc(r->d, 900, false, &q));
	assert_ptr_equal(p, q);
	expect_bytes(r, q, 0xFF, 900);
	assert_fails(ct_device_mem_alloc(r->d, (size_t)9 << 30, false, &p), CT_NOMEM, "lazy device 0");
	assert_fails(ct_device_mem_alloc(r->d, SIZE_MAX, false, &p), CT_NOMEM, "lazy device 0");
	assert_ok(ct_device_info(r->d, &info));
	assert_true(info.free_bytes < info.total_bytes);
	ct_device_mem_free(r->d, q);
	ct_device_mem_free(r->d, z);
	close_rig(r);
}

static enum ct_status write_at(const void *args)
{
	*(volatile char *)*(char *const *)args = 1;
	return CT_OK;
}

static void overrun(struct rig *r, void *p)
{
	char *end = (char *)p + 100;

	if (ct_stream_run(r->a, write_at, &end, sizeof(end)) != CT_OK)
		_exit(10);
	if (ct_stream_sync(r->a, CT_FOREVER) != CT_BUG)
		_exit(11);
	if (!strstr(ct_error_message(), "0 bytes beyond a block of device memory of 100 bytes"))
		_exit(12);
}

static enum ct_status expect_poison(const void *args)
{
	const unsigned char *p = *(unsigned char *const *)args;

	for (int i = 0; i < 100; i++) {
		if (p[i] != 0xFF)
			return CT_FAIL(CT_BUG, "freed memory is not poisoned");
	}
	return CT_OK;
}

static void use_freed(struct rig *r, void *p)
{
	ct_device_mem_free(r->d, p);
	if (ct_stream_run(r->a, expect_poison, &p, sizeof(p)) != CT_OK ||
	    ct_stream_run(r->a, write_at, &p, sizeof(p)) != CT_OK)
		_exit(10);
	if (ct_stream_sync(r->a, CT_FOREVER) != CT_OK)
		_exit(11);
}

static void test_guards(void **state)
{
	struct rig *r = open_rig(1);
	int status;
	void *p;

	(void)state;
	assert_ok(ct_device_mem_alloc(r->d, 100, true, &p));
	status = child_status(overrun, r, p); /* AddressSanitizer ends the child at the line of the access */
	assert_true(WITH_ASAN ? status != 0 : status == 0);
	status = child_status(use_freed, r, p);
	assert_true(WITH_ASAN ? status != 0 : status == 0);
	ct_device_mem_free(r->d, p);
	close_rig(r);
}

static enum ct_status fail_once(const void *args)
{
	(void)args;
	CT_FAIL(CT_COMM, "lost the link to rank 7");
	return ct_error_hint("look at rank 7");
}

static enum ct_status fail_silently(const void *args)
{
	(void)args;
	return CT_PEER_LOST;
}

static void test_sticky_error(void **state)
{
	struct rig *r = open_rig(1);
	struct note n = {r, 'z'};
	void *p;

	(void)state;
	assert_ok(ct_device_mem_alloc(r->d, 64, true, &p));
	post_note(r, r->a, 'a');
	assert_ok(ct_stream_run(r->a, fail_once, NULL, 0));
	post_note(r, r->a, 'b');
	assert_ok(ct_event_record(r->e, r->a));
	assert_ok(ct_event_record(r->t, r->a));
	for (int i = 0; i < 2; i++) {
		assert_fails(ct_stream_sync(r->a, CT_FOREVER), CT_COMM, "lost the link to rank 7");
		assert_string_equal(ct_error_hint_text(), "look at rank 7");
		ct_error_clear();
	}
	assert_fails(ct_stream_sync(r->b, CT_FOREVER), CT_COMM, "rank 7");
	assert_fails(ct_device_sync(r->d, CT_FOREVER), CT_COMM, "rank 7");
	assert_fails(ct_event_wait(r->t, CT_FOREVER), CT_COMM, "rank 7");
	assert_fails(ct_event_wait(r->u, CT_FOREVER), CT_COMM, "rank 7");
	assert_fails(ct_stream_run(r->b, add_letter, &n, sizeof(n)), CT_COMM, "rank 7");
	assert_fails(ct_device_fill(r->d, p, 0, 64, r->b), CT_COMM, "rank 7");
	assert_fails(ct_device_copy(r->d, p, (char *)p + 32, 32, r->b), CT_COMM, "rank 7");
	assert_fails(ct_event_record(r->f, r->b), CT_COMM, "rank 7");
	assert_fails(ct_stream_wait_event(r->b, r->e), CT_COMM, "rank 7");
	assert_string_equal(r->log, "a"); /* the work that was posted after it never runs */
	ct_device_mem_free(r->d, p);
	close_rig(r);

	r = open_rig(1);
	assert_ok(ct_stream_run(r->a, fail_silently, NULL, 0));
	assert_fails(ct_device_sync(r->d, CT_FOREVER), CT_PEER_LOST, "posted work failed");
	close_rig(r);
}

static void test_changed_source(void **state)
{
	int found = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);
		void *host, *x;

		assert_ok(ct_device_host_alloc(r->d, 100, &host));
		assert_ok(ct_device_mem_alloc(r->d, 100, true, &x));
		assert_ok(ct_device_copy(r->d, x, host, 100, r->a));
		((char *)host)[99] = 1;
		post_note(r, r->b, 'b');
		assert_fails(ct_stream_sync(r->b, CT_FOREVER), CT_BUG,
			     "host memory changed while a posted copy was waiting");
		found++;
		ct_device_mem_free(r->d, x);
		ct_device_host_free(r->d, host);
		close_rig(r);
	}
	assert_int_equal(found, N_SEEDS);
}

/* Posted work may write to host memory that a later posted copy reads. */
static void test_source_of_posted_work(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig *r = open_rig(seed);
		void *host, *x, *y;

		assert_ok(ct_device_host_alloc(r->d, 64, &host));
		assert_ok(ct_device_mem_alloc(r->d, 64, false, &x));
		assert_ok(ct_device_mem_alloc(r->d, 64, false, &y));
		assert_ok(ct_device_fill(r->d, x, 5, 64, r->a));
		assert_ok(ct_device_copy(r->d, host, x, 64, r->a));
		assert_ok(ct_device_copy(r->d, y, host, 63, r->a));
		assert_ok(ct_stream_run(r->a, write_at, &host, sizeof(host)));
		assert_ok(ct_device_copy(r->d, y, host, 1, r->a));
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
		assert_ok(ct_device_copy(r->d, host, y, 64, r->a));
		assert_ok(ct_stream_sync(r->a, CT_FOREVER));
		assert_int_equal(((char *)host)[0], 1);
		assert_int_equal(((char *)host)[62], 5);
		memset(host, 0, 64); /* no waiting copy reads it any more */
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		ct_device_mem_free(r->d, x);
		ct_device_mem_free(r->d, y);
		ct_device_host_free(r->d, host);
		close_rig(r);
	}
}

static enum ct_status use_device(const void *args)
{
	return ct_stream_sync(*(ct_stream *const *)args, CT_FOREVER);
}

static void *post_from_thread(void *arg)
{
	struct rig *r = arg;
	struct note n = {r, 't'};
	static enum ct_status st;

	st = ct_stream_run(r->a, add_letter, &n, sizeof(n));
	return &st;
}

static void test_misuse(void **state)
{
	struct rig *r = open_rig(1);
	char pageable[64] = "";
	void *host, *x, *st;
	pthread_t thread;

	(void)state;
	assert_ok(ct_device_host_alloc(r->d, 64, &host));
	assert_ok(ct_device_mem_alloc(r->d, 64, false, &x));
	assert_fails(ct_device_copy(r->d, x, pageable, 64, r->a), CT_BUG, "the source of a copy [64 bytes] is neither");
	assert_fails(ct_device_copy(r->d, pageable, x, 64, r->a), CT_BUG, "the destination of a copy");
	assert_fails(ct_device_copy(r->d, x, host, 65, r->a), CT_BUG, "not inside one block of device memory");
	assert_fails(ct_device_copy(r->d, (char *)host + 1, x, 64, r->a), CT_BUG, "the destination of a copy");
	assert_fails(ct_device_copy(r->d, x, (char *)x + 31, 32, r->a), CT_BUG, "overlap");
	assert_fails(ct_device_fill(r->d, (char *)x - 1, 0, 2, r->a), CT_BUG, "the destination of a fill");
	assert_fails(ct_device_fill(r->d, (char *)x + 2, 0, SIZE_MAX, r->a), CT_BUG, "the destination of a fill");
	assert_ok(ct_device_copy(r->d, x, (char *)x + 32, 32, r->a)); /* none of these is an error of the device */

	assert_int_equal(pthread_create(&thread, NULL, post_from_thread, r), 0);
	assert_int_equal(pthread_join(thread, &st), 0);
	assert_int_equal(*(enum ct_status *)st, CT_BUG);
	assert_ok(ct_stream_run(r->a, use_device, &r->b, sizeof(r->b)));
	assert_fails(ct_device_sync(r->d, CT_FOREVER), CT_BUG, "a posted function used the device");
	ct_device_mem_free(r->d, x);
	ct_device_host_free(r->d, host);
	close_rig(r);
}

/* Freeing memory first runs the posted work, and keeps the error message of a caller that is cleaning up. */
static void test_give_back(void **state)
{
	struct rig *r = open_rig(1);
	ct_stream *c;
	void *x;

	(void)state;
	assert_ok(ct_device_mem_alloc(r->d, 64, false, &x));
	post_note(r, r->a, 'a');
	assert_ok(ct_device_fill(r->d, x, 0, 64, r->a));
	ct_device_mem_free(r->d, x);
	assert_string_equal(r->log, "a");
	assert_ok(ct_stream_create(r->d, false, &c));
	post_note(r, c, 'c');
	assert_ok(ct_stream_run(c, fail_once, NULL, 0));
	CT_FAIL(CT_IO, "the first error");
	ct_stream_destroy(c);
	assert_string_equal(r->log, "ac");
	assert_string_equal(ct_error_message(), "the first error");
	assert_fails(ct_device_sync(r->d, CT_FOREVER), CT_COMM, "rank 7");
	close_rig(r);
}

/* A loop of posts and waits allocates nothing after its first iteration. */
static void test_no_allocation(void **state)
{
	struct rig *r = open_rig(1);
	uint64_t before = 0;

	(void)state;
	for (int i = 0; i < 10; i++) {
		post_note(r, r->a, 'a');
		assert_ok(ct_event_record(r->e, r->a));
		assert_ok(ct_stream_wait_event(r->b, r->e));
		post_note(r, r->b, 'b');
		assert_ok(ct_event_record(r->t, r->b));
		assert_ok(ct_event_wait(r->t, CT_FOREVER));
		assert_ok(ct_device_sync(r->d, CT_FOREVER));
		if (i == 2)
			before = ct_mem_count();
	}
	assert_int_equal(ct_mem_count(), before);
	close_rig(r);
}

static void test_out_of_memory(void **state)
{
	struct rig *r = open_rig(1);
	struct note n = {r, 'n'};
	int n_failed = 0;
	ct_device *d;
	ct_stream *s;
	ct_event *e;
	void *p;

	(void)state;
	for (int i = 1; i <= 2; i++) {
		ct_mem_fail_after((uint64_t)i);
		assert_int_equal(ct_event_record(r->e, r->a), CT_NOMEM);
		ct_mem_fail_after((uint64_t)i);
		assert_int_equal(ct_device_host_alloc(r->d, 8, &p), CT_NOMEM);
	}
	/* Most of the allocations are those of the search for the module, which goes on in other directories. */
	for (uint64_t i = 1; i <= 20; i++) {
		ct_mem_fail_after(i);
		enum ct_status st = ct_device_open("lazy", 0, &d);
		ct_mem_fail_after(0);
		n_failed += st == CT_NOMEM;
		if (st == CT_OK)
			ct_device_close(d);
	}
	assert_int_equal(n_failed, 1);
	ct_mem_fail_after(1);
	assert_int_equal(ct_device_mem_alloc(r->d, 8, false, &p), CT_NOMEM);
	ct_mem_fail_after(1);
	assert_int_equal(ct_stream_create(r->d, false, &s), CT_NOMEM);
	ct_mem_fail_after(1);
	assert_int_equal(ct_event_create(r->d, false, &e), CT_NOMEM);
	ct_mem_fail_after(1);
	assert_int_equal(ct_stream_run(r->b, add_letter, &n, sizeof(n)), CT_NOMEM);
	ct_mem_fail_after(0);
	assert_ok(ct_stream_run(r->b, add_letter, &n, sizeof(n)));
	assert_ok(ct_device_sync(r->d, CT_FOREVER));
	assert_string_equal(r->log, "n");
	close_rig(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_memory),  cmocka_unit_test(test_poison),
		cmocka_unit_test(test_guards),         cmocka_unit_test(test_sticky_error),
		cmocka_unit_test(test_changed_source), cmocka_unit_test(test_source_of_posted_work),
		cmocka_unit_test(test_misuse),         cmocka_unit_test(test_give_back),
		cmocka_unit_test(test_no_allocation),  cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
