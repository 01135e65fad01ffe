/* The CUDA device on the software GPU: memory, order of streams, events, recordings and errors. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/device/cuda/cuda_impl.h"
#include "base/mem.h"
#include "tests/base/check.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { N_SEEDS = 10, N = 1000 };

struct rig {
	ct_device *d;
	ct_stream *a, *b;
	ct_event *e, *f;          /* order streams */
	ct_event *t, *u;          /* timed */
	unsigned char *up, *down; /* pinned [N] */
	unsigned char *x, *y;     /* device memory [N] */
};

static void *device_bytes(ct_device *d, size_t n, bool zeroed)
{
	void *p;

	assert_ok(ct_device_mem_alloc(d, n, zeroed, &p));
	return p;
}

static void *pinned_bytes(ct_device *d, size_t n)
{
	void *p;

	assert_ok(ct_device_host_alloc(d, n, &p));
	return p;
}

static void open_rig(struct rig *r)
{
	assert_ok(ct__device_cuda_ops.open(0, &r->d));
	assert_ok(ct_stream_create(r->d, false, &r->a));
	assert_ok(ct_stream_create(r->d, true, &r->b));
	assert_ok(ct_event_create(r->d, false, &r->e));
	assert_ok(ct_event_create(r->d, false, &r->f));
	assert_ok(ct_event_create(r->d, true, &r->t));
	assert_ok(ct_event_create(r->d, true, &r->u));
	r->up = pinned_bytes(r->d, N);
	r->down = pinned_bytes(r->d, N);
	r->x = device_bytes(r->d, N, false);
	r->y = device_bytes(r->d, N, true);
}

static void close_rig(struct rig *r)
{
	ct_device_mem_free(r->d, r->y);
	ct_device_mem_free(r->d, r->x);
	ct_device_host_free(r->d, r->down);
	ct_device_host_free(r->d, r->up);
	ct_event_destroy(r->u);
	ct_event_destroy(r->t);
	ct_event_destroy(r->f);
	ct_event_destroy(r->e);
	ct_stream_destroy(r->b);
	ct_stream_destroy(r->a);
	ct_device_close(r->d);
	assert_int_equal(soft_gpu_live(), 0);
}

static void hand_over(ct_event *e, ct_stream *from, ct_stream *to)
{
	assert_ok(ct_event_record(e, from));
	assert_ok(ct_stream_wait_event(to, e));
}

static void test_properties(void **state)
{
	struct ct_device_info info;
	char why[128] = "x";
	struct rig r;

	(void)state;
	assert_true(ct__device_cuda_ops.count(why, sizeof(why)) >= 1);
	assert_string_equal(why, "");
	open_rig(&r);
	assert_ok(ct_device_info(r.d, &info));
	assert_string_equal(info.kind, "cuda");
	assert_true(info.total_bytes >= info.free_bytes && info.free_bytes > 0);
	assert_true(ct_device_caps(r.d)->async);
	assert_true(ct_device_caps(r.d)->recordable);
	assert_false(ct_device_caps(r.d)->host_visible);
	assert_false(ct_device_caps(r.d)->host_code);
	for (int i = 0; i < N; i++)
		assert_int_equal(r.up[i], 0);
	assert_ok(ct_device_copy(r.d, r.down, r.y, N, r.a));
	assert_ok(ct_device_sync(r.d, CT_FOREVER));
	for (int i = 0; i < N; i++)
		assert_int_equal(r.down[i], 0);
	close_rig(&r);
}

/* a: up -> x; b: x -> y, then fill the first half; a: y -> down. */
static void post_round(struct rig *r)
{
	assert_ok(ct_device_copy(r->d, r->x, r->up, N, r->a));
	hand_over(r->e, r->a, r->b);
	assert_ok(ct_device_copy(r->d, r->y, r->x, N, r->b));
	assert_ok(ct_device_fill(r->d, r->y, 9, N / 2, r->b));
	hand_over(r->f, r->b, r->a);
	assert_ok(ct_device_copy(r->d, r->down, r->y, N, r->a));
}

