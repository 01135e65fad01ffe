#include "base/device/device.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "tests/base/check.h"

static void test_open(void **state)
{
	ct_device *d = NULL;

	(void)state;
	assert_fails(ct_device_open("cup", 0, &d), CT_CONFIG, "\"cup\"");
	assert_non_null(strstr(ct_error_hint_text(), "\"cpu\""));
	assert_fails(ct_device_open("quantum", 0, &d), CT_CONFIG, "\"quantum\"");
	assert_fails(ct_device_open("cpu", 1, &d), CT_NO_DEVICE, "cpu device 1");
	assert_fails(ct_device_open("cpu", -1, &d), CT_NO_DEVICE, "cpu device -1");
	assert_null(d);
	ct_device_close(NULL);
	ct_mem_fail_after(1);
	assert_int_equal(ct_device_open("cpu", 0, &d), CT_NOMEM);
}

static void test_absent_kind(void **state)
{
	ct_device *d = NULL;
	enum ct_status st = ct_device_open("cuda", 0, &d);

	(void)state;
	if (st == CT_OK) {
		ct_device_close(d);
		print_message("there is a CUDA device\n");
		skip();
	}
	assert_int_equal(st, CT_NO_DEVICE);
	assert_int_equal(ct_status_exit_code(st), 4);
	assert_non_null(strstr(ct_error_message(), "cuda"));
	assert_non_null(strstr(ct_error_hint_text(), "cpu (1)"));
}

static void test_count_and_describe(void **state)
{
	struct ct_device_info info;
	int n = 0;

	(void)state;
	assert_ok(ct_device_count("cpu", &n));
	assert_int_equal(n, 1);
	assert_fails(ct_device_count("quantum", &n), CT_CONFIG, "\"quantum\"");
	assert_fails(ct_device_describe("cpu", 0, &info), CT_UNSUPPORTED, "must be opened");
	assert_fails(ct_device_describe("cpu", 1, &info), CT_NO_DEVICE, "cpu device 1");
}

/* The choice has a reason unless it is a GPU. */
static void test_choose(void **state)
{
	bool has_driver = false;
	char why[256] = "";
	const char *kind;

	(void)state;
	kind = ct_device_choose(&has_driver, why, sizeof(why));
	assert_true(strcmp(kind, "cuda") == 0 ? has_driver : strcmp(kind, "cpu") == 0 && why[0]);
	if (!has_driver)
		assert_string_equal(why, "no NVIDIA driver is installed");
	/* A directory without the libraries: the reason names the first one. */
	assert_int_equal(setenv("CTRAIN_CUDA_LIBS", "/nowhere", 1), 0);
	kind = ct_device_choose(&has_driver, why, sizeof(why));
	assert_true(has_driver);
	assert_true(strcmp(kind, "cuda") == 0 || why[0]);
	assert_int_equal(unsetenv("CTRAIN_CUDA_LIBS"), 0);
}

static void test_registry(void **state)
{
	bool cpu = false, cuda = false;
	const char *kind;
	char why[256];
	int count;

	(void)state;
	for (size_t i = 0; ct_device_kind_at(i, &kind, &count, why, sizeof(why)); i++) {
		assert_true(count > 0 || why[0]);
		cpu |= strcmp(kind, "cpu") == 0 && count == 1;
		cuda |= strcmp(kind, "cuda") == 0;
	}
	assert_true(cpu);
	assert_true(cuda);
}

static void test_cpu(void **state)
{
	struct ct_device_info info;
	unsigned char *a, *b;
	ct_stream *s;
	ct_recording *rec;
	ct_event *e, *t;
	ct_device *d;
	void *p;

	(void)state;
	assert_ok(ct_device_open("cpu", 0, &d));
	assert_ok(ct_device_info(d, &info));
	assert_string_equal(info.kind, "cpu");
	assert_true(info.name[0] && info.n_cpus >= 1);
#if defined(__x86_64__)
	int family, model;
	const char *numbers = strstr(info.name, ", family ");
	assert_true(numbers && sscanf(numbers, ", family %d, model %d", &family, &model) == 2);
#endif
	assert_true(info.total_bytes > 0 && info.free_bytes > 0 && info.free_bytes <= info.total_bytes);

	assert_ok(ct_device_mem_alloc(d, 1000, true, &p));
	a = p;
	assert_ok(ct_device_host_alloc(d, 1000, &p));
	b = p;
	assert_int_equal((uintptr_t)a % 256, 0);
	assert_int_equal((uintptr_t)b % 256, 0);
	assert_int_equal(a[0] | a[999] | b[0] | b[999], 0);
	assert_ok(ct_stream_create(d, true, &s));
	assert_ok(ct_event_create(d, false, &e));
	assert_ok(ct_event_create(d, true, &t));
	memset(b, 9, 1000);
	assert_ok(ct_device_copy(d, a, b, 1000, s));
	assert_ok(ct_event_record(e, s));
	assert_ok(ct_stream_wait_event(s, e));
	assert_ok(ct_event_record(t, s));
	assert_ok(ct_event_wait(t, CT_FOREVER));
	assert_ok(ct_stream_sync(s, CT_FOREVER));
	assert_memory_equal(a, b, 1000);
	assert_ok(ct_device_fill(d, a, 7, 1000, s));
	assert_int_equal(a[0] & a[999], 7);
	assert_ok(ct_device_copy(d, NULL, NULL, 0, s));
	/* A CPU device runs work when it is posted, so there is nothing to record. */
	assert_false(ct_device_caps(d)->recordable);
	assert_fails(ct_recording_begin(s), CT_UNSUPPORTED, "a cpu device does not record");
	assert_fails(ct_recording_end(s, &rec), CT_UNSUPPORTED, "a cpu device does not record");
	assert_null(rec);
	ct_recording_destroy(NULL);
	ct_event_destroy(e);
	ct_event_destroy(t);
	ct_event_destroy(NULL);
	ct_stream_destroy(s);
	ct_stream_destroy(NULL);
	ct_device_host_free(d, b);
	ct_device_mem_free(d, a);
	ct_device_mem_free(d, NULL);
	ct_mem_fail_after(1);
	assert_int_equal(ct_device_mem_alloc(d, 8, false, &p), CT_NOMEM);
	ct_device_close(d);
}

static void test_dtypes(void **state)
{
	static const size_t bytes[CT_N_DTYPES] = {4, 8, 4, 8, 1, 2, 2};

	(void)state;
	for (int t = 0; t < CT_N_DTYPES; t++)
		assert_int_equal(ct_dtype_bytes((enum ct_dtype)t), bytes[t]);
	assert_string_equal(ct_dtype_name(CT_BF16), "bf16");
	assert_string_equal(ct_dtype_name(CT_F16), "f16");
	assert_string_equal(ct_dtype_name((enum ct_dtype)99), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_absent_kind),
		cmocka_unit_test(test_count_and_describe),
		cmocka_unit_test(test_choose),
		cmocka_unit_test(test_registry),
		cmocka_unit_test(test_cpu),
		cmocka_unit_test(test_dtypes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
