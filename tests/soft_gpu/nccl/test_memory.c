/* Memory of ncclMemAlloc, and registered buffers and windows. */
#include "tests/soft_gpu/nccl/ranks.h"

enum { BYTES = 12345 };

static void allocate(struct rank *r)
{
	char *p, *q;
	void *handle;

	nccl_ok(make_comm(r, false));
	nccl_ok(ncclMemAlloc((void **)&p, BYTES));
	nccl_ok(ncclMemAlloc((void **)&q, BYTES));
	check((uintptr_t)p % NCCL_WIN_REQUIRED_ALIGNMENT == 0 && (uintptr_t)q % NCCL_WIN_REQUIRED_ALIGNMENT == 0);
	check(soft_gpu_is_device(p, BYTES) && !soft_gpu_is_device(p, BYTES + 1));
	nccl_ok(ncclCommRegister(r->comm, p, BYTES, &handle));
	check(handle);
	nccl_ok(ncclCommDeregister(r->comm, handle));
	nccl_ok(ncclMemFree(p));
	nccl_ok(ncclMemFree(q));
	nccl_ok(ncclMemFree(NULL));
	nccl_ok(ncclCommDestroy(r->comm));
	check(soft_gpu_live() == 1);
}

static void test_allocate(void **state)
{
	(void)state;
	run_ranks(1, allocate, NULL);
}

/* A window exists when all ranks have registered it. */
static void register_window(struct rank *r)
{
	bool blocking = r->arg != NULL;
	ncclWindow_t w;
	ncclResult_t e;
	void *p;

	nccl_ok(make_comm(r, blocking));
	nccl_ok(ncclMemAlloc(&p, BYTES));
	if (r->rank == 1)
		await_flag(r, 0, 1);
	if (blocking)
		r->board->flags[0] = 1;
	nccl_ok(ncclCommWindowRegister(r->comm, p, BYTES, &w, NCCL_WIN_COLL_SYMMETRIC));
	if (r->rank == 0 && !blocking) {
		nccl_ok(ncclCommGetAsyncError(r->comm, &e));
		check(e == ncclInProgress && w == NULL);
		r->board->flags[0] = 1;
	}
	nccl_expect(settle(r->comm), ncclSuccess);
	check(w);
	nccl_ok(ncclCommWindowDeregister(r->comm, w));
	nccl_ok(ncclCommDestroy(r->comm));
	nccl_ok(ncclMemFree(p));
	check(soft_nccl_live() == 0);
}

static void test_window(void **state)
{
	(void)state;
	run_ranks(2, register_window, NULL);
	run_ranks(3, register_window, "blocking");
}

/* Returns how many of 20 sums are wrong. Each time, 1 is copied to the memory that is then summed. */
static int count_wrong(struct rank *r, float *x, bool captured)
{
	const float one = 1;
	float *source = upload(&one, sizeof(one)), *sum = pinned(sizeof(*sum));
	cudaGraphExec_t exec = NULL;
	cudaGraph_t graph;
	int n = 0;

	for (int i = 0; i < 20; i++) {
		if (captured && !exec)
			ok(cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal));
		if (!exec) {
			ok(cudaMemcpyAsync(x, source, sizeof(one), cudaMemcpyDeviceToDevice, r->stream));
			nccl_done(r->comm, ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, r->comm, r->stream));
			ok(cudaMemcpyAsync(sum, x, sizeof(*sum), cudaMemcpyDeviceToHost, r->stream));
		}
		if (captured && !exec) {
			ok(cudaStreamEndCapture(r->stream, &graph));
			ok(cudaGraphInstantiate(&exec, graph, 0));
		}
		if (exec)
			ok(cudaGraphLaunch(exec, r->stream));
		ok(cudaStreamSynchronize(r->stream));
		n += *sum != 2;
	}
	if (exec)
		ok(cudaGraphExecDestroy(exec));
	return n;
}

/* Operations may begin early only in a graph and in a window. */
static void begin_early(struct rank *r)
{
	float *plain = upload(NULL, sizeof(*plain)), zero = 0;
	ncclWindow_t w;
	void *p;

	soft_nccl_set_faults("early@0,early@1");
	nccl_ok(make_comm(r, false));
	nccl_ok(ncclMemAlloc(&p, BYTES));
	ok(cudaMemcpy(p, &zero, sizeof(zero), cudaMemcpyHostToDevice));
	nccl_done(r->comm, ncclCommWindowRegister(r->comm, p, BYTES, &w, NCCL_WIN_COLL_SYMMETRIC));
	check(count_wrong(r, plain, true) == 0);
	check(count_wrong(r, p, false) == 0);
	check(count_wrong(r, p, true) > 0);
	soft_nccl_set_faults(NULL);
	check(count_wrong(r, p, true) == 0);
}

static void test_begin_early(void **state)
{
	(void)state;
	run_ranks(2, begin_early, NULL);
}

static void register_badly(struct rank *r)
{
	ncclWindow_t w;
	void *p, *q = upload(NULL, BYTES);

	nccl_ok(make_comm(r, true));
	nccl_ok(ncclMemAlloc(&p, BYTES));
	nccl_expect(ncclCommWindowRegister(r->comm, q, BYTES, &w, 0), ncclUnhandledCudaError);
	nccl_expect(ncclCommWindowRegister(r->comm, (char *)p + 256, BYTES / 2, &w, 0), ncclInvalidArgument);
	/* The ranks disagree about the size. */
	nccl_expect(ncclCommWindowRegister(r->comm, p, BYTES - (size_t)r->rank, &w, 0), ncclInvalidUsage);
	nccl_ok(ncclCommAbort(r->comm));
}

static void test_misuse(void **state)
{
	struct ranks result;

	(void)state;
	result = start_ranks(2, register_badly, NULL);
	if (result.status[0] || result.status[1] || !strstr(result.output, "registers a window of 12344 bytes"))
		fail_msg("status %d and %d; the ranks printed: %s", result.status[0], result.status[1], result.output);
}

static void release_registered(struct rank *r)
{
	void *p, *handle;

	nccl_ok(make_comm(r, true));
	nccl_ok(ncclMemAlloc(&p, BYTES));
	nccl_ok(ncclCommRegister(r->comm, p, BYTES, &handle));
	nccl_ok(ncclMemFree(p));
	ncclCommDeregister(r->comm, handle);
}

static void free_foreign(struct rank *r)
{
	(void)r;
	ncclMemFree(upload(NULL, BYTES));
}

static void test_mistakes(void **state)
{
	(void)state;
	expect_mistake(1, release_registered, NULL, "the registered memory was released");
	expect_mistake(1, free_foreign, NULL, "is not memory of ncclMemAlloc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocate), cmocka_unit_test(test_window),
					   cmocka_unit_test(test_begin_early), cmocka_unit_test(test_misuse),
					   cmocka_unit_test(test_mistakes)};

	use_devices();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
