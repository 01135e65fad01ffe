/* Faults that tests request, ranks whose process ends, and ranks that are threads. */
#include <dirent.h>
#include <pthread.h>

#include "tests/soft_gpu/nccl/ranks.h"

enum { N = 1000 };

/* ---- Calls that fail -------------------------------------------------------------------------------- */

/* Returns the first error of a program with one rank, which releases everything. */
static ncclResult_t program(cudaStream_t stream)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;
	ncclComm_t c = NULL;
	ncclResult_t e = ncclSuccess, state;
	ncclWindow_t w = NULL;
	void *x = NULL, *handle = NULL;
	int n;

#define TRY(call) e = e ? e : (call)
	TRY(ncclGetVersion(&n));
	TRY(ncclGetUniqueId(&id));
	TRY(ncclCommInitRankConfig(&c, 1, id, 0, &config));
	TRY(ncclCommCount(c, &n));
	TRY(ncclCommUserRank(c, &n));
	TRY(ncclCommCuDevice(c, &n));
	TRY(ncclCommGetAsyncError(c, &state));
	TRY(ncclMemAlloc(&x, N));
	TRY(ncclCommRegister(c, x, N, &handle));
	TRY(ncclCommDeregister(c, handle));
	TRY(ncclCommWindowRegister(c, x, N, &w, 0));
	TRY(ncclCommWindowDeregister(c, w));
	TRY(ncclAllReduce(x, x, N, ncclInt8, ncclSum, c, stream));
	TRY(ncclReduce(x, x, N, ncclInt8, ncclSum, 0, c, stream));
	TRY(ncclBroadcast(x, x, N, ncclInt8, 0, c, stream));
	TRY(ncclAllGather(x, x, N, ncclInt8, c, stream));
	TRY(ncclReduceScatter(x, x, N, ncclInt8, ncclSum, c, stream));
	TRY(ncclGather(x, x, N, ncclInt8, 0, c, stream));
	TRY(ncclScatter(x, x, N, ncclInt8, 0, c, stream));
	if (ncclGroupStart() == ncclSuccess) {
		TRY(ncclSend(x, N / 2, ncclInt8, 0, c, stream));
		TRY(ncclRecv((char *)x + N / 2, N / 2, ncclInt8, 0, c, stream));
		state = ncclGroupEnd();
		TRY(state);
	} else {
		TRY(ncclInternalError);
	}
	TRY(ncclCommFinalize(c));
	if (e || ncclCommDestroy(c) != ncclSuccess) {
		TRY(ncclInternalError);
		(void)ncclCommAbort(c);
	}
	if (ncclMemFree(x) != ncclSuccess) {
		TRY(ncclInternalError);
		(void)ncclMemFree(x);
	}
#undef TRY
	return e;
}

static void fail_each_call(struct rank *r)
{
	static const char *const functions[] = {"ncclGetVersion",
						"ncclGetUniqueId",
						"ncclCommInitRankConfig",
						"ncclCommCount",
						"ncclCommUserRank",
						"ncclCommCuDevice",
						"ncclMemAlloc",
						"ncclCommGetAsyncError",
						"ncclCommRegister",
						"ncclCommDeregister",
						"ncclCommWindowRegister",
						"ncclCommWindowDeregister",
						"ncclAllReduce",
						"ncclReduce",
						"ncclBroadcast",
						"ncclAllGather",
						"ncclReduceScatter",
						"ncclGather",
						"ncclScatter",
						"ncclGroupStart",
						"ncclSend",
						"ncclRecv",
						"ncclCommFinalize",
						"ncclCommDestroy",
						"ncclMemFree"};
	const int live = soft_gpu_live();

	nccl_ok(program(r->stream));
	for (size_t f = 0; f < sizeof(functions) / sizeof(*functions); f++) {
		char fault[96];

		snprintf(fault, sizeof(fault), "%s:1:%d", functions[f], ncclInternalError);
		soft_gpu_set_faults(fault);
		if (program(r->stream) != ncclInternalError || soft_nccl_live() || soft_gpu_live() != live) {
			fprintf(stderr, "%s: not as expected\n", fault);
			_exit(3);
		}
	}
	soft_gpu_set_faults(NULL);
	nccl_ok(program(r->stream));
}

/* The call succeeds, and its work fails: the device's error. */
static void fail_work(struct rank *r)
{
	void *x = upload(NULL, N);

	nccl_ok(make_comm(r, false));
	soft_gpu_set_faults("ncclAllReduce@1:700");
	nccl_done(r->comm, ncclAllReduce(x, x, N, ncclInt8, ncclSum, r->comm, r->stream));
	expect_error(cudaStreamSynchronize(r->stream), cudaErrorIllegalAddress);
	nccl_ok(ncclCommAbort(r->comm));
	check(soft_nccl_live() == 0);
}

static void test_calls(void **state)
{
	(void)state;
	run_ranks(1, fail_each_call, NULL);
	run_ranks(2, fail_work, NULL);
}

/* ---- SOFT_NCCL_FAULT -------------------------------------------------------------------------------- */

/* Rank 1 never joins. */
static void never_join(struct rank *r)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t e;

	config.blocking = 0;
	soft_nccl_set_faults("init@1");
	if (r->rank == 0) {
		nccl_ok(ncclGetUniqueId(&r->board->ids[0]));
		r->board->flags[0] = 1;
	}
	await_flag(r, 0, 1);
	nccl_expect(ncclCommInitRankConfig(&r->comm, 2, r->board->ids[0], r->rank, &config), ncclInProgress);
	for (int i = 0; i < 100; i++) {
		nccl_ok(ncclCommGetAsyncError(r->comm, &e));
		check(e == ncclInProgress);
	}
	r->board->flags[1]++;
	await_flag(r, 1, 2);
	nccl_ok(ncclCommAbort(r->comm));
	check(soft_nccl_live() == 0);
}

