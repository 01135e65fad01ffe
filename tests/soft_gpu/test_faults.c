/* Injected errors, the sticky error of a device, the log, and the selection of devices. Each case runs in a child
 * process, because the environment is read only once per process. */
#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/kernels.h"
#include "tests/soft_gpu/library.h"

enum { N = 16, BYTES = N * sizeof(int) };

/* A small program that gives back all it has, whatever fails. Returns the first error. */
static cudaError_t small_program(void)
{
	struct saxpy_args a = {.a = 1, .n = N};
	void *host = NULL;
	cudaStream_t s = NULL;
	cudaError_t e, first = cudaSuccess;

#define STEP(call)                                               \
	do {                                                     \
		e = first == cudaSuccess ? (call) : cudaSuccess; \
		first = first ? first : e;                       \
	} while (0)
	STEP(cudaSetDevice(0));
	STEP(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	STEP(cudaMalloc(&a.y, BYTES));
	STEP(cudaMallocHost(&host, BYTES));
	if (first == cudaSuccess)
		memset(host, 0, BYTES);
	a.x = a.y;
	STEP(cudaMemcpyAsync(a.y, host, BYTES, cudaMemcpyHostToDevice, s));
	STEP(kernel_saxpy(&a, TYPE_F32, s));
	STEP(cudaMemsetAsync(a.y, 1, BYTES, s));
	STEP(cudaMemcpyAsync(host, a.y, BYTES, cudaMemcpyDeviceToHost, s));
	STEP(cudaStreamSynchronize(s));
#undef STEP
	/* The device's error is returned again here. */
	if (a.y)
		(void)cudaFree(a.y);
	if (host)
		(void)cudaFreeHost(host);
	if (s)
		(void)cudaStreamDestroy(s);
	return first;
}

/* Every call of the program fails once, and it releases all it has. */
static void test_each_call_fails(void **state)
{
	static const struct {
		const char *function;
		int calls;
	} all[] = {{"cudaSetDevice", 1},   {"cudaStreamCreateWithFlags", 1}, {"cudaMalloc", 1},
		   {"cudaMallocHost", 1},  {"cudaMemcpyAsync", 2},           {"cudaLaunchKernel", 1},
		   {"cudaMemsetAsync", 1}, {"cudaStreamSynchronize", 1}};

	(void)state;
	soft_gpu_set_faults(NULL);
	ok(small_program());
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		assert_int_equal(soft_gpu_calls(all[i].function), all[i].calls);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		for (int n = 0; n <= all[i].calls; n++) { /* 0: each call */
			char fault[64];

			snprintf(fault, sizeof(fault), "%s:%d:2", all[i].function, n);
			soft_gpu_set_faults(fault);
			expect_error(small_program(), cudaErrorMemoryAllocation);
			assert_int_equal(soft_gpu_live(), 0);
			expect_error(cudaGetLastError(), cudaErrorMemoryAllocation);
		}
	}
	soft_gpu_set_faults("cudaMalloc:9:2,cudaNoSuchFunction:1:1");
	ok(small_program());
	soft_gpu_set_faults(NULL);
}

