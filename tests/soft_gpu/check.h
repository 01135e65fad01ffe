/* Checks the results of CUDA calls, and runs mistakes that end the process in child processes. */
#ifndef CT_TESTS_SOFT_GPU_CHECK_H
#define CT_TESTS_SOFT_GPU_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/soft_gpu/soft_gpu.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifndef WITH_ASAN
#define WITH_ASAN 0
#endif

/* Ends a child process with _exit, because cmocka must not continue with the next test there. */
#define expect_error(call, error)                                                                           \
	do {                                                                                                \
		cudaError_t e_ = (call);                                                                    \
		if (e_ != (error)) {                                                                        \
			fprintf(stderr, "%s:%d: %s returned %d (%s)\n", __FILE__, __LINE__, #call, (int)e_, \
				cudaGetErrorName(e_));                                                      \
			if (in_child)                                                                       \
				_exit(3);                                                                   \
			fail();                                                                             \
		}                                                                                           \
	} while (0)
#define ok(call) expect_error(call, cudaSuccess)

static bool in_child;

struct child {
	int status;
	char output[16384]; /* what the child wrote to standard error */
};

static inline struct child run_child(void (*fn)(void *), void *arg)
{
	struct child c = {0};
	size_t n = 0;
	ssize_t got;
	int ends[2];
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		in_child = true;
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		fn(arg);
		_exit(0);
	}
	close(ends[1]);
	while ((got = read(ends[0], c.output + n, sizeof(c.output) - 1 - n)) > 0)
		n += (size_t)got;
	close(ends[0]);
	assert_int_equal(waitpid(pid, &c.status, 0), pid);
	return c;
}

static inline void expect_success(const struct child *c)
{
	if (c->status != 0)
		fail_msg("the child ended with status %d and printed: %s", c->status, c->output);
}

/* Checks that the mistake ended the child process with a message that contains `part`. */
static inline void expect_message(const struct child *c, const char *part)
{
	if (c->status == 0 || (WIFEXITED(c->status) && WEXITSTATUS(c->status) == 3) || !strstr(c->output, part))
		fail_msg("status %d; \"%s\" is not in the output: %s", c->status, part, c->output);
}

/* For programs that are also linked to the real runtime: skips the tests if there is no GPU. */
static inline void skip_without_gpu(void)
{
	int n;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e != cudaSuccess) {
		printf("skipped: %s\n", cudaGetErrorString(e));
		exit(77);
	}
}

/* Allocates device memory and copies src [bytes] to it, unless src is NULL. */
static inline void *upload(const void *src, size_t bytes)
{
	void *p;

	ok(cudaMalloc(&p, bytes));
	if (src)
		ok(cudaMemcpy(p, src, bytes, cudaMemcpyHostToDevice));
	return p;
}

static inline void *pinned(size_t bytes)
{
	void *p;

	ok(cudaMallocHost(&p, bytes));
	return p;
}

static inline cudaStream_t new_stream(void)
{
	cudaStream_t s;

	ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	return s;
}

static inline cudaEvent_t new_event(void)
{
	cudaEvent_t e;

	ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	return e;
}

#endif