static void check_round(const struct rig *r, int value)
{
	for (int i = 0; i < N; i++)
		assert_int_equal(r->down[i], i < N / 2 ? 9 : value);
}

static void test_order(void **state)
{
	(void)state;
	for (int seed = 1; seed <= N_SEEDS; seed++) {
		struct rig r;
		int64_t ns = -1;

		soft_gpu_set_seed((uint64_t)seed);
		open_rig(&r);
		memset(r.up, 40 + seed, N);
		assert_ok(ct_event_wait(r.t, CT_FOREVER)); /* never recorded */
		assert_ok(ct_event_record(r.t, r.a));
		post_round(&r);
		assert_ok(ct_event_record(r.u, r.a));
		assert_ok(ct_event_wait(r.u, ct_deadline_in(10 * CT_SEC)));
		check_round(&r, 40 + seed);
		assert_ok(ct_event_elapsed(r.t, r.u, &ns));
		assert_true(ns >= 0);
		close_rig(&r);
	}
}

static void test_recording(void **state)
{
	(void)state;
	for (int seed = 1; seed <= N_SEEDS; seed++) {
		ct_recording *rec;
		int64_t ns;
		struct rig r;

		soft_gpu_set_seed((uint64_t)seed);
		open_rig(&r);
		memset(r.up, 1, N);
		assert_ok(ct_recording_begin(r.a));
		assert_ok(ct_event_record(r.t, r.a));
		post_round(&r);
		assert_ok(ct_event_record(r.u, r.a));
		assert_ok(ct_recording_end(r.a, &rec));
		for (int round = 1; round <= 3; round++) {
			memset(r.up, 50 + round, N);
			assert_ok(ct_recording_post(rec, r.a));
			assert_ok(ct_event_wait(r.u, ct_deadline_in(10 * CT_SEC)));
			check_round(&r, 50 + round);
			assert_ok(ct_event_elapsed(r.t, r.u, &ns));
		}
		assert_ok(ct_recording_post(rec, r.a));
		ct_recording_destroy(rec); /* the last post still runs */
		assert_ok(ct_device_sync(r.d, ct_deadline_in(10 * CT_SEC)));
		check_round(&r, 53);
		close_rig(&r);
	}
}

static cudaError_t run_when_allowed(void *args)
{
	return **(bool **)args ? cudaSuccess : cudaErrorNotReady;
}

static void skip_on_gpu(void)
{
	soft_gpu_set_faults("");
}

/* A recording whose post never ends can be destroyed. */
static void test_recording_that_hangs(void **state)
{
	bool allowed = false, *args = &allowed;
	const struct soft_work work = {
		.name = "test", .run = run_when_allowed, .args = (const void *)&args, .args_bytes = sizeof(args)};
	ct_recording *rec;
	struct rig r;

	(void)state;
	skip_on_gpu();
	open_rig(&r);
	assert_ok(ct_recording_begin(r.a));
	assert_int_equal(soft_gpu_post(r.a->handle, &work), 0);
	assert_ok(ct_recording_end(r.a, &rec));
	assert_ok(ct_recording_post(rec, r.a));
	ct_recording_destroy(rec);
	assert_int_equal(ct_device_sync(r.d, ct_deadline_in(CT_SEC / 1000)), CT_TIMEOUT);
	allowed = true;
	assert_ok(ct_device_sync(r.d, ct_deadline_in(10 * CT_SEC)));
	close_rig(&r);
}

