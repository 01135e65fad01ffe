/* Capture and graphs of the software GPU. */
#include <pthread.h>

#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"
#include "tests/soft_gpu/library.h"

enum { N = 64, N_SEEDS = 20, BYTES = N * sizeof(int) };

static void begin(cudaStream_t s)
{
	ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
}

static cudaGraphExec_t end(cudaStream_t s, size_t n_nodes)
{
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	size_t n = 0;

	ok(cudaStreamEndCapture(s, &graph));
	ok(cudaGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, n_nodes);
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphDestroy(graph));
	return exec;
}

/* A step with a fork: c = 2a + b on the main stream, d = 2b + a on the side, then a = 2c + d. With `late` (the planted
 * bug) the last is captured before the side is joined: a legal capture, but the order of two nodes is open. It hides
 * what it reads. */
struct step {
	cudaStream_t main, side;
	cudaEvent_t fork, join;
	int *a, *b, *c, *d;
	struct saxpy_args update;
};

static cudaError_t run_hidden(void *args)
{
	return run_mix(args);
}

static void post_hidden(const struct mix_args *m, cudaStream_t s)
{
	struct soft_work w = {.name = "hidden", .run = run_hidden, .args = m, .args_bytes = sizeof(*m)};

	ok(soft_gpu_post(s, &w));
}

static void post_step(const struct step *p, bool late)
{
	ok(library_mix(&(struct mix_args){.c = p->c, .a = p->a, .b = p->b, .n = N}, p->main));
	ok(cudaEventRecord(p->fork, p->main));
	ok(cudaStreamWaitEvent(p->side, p->fork, 0));
	ok(library_mix(&(struct mix_args){.c = p->d, .a = p->b, .b = p->b, .n = N}, p->side));
	ok(cudaEventRecord(p->join, p->side));
	if (!late)
		ok(cudaStreamWaitEvent(p->main, p->join, 0));
	post_hidden(&(struct mix_args){.c = p->b, .a = p->c, .b = p->d, .n = N}, p->main);
	if (late)
		ok(cudaStreamWaitEvent(p->main, p->join, 0));
}

static struct step open_step(void)
{
	struct step p = {.main = new_stream(), .side = new_stream(), .fork = new_event(), .join = new_event()};
	int host[N];

	for (int i = 0; i < N; i++)
		host[i] = i % 5;
	p.a = upload(host, BYTES);
	p.b = upload(host, BYTES);
	p.c = upload(host, BYTES);
	p.d = upload(host, BYTES);
	return p;
}

static void close_step(struct step *p)
{
	ok(cudaStreamDestroy(p->main));
	ok(cudaStreamDestroy(p->side));
	ok(cudaEventDestroy(p->fork));
	ok(cudaEventDestroy(p->join));
	ok(cudaFree(p->a));
	ok(cudaFree(p->b));
	ok(cudaFree(p->c));
	ok(cudaFree(p->d));
}

/* b[N - 1] after some steps. */
static int run_steps(uint64_t seed, bool recorded, bool late)
{
	enum { STEPS = 4 };
	struct step p = open_step();
	cudaGraphExec_t exec = NULL;
	int result[N];

	soft_gpu_set_seed(seed);
	if (recorded) {
		begin(p.main);
		post_step(&p, late);
		exec = end(p.main, 3);
	}
	for (int i = 0; i < STEPS; i++) {
		if (recorded)
			ok(cudaGraphLaunch(exec, p.main));
		else
			post_step(&p, late);
	}
	ok(cudaMemcpyAsync(result, p.b, BYTES, cudaMemcpyDeviceToHost, p.main));
	if (exec)
		ok(cudaGraphExecDestroy(exec));
	close_step(&p);
	return result[N - 1];
}

static void test_replay(void **state)
{
	int plain = run_steps(0, false, false);

	(void)state;
	for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
		assert_int_equal(run_steps(seed, true, false), plain);
		assert_int_equal(run_steps(seed, false, false), plain);
	}
	assert_int_equal(soft_gpu_live(), 0);
}

/* Planted bug: equal digests over several seeds are what finds it. */
static void test_late_join(void **state)
{
	int plain = run_steps(0, false, false), different = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 5; seed++)
		different += run_steps(seed, true, true) != plain;
	assert_true(different > 0);
}

