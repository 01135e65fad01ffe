/* Rules of the CUDA runtime on which ctrain depends: the error that each call returns. This program is linked to the
 * software GPU and, a second time, to the real runtime, where it shows whether the software GPU implements the rules
 * correctly. It uses nothing but CUDA. */
#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"

enum { BYTES = 4096 };

static void test_last_error(void **state)
{
	void *p;

	(void)state;
	expect_error(cudaMalloc(&p, (size_t)1 << 60), cudaErrorMemoryAllocation);
	expect_error(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
	expect_error(cudaGetLastError(), cudaErrorMemoryAllocation);
	expect_error(cudaGetLastError(), cudaSuccess);
}

static void test_free_errors(void **state)
{
	int local = 0;

	(void)state;
	ok(cudaFree(NULL));
	ok(cudaFreeHost(NULL));
	expect_error(cudaFree(&local), cudaErrorInvalidValue);
	(void)cudaGetLastError();
}

static void test_copy_direction(void **state)
{
	void *device = upload(NULL, BYTES), *host = pinned(BYTES);

	(void)state;
	expect_error(cudaMemcpy(host, device, BYTES, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	expect_error(cudaMemcpy(host, device, BYTES, (enum cudaMemcpyKind)77), cudaErrorInvalidMemcpyDirection);
	(void)cudaGetLastError();
	ok(cudaFree(device));
	ok(cudaFreeHost(host));
}

static void test_launch_limits(void **state)
{
	struct histogram_args a = {0};

	(void)state;
	expect_error(kernel_histogram(&a, 0, 0, NULL), cudaErrorInvalidConfiguration);
	expect_error(kernel_histogram(&a, 1, 300 << 10, NULL), cudaErrorInvalidValue);
	(void)cudaGetLastError();
	ok(kernel_histogram(&a, 1, 64 << 10, NULL));
	ok(cudaDeviceSynchronize());
}

static void test_event_times(void **state)
{
	cudaEvent_t timed, plain = new_event();
	float ms;

	(void)state;
	ok(cudaEventCreate(&timed));
	ok(cudaEventQuery(timed));
	ok(cudaEventSynchronize(timed));
	expect_error(cudaEventElapsedTime(&ms, timed, timed), cudaErrorInvalidResourceHandle);
	ok(cudaEventRecord(timed, NULL));
	ok(cudaEventRecord(plain, NULL));
	ok(cudaDeviceSynchronize());
	expect_error(cudaEventElapsedTime(&ms, timed, plain), cudaErrorInvalidResourceHandle);
	ok(cudaEventElapsedTime(&ms, timed, timed));
	(void)cudaGetLastError();
	ok(cudaEventDestroy(timed));
	ok(cudaEventDestroy(plain));
}

static void call_cuda(void *arg)
{
	void *p;

	*(cudaError_t *)arg = cudaMalloc(&p, BYTES);
}

static void test_host_function(void **state)
{
	cudaError_t e = cudaSuccess;

	(void)state;
	ok(cudaLaunchHostFunc(NULL, call_cuda, &e));
	ok(cudaDeviceSynchronize());
	assert_int_equal(e, cudaErrorNotPermitted);
	(void)cudaGetLastError();
}

/* ---- Capture --------------------------------------------------------------------------------------- */

struct rig {
	cudaStream_t s, other, blocking;
	cudaEvent_t before, captured;
	void *device;
};

static int open_rig(void **state)
{
	static struct rig r;

	r = (struct rig){.s = new_stream(), .other = new_stream(), .before = new_event(), .captured = new_event()};
	ok(cudaStreamCreate(&r.blocking));
	r.device = upload(NULL, BYTES);
	ok(cudaEventRecord(r.before, r.other));
	*state = &r;
	return 0;
}

static int close_rig(void **state)
{
	struct rig *r = *state;

	ok(cudaDeviceSynchronize());
	ok(cudaStreamDestroy(r->s));
	ok(cudaStreamDestroy(r->other));
	ok(cudaStreamDestroy(r->blocking));
	ok(cudaEventDestroy(r->before));
	ok(cudaEventDestroy(r->captured));
	ok(cudaFree(r->device));
	(void)cudaGetLastError();
	return 0;
}

/* A capture with one node, and an event after it. */
static void begin(struct rig *r, cudaStream_t s)
{
	ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	ok(cudaMemsetAsync(r->device, 0, BYTES, s));
	ok(cudaEventRecord(r->captured, s));
}

static void end(cudaStream_t s, cudaError_t want)
{
	cudaGraph_t graph = NULL;

	expect_error(cudaStreamEndCapture(s, &graph), want);
	if (want == cudaSuccess)
		ok(cudaGraphDestroy(graph));
	else
		assert_null(graph);
}

/* The call is refused, and the capture is of no use any more. */
#define expect_refusal(r, origin, call, want)                                                                    \
	do {                                                                                                     \
		begin(r, origin);                                                                                \
		expect_error(call, want);                                                                        \
		expect_error(cudaMemsetAsync((r)->device, 0, BYTES, origin), cudaErrorStreamCaptureInvalidated); \
		end(origin, cudaErrorStreamCaptureInvalidated);                                                  \
	} while (0)

static void test_sync_in_capture(void **state)
{
	struct rig *r = *state;

	expect_refusal(r, r->s, cudaStreamSynchronize(r->s), cudaErrorStreamCaptureUnsupported);
}

static void test_query_in_capture(void **state)
{
	struct rig *r = *state;

	expect_refusal(r, r->s, cudaStreamQuery(r->s), cudaErrorStreamCaptureUnsupported);
}

static void test_device_sync_in_capture(void **state)
{
	struct rig *r = *state;

	expect_refusal(r, r->s, cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
}

static void test_malloc_in_capture(void **state)
{
	struct rig *r = *state;
	void *p;

	expect_refusal(r, r->s, cudaMalloc(&p, BYTES), cudaErrorStreamCaptureUnsupported);
}

static void test_wait_for_uncaptured(void **state)
{
	struct rig *r = *state;

	expect_refusal(r, r->s, cudaStreamWaitEvent(r->s, r->before, 0), cudaErrorStreamCaptureIsolation);
}

static void test_legacy_in_capture(void **state)
{
	struct rig *r = *state;

	expect_refusal(r, r->blocking, cudaMemsetAsync(r->device, 0, BYTES, NULL), cudaErrorStreamCaptureImplicit);
	expect_error(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal), cudaErrorStreamCaptureUnsupported);
	/* A non-blocking stream has nothing to do with the legacy stream. */
	begin(r, r->s);
	ok(cudaMemsetAsync(r->device, 0, BYTES, NULL));
	end(r->s, cudaSuccess);
}

static void test_end_in_wrong_stream(void **state)
{
	struct rig *r = *state;
	cudaGraph_t graph;

	begin(r, r->s);
	ok(cudaStreamWaitEvent(r->other, r->captured, 0));
	expect_error(cudaStreamEndCapture(r->other, &graph), cudaErrorStreamCaptureUnmatched);
	end(r->s, cudaErrorStreamCaptureInvalidated);
	expect_error(cudaStreamEndCapture(r->s, &graph), cudaErrorIllegalState);
}

static void test_unjoined(void **state)
{
	struct rig *r = *state;

	begin(r, r->s);
	ok(cudaStreamWaitEvent(r->other, r->captured, 0));
	ok(cudaMemsetAsync(r->device, 0, BYTES, r->other));
	end(r->s, cudaErrorStreamCaptureUnjoined);
	/* Both streams can be used again. */
	ok(cudaMemsetAsync(r->device, 0, BYTES, r->other));
	ok(cudaStreamSynchronize(r->other));
}

static void test_merge(void **state)
{
	struct rig *r = *state;

	begin(r, r->s);
	ok(cudaStreamBeginCapture(r->other, cudaStreamCaptureModeThreadLocal));
	expect_error(cudaStreamWaitEvent(r->other, r->captured, 0), cudaErrorStreamCaptureMerge);
	end(r->other, cudaErrorStreamCaptureInvalidated);
	end(r->s, cudaErrorStreamCaptureInvalidated);
}

static void test_captured_event(void **state)
{
	struct rig *r = *state;

	begin(r, r->s);
	end(r->s, cudaSuccess);
	expect_error(cudaEventQuery(r->captured), cudaErrorCapturedEvent);
	expect_error(cudaEventSynchronize(r->captured), cudaErrorCapturedEvent);
	ok(cudaEventRecord(r->captured, r->s)); /* an ordinary one again */
	ok(cudaEventSynchronize(r->captured));
}

static void test_update(void **state)
{
	struct rig *r = *state;
	cudaGraphExecUpdateResultInfo info;
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	begin(r, r->s);
	ok(cudaStreamEndCapture(r->s, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphExecUpdate(exec, graph, &info));
	assert_int_equal(info.result, cudaGraphExecUpdateSuccess);
	ok(cudaGraphDestroy(graph));
	begin(r, r->s);
	ok(cudaMemsetAsync(r->device, 0, BYTES, r->s));
	ok(cudaStreamEndCapture(r->s, &graph));
	expect_error(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
	assert_int_equal(info.result, cudaGraphExecUpdateErrorTopologyChanged);
	ok(cudaGraphDestroy(graph));
	ok(cudaGraphLaunch(exec, r->s)); /* as it was */
	ok(cudaStreamSynchronize(r->s));
	ok(cudaGraphExecDestroy(exec));
}

/* Timing events in a graph are recorded each time that it runs. */
static void test_external_event(void **state)
{
	struct rig *r = *state;
	cudaGraphExec_t exec;
	cudaEvent_t from, to;
	cudaGraph_t graph;
	float ms = -1;

	ok(cudaEventCreate(&from));
	ok(cudaEventCreate(&to));
	begin(r, r->s);
	ok(cudaEventRecordWithFlags(from, r->s, cudaEventRecordExternal));
	ok(cudaMemsetAsync(r->device, 0, BYTES, r->s));
	ok(cudaEventRecordWithFlags(to, r->s, cudaEventRecordExternal));
	ok(cudaStreamEndCapture(r->s, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphLaunch(exec, r->s));
	ok(cudaEventSynchronize(to));
	ok(cudaEventElapsedTime(&ms, from, to));
	assert_true(ms >= 0);
	ok(cudaStreamSynchronize(r->s));
	ok(cudaGraphExecDestroy(exec));
	ok(cudaGraphDestroy(graph));
	ok(cudaEventDestroy(from));
	ok(cudaEventDestroy(to));
}

#define with_rig(test) cmocka_unit_test_setup_teardown(test, open_rig, close_rig)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_error),
		cmocka_unit_test(test_free_errors),
		cmocka_unit_test(test_copy_direction),
		cmocka_unit_test(test_launch_limits),
		cmocka_unit_test(test_event_times),
		cmocka_unit_test(test_host_function),
		with_rig(test_sync_in_capture),
		with_rig(test_query_in_capture),
		with_rig(test_device_sync_in_capture),
		with_rig(test_malloc_in_capture),
		with_rig(test_wait_for_uncaptured),
		with_rig(test_legacy_in_capture),
		with_rig(test_end_in_wrong_stream),
		with_rig(test_unjoined),
		with_rig(test_merge),
		with_rig(test_captured_event),
		with_rig(test_update),
		with_rig(test_external_event),
	};

	skip_without_gpu();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