/* Work that fails when it runs: the device does not recover. */
static void fail_kernel(void *arg)
{
	struct saxpy_args a = {.a = 1, .n = N};
	cudaStream_t s = new_stream(), other = new_stream();
	cudaEvent_t e = new_event();
	void *p;

	soft_gpu_set_faults("cudaLaunchKernel@2:719");
	a.x = a.y = upload(NULL, BYTES);
	ok(kernel_saxpy(&a, TYPE_F32, s));
	ok(kernel_saxpy(&a, TYPE_F32, s));
	ok(cudaEventRecord(e, s));
	ok(cudaStreamWaitEvent(other, e, 0));
	ok(kernel_saxpy(&a, TYPE_F32, other));
	if (arg)
		expect_error(cudaEventSynchronize(e), cudaErrorLaunchFailure);
	expect_error(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
	/* From now on. */
	expect_error(cudaStreamSynchronize(other), cudaErrorLaunchFailure);
	expect_error(cudaEventQuery(e), cudaErrorLaunchFailure);
	expect_error(kernel_saxpy(&a, TYPE_F32, s), cudaErrorLaunchFailure);
	expect_error(cudaMalloc(&p, 4), cudaErrorLaunchFailure);
	expect_error(cudaMemset(a.y, 0, 4), cudaErrorLaunchFailure);
	expect_error(cudaGetLastError(), cudaErrorLaunchFailure);
	expect_error(cudaGetLastError(), cudaErrorLaunchFailure);
	expect_error(soft_gpu_post(s, &(struct soft_work){.name = "x", .run = run_mix}), cudaErrorLaunchFailure);
	expect_error(cudaEventDestroy(e), cudaErrorLaunchFailure);
	expect_error(cudaStreamDestroy(s), cudaErrorLaunchFailure);
	expect_error(cudaStreamDestroy(other), cudaErrorLaunchFailure);
}

static void fail_in_graph(void *arg)
{
	cudaStream_t s = new_stream();
	int *p = upload(NULL, 3 * BYTES);
	struct mix_args m = {.c = p, .a = p + N, .b = p + 2 * N, .n = N};
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	(void)arg;
	soft_gpu_set_faults("library_mix@1:700,library_mix:2:1");
	ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	ok(library_mix(&m, s));
	expect_error(library_mix(&m, s), cudaErrorInvalidValue);
	ok(cudaStreamEndCapture(s, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	ok(cudaGraphLaunch(exec, s));
	ok(cudaGraphLaunch(exec, s));
	expect_error(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
	ok(cudaGraphExecDestroy(exec));
	ok(cudaGraphDestroy(graph));
	expect_error(cudaGetLastError(), cudaErrorIllegalAddress);
}

/* The third launch of a graph fails. */
static void fail_launch(void *arg)
{
	cudaStream_t s = new_stream();
	void *p = upload(NULL, BYTES);
	cudaGraphExec_t exec;
	cudaGraph_t graph;

	(void)arg;
	soft_gpu_set_faults("cudaGraphLaunch@3:719");
	ok(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	ok(cudaMemsetAsync(p, 0, BYTES, s));
	ok(cudaStreamEndCapture(s, &graph));
	ok(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 1; i <= 3; i++) {
		ok(cudaGraphLaunch(exec, s));
		expect_error(cudaStreamSynchronize(s), i < 3 ? cudaSuccess : cudaErrorLaunchFailure);
	}
}

static void test_device_error(void **state)
{
	struct child c = run_child(fail_kernel, NULL);

	(void)state;
	expect_success(&c);
	c = run_child(fail_kernel, &c);
	expect_success(&c);
	c = run_child(fail_in_graph, NULL);
	expect_success(&c);
	c = run_child(fail_launch, NULL);
	expect_success(&c);
}

/* A host function must not call CUDA. */
static void call_cuda(void *arg)
{
	*(cudaError_t *)arg = cudaStreamSynchronize(NULL);
}

static cudaError_t work_that_calls(void *args)
{
	(void)args;
	return cudaDeviceSynchronize();
}

static cudaError_t work_that_posts(void *args)
{
	(void)args;
	return soft_gpu_post(NULL, &(struct soft_work){.name = "more", .run = work_that_calls});
}

static void post_work_that_calls(void *arg)
{
	ok(soft_gpu_post(NULL, &(struct soft_work){.name = "bad", .run = arg ? work_that_posts : work_that_calls}));
	(void)cudaDeviceSynchronize();
}

static void test_calls_from_work(void **state)
{
	cudaError_t e = cudaSuccess;
	struct child c;

	(void)state;
	ok(cudaLaunchHostFunc(NULL, call_cuda, &e));
	ok(cudaDeviceSynchronize());
	assert_int_equal(e, cudaErrorNotPermitted);
	(void)cudaGetLastError();
	c = run_child(post_work_that_calls, NULL);
	expect_message(&c, "posted work calls cudaDeviceSynchronize");
	c = run_child(post_work_that_calls, &c);
	expect_message(&c, "posted work posts more");
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
	assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
	assert_string_equal(cudaGetErrorName((cudaError_t)12345), "unrecognized error code");
}

/* ---- A fresh process with this environment
 * ------------------------------------------------------------------------------------- */

static const char *self;

struct environment {
	const char *name, *value;
};

static void start_again(void *arg)
{
	const struct environment *e = arg;
	const char *what = e->name;

	for (e++; e->name; e++)
		setenv(e->name, e->value, 1);
	execl(self, self, what, (char *)NULL);
	_exit(3);
}

static struct child start(const struct environment *e)
{
	return run_child(start_again, (void *)(uintptr_t)e);
}

/* Prints count, error, versions and the names of the devices. */
static int print_devices(void)
{
	int n = -1, driver = -1, runtime = -1, greatest = 1, least = 1;
	cudaError_t e = cudaGetDeviceCount(&n);

	ok(cudaDriverGetVersion(&driver));
	ok(cudaRuntimeGetVersion(&runtime));
	if (runtime != CUDART_VERSION)
		return 1;
	fprintf(stderr, "%d devices, error %d, driver %d;", n, (int)e, driver);
	for (int i = 0; i < n; i++) {
		struct cudaDeviceProp p;
		char bus[16];
		int warp;

		ok(cudaSetDevice(i));
		ok(cudaGetDeviceProperties(&p, i));
		ok(cudaDeviceGetPCIBusId(bus, sizeof(bus), i));
		ok(cudaDeviceGetAttribute(&warp, cudaDevAttrWarpSize, i));
		if (strcmp(p.name, "Software GPU") != 0 || p.major != 9 || warp != 32)
			return 1;
		fprintf(stderr, " %s %zu", bus, p.totalGlobalMem);
	}
	if (n > 0) {
		ok(cudaDeviceGetStreamPriorityRange(&least, &greatest));
		if (least != 0 || greatest != -5)
			return 1;
	}
	fprintf(stderr, " next %d\n", (int)cudaSetDevice(n));
	return 0;
}

/* Memory and streams of two devices. */
static int use_two_devices(void)
{
	float host[N] = {0}, *on[2];
	struct saxpy_args a = {.a = 1, .n = N};
	cudaStream_t s[2];

	for (int i = 0; i < 2; i++) {
		ok(cudaSetDevice(i));
		on[i] = upload(host, sizeof(host));
		s[i] = new_stream();
	}
	a.x = a.y = on[1];
	expect_error(kernel_saxpy(&a, TYPE_F32, s[0]), cudaErrorInvalidResourceHandle); /* the current device is 1 */
	ok(kernel_saxpy(&a, TYPE_F32, s[1]));
	ok(cudaDeviceSynchronize());
	ok(cudaSetDevice(0));
	ok(kernel_saxpy(&a, TYPE_F32, s[0])); /* planted bug: memory of the other device */
	ok(cudaDeviceSynchronize());
	return 0;
}

static void expect_devices(const struct environment *e, const char *line)
{
	struct child c = start(e);

	expect_success(&c);
	if (!strstr(c.output, line))
		fail_msg("\"%s\" is not in: %s", line, c.output);
}

static void test_devices(void **state)
{
	struct child c;

	(void)state;
	expect_devices((struct environment[]){{"devices", ""}, {NULL, NULL}},
		       "1 devices, error 0, driver 13000; 0000:01:00.0 4294967296 next 101\n");
	expect_devices((struct environment[]){{"devices", ""},
					      {"SOFT_GPU_DEVICES", "4"},
					      {"CUDA_VISIBLE_DEVICES", "2,0"},
					      {"SOFT_GPU_MEMORY", "1048576"},
					      {NULL, NULL}},
		       "2 devices, error 0, driver 13000; 0000:03:00.0 1048576 0000:01:00.0 1048576 next 101\n");
	expect_devices((struct environment[]){{"devices", ""}, {"CUDA_VISIBLE_DEVICES", "7,0"}, {NULL, NULL}},
		       "0 devices, error 100, driver 13000; next 100\n");
	expect_devices((struct environment[]){{"devices", ""}, {"CUDA_VISIBLE_DEVICES", ""}, {NULL, NULL}},
		       "0 devices, error 100, driver 13000; next 100\n");
	expect_devices((struct environment[]){{"devices", ""}, {"SOFT_GPU_DRIVER", "0"}, {NULL, NULL}},
		       "0 devices, error 35, driver 0; next 35\n");
	expect_devices((struct environment[]){{"devices", ""}, {"SOFT_GPU_DRIVER", "12080"}, {NULL, NULL}},
		       "0 devices, error 35, driver 12080; next 35\n");
	c = start((struct environment[]){{"two", ""}, {"SOFT_GPU_DEVICES", "2"}, {NULL, NULL}});
	assert_true(c.status != 0 && !(WIFEXITED(c.status) && WEXITSTATUS(c.status) == 3));
}

/* The environment sets seed, faults and log. */
static int run_small(void)
{
	return (int)small_program();
}

static void test_environment(void **state)
{
	char log[] = "/tmp/soft-gpu-log-XXXXXX", text[4096];
	int fd = mkstemp(log);
	struct child c;
	ssize_t n;

	(void)state;
	assert_true(fd >= 0);
	c = start((struct environment[]){
		{"small", ""}, {"SOFT_GPU_FAULT", "cudaMemcpyAsync@1:214"}, {"SOFT_GPU_LOG", log}, {NULL, NULL}});
	assert_true(WIFEXITED(c.status));
	assert_int_equal(WEXITSTATUS(c.status), cudaErrorECCUncorrectable);
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n > 0);
	text[n] = 0;
	if (!strstr(text, "call cudaMalloc -> 0\n") ||
	    !strstr(text, "run stream 0 copy from host to device -> 214\n") ||
	    !strstr(text, "call cudaStreamSynchronize -> 214\n") ||
	    !strstr(text, "live memory 0 pinned 0 streams 0 events 0 graphs 0 execs 0\n"))
		fail_msg("%s", text);
	close(fd);
	unlink(log);
	c = start((struct environment[]){{"small", ""}, {"SOFT_GPU_FAULT", "cudaMalloc:x"}, {NULL, NULL}});
	expect_message(&c, "SOFT_GPU_FAULT: cannot read \"cudaMalloc:x\"");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_call_fails), cmocka_unit_test(test_device_error),
		cmocka_unit_test(test_calls_from_work), cmocka_unit_test(test_names),
		cmocka_unit_test(test_devices),         cmocka_unit_test(test_environment),
	};

	in_child = argc > 1;
	if (argc > 1)
		return strcmp(argv[1], "devices") == 0 ? print_devices()
		       : strcmp(argv[1], "two") == 0   ? use_two_devices()
						       : run_small();
	self = argv[0];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
