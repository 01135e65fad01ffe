/* Functions of the host in streams of the CUDA device (ct_stream_run), on the software GPU: order, recordings,
 * functions that wait, and functions that fail. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"
#include "tests/base/check.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { N_SEEDS = 10, N = 64 };

struct rig {
	ct_device *d;
	ct_stream *a, *b;
	ct_event *e;
	ct_event *timed;
	unsigned char *host, *x; /* pinned [N], device memory [N] */
};

static void open_rig(struct rig *r)
{
	void *p;

	assert_ok(ct__device_cuda_ops.open(0, &r->d));
	assert_ok(ct_stream_create(r->d, false, &r->a));
	assert_ok(ct_stream_create(r->d, true, &r->b));
	assert_ok(ct_event_create(r->d, false, &r->e));
	assert_ok(ct_event_create(r->d, true, &r->timed));
	assert_ok(ct_device_host_alloc(r->d, N, &p));
	r->host = p;
	assert_ok(ct_device_mem_alloc(r->d, N, true, &p));
	r->x = p;
}

static void close_rig(struct rig *r)
{
	ct_device_mem_free(r->d, r->x);
	ct_device_host_free(r->d, r->host);
	ct_event_destroy(r->timed);
	ct_event_destroy(r->e);
	ct_stream_destroy(r->b);
	ct_stream_destroy(r->a);
	ct_device_close(r->d);
	assert_int_equal(soft_gpu_live(), 0);
	ct_error_clear();
}

struct add {
	unsigned char *bytes;
	long n;
	pthread_t *thread;
	_Atomic int *turns; /* the function returns CT_INPROGRESS until this is 0 */
};

static enum ct_status add(const void *args)
{
	const struct add *a = args;

	if (a->turns && atomic_load(a->turns) > 0) {
		atomic_fetch_sub(a->turns, 1);
		return CT_INPROGRESS;
	}
	if (a->thread)
		*a->thread = pthread_self();
	for (int i = 0; i < N; i++)
		a->bytes[i] = (unsigned char)(a->bytes[i] + a->n);
	return CT_OK;
}

/* x -> host; host += n; host -> x. */
static void post_add(struct rig *r, long n, ct_stream *s)
{
	const struct add args = {.bytes = r->host, .n = n};

	assert_ok(ct_device_copy(r->d, r->host, r->x, N, s));
	assert_ok(ct_stream_run(s, add, &args, sizeof(args)));
	assert_ok(ct_device_copy(r->d, r->x, r->host, N, s));
}

static void hand_over(struct rig *r, ct_stream *from, ct_stream *to)
{
	assert_ok(ct_event_record(r->e, from));
	assert_ok(ct_stream_wait_event(to, r->e));
}

static void expect_sum(struct rig *r, int sum)
{
	assert_ok(ct_device_copy(r->d, r->host, r->x, N, r->a));
	assert_ok(ct_stream_sync(r->a, CT_FOREVER));
	for (int i = 0; i < N; i++)
		assert_int_equal(r->host[i], sum);
}

static void test_order(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		uint64_t before = 0;
		struct rig r;

		soft_gpu_set_seed((uint64_t)seed);
		open_rig(&r);
		for (int i = 0; i < 4; i++) {
			before = i == 1 ? ct_mem_count() : before;
			post_add(&r, 1, r.a);
			hand_over(&r, r.a, r.b);
			post_add(&r, 2, r.b);
			hand_over(&r, r.b, r.a);
		}
		expect_sum(&r, 12);
		assert_int_equal(ct_mem_count(), before); /* equal calls allocate nothing */
		close_rig(&r);
	}
}

static void test_recorded(void **state)
{
	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		ct_recording *recording;
		struct rig r;

		soft_gpu_set_seed((uint64_t)seed);
		open_rig(&r);
		assert_ok(ct_recording_begin(r.a));
		post_add(&r, 1, r.a);
		hand_over(&r, r.a, r.b);
		post_add(&r, 2, r.b);
		hand_over(&r, r.b, r.a);
		assert_ok(ct_recording_end(r.a, &recording));
		for (int i = 0; i < 3; i++)
			assert_ok(ct_recording_post(recording, r.a));
		expect_sum(&r, 9);
		ct_recording_destroy(recording);
		close_rig(&r);
	}
}