/* What must not happen while the device records, and a stream that is not joined. */
static void test_recording_misuse(void **state)
{
	ct_recording *rec = NULL;
	struct rig r;
	void *p;

	(void)state;
	open_rig(&r);
	assert_ok(ct_recording_begin(r.a));
	assert_int_equal(ct_stream_sync(r.a, CT_FOREVER), CT_BUG);
	assert_int_equal(ct_device_sync(r.d, CT_FOREVER), CT_BUG);
	assert_int_equal(ct_event_wait(r.t, CT_FOREVER), CT_BUG);
	assert_int_equal(ct_device_mem_alloc(r.d, 16, false, &p), CT_BUG);
	assert_int_equal(ct_device_host_alloc(r.d, 16, &p), CT_BUG);
	assert_int_equal(ct_recording_begin(r.b), CT_BUG);
	hand_over(r.e, r.a, r.b);
	assert_ok(ct_device_fill(r.d, r.y, 1, N, r.b));
	assert_true(ct_recording_end(r.a, &rec) < 0);
	assert_null(rec);
	assert_ok(ct_device_fill(r.d, r.y, 2, N, r.a)); /* the stream works as before */
	assert_ok(ct_device_copy(r.d, r.down, r.y, N, r.a));
	assert_ok(ct_stream_sync(r.a, CT_FOREVER));
	assert_int_equal(r.down[5], 2);
	close_rig(&r);
}

static void expect_error(enum ct_status st, enum ct_status want, const char *text)
{
	assert_int_equal(st, want);
	if (!strstr(ct_error_message(), text))
		fail_msg("\"%s\" does not contain \"%s\"", ct_error_message(), text);
}

static void test_errors(void **state)
{
	struct rig r;
	char why[128];
	void *p;

	(void)state;
	soft_gpu_set_faults("cudaGetDeviceCount:1:100");
	assert_int_equal(ct__device_cuda_ops.count(why, sizeof(why)), 0);
	assert_non_null(strstr(why, "finds no GPU"));
	soft_gpu_set_faults("cudaGetDeviceCount:1:35");
	assert_int_equal(ct__device_cuda_ops.count(why, sizeof(why)), 0);
	assert_non_null(strstr(why, "driver supports CUDA up to 13.0"));
	soft_gpu_set_faults(NULL);

	open_rig(&r);
	expect_error(ct_device_mem_alloc(r.d, (size_t)1 << 50, false, &p), CT_NOMEM, "MiB free");
	ct_device_purpose(r.d, "gradients"); /* only until an allocation fails */
	expect_error(ct_device_mem_alloc(r.d, (size_t)1 << 50, false, &p), CT_NOMEM, "of GPU memory for gradients");
	expect_error(ct_device_mem_alloc(r.d, (size_t)1 << 50, false, &p), CT_NOMEM, "of GPU memory for other data");
	soft_gpu_set_faults("cudaMemcpyAsync:1:1");
	expect_error(ct_device_copy(r.d, r.x, r.up, N, r.a), CT_DEVICE, "cudaErrorInvalidValue");
	soft_gpu_set_faults(NULL);
	assert_ok(ct_device_copy(r.d, r.x, r.up, N, r.a));
	assert_ok(ct_stream_sync(r.a, CT_FOREVER));
	close_rig(&r);
	expect_error(ct__device_cuda_ops.open(7, &r.d), CT_DEVICE, "opening CUDA device 7");
}

/* Each call of the runtime fails once: an error with its name, and nothing leaks. */
static void test_each_call_fails(void **state)
{
	static const char *const calls[] = {"cudaSetDevice",
					    "cudaDeviceGetAttribute",
					    "cudaDeviceGetStreamPriorityRange",
					    "cudaStreamCreateWithPriority",
					    "cudaEventCreateWithFlags",
					    "cudaMalloc",
					    "cudaHostAlloc",
					    "cudaMemset"};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(calls); i++) {
		ct_device *d = NULL;
		ct_stream *s = NULL;
		ct_event *e = NULL;
		void *memory = NULL, *host = NULL;
		char fault[64];

		snprintf(fault, sizeof(fault), "%s:1:999", calls[i]);
		soft_gpu_set_faults(fault);
		enum ct_status st = ct__device_cuda_ops.open(0, &d);
		if (st == CT_OK)
			st = ct_stream_create(d, true, &s);
		if (st == CT_OK)
			st = ct_event_create(d, true, &e);
		if (st == CT_OK)
			st = ct_device_mem_alloc(d, 64, true, &memory);
		if (st == CT_OK)
			st = ct_device_host_alloc(d, 64, &host);
		soft_gpu_set_faults(NULL);
		expect_error(st, CT_DEVICE, calls[i]);
		expect_error(st, CT_DEVICE, "cudaErrorUnknown");
		if (d) {
			ct_device_mem_free(d, memory);
			if (e)
				ct_event_destroy(e);
			if (s)
				ct_stream_destroy(s);
			ct_device_close(d);
		}
		assert_int_equal(soft_gpu_live(), 0);
	}
}

