/* Operations as work of streams: order, overlap with other streams, capture and replay, and communicators that do not
 * block. */
#include <math.h>

#include "tests/soft_gpu/nccl/ranks.h"

enum { N = 100000 };

static float *host_values(float first, float step)
{
	float *v = malloc(sizeof(*v) * N);

	check(v);
	for (int i = 0; i < N; i++)
		v[i] = first + step * (float)(i % 1000);
	return v;
}

/* All elements must be those of host_values(first, step). */
static void expect_values(const float *device, cudaStream_t s, float first, float step)
{
	static float *got; /* releasing it would wait for all streams */

	if (!got)
		got = pinned(sizeof(*got) * N);
	ok(cudaMemcpyAsync(got, device, sizeof(*got) * N, cudaMemcpyDeviceToHost, s));
	ok(cudaStreamSynchronize(s));
	for (int i = 0; i < N; i++) {
		float expected = first + step * (float)(i % 1000);

		if (got[i] != expected) {
			fprintf(stderr, "element %d is %g, not %g\n", i, (double)got[i], (double)expected);
			_exit(3);
		}
	}
}

static float *device_values(float first, float step)
{
	float *v = host_values(first, step), *d = upload(v, sizeof(*v) * N);

	free(v);
	return d;
}

static void sum_both_ways(struct rank *r)
{
	for (int blocking = 0; blocking < 2; blocking++) {
		float *x = device_values((float)r->rank, 1), *y = device_values(0, 0);
		float ranks = (float)r->n_ranks, sum = ranks * (ranks - 1) / 2;

		nccl_ok(make_comm(r, blocking));
		nccl_done(r->comm, ncclAllReduce(x, y, N, ncclFloat32, ncclSum, r->comm, r->stream));
		nccl_done(r->comm, ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream));
		expect_values(y, r->stream, sum, ranks);
		expect_values(x, r->stream, sum, ranks);
		nccl_done(r->comm, ncclCommFinalize(r->comm));
		nccl_ok(ncclCommDestroy(r->comm));
		check(soft_nccl_live() == 0);
		ok(cudaFree(x));
		ok(cudaFree(y));
		check(soft_gpu_live() == 2); /* the stream and a pinned block */
	}
}

static void test_sum(void **state)
{
	(void)state;
	run_ranks(1, sum_both_ways, NULL);
	run_ranks(2, sum_both_ways, NULL);
	run_ranks(3, sum_both_ways, NULL);
}

/* Two buckets are reduced in another stream, captured once and replayed. */
static void replay(struct rank *r)
{
	const int replays = 5;
	float *x = device_values((float)r->rank + 1, 0), *y = device_values((float)r->rank + 1, 0);
	cudaStream_t comm_stream = new_stream();
	cudaEvent_t fork = new_event(), join = new_event();
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	float ranks = (float)r->n_ranks, expected = ranks * (ranks + 1) / 2;

	nccl_ok(make_comm(r, false));
	ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	ok(cudaEventRecord(fork, r->stream));
	ok(cudaStreamWaitEvent(comm_stream, fork, 0));
	nccl_done(r->comm, ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, comm_stream));
	nccl_done(r->comm, ncclAllReduce(y, y, N, ncclFloat32, ncclSum, r->comm, comm_stream));
	ok(cudaEventRecord(join, comm_stream));
	ok(cudaStreamWaitEvent(r->stream, join, 0));
	ok(cudaStreamEndCapture(r->stream, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphDestroy(graph));
	for (int i = 0; i < replays; i++)
		ok(cudaGraphLaunch(exec, r->stream));
	for (int i = 1; i < replays; i++)
		expected *= ranks;
	expect_values(x, r->stream, expected, 0);
	expect_values(y, r->stream, expected, 0);
	/* Finalization is in progress until the graph has been destroyed. */
	nccl_expect(ncclCommFinalize(r->comm), ncclInProgress);
	for (int i = 0; i < 5; i++) {
		ncclResult_t e;

		nccl_ok(ncclCommGetAsyncError(r->comm, &e));
		check(e == ncclInProgress);
	}
	ok(cudaGraphExecDestroy(exec));
	nccl_expect(settle(r->comm), ncclSuccess);
	nccl_ok(ncclCommDestroy(r->comm));
	check(soft_nccl_live() == 0);
}

static void test_capture(void **state)
{
	(void)state;
	run_ranks(2, replay, NULL);
	run_ranks(3, replay, NULL);
}

/* Rank 1 calls its operation only after rank 0 has seen that another stream goes on while its operation waits. */
static void overlap(struct rank *r)
{
	float *x = device_values(1, 0), *y = device_values(2, 0);
	cudaStream_t other = new_stream();

	nccl_ok(make_comm(r, true));
	if (r->rank == 1)
		await_flag(r, 1, 1);
	nccl_ok(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream));
	if (r->rank == 0) {
		for (int i = 0; i < 20; i++)
			check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
		expect_values(y, other, 2, 0);
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
		r->board->flags[1] = 1;
	}
	expect_values(x, r->stream, 2, 0);
	nccl_ok(ncclCommDestroy(r->comm));
}