/* Capturing does not execute, and copies, fills, kernels and host functions are nodes. */
static void count_call(void *arg)
{
	++*(int *)arg;
}

static void test_nodes(void **state)
{
	cudaStream_t s = new_stream();
	float *host = pinned(BYTES);
	struct saxpy_args a = {.a = 1, .n = N};
	enum cudaStreamCaptureStatus status;
	cudaGraphExec_t exec;
	int calls = 0;

	(void)state;
	a.x = upload(NULL, BYTES);
	a.y = upload(NULL, BYTES);
	begin(s);
	ok(cudaStreamIsCapturing(s, &status));
	assert_int_equal(status, cudaStreamCaptureStatusActive);
	ok(cudaMemcpyAsync((void *)(uintptr_t)a.x, host, BYTES, cudaMemcpyHostToDevice, s));
	ok(cudaMemsetAsync(a.y, 0, BYTES, s));
	ok(kernel_saxpy(&a, TYPE_F32, s));
	ok(cudaMemcpyAsync(host, a.y, BYTES, cudaMemcpyDeviceToHost, s));
	ok(cudaLaunchHostFunc(s, count_call, &calls));
	exec = end(s, 5);
	ok(cudaStreamIsCapturing(s, &status));
	assert_int_equal(status, cudaStreamCaptureStatusNone);
	ok(cudaStreamSynchronize(s));
	assert_int_equal(calls, 0);
	for (int k = 1; k <= 3; k++) {
		for (int i = 0; i < N; i++)
			host[i] = (float)(k * i);
		ok(cudaGraphLaunch(exec, s));
		ok(cudaStreamSynchronize(s));
		assert_int_equal(calls, k);
		assert_true(host[N - 1] == (float)(k * (N - 1)));
	}
	ok(cudaGraphExecDestroy(exec));
	ok(cudaFree((void *)(uintptr_t)a.x));
	ok(cudaFree(a.y));
	ok(cudaFreeHost(host));
	ok(cudaStreamDestroy(s));
	assert_int_equal(soft_gpu_live(), 0);
}

/* Events that are recorded, and waited for, each time that a graph runs. */
static void test_external_events(void **state)
{
	cudaStream_t s = new_stream(), other = new_stream();
	cudaEvent_t from, to;
	cudaGraphExec_t exec;
	int calls = 0, not_ready = 200, *p = upload(NULL, 2 * BYTES);
	float ms;

	(void)state;
	ok(cudaEventCreate(&from));
	ok(cudaEventCreate(&to));
	expect_error(cudaEventRecordWithFlags(from, s, cudaEventRecordExternal), cudaErrorIllegalState);
	begin(s);
	ok(cudaEventRecordWithFlags(from, s, cudaEventRecordExternal));
	ok(cudaLaunchHostFunc(s, count_call, &calls));
	ok(cudaEventRecordWithFlags(to, s, cudaEventRecordExternal));
	exec = end(s, 3);
	for (int i = 1; i <= 3; i++) {
		ok(cudaGraphLaunch(exec, s));
		ok(cudaStreamWaitEvent(other, to, 0));
		ok(cudaStreamSynchronize(other));
		assert_int_equal(calls, i);
		ok(cudaEventSynchronize(to));
		ok(cudaEventElapsedTime(&ms, from, to));
		assert_true(ms >= 0);
	}
	ok(cudaGraphExecDestroy(exec));
	/* A graph that waits for what is recorded outside. */
	begin(s);
	ok(cudaStreamWaitEvent(s, to, cudaEventWaitExternal));
	ok(cudaLaunchHostFunc(s, count_call, &calls));
	exec = end(s, 2);
	ok(cudaLaunchHostFunc(other, count_call, &calls));
	ok(cudaEventRecord(to, other));
	ok(cudaGraphLaunch(exec, s));
	ok(cudaStreamSynchronize(s));
	assert_int_equal(calls, 5);
	ok(cudaGraphExecDestroy(exec));
	/* An event within a graph is reached before the rest of it. */
	begin(s);
	ok(cudaEventRecordWithFlags(from, s, cudaEventRecordExternal));
	ok(library_mix(&(struct mix_args){.c = p, .a = p + N, .b = p + N, .n = N, .not_ready = &not_ready}, s));
	exec = end(s, 2);
	ok(cudaGraphLaunch(exec, s));
	ok(cudaEventSynchronize(from));
	assert_true(not_ready > 0);
	ok(cudaStreamSynchronize(s));
	assert_int_equal(not_ready, 0);
	ok(cudaFree(p));
	ok(cudaGraphExecDestroy(exec));
	ok(cudaEventDestroy(from));
	ok(cudaEventDestroy(to));
	ok(cudaStreamDestroy(s));
	ok(cudaStreamDestroy(other));
	(void)cudaGetLastError();
}

