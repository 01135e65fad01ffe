/* Mistakes of programs: each is reported as NCCL reports it or better. */
#include "tests/soft_gpu/nccl/ranks.h"

enum { N = 1000 };

/* ---- Ranks that call different operations ----------------------------------------------------------- */

enum difference { COUNT, TYPE, OP, ROOT, KIND, ORDER, MESSAGE, CAPTURED, CAPTURE, N_DIFFERENCES };

static cudaGraphExec_t record(struct rank *r, float *x)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
	nccl_done(r->comm, ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream));
	ok(cudaStreamEndCapture(r->stream, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphDestroy(graph));
	return exec;
}

/* One of the ranks has captured the operation, or they have captured it in different graphs. */
static void capture_differently(struct rank *r, enum difference d, float *x)
{
	const cudaGraphExec_t one = record(r, x), two = record(r, x);

	if (d == CAPTURED && r->rank == 0)
		nccl_done(r->comm, ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream));
	else
		ok(cudaGraphLaunch(r->rank ? one : two, r->stream));
	ok(cudaGraphExecDestroy(one));
	ok(cudaGraphExecDestroy(two));
}

static void call_differently(struct rank *r, enum difference d, float *x, float *y)
{
	int me = r->rank;
	ncclComm_t c = r->comm;
	cudaStream_t s = r->stream;

	nccl_ok(ncclGroupStart());
	switch (d) {
	case COUNT:
		nccl_ok(ncclAllReduce(x, y, N - (size_t)me, ncclFloat32, ncclSum, c, s));
		break;
	case TYPE:
		nccl_ok(ncclAllReduce(x, y, N, me ? ncclInt32 : ncclFloat32, ncclSum, c, s));
		break;
	case OP:
		nccl_ok(ncclAllReduce(x, y, N, ncclFloat32, me ? ncclMax : ncclSum, c, s));
		break;
	case ROOT:
		nccl_ok(ncclBroadcast(x, y, N, ncclFloat32, me, c, s));
		break;
	case KIND:
		nccl_ok(me ? ncclAllReduce(x, y, N, ncclFloat32, ncclSum, c, s)
			   : ncclBroadcast(x, y, N, ncclFloat32, 0, c, s));
		break;
	case ORDER:
		nccl_ok(ncclAllReduce(x, x, me ? N : N / 2, ncclFloat32, ncclSum, c, s));
		nccl_ok(ncclAllReduce(y, y, me ? N / 2 : N, ncclFloat32, ncclSum, c, s));
		break;
	default:
		nccl_ok(me ? ncclSend(x, N, ncclFloat32, 0, c, s) : ncclRecv(x, N - 1, ncclFloat32, 1, c, s));
	}
	nccl_ok(ncclGroupEnd());
}

struct how {
	enum difference difference;
	bool hang;
};

static void disagree(struct rank *r)
{
	const struct how *how = r->arg;
	float *x = upload(NULL, sizeof(*x) * N), *y = upload(NULL, sizeof(*y) * N);
	ncclResult_t e = ncclSuccess;

	if (how->hang)
		setenv("SOFT_NCCL_MISMATCH", "hang", 1);
	nccl_ok(make_comm(r, how->difference < CAPTURED));
	if (how->difference < CAPTURED)
		call_differently(r, how->difference, x, y);
	else
		capture_differently(r, how->difference, x);
	for (int i = 0; i < (how->hang ? 100 : 200000) && e == ncclSuccess; i++) {
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
		nccl_ok(ncclCommGetAsyncError(r->comm, &e));
		/* Of two ranks that exchange a message, the receiver finds the mistake. */
		if (r->board->flags[0])
			break;
		pause_briefly();
	}
	if (e) {
		r->board->flags[0] = 1;
		check(e == ncclInvalidUsage);
		nccl_expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, r->comm, r->stream), ncclInvalidUsage);
	}
	check(how->hang ? !r->board->flags[0] : r->board->flags[0]);
	nccl_ok(ncclCommAbort(r->comm));
	ok(cudaStreamSynchronize(r->stream));
}

static void test_disagreement(void **state)
{
	(void)state;
	for (int hang = 0; hang < 2; hang++) {
		for (int d = 0; d < N_DIFFERENCES; d++) {
			struct how how = {(enum difference)d, hang};
			struct ranks result = start_ranks(2, disagree, &how);
			bool printed = strstr(result.output, "the ranks of a communicator disagree: rank ") != NULL;
			bool captured = strstr(result.output, "op 0, root 0, capture 1)") != NULL;

			if (result.status[0] || result.status[1] || printed == (hang != 0) ||
			    captured != (d >= CAPTURED && !hang))
				fail_msg("difference %d: status %d and %d; the ranks printed: %s", d, result.status[0],
					 result.status[1], result.output);
		}
	}
}

/* ---- Arguments and states --------------------------------------------------------------------------- */

