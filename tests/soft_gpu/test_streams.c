/* Streams and events of the software GPU: the order of work, and the detection of work whose order is not defined. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"
#include "tests/soft_gpu/library.h"

enum { N_SEEDS = 40, N = 100 };

/* Notes in which order host functions ran. */
struct notes {
	int n;
	char text[32];
};
struct note {
	struct notes *notes;
	char letter;
};

static void write_note(void *arg)
{
	struct note *n = arg;

	n->notes->text[n->notes->n++] = n->letter;
}

/* Two streams take turns in many orders; each stream keeps its own. */
static void test_turns(void **state)
{
	cudaStream_t a = new_stream(), b = new_stream();
	int ab = 0, ba = 0;

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct notes notes = {0};
		struct note n[4] = {{&notes, 'a'}, {&notes, 'A'}, {&notes, 'b'}, {&notes, 'B'}};
		const char *t = notes.text;

		soft_gpu_set_seed((uint64_t)seed);
		for (int i = 0; i < 4; i++)
			ok(cudaLaunchHostFunc(i < 2 ? a : b, write_note, &n[i]));
		assert_int_equal(notes.n, 0);
		ok(cudaDeviceSynchronize());
		assert_int_equal(notes.n, 4);
		assert_true(strchr(t, 'a') < strchr(t, 'A') && strchr(t, 'b') < strchr(t, 'B'));
		ab += strcmp(t, "aAbB") == 0;
		ba += strcmp(t, "bBaA") == 0;
	}
	assert_true(ab > 0 && ba > 0 && ab + ba < N_SEEDS);
	ok(cudaStreamDestroy(a));
	ok(cudaStreamDestroy(b));
}

/* A stream waits for an event as it was recorded last, and the host for an event only. */
static void test_events(void **state)
{
	cudaStream_t a = new_stream(), b = new_stream();
	cudaEvent_t e = new_event();

	(void)state;
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct notes notes = {0};
		struct note n[3] = {{&notes, 'a'}, {&notes, 'b'}, {&notes, 'c'}};

		soft_gpu_set_seed((uint64_t)seed);
		ok(cudaLaunchHostFunc(a, write_note, &n[0]));
		ok(cudaEventRecord(e, a));
		ok(cudaStreamWaitEvent(b, e, 0));
		ok(cudaLaunchHostFunc(b, write_note, &n[1]));
		ok(cudaEventRecord(e, b));
		ok(cudaLaunchHostFunc(a, write_note, &n[2]));
		ok(cudaEventSynchronize(e));
		assert_true(strchr(notes.text, 'a') && strchr(notes.text, 'b') > strchr(notes.text, 'a'));
		while (cudaStreamQuery(a) == cudaErrorNotReady)
			;
		assert_int_equal(notes.n, 3);
	}
	(void)cudaGetLastError();
	ok(cudaEventDestroy(e));
	ok(cudaStreamDestroy(a));
	ok(cudaStreamDestroy(b));
	expect_error(cudaStreamSynchronize((cudaStream_t)2), cudaErrorInvalidResourceHandle);
	(void)cudaGetLastError();
	assert_int_equal(soft_gpu_live(), 0);
}