static uint64_t free_bytes(ct_device *d)
{
	struct ct_device_info info;

	assert_ok(ct_device_info(d, &info));
	return info.free_bytes;
}

struct from_thread {
	ct_device *d;
	enum ct_status st;
	void *memory, *pinned;
	ct_stream *s;
};

static void *allocate(void *arg)
{
	struct from_thread *t = arg;

	t->st = ct_device_mem_alloc(t->d, 4096, false, &t->memory);
	if (t->st == CT_OK)
		t->st = ct_device_host_alloc(t->d, 4096, &t->pinned);
	if (t->st == CT_OK)
		t->st = ct_stream_create(t->d, false, &t->s);
	return NULL;
}

/* Another thread allocates on the device that it is given, not on device 0. */
static void test_binds_each_thread(void **state)
{
	struct from_thread t = {0};
	struct ct_device_info info;
	pthread_t thread;

	(void)state;
	skip_on_gpu();
	assert_ok(ct__device_cuda_ops.open(1, &t.d));
	assert_ok(ct_device_info(t.d, &info));
	assert_int_equal(info.index, 1);
	assert_string_equal(info.arch, "sm_90");
	assert_string_equal(info.bus, "0000:02:00.0");
	assert_true(strncmp(info.uuid, "GPU-", 4) == 0 && strlen(info.uuid) == 40);
	assert_int_equal(pthread_create(&thread, NULL, allocate, &t), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_ok(t.st);
	assert_int_equal(free_bytes(t.d), info.free_bytes - 4096);
	ct_stream_destroy(t.s);
	ct_device_host_free(t.d, t.pinned);
	ct_device_mem_free(t.d, t.memory);
	ct_device_close(t.d);
	assert_int_equal(soft_gpu_live(), 0);
}

/* The kernels are not compiled for device 2. */
static void test_old_device(void **state)
{
	char why[160] = "";
	ct_device *d;

	(void)state;
	skip_on_gpu();
	expect_error(ct__device_cuda_ops.open(2, &d), CT_NO_DEVICE,
		     "opening CUDA device 2: it has compute capability 7.5");
	assert_non_null(strstr(ct_error_hint_text(), "compute capability 8.0"));
	soft_gpu_set_faults("cudaDeviceGetAttribute:1:999");
	assert_int_equal(ct__device_cuda_ops.count(why, sizeof(why)), 0);
	assert_non_null(strstr(why, "cudaDeviceGetAttribute: cudaErrorUnknown"));
	soft_gpu_set_faults(NULL);
	assert_int_equal(soft_gpu_live(), 0);
}

/* An error of work that a later call returns names the work that may have failed, and not the call alone. */
static void test_permanent_errors(void **state)
{
	static const int errors[] = {700, 214, 220, 226, 911};
	ct_device *d;
	ct_stream *s;
	void *p;

	(void)state;
	skip_on_gpu();
	assert_ok(ct__device_cuda_ops.open(0, &d));
	assert_ok(ct_stream_create(d, false, &s));
	assert_ok(ct_device_mem_alloc(d, 16, false, &p));
	ct_stream_note(s, "layer 1");
	assert_ok(ct_device_fill(d, p, 0, 16, s));
	assert_ok(ct_cuda_launched(s, 0, "fill"));
	for (size_t i = 0; i < CT_ARRAY_LEN(errors); i++)
		expect_error(ct_cuda_launched(s, errors[i], "other"), CT_DEVICE,
			     "work has failed, probably \"layer 1: fill\": cudaError");
	expect_error(ct_cuda_launched(s, 1, "other"), CT_DEVICE,
		     "CUDA: cudaLaunchKernel (other): cudaErrorInvalidValue");
	ct_device_mem_free(d, p);
	ct_stream_destroy(s);
	ct_device_close(d);
	assert_int_equal(soft_gpu_live(), 0);
}

/* Posts n fills of which the last but one fails, and returns the error of the wait. */
static enum ct_status fail_one_of(int device, int n, ct_device **d)
{
	char fault[32], name[16];
	enum ct_status st;
	ct_stream *s, *other;
	ct_event *e;
	void *p;

	assert_ok(ct__device_cuda_ops.open(device, d));
	assert_ok(ct_stream_create(*d, false, &other));
	assert_ok(ct_stream_create(*d, false, &s));
	assert_ok(ct_event_create(*d, true, &e));
	assert_ok(ct_device_mem_alloc(*d, 16, false, &p));
	snprintf(fault, sizeof(fault), "cudaMemsetAsync@%d:700", n);
	soft_gpu_set_faults(fault);
	for (int i = 0; i <= n; i++) {
		snprintf(name, sizeof(name), "layer %d", i);
		ct_stream_note(s, name);
		assert_ok(ct_device_fill(*d, p, 0, 16, s));
		assert_ok(ct_cuda_launched(s, 0, "fill"));
		if (i > 0)
			continue;
		/* The first fill has ended. */
		assert_ok(ct_event_record(e, s));
		assert_ok(ct_event_wait(e, CT_FOREVER));
		ct_stream_note(other, "other");
		assert_ok(ct_recording_begin(other));
		assert_ok(ct_device_fill(*d, p, 0, 16, other)); /* recorded, so it does not run */
		assert_ok(ct_cuda_launched(other, 0, "fill"));
		ct_recording *r;
		assert_ok(ct_recording_end(other, &r));
		ct_recording_destroy(r);
	}
	ct_stream_note(s, NULL);
	st = ct_device_sync(*d, CT_FOREVER);
	soft_gpu_set_faults(NULL);
	ct_device_mem_free(*d, p);
	ct_event_destroy(e);
	ct_stream_destroy(s);
	ct_stream_destroy(other);
	return st;
}

/* The message of an error of posted work names the work that was posted after the last wait. */
static void test_suspects(void **state)
{
	ct_device *d;
	pid_t child;
	int status;

	(void)state;
	skip_on_gpu();
	child = fork(); /* a process does not recover from the failure of a GPU */
	if (child == 0) {
		expect_error(
			fail_one_of(1, 20, &d), CT_DEVICE,
			"work has failed, probably one of 20 kernels from \"layer 1: fill\" to \"layer 20: fill\": cudaE");
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	expect_error(
		fail_one_of(1, 3, &d), CT_DEVICE,
		"cudaStreamQuery reports that work has failed, probably one of \"layer 1: fill\", \"layer 2: fill\", "
		"\"layer 3: fill\": cudaErrorIllegalAddress");
	assert_non_null(strstr(ct_error_hint_text(), "CUDA_LAUNCH_BLOCKING=1 ctrain CONFIG train.cuda_graph=off"));
	ct_device_close(d);
	assert_int_equal(soft_gpu_live(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_properties),       cmocka_unit_test(test_order),
		cmocka_unit_test(test_recording),        cmocka_unit_test(test_recording_that_hangs),
		cmocka_unit_test(test_recording_misuse), cmocka_unit_test(test_errors),
		cmocka_unit_test(test_each_call_fails),  cmocka_unit_test(test_binds_each_thread),
		cmocka_unit_test(test_old_device),       cmocka_unit_test(test_permanent_errors),
		cmocka_unit_test(test_suspects), /* the last one: afterwards, the devices have failed */
	};

	assert_int_equal(setenv("SOFT_GPU_DEVICES", "3", 0), 0);
	assert_int_equal(setenv("SOFT_GPU_OLD", "1", 0), 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