static void call_badly(struct rank *r)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	float *x = upload(NULL, sizeof(*x) * N);
	ncclUniqueId id = {"not an id"};
	ncclComm_t c;
	ncclResult_t e;

	nccl_expect(ncclCommInitRank(&c, 2, id, 2), ncclInvalidArgument);
	nccl_expect(ncclCommInitRank(&c, 1, id, 0), ncclInvalidArgument);
	config.magic = 0;
	nccl_expect(ncclCommInitRankConfig(&c, 1, id, 0, &config), ncclInvalidArgument);
	nccl_expect(ncclGroupEnd(), ncclInvalidUsage);
	nccl_ok(make_comm(r, true));
	nccl_expect(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, NULL, r->stream), ncclInvalidArgument);
	nccl_expect(ncclAllReduce(x, x, N, ncclNumTypes, ncclSum, r->comm, r->stream), ncclInvalidArgument);
	nccl_expect(ncclAllReduce(x, x, N, ncclFloat32, ncclNumOps, r->comm, r->stream), ncclInvalidArgument);
	nccl_expect(ncclBroadcast(x, x, N, ncclFloat32, r->n_ranks, r->comm, r->stream), ncclInvalidArgument);
	/* An error in a group is returned by its end, and nothing is posted. */
	nccl_ok(ncclGroupStart());
	nccl_ok(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream));
	nccl_expect(ncclSend(x, N, ncclFloat32, -1, r->comm, r->stream), ncclInvalidArgument);
	nccl_expect(ncclGroupEnd(), ncclInvalidArgument);
	check(cudaStreamQuery(r->stream) == cudaSuccess);
	nccl_ok(ncclCommGetAsyncError(r->comm, &e));
	check(e == ncclSuccess);
	nccl_ok(ncclCommFinalize(r->comm));
	nccl_expect(ncclCommFinalize(r->comm), ncclInvalidArgument);
	nccl_ok(ncclCommDestroy(r->comm));
	check(soft_nccl_live() == 0);
}

static void use_in_progress(struct rank *r)
{
	float *x = upload(NULL, sizeof(*x) * N);
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	int n;

	config.blocking = 0;
	if (r->rank == 1)
		await_flag(r, 0, 1);
	if (r->rank == 0)
		nccl_ok(ncclGetUniqueId(&r->board->ids[0]));
	nccl_expect(ncclCommInitRankConfig(&r->comm, 2, r->board->ids[0], r->rank, &config), ncclInProgress);
	if (r->rank == 0) {
		nccl_expect(ncclCommCount(r->comm, &n), ncclInvalidArgument);
		check(strstr(ncclGetLastError(r->comm), "before the previous operation returned ncclSuccess"));
		nccl_expect(ncclCommDestroy(r->comm), ncclInvalidArgument);
		r->board->flags[0] = 1;
	}
	nccl_expect(settle(r->comm), ncclSuccess);
	nccl_ok(ncclCommCount(r->comm, &n));
	check(n == 2);
	/* Until one of them is in progress. */
	while (ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream) != ncclInProgress)
		;
	nccl_expect(ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream), ncclInvalidArgument);
	nccl_expect(settle(r->comm), ncclInvalidArgument);
	nccl_ok(ncclCommAbort(r->comm));
	ok(cudaStreamSynchronize(r->stream));
}

static void share_device(struct rank *r)
{
	bool hosts = r->arg != NULL;

	if (hosts)
		setenv("NCCL_HOSTID", r->rank ? "b" : "a", 1);
	ok(cudaSetDevice(0));
	nccl_expect(make_comm(r, false), hosts ? ncclSuccess : ncclInvalidUsage);
	check(hosts || strstr(ncclGetLastError(NULL), "Duplicate GPU detected"));
	nccl_ok(ncclCommAbort(r->comm));
}

static void join_twice(struct rank *r)
{
	ncclComm_t c;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;

	config.blocking = 0;
	nccl_ok(ncclGetUniqueId(&id));
	nccl_expect(ncclCommInitRankConfig(&r->comm, 3, id, 0, &config), ncclInProgress);
	nccl_expect(ncclCommInitRankConfig(&c, 3, id, 0, &config), ncclInvalidUsage);
	nccl_expect(ncclCommInitRankConfig(&c, 2, id, 1, &config), ncclInvalidUsage);
	nccl_ok(ncclCommAbort(r->comm));
	check(soft_nccl_live() == 0);
}

static void test_arguments(void **state)
{
	(void)state;
	run_ranks(1, call_badly, NULL);
	run_ranks(2, use_in_progress, NULL);
	run_ranks(2, share_device, NULL);
	run_ranks(2, share_device, "hosts");
	run_ranks(1, join_twice, NULL);
}

/* ---- Mistakes that end the process ------------------------------------------------------------------ */

static void reduce_host_memory(struct rank *r)
{
	static float x[N];

	nccl_ok(make_comm(r, true));
	ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream);
}

static void reduce_too_much(struct rank *r)
{
	float *x = upload(NULL, sizeof(*x) * N);

	nccl_ok(make_comm(r, true));
	ncclAllReduce(x, x, N + 1, ncclFloat32, ncclSum, r->comm, r->stream);
}