static void test_event_times(void **state)
{
	cudaStream_t s = new_stream();
	cudaEvent_t from, to, plain = new_event();
	float ms = -1;

	(void)state;
	ok(cudaEventCreate(&from));
	ok(cudaEventCreateWithFlags(&to, cudaEventBlockingSync));
	ok(cudaEventQuery(from)); /* never recorded: nothing to wait for */
	expect_error(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);
	ok(cudaEventRecord(from, s));
	ok(cudaEventRecord(to, s));
	ok(cudaEventRecord(plain, s));
	expect_error(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
	while (cudaEventQuery(to) == cudaErrorNotReady)
		;
	ok(cudaEventElapsedTime(&ms, from, to));
	assert_true(ms >= 0);
	ok(cudaStreamSynchronize(s));
	expect_error(cudaEventElapsedTime(&ms, from, plain), cudaErrorInvalidResourceHandle);
	(void)cudaGetLastError();
	ok(cudaEventDestroy(from));
	ok(cudaEventDestroy(to));
	ok(cudaEventDestroy(plain));
	ok(cudaStreamDestroy(s));
}

/* The legacy stream and blocking streams wait for each other; others do not. */
static void test_legacy(void **state)
{
	cudaStream_t blocking, other = new_stream();
	int early = 0;

	(void)state;
	ok(cudaStreamCreate(&blocking));
	for (int seed = 0; seed < N_SEEDS; seed++) {
		struct notes notes = {0};
		struct note n[4] = {{&notes, 'a'}, {&notes, 'b'}, {&notes, 'c'}, {&notes, 'x'}};
		const char *t = notes.text;

		soft_gpu_set_seed((uint64_t)seed);
		ok(cudaLaunchHostFunc(blocking, write_note, &n[0]));
		ok(cudaLaunchHostFunc(NULL, write_note, &n[1]));
		ok(cudaLaunchHostFunc(blocking, write_note, &n[2]));
		ok(cudaLaunchHostFunc(other, write_note, &n[3]));
		ok(cudaDeviceSynchronize());
		assert_true(strchr(t, 'a') < strchr(t, 'b') && strchr(t, 'b') < strchr(t, 'c'));
		early += strchr(t, 'x') < strchr(t, 'b');
	}
	assert_true(early > 0 && early < N_SEEDS);
	ok(cudaStreamDestroy(blocking));
	ok(cudaStreamDestroy(other));
}

/* A stream that is destroyed still does its work. */
static void test_destroyed(void **state)
{
	struct notes notes = {0};
	struct note n = {&notes, 'a'};
	cudaStream_t s = new_stream();

	(void)state;
	ok(cudaLaunchHostFunc(s, write_note, &n));
	ok(cudaStreamDestroy(s));
	expect_error(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
	ok(cudaDeviceSynchronize());
	assert_int_equal(notes.n, 1);
	(void)cudaGetLastError();
}

/* Work that is not ready is called again, and other streams go on meanwhile. */
static void test_not_ready(void **state)
{
	int *p = upload(NULL, 3 * N * sizeof(int)), not_ready = 5;
	struct notes notes = {0};
	struct note n = {&notes, 'x'};
	struct mix_args m = {.c = p, .a = p + N, .b = p + N, .n = N, .not_ready = &not_ready};
	cudaStream_t a = new_stream(), b = new_stream();

	(void)state;
	ok(library_mix(&m, a));
	ok(cudaLaunchHostFunc(b, write_note, &n));
	ok(cudaStreamSynchronize(a));
	assert_int_equal(not_ready, 0);
	ok(cudaStreamSynchronize(b));
	ok(cudaStreamDestroy(a));
	ok(cudaStreamDestroy(b));
	ok(cudaFree(p));
}

/* Copy in one stream, kernel in another. Planted bug: the kernel's stream does not wait for the copy. */
static bool is_right(bool waits, uint64_t seed)
{
	float *x = pinned(N * sizeof(float)), *y = pinned(N * sizeof(float));
	struct saxpy_args a = {.a = 2, .n = N};
	cudaStream_t copy = new_stream(), compute = new_stream();
	cudaEvent_t e = new_event();
	bool right = true;

	soft_gpu_set_seed(seed);
	for (int i = 0; i < N; i++)
		x[i] = (float)i;
	a.x = upload(NULL, N * sizeof(float));
	a.y = upload(NULL, N * sizeof(float));
	ok(cudaMemsetAsync(a.y, 0, N * sizeof(float), compute));
	ok(cudaMemcpyAsync((void *)(uintptr_t)a.x, x, N * sizeof(float), cudaMemcpyHostToDevice, copy));
	ok(cudaEventRecord(e, copy));
	if (waits)
		ok(cudaStreamWaitEvent(compute, e, 0));
	ok(kernel_saxpy(&a, TYPE_F32, compute));
	ok(cudaMemcpyAsync(y, a.y, N * sizeof(float), cudaMemcpyDeviceToHost, compute));
	ok(cudaStreamSynchronize(compute));
	for (int i = 0; i < N; i++)
		right = right && y[i] == 2 * (float)i;
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.y));
	ok(cudaFreeHost(x));
	ok(cudaFreeHost(y));
	ok(cudaEventDestroy(e));
	ok(cudaStreamDestroy(copy));
	ok(cudaStreamDestroy(compute));
	return right;
}

static void test_missing_wait(void **state)
{
	int found = 0;

	(void)state;
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		assert_true(is_right(true, seed));
		found += !is_right(false, seed);
	}
	assert_true(found >= N_SEEDS / 4);
}

