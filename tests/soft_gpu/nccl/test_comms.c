/* Several communicators: splits, and communicators that are used at the same time. Versions, names of errors and the
 * log. */
#include "tests/soft_gpu/nccl/ranks.h"

/* Returns the sum of value over the ranks of the communicator. */
static int sum(struct rank *r, ncclComm_t c, int value)
{
	int *d = upload(&value, sizeof(value));

	nccl_done(c, ncclAllReduce(d, d, 1, ncclInt32, ncclSum, c, r->stream));
	ok(cudaMemcpyAsync(&value, d, sizeof(value), cudaMemcpyDeviceToHost, r->stream));
	ok(cudaStreamSynchronize(r->stream));
	ok(cudaFree(d));
	return value;
}

static void expect_rank(ncclComm_t c, int rank, int count, int device)
{
	int got[3];

	nccl_ok(ncclCommUserRank(c, &got[0]));
	nccl_ok(ncclCommCount(c, &got[1]));
	nccl_ok(ncclCommCuDevice(c, &got[2]));
	check(got[0] == rank && got[1] == count && got[2] == device);
}

/* Ranks 0 and 2 in reverse order, and rank 1 alone; then ranks 1 and 2 without rank 0. Repeated, because ranks may
 * proceed at different speeds. */
static void split(struct rank *r)
{
	ncclComm_t c;

	nccl_ok(make_comm(r, r->arg != NULL));
	for (int i = 0; i < 10; i++) {
		nccl_done(r->comm, ncclCommSplit(r->comm, r->rank == 1, -r->rank, &c, NULL));
		expect_rank(c, r->rank == 0, r->rank == 1 ? 1 : 2, r->rank);
		check(sum(r, c, 1 << r->rank) == (r->rank == 1 ? 2 : 5));
		nccl_ok(ncclCommDestroy(c));
		nccl_done(r->comm, ncclCommSplit(r->comm, r->rank ? 7 : NCCL_SPLIT_NOCOLOR, 0, &c, NULL));
		check((c == NULL) == (r->rank == 0));
		if (c) {
			expect_rank(c, r->rank - 1, 2, r->rank);
			check(sum(r, c, 1 << r->rank) == 6);
			nccl_ok(ncclCommDestroy(c));
		}
		check(sum(r, r->comm, 1 << r->rank) == 7);
	}
	nccl_ok(ncclCommDestroy(r->comm));
	check(soft_nccl_live() == 0);
}

/* Rank 1 does not take part, and rank 0 aborts. */
static void split_alone(struct rank *r)
{
	ncclComm_t c = NULL;
	ncclResult_t e;

	nccl_ok(make_comm(r, false));
	if (r->rank == 0) {
		nccl_ok(ncclCommSplit(r->comm, 0, 0, &c, NULL));
		for (int i = 0; i < 10; i++) {
			nccl_ok(ncclCommGetAsyncError(r->comm, &e));
			check(e == ncclInProgress && c == NULL);
		}
	}
	nccl_ok(ncclCommAbort(r->comm));
	check(soft_nccl_live() == 0);
}

static void test_split(void **state)
{
	(void)state;
	run_ranks(3, split, NULL);
	run_ranks(3, split, "blocking");
	run_ranks(2, split_alone, NULL);
}

/* The ranks call the operations of two communicators in different orders, in two streams. */
static void use_two(struct rank *r)
{
	int one = 1, *x[2];
	ncclComm_t c[2];
	cudaStream_t s[2] = {new_stream(), new_stream()};

	for (int i = 0; i < 2; i++) {
		nccl_ok(make_comm(r, true));
		c[i] = r->comm;
		x[i] = upload(&one, sizeof(one));
	}
	for (int i = 0; i < 2; i++) {
		int k = i ^ r->rank;

		nccl_ok(ncclAllReduce(x[k], x[k], 1, ncclInt32, ncclSum, c[k], s[k]));
	}
	ok(cudaDeviceSynchronize());
	for (int i = 0; i < 2; i++) {
		ok(cudaMemcpy(&one, x[i], sizeof(one), cudaMemcpyDeviceToHost));
		check(one == 2);
		nccl_ok(ncclCommDestroy(c[i]));
	}
}

static void test_two_comms(void **state)
{
	(void)state;
	run_ranks(2, use_two, NULL);
}

static void use_two_ids(struct rank *r)
{
	ncclComm_t c;

	if (r->rank == 0) {
		nccl_ok(ncclGetUniqueId(&r->board->ids[0]));
		nccl_ok(ncclGetUniqueId(&r->board->ids[1]));
		r->board->flags[0] = 1;
	}
	await_flag(r, 0, 1);
	nccl_expect(ncclCommInitRankScalable(&c, 2, r->rank, 3, r->board->ids, NULL), ncclInvalidArgument);
	nccl_ok(ncclCommInitRankScalable(&c, 2, r->rank, 2, r->board->ids, NULL));
	check(sum(r, c, 1) == 2);
	nccl_ok(ncclCommDestroy(c));
}

static void test_scalable(void **state)
{
	(void)state;
	run_ranks(2, use_two_ids, NULL);
}

static void write_log(struct rank *r)
{
	char directory[] = "/tmp/soft_nccl_XXXXXX", path[128], text[4096];
	ncclComm_t c;
	ncclUniqueId id;
	int version;
	FILE *f;

	(void)r;
	check(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/%%p.log", directory);
	setenv("NCCL_DEBUG", "INFO", 1);
	setenv("NCCL_DEBUG_FILE", path, 1);
	nccl_ok(ncclGetVersion(&version));
	check(version == NCCL_VERSION_CODE);
	check(strcmp(ncclGetErrorString(ncclInvalidUsage), "invalid usage (run with NCCL_DEBUG=WARN for details)") ==
	      0);
	nccl_ok(ncclGetUniqueId(&id));
	nccl_ok(ncclCommInitRank(&c, 1, id, 0));
	nccl_expect(ncclCommInitRank(&c, 1, id, 1), ncclInvalidArgument);
	check(strcmp(ncclGetLastError(NULL), "Invalid rank requested : 1/1") == 0);
	snprintf(path, sizeof(path), "%s/%d.log", directory, (int)getpid());
	f = fopen(path, "re");
	check(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	fclose(f);
	check(strstr(text, "NCCL INFO NCCL version 2."));
	check(strstr(text, "rank 0 nranks 1 cudaDev 0 busId 1000 - Init COMPLETE"));
	check(strstr(text, "NCCL WARN Invalid rank requested : 1/1"));
	unlink(path);
	rmdir(directory);
}

static void test_log(void **state)
{
	(void)state;
	run_ranks(1, write_log, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_split), cmocka_unit_test(test_two_comms),
					   cmocka_unit_test(test_scalable), cmocka_unit_test(test_log)};

	use_devices();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