static void test_update(void **state)
{
	cudaStream_t s = new_stream();
	int *p = upload(NULL, BYTES), host[N];
	cudaGraphExecUpdateResultInfo info;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	(void)state;
	begin(s);
	ok(cudaMemsetAsync(p, 1, BYTES, s));
	exec = end(s, 1);
	begin(s);
	ok(cudaMemsetAsync(p, 2, BYTES, s));
	ok(cudaStreamEndCapture(s, &graph));
	ok(cudaGraphLaunch(exec, s));
	ok(cudaGraphExecUpdate(exec, graph, &info));
	assert_int_equal(info.result, cudaGraphExecUpdateSuccess);
	ok(cudaGraphDestroy(graph));
	ok(cudaMemcpyAsync(host, p, BYTES, cudaMemcpyDeviceToHost, s));
	assert_int_equal(host[0], 0x01010101); /* the launch before the update */
	ok(cudaGraphLaunch(exec, s));
	ok(cudaMemcpyAsync(host, p, BYTES, cudaMemcpyDeviceToHost, s));
	assert_int_equal(host[0], 0x02020202);
	begin(s);
	ok(cudaMemsetAsync(p, 2, BYTES, s));
	ok(cudaMemsetAsync(p, 2, BYTES, s));
	ok(cudaStreamEndCapture(s, &graph));
	expect_error(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
	assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
	ok(cudaGraphDestroy(graph));
	ok(cudaGraphExecDestroy(exec));
	ok(cudaFree(p));
	ok(cudaStreamDestroy(s));
	(void)cudaGetLastError();
}

/* Planted bugs: calls that a thread must not make while it captures. test_rules.c has those that CUDA refuses in any
 * case. */
static void test_unsafe_calls(void **state)
{
	cudaStream_t s = new_stream(), other = new_stream();
	cudaEvent_t e = new_event();
	cudaGraph_t graph;
	void *p;

	(void)state;
	ok(cudaEventRecord(e, other));
	for (int i = 0; i < 5; i++) {
		cudaError_t got = cudaSuccess;

		begin(s);
		switch (i) {
		case 0:
			got = cudaStreamSynchronize(other);
			break;
		case 1:
			got = cudaMallocHost(&p, 4);
			break;
		case 2:
			got = cudaEventQuery(e);
			break;
		case 3:
			got = cudaEventSynchronize(e);
			break;
		case 4:
			got = cudaFree(NULL);
			break;
		default:
			break;
		}
		assert_int_equal(got, cudaErrorStreamCaptureUnsupported);
		expect_error(cudaLaunchHostFunc(s, count_call, &i), cudaErrorStreamCaptureInvalidated);
		expect_error(cudaStreamEndCapture(s, &graph), cudaErrorStreamCaptureInvalidated);
	}
	ok(cudaDeviceSynchronize());
	ok(cudaEventDestroy(e));
	ok(cudaStreamDestroy(s));
	ok(cudaStreamDestroy(other));
	(void)cudaGetLastError();
	assert_int_equal(soft_gpu_live(), 0);
}

/* Another thread is not disturbed by a thread-local capture, but by a global one. */
static void *allocate(void *arg)
{
	cudaError_t *e = arg;
	void *p;

	*e = cudaMalloc(&p, 4);
	if (*e == cudaSuccess)
		*e = cudaFree(p);
	return NULL;
}

static void test_other_thread(void **state)
{
	const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal};
	cudaStream_t s = new_stream();
	cudaGraph_t graph;

	(void)state;
	for (int i = 0; i < 2; i++) {
		cudaError_t e, want = i ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
		pthread_t t;

		ok(cudaStreamBeginCapture(s, modes[i]));
		assert_int_equal(pthread_create(&t, NULL, allocate, &e), 0);
		assert_int_equal(pthread_join(t, NULL), 0);
		assert_int_equal(e, want);
		expect_error(cudaStreamEndCapture(s, &graph), i ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
		if (graph)
			ok(cudaGraphDestroy(graph));
	}
	ok(cudaStreamDestroy(s));
	(void)cudaGetLastError();
}

/* Planted bug: a forked stream is not joined before the end. */
static void test_unjoined(void **state)
{
	struct step p = open_step();
	cudaGraph_t graph;

	(void)state;
	begin(p.main);
	ok(cudaEventRecord(p.fork, p.main));
	ok(cudaStreamWaitEvent(p.side, p.fork, 0));
	ok(cudaMemsetAsync(p.c, 0, BYTES, p.side));
	expect_error(cudaStreamEndCapture(p.main, &graph), cudaErrorStreamCaptureUnjoined);
	assert_null(graph);
	/* Both streams are free again. */
	ok(cudaMemsetAsync(p.c, 0, BYTES, p.side));
	ok(cudaDeviceSynchronize());
	close_step(&p);
	(void)cudaGetLastError();
}

/* Planted bug: two library calls that may run at once use one workspace. */
static void share_workspace(void *arg)
{
	bool shared = arg;
	struct step p = open_step();
	int *workspace = upload(NULL, BYTES), *second = upload(NULL, BYTES);

	begin(p.main);
	ok(cudaEventRecord(p.fork, p.main));
	ok(cudaStreamWaitEvent(p.side, p.fork, 0));
	ok(library_mix(&(struct mix_args){.c = p.c, .a = p.a, .b = p.b, .n = N, .workspace = workspace}, p.main));
	ok(library_mix(
		&(struct mix_args){.c = p.d, .a = p.a, .b = p.b, .n = N, .workspace = shared ? workspace : second},
		p.side));
	ok(cudaEventRecord(p.join, p.side));
	ok(cudaStreamWaitEvent(p.main, p.join, 0));
	ok(cudaGraphExecDestroy(end(p.main, 2)));
}

static void test_shared_workspace(void **state)
{
	struct child c = run_child(share_workspace, NULL);

	(void)state;
	expect_success(&c);
	c = run_child(share_workspace, &c);
	expect_message(
		&c,
		"graph: node 0 (library_mix) writes memory that node 1 (library_mix) writes, and nothing orders them");
}

/* Planted bug: a graph runs after its memory was freed. */
static void launch_freed(void *arg)
{
	cudaStream_t s = new_stream();
	int *p = upload(NULL, BYTES);
	cudaGraphExec_t exec;

	(void)arg;
	begin(s);
	ok(cudaMemsetAsync(p, 0, BYTES, s));
	exec = end(s, 1);
	ok(cudaFree(p));
	(void)cudaGraphLaunch(exec, s);
}

static void test_freed(void **state)
{
	struct child c = run_child(launch_freed, NULL);

	(void)state;
	expect_message(&c, "fill: [");
}

/* One graph in two streams: CUDA runs it once at a time. And a node that is not ready lets others go on. */
static void test_two_launches(void **state)
{
	struct step p = open_step();
	int not_ready = 3, result[N];
	cudaGraphExec_t exec;

	(void)state;
	begin(p.main);
	ok(library_mix(&(struct mix_args){.c = p.c, .a = p.a, .b = p.b, .n = N, .not_ready = &not_ready}, p.main));
	ok(library_mix(&(struct mix_args){.c = p.a, .a = p.c, .b = p.c, .n = N}, p.main));
	exec = end(p.main, 2);
	ok(cudaGraphLaunch(exec, p.main));
	ok(cudaGraphLaunch(exec, p.side));
	ok(cudaMemcpyAsync(result, p.a, BYTES, cudaMemcpyDeviceToHost, p.side));
	for (int i = 0; i < N; i++) /* a = 3 (2 a + b), twice, from a = b = i % 5 */
		assert_int_equal(result[i], 3 * (2 * 9 * (i % 5) + i % 5));
	ok(cudaGraphExecDestroy(exec));
	close_step(&p);
	assert_int_equal(soft_gpu_live(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_late_join),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_external_events),
		cmocka_unit_test(test_update),
		cmocka_unit_test(test_unsafe_calls),
		cmocka_unit_test(test_other_thread),
		cmocka_unit_test(test_unjoined),
		cmocka_unit_test(test_shared_workspace),
		cmocka_unit_test(test_freed),
		cmocka_unit_test(test_two_launches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