/* The same with a library call that declares its ranges: found at once, whatever the order. */
static void race(void *arg)
{
	bool waits = arg;
	int *p = upload(NULL, 4 * N * sizeof(int));
	struct mix_args first = {.c = p, .a = p + N, .b = p + 2 * N, .n = N};
	struct mix_args second = {.c = p + 3 * N, .a = p + N, .b = p, .n = N};
	cudaStream_t a = new_stream(), b = new_stream(), c = new_stream();
	cudaEvent_t e = new_event();

	ok(library_mix(&first, a));
	ok(cudaEventRecord(e, a));
	if (waits)
		ok(cudaStreamWaitEvent(c, e, 0));
	ok(cudaEventRecord(e, c));
	ok(cudaStreamWaitEvent(b, e, 0)); /* through a third stream */
	ok(library_mix(&second, b));
	/* What the host has waited for is ordered. */
	ok(cudaStreamSynchronize(b));
	ok(library_mix(&first, c));
	ok(cudaDeviceSynchronize());
}

static void test_race(void **state)
{
	struct child c = run_child(race, &c);

	(void)state;
	expect_success(&c);
	c = run_child(race, NULL);
	expect_message(
		&c, "library_mix (stream 1) reads memory that library_mix (stream 0) writes, and nothing orders them");
}

/* Several threads post and wait. */
static void *post_and_wait(void *arg)
{
	struct saxpy_args a = {.a = 1, .n = N};
	float *host;
	cudaStream_t s;
	bool *right = arg;

	*right = cudaMalloc(&a.y, N * sizeof(float)) == cudaSuccess &&
		 cudaMallocHost((void **)&host, N * sizeof(float)) == cudaSuccess &&
		 cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess;
	a.x = a.y;
	for (int i = 0; *right && i < 300; i++) {
		*right = cudaMemsetAsync(a.y, 0, N * sizeof(float), s) == cudaSuccess &&
			 kernel_saxpy(&a, TYPE_F32, s) == cudaSuccess &&
			 cudaMemcpyAsync(host, a.y, N * sizeof(float), cudaMemcpyDeviceToHost, s) == cudaSuccess &&
			 cudaStreamSynchronize(s) == cudaSuccess && host[N - 1] == 0;
	}
	*right = *right && cudaFree(a.y) == cudaSuccess && cudaFreeHost(host) == cudaSuccess &&
		 cudaStreamDestroy(s) == cudaSuccess;
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[3];
	bool right[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, post_and_wait, &right[i]), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_true(right[i]);
	}
	assert_int_equal(soft_gpu_live(), 0);
}

struct gate {
	_Atomic bool reached, open;
	pthread_t thread; /* that reached the gate */
};

static void pass_gate(void *arg)
{
	struct gate *g = arg;

	g->thread = pthread_self();
	g->reached = true;
	while (!g->open)
		sched_yield();
}

/* A thread calls one function at a time. Meanwhile, other streams go on, and the host does not wait. */
static void test_host_functions(void **state)
{
	cudaStream_t s[3] = {new_stream(), new_stream(), new_stream()};
	unsigned char bytes[4] = {0}, *d = upload(bytes, sizeof(bytes));
	struct gate gates[2] = {0};
	void *host;

	(void)state;
	ok(cudaMallocHost(&host, sizeof(bytes)));
	ok(cudaLaunchHostFunc(s[0], pass_gate, &gates[0]));
	while (!gates[0].reached)
		expect_error(cudaStreamQuery(s[0]), cudaErrorNotReady);
	ok(cudaLaunchHostFunc(s[1], pass_gate, &gates[1]));
	ok(cudaMemsetAsync(d, 7, sizeof(bytes), s[2]));
	ok(cudaMemcpyAsync(host, d, sizeof(bytes), cudaMemcpyDeviceToHost, s[2]));
	ok(cudaStreamSynchronize(s[2]));
	assert_int_equal(((unsigned char *)host)[0], 7);
	for (int i = 0; i < 100; i++)
		expect_error(cudaStreamQuery(s[1]), cudaErrorNotReady);
	assert_false(gates[1].reached);
	gates[1].open = gates[0].open = true;
	ok(cudaDeviceSynchronize());
	assert_true(gates[1].reached);
	assert_true(pthread_equal(gates[0].thread, gates[1].thread));
	assert_false(pthread_equal(gates[0].thread, pthread_self()));
	ok(cudaFreeHost(host));
	ok(cudaFree(d));
	for (int i = 0; i < 3; i++)
		ok(cudaStreamDestroy(s[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_turns),        cmocka_unit_test(test_events),
		cmocka_unit_test(test_event_times),  cmocka_unit_test(test_legacy),
		cmocka_unit_test(test_destroyed),    cmocka_unit_test(test_not_ready),
		cmocka_unit_test(test_missing_wait), cmocka_unit_test(test_race),
		cmocka_unit_test(test_threads),      cmocka_unit_test(test_host_functions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