/* The function is called on another thread, again until it is done, and the host can go on. */
static void test_another_thread(void **state)
{
	_Atomic int turns = 5;
	pthread_t thread = pthread_self();
	struct add args;
	struct rig r;

	(void)state;
	open_rig(&r);
	memset(&args, 0, sizeof(args));
	args = (struct add){.bytes = r.host, .n = 3, .thread = &thread, .turns = &turns};
	assert_ok(ct_stream_run(r.a, add, &args, sizeof(args)));
	assert_ok(ct_event_record(r.timed, r.a));
	assert_ok(ct_event_wait(r.timed, CT_FOREVER));
	assert_int_equal(turns, 0);
	assert_int_equal(r.host[0], 3);
	assert_false(pthread_equal(thread, pthread_self()));
	close_rig(&r);
}

static enum ct_status fail_always(const void *args)
{
	(void)args;
	CT_FAIL(CT_PEER_LOST, "rank 7 is gone");
	return ct_error_hint("look at rank 7");
}

/* The error is that of every later wait. Later functions are not called, but other work runs, so nothing hangs. The
 * error chain of the host stays as it is. */
static void test_failure(void **state)
{
	const struct add never = {.bytes = NULL};

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct rig r;

		soft_gpu_set_seed((uint64_t)seed);
		open_rig(&r);
		CT_FAIL(CT_DATA, "an earlier error");
		assert_ok(ct_stream_run(r.b, fail_always, NULL, 0));
		assert_ok(ct_stream_run(r.b, add, &never, sizeof(never)));
		assert_ok(ct_device_fill(r.d, r.x, 1, N, r.b));
		assert_ok(ct_event_record(r.timed, r.b));
		assert_string_equal(ct_error_message(), "an earlier error");
		assert_fails(ct_event_wait(r.timed, CT_FOREVER), CT_PEER_LOST, "rank 7 is gone");
		assert_string_equal(ct_error_hint_text(), "look at rank 7");
		ct_error_clear();
		assert_fails(ct_device_sync(r.d, CT_FOREVER), CT_PEER_LOST, "rank 7 is gone");
		assert_fails(ct_stream_sync(r.a, CT_FOREVER), CT_PEER_LOST, "rank 7 is gone");
		assert_fails(ct_stream_run(r.a, add, &never, sizeof(never)), CT_PEER_LOST, "rank 7 is gone");
		close_rig(&r);
	}
}

static enum ct_status wait_for_flag(const void *args)
{
	_Atomic bool *const *flag = args;

	while (!atomic_load(*flag))
		sched_yield();
	return CT_OK;
}

/* A wait ends at its deadline while a function waits for something else. */
static void test_deadline(void **state)
{
	_Atomic bool flag = false, *at = &flag;
	struct rig r;

	(void)state;
	open_rig(&r);
	assert_ok(ct_stream_run(r.b, wait_for_flag, &at, sizeof(at)));
	assert_ok(ct_device_fill(r.d, r.x, 5, N, r.a));
	expect_sum(&r, 5); /* the other stream goes on */
	assert_fails(ct_device_sync(r.d, ct_deadline_in(20 * CT_MS)), CT_TIMEOUT, "the GPU has not finished in time");
	ct_error_clear();
	flag = true;
	assert_ok(ct_device_sync(r.d, CT_FOREVER));
	close_rig(&r);
}

/* If posting a function returns the error of earlier work, the message names this work. */
static void test_suspects(void **state)
{
	const struct add never = {.bytes = NULL};
	struct rig r;
	int status;

	(void)state;
	const pid_t child = fork(); /* a process does not recover from the failure of a GPU */
	if (child == 0) {
		open_rig(&r);
		soft_gpu_set_faults("cudaMemsetAsync@1:700");
		assert_ok(ct_device_fill(r.d, r.x, 1, N, r.a));
		assert_ok(ct_cuda_launched(r.a, 0, "fill"));
		while (soft_gpu_progress() == cudaSuccess)
			;
		assert_fails(
			ct_stream_run(r.b, add, &never, sizeof(never)), CT_DEVICE,
			"cudaLaunchHostFunc reports that work has failed, probably \"fill\": cudaErrorIllegalAddress");
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_suspects), /* the first one: before there are other threads */
		cmocka_unit_test(test_order),    cmocka_unit_test(test_recorded), cmocka_unit_test(test_another_thread),
		cmocka_unit_test(test_failure),  cmocka_unit_test(test_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