static void overlap_buffers(struct rank *r)
{
	float *x = upload(NULL, sizeof(*x) * N);

	nccl_ok(make_comm(r, true));
	ncclAllReduce(x, x + 1, N - 1, ncclFloat32, ncclSum, r->comm, r->stream);
}

static void overlap_in_group(struct rank *r)
{
	float *x = upload(NULL, sizeof(*x) * N);

	nccl_ok(make_comm(r, true));
	nccl_ok(ncclGroupStart());
	nccl_ok(ncclAllReduce(x, x, N / 2 + 1, ncclFloat32, ncclSum, r->comm, r->stream));
	nccl_ok(ncclAllReduce(x + N / 2, x + N / 2, N / 2, ncclFloat32, ncclSum, r->comm, r->stream));
	ncclGroupEnd();
}

static void use_destroyed(struct rank *r)
{
	float *x = upload(NULL, sizeof(*x) * N);

	nccl_ok(make_comm(r, true));
	nccl_ok(ncclCommDestroy(r->comm));
	ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream);
}

static void use_finalized(struct rank *r)
{
	float *x = upload(NULL, sizeof(*x) * N);

	nccl_ok(make_comm(r, true));
	nccl_ok(ncclCommFinalize(r->comm));
	ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream);
}

static void destroy_recorded(struct rank *r)
{
	nccl_ok(make_comm(r, true));
	record(r, upload(NULL, sizeof(float) * N));
	ncclCommDestroy(r->comm);
}

static void replay_destroyed(struct rank *r)
{
	cudaGraphExec_t exec;

	nccl_ok(make_comm(r, false));
	exec = record(r, upload(NULL, sizeof(float) * N));
	nccl_ok(ncclCommDestroy(r->comm));
	ok(cudaGraphLaunch(exec, r->stream));
	cudaStreamSynchronize(r->stream);
}

/* The all-reduce in another stream does not wait for the copy, or the copy not for the all-reduce. */
static void forget_wait(struct rank *r)
{
	const bool before = r->arg != NULL;
	float *x = upload(NULL, sizeof(*x) * N), *y = pinned(sizeof(*y) * N);
	cudaStream_t other = new_stream();

	nccl_ok(make_comm(r, true));
	if (before)
		ok(cudaMemcpyAsync(x, y, sizeof(*x) * N, cudaMemcpyHostToDevice, r->stream));
	ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, other);
	cudaMemcpyAsync(y, x, sizeof(*x) * N, cudaMemcpyDeviceToHost, r->stream);
}

/* The capture ends while the all-reduce is in progress, which is therefore not in the graph. */
static void end_capture_early(struct rank *r)
{
	float *x = upload(NULL, sizeof(*x) * N);
	cudaGraph_t graph;
	ncclResult_t e;

	nccl_ok(make_comm(r, false));
	do {
		ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
		e = ncclAllReduce(x, x, N, ncclFloat32, ncclSum, r->comm, r->stream);
		ok(cudaStreamEndCapture(r->stream, &graph));
	} while (e == ncclSuccess);
	settle(r->comm);
}

static void test_mistakes(void **state)
{
	(void)state;
	expect_mistake(1, reduce_host_memory, NULL, "is not in one allocation of device memory");
	expect_mistake(1, reduce_too_much, NULL, "is not in one allocation of device memory");
	expect_mistake(1, overlap_buffers, NULL, "but not as an in-place operation");
	expect_mistake(1, overlap_in_group, NULL, "in a group, ncclAllReduce writes memory that ncclAllReduce reads");
	expect_mistake(1, use_destroyed, NULL, "the communicator does not exist or was destroyed");
	expect_mistake(1, use_finalized, NULL, "the communicator was finalized");
	expect_mistake(1, destroy_recorded, NULL, "waits forever: 1 collectives of the communicator are in graphs");
	expect_mistake(1, replay_destroyed, NULL, "a graph uses a communicator that was destroyed");
	expect_mistake(2, forget_wait, NULL, "and nothing orders them");
	expect_mistake(2, forget_wait, "before", "ncclAllReduce (stream");
	expect_mistake(2, end_capture_early, NULL, "before ncclCommGetAsyncError returned ncclSuccess");
}

/* Both ranks send before they receive. */
static void send_first(struct rank *r)
{
	char *x = upload(NULL, N), *y = upload(NULL, N);
	int peer = 1 - r->rank;

	nccl_ok(make_comm(r, true));
	nccl_ok(ncclSend(x, N, ncclInt8, peer, r->comm, r->stream));
	nccl_ok(ncclRecv(y, N, ncclInt8, peer, r->comm, r->stream));
	for (int i = 0; i < 100; i++) {
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
		pause_briefly();
	}
	r->board->flags[0]++;
	await_flag(r, 0, 2);
	nccl_ok(ncclCommAbort(r->comm));
	ok(cudaStreamSynchronize(r->stream));
}

static void test_deadlock(void **state)
{
	(void)state;
	run_ranks(2, send_first, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_disagreement), cmocka_unit_test(test_arguments),
					   cmocka_unit_test(test_mistakes), cmocka_unit_test(test_deadlock)};

	use_devices();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