static void fail_to_join(struct rank *r)
{
	soft_nccl_set_faults("init@0:0:2");
	nccl_expect(make_comm(r, false), ncclSystemError);
	nccl_ok(ncclCommAbort(r->comm));
}

/* The third operation of rank 1 never ends; or the connections of rank 0 break after its second one, which only rank 0
 * notices. */
static void break_operations(struct rank *r)
{
	const char *fault = r->arg;
	const bool notices = strncmp(fault, "error", 5) == 0 && r->rank == 0;
	int *x = upload(NULL, sizeof(*x) * N);
	ncclResult_t e = ncclSuccess;

	soft_nccl_set_faults(fault);
	nccl_ok(make_comm(r, true));
	for (int i = 0; i < 3; i++)
		nccl_ok(ncclAllReduce(x, x, N, ncclInt32, ncclSum, r->comm, r->stream));
	for (int i = 0; notices ? e == ncclSuccess : i < 100; i++) {
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
		nccl_ok(ncclCommGetAsyncError(r->comm, &e));
		pause_briefly();
	}
	check(e == (notices ? ncclRemoteError : ncclSuccess));
	r->board->flags[0]++;
	while (r->board->flags[0] < 2) /* rank 0 needs rank 1 for the first two operations */
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
	nccl_ok(ncclCommAbort(r->comm));
	ok(cudaStreamSynchronize(r->stream));
}

static void test_requested_faults(void **state)
{
	(void)state;
	run_ranks(2, never_join, NULL);
	run_ranks(1, fail_to_join, NULL);
	run_ranks(2, break_operations, "stuck@1:3");
	run_ranks(2, break_operations, "error@0:2:6");
}

/* ---- A rank that is killed -------------------------------------------------------------------------- */

static void lose_rank(struct rank *r)
{
	const bool noticed = r->arg != NULL;
	int *x = upload(NULL, sizeof(*x) * N);
	ncclResult_t e = ncclSuccess;

	if (noticed)
		setenv("SOFT_NCCL_LOST", "error", 1);
	nccl_ok(make_comm(r, true));
	if (r->rank == 1) {
		r->board->flags[0] = 1;
		kill(getpid(), SIGKILL);
	}
	nccl_ok(ncclAllReduce(x, x, N, ncclInt32, ncclSum, r->comm, r->stream));
	await_flag(r, 0, 1);
	for (int i = 0; e == ncclSuccess && (noticed || i < 400); i++) {
		check(cudaStreamQuery(r->stream) == cudaErrorNotReady);
		nccl_ok(ncclCommGetAsyncError(r->comm, &e));
		pause_briefly();
	}
	check(e == (noticed ? ncclRemoteError : ncclSuccess));
	nccl_ok(ncclCommAbort(r->comm));
	ok(cudaStreamSynchronize(r->stream));
	check(soft_nccl_live() == 0);
}

/* Rank 1 aborts, which rank 0 notices as it would over a network. */
static void lose_by_abort(struct rank *r)
{
	setenv("SOFT_NCCL_LOST", "error", 1);
	nccl_ok(make_comm(r, true));
	if (r->rank == 0) {
		ncclResult_t e = ncclSuccess;

		for (; e == ncclSuccess; pause_briefly())
			nccl_ok(ncclCommGetAsyncError(r->comm, &e));
		check(e == ncclRemoteError);
	}
	nccl_ok(ncclCommAbort(r->comm));
}

static void test_lost_rank(void **state)
{
	(void)state;
	run_ranks(2, lose_by_abort, NULL);
	for (int noticed = 0; noticed < 2; noticed++) {
		struct ranks result = start_ranks(2, lose_rank, noticed ? "noticed" : NULL);

		if (result.status[0] || !WIFSIGNALED(result.status[1]))
			fail_msg("status %d and %d; the ranks printed: %s", result.status[0], result.status[1],
				 result.output);
	}
}

/* ---- Ranks that are threads, and released files ------------------------------------------------------ */

struct thread {
	pthread_t id;
	ncclUniqueId *comm_id;
	int rank;
};

static void *run_thread(void *p)
{
	const struct thread *t = p;
	int x = t->rank + 1, *d;
	cudaStream_t s;
	ncclComm_t c;

	ok(cudaSetDevice(t->rank));
	s = new_stream();
	d = upload(&x, sizeof(x));
	nccl_ok(ncclCommInitRank(&c, 2, *t->comm_id, t->rank));
	nccl_ok(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, c, s));
	ok(cudaMemcpyAsync(&x, d, sizeof(x), cudaMemcpyDeviceToHost, s));
	ok(cudaStreamSynchronize(s));
	check(x == 3);
	nccl_ok(ncclCommDestroy(c));
	ok(cudaFree(d));
	ok(cudaStreamDestroy(s));
	return NULL;
}

static int count_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	check(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void start_threads(struct rank *r)
{
	struct thread threads[2];
	ncclUniqueId id;
	int files = count_files();

	(void)r;
	nccl_ok(ncclGetUniqueId(&id));
	for (int i = 0; i < 2; i++) {
		threads[i] = (struct thread){.comm_id = &id, .rank = i};
		check(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) == 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i].id, NULL);
	check(soft_nccl_live() == 0);
	check(count_files() == files);
}

static void test_threads(void **state)
{
	(void)state;
	run_ranks(1, start_threads, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_requested_faults),
					   cmocka_unit_test(test_lost_rank), cmocka_unit_test(test_threads)};

	use_devices();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
