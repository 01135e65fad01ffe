/* Memory and copies of the software GPU. */
#include "tests/soft_gpu/check.h"
#include "tests/soft_gpu/library.h"

enum { MEMORY = 64 << 20 };

static void test_alloc(void **state)
{
	unsigned char host[1000];
	size_t before, after, total;
	void *p, *q;

	(void)state;
	ok(cudaMemGetInfo(&before, &total));
	assert_int_equal(total, MEMORY);
	ok(cudaMalloc(&p, 1000));
	ok(cudaMalloc(&q, 1000));
	assert_int_equal((uintptr_t)p % 256, 0);
	assert_int_equal((uintptr_t)q % 256, 0);
	assert_true((char *)q >= (char *)p + 1000 + 256);
	ok(cudaMemGetInfo(&after, &total));
	assert_int_equal(before - after, 2000);
	/* Fresh memory is NaN. */
	ok(cudaMemcpy(host, p, sizeof(host), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < sizeof(host); i++)
		assert_int_equal(host[i], 0xFF);
	ok(cudaMemset(p, 1, 1000));
	ok(cudaFree(p));
	expect_error(cudaFree(p), cudaErrorInvalidValue);
	expect_error(cudaFree((char *)q + 1), cudaErrorInvalidValue);
	ok(cudaFree(q));
	ok(cudaFree(NULL));
	expect_error(cudaMalloc(&p, MEMORY + 1), cudaErrorMemoryAllocation);
	expect_error(cudaMalloc(&p, SIZE_MAX), cudaErrorMemoryAllocation);
	assert_null(p);
	expect_error(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
	expect_error(cudaGetLastError(), cudaErrorMemoryAllocation);
	ok(cudaGetLastError());
	assert_int_equal(soft_gpu_live(), 0);
}

/* Memory is used up and used again. */
static void test_reuse(void **state)
{
	enum { BYTES = 12 << 20 };
	void *p[5], *more;

	(void)state;
	for (int i = 0; i < 5; i++)
		ok(cudaMalloc(&p[i], BYTES));
	expect_error(cudaMalloc(&more, BYTES), cudaErrorMemoryAllocation);
	ok(cudaFree(p[2]));
	ok(cudaMalloc(&more, BYTES - 4096));
	assert_ptr_equal(more, p[2]);
	ok(cudaFree(more));
	for (int i = 0; i < 5; i++) {
		if (i != 2)
			ok(cudaFree(p[i]));
	}
	(void)cudaGetLastError();
}

static void test_pointers(void **state)
{
	struct cudaPointerAttributes a;
	void *device = upload(NULL, 100), *host = pinned(100);
	int local = 0;

	(void)state;
	ok(cudaPointerGetAttributes(&a, (char *)device + 99));
	assert_int_equal(a.type, cudaMemoryTypeDevice);
	ok(cudaPointerGetAttributes(&a, host));
	assert_int_equal(a.type, cudaMemoryTypeHost);
	ok(cudaPointerGetAttributes(&a, &local));
	assert_int_equal(a.type, cudaMemoryTypeUnregistered);
	assert_true(soft_gpu_is_device(device, 100));
	assert_false(soft_gpu_is_device(device, 101));
	assert_false(soft_gpu_is_device(host, 1));
	ok(cudaHostRegister(&local, sizeof(local), 0));
	ok(cudaPointerGetAttributes(&a, &local));
	assert_int_equal(a.type, cudaMemoryTypeHost);
	expect_error(cudaHostRegister(&local, sizeof(local), 0), cudaErrorHostMemoryAlreadyRegistered);
	ok(cudaHostUnregister(&local));
	expect_error(cudaHostUnregister(&local), cudaErrorHostMemoryNotRegistered);
	ok(cudaFree(device));
	ok(cudaFreeHost(host));
	(void)cudaGetLastError();
}

static void test_copies(void **state)
{
	int *device = upload(NULL, 400), *other = upload(NULL, 400), *host = pinned(400), pageable[100];
	cudaStream_t s = new_stream();

	(void)state;
	for (int i = 0; i < 100; i++)
		host[i] = i;
	ok(cudaMemcpyAsync(device, host, 400, cudaMemcpyHostToDevice, s));
	ok(cudaMemcpyAsync(other, device + 50, 200, cudaMemcpyDefault, s));
	ok(cudaMemsetAsync(other, 0, 40, s));
	ok(cudaStreamSynchronize(s));
	memset(host, 0, 400);
	ok(cudaMemcpyAsync(host, other, 200, cudaMemcpyDeviceToHost, s));
	assert_int_equal(host[20], 0); /* nothing runs when it is posted */
	ok(cudaStreamSynchronize(s));
	for (int i = 0; i < 50; i++)
		assert_int_equal(host[i], i < 10 ? 0 : 50 + i);
	/* Pageable memory: read before the call returns, and written before it returns. */
	for (int i = 0; i < 100; i++)
		pageable[i] = -i;
	ok(cudaMemcpyAsync(device, pageable, 400, cudaMemcpyHostToDevice, s));
	memset(pageable, 0, sizeof(pageable));
	ok(cudaMemcpyAsync(pageable, device, 400, cudaMemcpyDeviceToHost, s));
	for (int i = 0; i < 100; i++)
		assert_int_equal(pageable[i], -i);
	expect_error(cudaMemcpyAsync(device, host, 400, cudaMemcpyDeviceToHost, s), cudaErrorInvalidValue);
	expect_error(cudaMemcpyAsync(device, host, 400, cudaMemcpyDeviceToDevice, s), cudaErrorInvalidValue);
	expect_error(cudaMemcpyAsync(device, host, 400, (enum cudaMemcpyKind)77, s), cudaErrorInvalidMemcpyDirection);
	expect_error(cudaMemsetAsync(host, 0, 4, s), cudaErrorInvalidValue);
	ok(cudaStreamDestroy(s));
	ok(cudaFree(device));
	ok(cudaFree(other));
	ok(cudaFreeHost(host));
	(void)cudaGetLastError();
	assert_int_equal(soft_gpu_live(), 0);
}

/* Planted bug: the host reads device memory. */
static void read_device(void *arg)
{
	volatile int *p = upload(NULL, 400);

	ok(cudaMemset((void *)(uintptr_t)p, 0, 400));
	if (arg)
		ok(cudaDeviceSynchronize());
	_exit(p[3]);
}

static void touch_in_host_function(void *arg)
{
	*(volatile int *)arg = 1;
}

static void write_device_in_host_function(void *arg)
{
	void *p = upload(NULL, 4);

	(void)arg;
	ok(cudaMemsetAsync(p, 0, 4, NULL));
	ok(cudaLaunchHostFunc(NULL, touch_in_host_function, p));
	ok(cudaDeviceSynchronize());
}

static void test_closed_memory(void **state)
{
	void (*const bugs[])(void *) = {read_device, read_device, write_device_in_host_function};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct child c = run_child(bugs[i], i == 1 ? &c : NULL);

		assert_true(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGSEGV);
	}
}

/* Planted bugs: copies that leave their allocation, and freed memory. */
static void copy_too_much(void *arg)
{
	int *device = upload(NULL, 400), *host = pinned(800);

	(void)arg;
	(void)cudaMemcpyAsync(device + 50, host, 204, cudaMemcpyHostToDevice, NULL);
}

static void copy_pinned_too_much(void *arg)
{
	int *device = upload(NULL, 800), *host = pinned(400);

	(void)arg;
	(void)cudaMemcpyAsync(device, host, 404, cudaMemcpyHostToDevice, NULL);
}

static void library_reads_freed(void *arg)
{
	int *a = upload(NULL, 400), *c = upload(NULL, 400);
	struct mix_args m = {.c = c, .a = a, .b = a, .n = 100};

	(void)arg;
	ok(cudaFree(a));
	(void)library_mix(&m, NULL);
}

static void library_writes_too_much(void *arg)
{
	int *a = upload(NULL, 404), *c = upload(NULL, 400);
	struct mix_args m = {.c = c, .a = a, .b = a, .n = 101};

	(void)arg;
	(void)library_mix(&m, NULL);
}

static void test_ranges(void **state)
{
	struct child c = run_child(copy_too_much, NULL);

	(void)state;
	expect_message(&c, "destination of a copy");
	expect_message(&c, "goes 4 bytes past the end of an allocation of 400 bytes");
	c = run_child(copy_pinned_too_much, NULL);
	expect_message(&c, "source of a copy");
	c = run_child(library_reads_freed, NULL);
	expect_message(&c, "library_mix: [");
	expect_message(&c, "is not in an allocation");
	c = run_child(library_writes_too_much, NULL);
	expect_message(&c, "goes 4 bytes past the end");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alloc),  cmocka_unit_test(test_reuse),         cmocka_unit_test(test_pointers),
		cmocka_unit_test(test_copies), cmocka_unit_test(test_closed_memory), cmocka_unit_test(test_ranges),
	};

	setenv("SOFT_GPU_MEMORY", "67108864", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
