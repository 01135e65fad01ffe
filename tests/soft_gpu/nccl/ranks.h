/* Runs a test function in one process for each rank. */
#ifndef CT_TESTS_SOFT_GPU_NCCL_RANKS_H
#define CT_TESTS_SOFT_GPU_NCCL_RANKS_H

#include "tests/soft_gpu/check.h"

#include <errno.h>
#include <nccl.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "tests/pause.h"
#include "tests/soft_gpu/nccl/soft_nccl.h"

enum { MAX_RANKS = 4 };

/* Memory that the processes share. */
struct board {
	ncclUniqueId ids[8];
	atomic_int n_ids, flags[8]; /* the tests use the flags */
};

struct rank {
	int rank, n_ranks;
	struct board *board;
	void *arg;
	int n_comms; /* that the rank has created */
	ncclComm_t comm;
	cudaStream_t stream;
};

#define nccl_expect(call, error)                                                                            \
	do {                                                                                                \
		ncclResult_t e_ = (call);                                                                   \
		if (e_ != (error)) {                                                                        \
			fprintf(stderr, "%s:%d: %s returned %d (%s)\n", __FILE__, __LINE__, #call, (int)e_, \
				ncclGetLastError(NULL));                                                    \
			_exit(3);                                                                           \
		}                                                                                           \
	} while (0)
#define nccl_ok(call) nccl_expect(call, ncclSuccess)
#define check(condition)                                                                          \
	do {                                                                                      \
		if (!(condition)) {                                                               \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			_exit(3);                                                                 \
		}                                                                                 \
	} while (0)

static inline void await_flag(const struct rank *r, int flag, int value)
{
	while (r->board->flags[flag] < value)
		pause_briefly();
}

/* Waits until ncclCommGetAsyncError reports something else than ncclInProgress, and returns it. */
static inline ncclResult_t settle(ncclComm_t c)
{
	ncclResult_t e;

	do
		nccl_ok(ncclCommGetAsyncError(c, &e));
	while (e == ncclInProgress && (pause_briefly(), true));
	return e;
}

/* For calls of communicators that do not block. */
#define nccl_done(comm, call)                                  \
	do {                                                   \
		ncclResult_t r_ = (call);                      \
		if (r_ != ncclSuccess && r_ != ncclInProgress) \
			nccl_expect(r_, ncclSuccess);          \
		nccl_expect(settle(comm), ncclSuccess);        \
	} while (0)

/* Distributes a unique id and creates the rank's communicator, which does not block if `blocking` is false. */
static inline ncclResult_t make_comm(struct rank *r, bool blocking)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t e;

	config.blocking = blocking;
	if (r->rank == 0) {
		nccl_ok(ncclGetUniqueId(&r->board->ids[r->n_comms]));
		r->board->n_ids++;
	}
	while (r->board->n_ids <= r->n_comms)
		pause_briefly();
	e = ncclCommInitRankConfig(&r->comm, r->n_ranks, r->board->ids[r->n_comms++], r->rank, &config);
	return e == ncclInProgress && !blocking ? settle(r->comm) : e;
}

/* A process for each rank. Returns what they wrote to standard error in output, and their statuses. A rank ends after a
 * minute. */
struct ranks {
	int status[MAX_RANKS];
	char output[16384];
};

static inline struct ranks start_ranks(int n, void (*fn)(struct rank *), void *arg)
{
	struct ranks result = {0};
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[MAX_RANKS];
	size_t length = 0;
	ssize_t got;
	int ends[2];

	assert_true(board != MAP_FAILED);
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (pids[i] == 0) {
			struct rank r = {.rank = i, .n_ranks = n, .board = board, .arg = arg};

			in_child = true;
			setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
			signal(SIGABRT, SIG_DFL);
			signal(SIGSEGV, SIG_DFL);
			dup2(ends[1], STDERR_FILENO);
			alarm(60);
			ok(cudaSetDevice(i));
			r.stream = new_stream();
			fn(&r);
			_exit(0);
		}
	}
	close(ends[1]);
	while ((got = read(ends[0], result.output + length, sizeof(result.output) - 1 - length)) > 0)
		length += (size_t)got;
	close(ends[0]);
	for (int i = 0; i < n; i++)
		assert_int_equal(waitpid(pids[i], &result.status[i], 0), pids[i]);
	munmap(board, sizeof(*board));
	return result;
}

/* All ranks must succeed. */
static inline void run_ranks(int n, void (*fn)(struct rank *), void *arg)
{
	struct ranks result = start_ranks(n, fn, arg);

	for (int i = 0; i < n; i++) {
		if (result.status[i] != 0)
			fail_msg("rank %d ended with status %d, and the ranks printed: %s", i, result.status[i],
				 result.output);
	}
}

/* Rank 0 must make a mistake that ends its process with a message that contains `part`. */
static inline void expect_mistake(int n, void (*fn)(struct rank *), void *arg, const char *part)
{
	struct ranks result = start_ranks(n, fn, arg);

	if (!WIFSIGNALED(result.status[0]) || WTERMSIG(result.status[0]) != SIGABRT || !strstr(result.output, part))
		fail_msg("status %d; \"%s\" is not in the output: %s", result.status[0], part, result.output);
}

/* A device for each rank. The software GPU reads this at its first call. */
static inline void use_devices(void)
{
	setenv("SOFT_GPU_DEVICES", "4", 1);
	unsetenv("NCCL_HOSTID");
}

#endif