/* The same in a replayed graph: the copy goes on while the all-reduce in another branch waits. */
static void overlap_in_graph(struct rank *r)
{
	float *x = device_values(1, 0), *y = device_values(2, 0), *copy = pinned(sizeof(*copy) * N);
	cudaStream_t other = new_stream();
	cudaEvent_t fork = new_event(), join = new_event();
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	memset(copy, 0, sizeof(*copy) * N);
	nccl_ok(make_comm(r, true));
	ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	ok(cudaEventRecord(fork, r->stream));
	ok(cudaStreamWaitEvent(other, fork, 0));
	nccl_ok(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, other));
	ok(cudaMemcpyAsync(copy, y, sizeof(*copy) * N, cudaMemcpyDeviceToHost, r->stream));
	ok(cudaEventRecord(join, other));
	ok(cudaStreamWaitEvent(r->stream, join, 0));
	ok(cudaStreamEndCapture(r->stream, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	if (r->rank == 1)
		await_flag(r, 1, 1);
	ok(cudaGraphLaunch(exec, r->stream));
	while (r->rank == 0 && copy[N - 1] < 2)
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
	r->board->flags[1] = 1;
	expect_values(x, r->stream, 2, 0);
}

static void test_overlap(void **state)
{
	(void)state;
	run_ranks(2, overlap, NULL);
	run_ranks(2, overlap_in_graph, NULL);
}

/* Finalization ends the operations that were posted, even if the program waits for nothing else. */
static void finalize_posted(struct rank *r)
{
	float *x = device_values(1, 0);

	nccl_ok(make_comm(r, r->arg != NULL));
	nccl_done(r->comm, ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream));
	nccl_done(r->comm, ncclCommFinalize(r->comm));
	nccl_ok(ncclCommDestroy(r->comm));
	check(soft_nccl_live() == 0);
	expect_values(x, r->stream, 2, 0);
}

static void test_finalize(void **state)
{
	(void)state;
	run_ranks(2, finalize_posted, NULL);
	run_ranks(2, finalize_posted, "blocking");
}

/* Operations of a communicator in different streams run in the order of their calls, also in a graph. */
static void keep_order(struct rank *r)
{
	float *x[8];
	cudaStream_t streams[8];
	cudaEvent_t event = new_event();
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	for (int i = 0; i < 8; i++) {
		x[i] = device_values(1, 0);
		streams[i] = new_stream();
	}
	nccl_ok(make_comm(r, false));
	for (size_t i = 0; i < 8; i++)
		nccl_done(r->comm, ncclAllReduce(x[i], x[i], N - i, ncclFloat32, ncclSum, r->comm, streams[i]));
	ok(cudaDeviceSynchronize());
	ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	ok(cudaEventRecord(event, r->stream));
	for (size_t i = 0; i < 8; i++) {
		cudaEvent_t done = new_event();

		ok(cudaStreamWaitEvent(streams[i], event, 0));
		nccl_done(r->comm, ncclAllReduce(x[i], x[i], N - i, ncclFloat32, ncclSum, r->comm, streams[i]));
		ok(cudaEventRecord(done, streams[i]));
		ok(cudaStreamWaitEvent(r->stream, done, 0));
	}
	ok(cudaStreamEndCapture(r->stream, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < 3; i++)
		ok(cudaGraphLaunch(exec, r->stream));
	expect_values(x[0], r->stream, 16, 0);
}

static void test_order(void **state)
{
	(void)state;
	run_ranks(2, keep_order, NULL);
}

/* The other rank never calls its operation. After the abort, the stream goes on. */
static void abort_in_flight(struct rank *r)
{
	float *x = device_values(1, 0), *y = device_values(2, 0);
	bool captured = r->arg != NULL;
	float result;
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph;

	nccl_ok(make_comm(r, false));
	if (r->rank == 0) {
		if (captured)
			ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
		nccl_done(r->comm, ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream));
		if (captured) {
			ok(cudaStreamEndCapture(r->stream, &graph));
			ok(cudaGraphInstantiate(&exec, graph, 0));
			ok(cudaGraphDestroy(graph));
			ok(cudaGraphLaunch(exec, r->stream));
		}
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
		nccl_ok(ncclCommAbort(r->comm));
		expect_values(y, r->stream, 2, 0);
		ok(cudaMemcpy(&result, x, sizeof(result), cudaMemcpyDeviceToHost));
		check(isnan(result));
		if (captured)
			ok(cudaGraphExecDestroy(exec));
		r->board->flags[1] = 1;
	} else {
		await_flag(r, 1, 1);
		nccl_ok(ncclCommAbort(r->comm));
	}
	check(soft_nccl_live() == 0);
}

static void test_abort(void **state)
{
	(void)state;
	run_ranks(2, abort_in_flight, NULL);
	run_ranks(2, abort_in_flight, "captured");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sum),      cmocka_unit_test(test_capture),
					   cmocka_unit_test(test_overlap),  cmocka_unit_test(test_order),
					   cmocka_unit_test(test_finalize), cmocka_unit_test(test_abort)};

	use_devices();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
