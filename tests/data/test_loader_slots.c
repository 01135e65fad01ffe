/* Slots of the loader: several batches that are not released yet, memory of the device, release, and misuse. */
#include "tests/data/fixture.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "data/loader/loader.h"

enum { N = 103, SIDE = 6, PIXELS = SIDE * SIDE };

static struct ct_loader_opts options(int n_threads, int depth, int max_out)
{
	return (struct ct_loader_opts){
		.sampler = {.n = N, .global_batch = 8, .world = 1, .accumulate = 1, .seed = 3, .shuffle = true},
		.n_threads = n_threads,
		.depth = depth,
		.max_out = max_out,
	};
}

static void expect_content(const ct_dataset *d, const struct ct_loader_batch *b)
{
	for (uint32_t i = 0; i < b->n; i++) {
		uint8_t x[PIXELS];
		int32_t label;

		assert_ok(ct_dataset_read(d, b->samples[i], x, &label, NULL));
		assert_memory_equal((const uint8_t *)b->x + (size_t)i * PIXELS, x, PIXELS);
		assert_int_equal(b->labels[i], label);
	}
}

/* Up to max_out batches are held and released in random order. Those that are out do not change; the order of
 * deliveries stays. */
static void test_several_out(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);
	struct ct_rng r;

	(void)state;
	ct_rng_init(&r, 1, CT_RNG_TEST, 0, 0);
	for (int n_threads = 0; n_threads <= 3; n_threads++) {
		for (int max_out = 1; max_out <= 9; max_out += 2) {
			struct ct_loader_opts o = options(n_threads, 2 + max_out % 3, max_out);
			struct ct_loader_batch out[9] = {0};
			uint64_t steps = ct_sampler_steps(&o.sampler), at = 0;
			ct_loader *l;

			assert_ok(ct_loader_create(d, &o, &l));
			for (int i = 0; i < 400; i++) {
				struct ct_loader_batch *b = &out[ct_rng_below(&r, (uint32_t)max_out)];

				if (b->slot) {
					expect_content(d, b);
					ct_loader_release(l, b);
					assert_null(b->slot);
					assert_null(b->x);
					assert_null(b->labels);
					assert_null(b->samples);
					assert_true(b->n > 0); /* the numbers stay */
					continue;
				}
				assert_ok(ct_loader_next(l, CT_FOREVER, b));
				assert_int_equal(b->epoch * steps + b->step, at++);
				expect_content(d, b);
			}
			ct_loader_destroy(l); /* while some are out */
		}
	}
	ct_dataset_close(d);
}

/* One batch out takes as many slots as are prepared ahead, each more one more. */
static void test_number_of_slots(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (int max_out = 0; max_out <= 3; max_out++) {
		struct ct_loader_opts o = options(2, 5, max_out);
		const void *seen[16] = {0};
		struct ct_loader_batch b;
		size_t n = 0;
		ct_loader *l;

		assert_ok(ct_loader_create(d, &o, &l));
		for (int i = 0; i < 100; i++) {
			size_t k = 0;

			assert_ok(ct_loader_next(l, CT_FOREVER, &b));
			while (k < n && seen[k] != b.x)
				k++;
			if (k == n) {
				assert_true(n < CT_ARRAY_LEN(seen));
				seen[n++] = b.x;
			}
			ct_loader_release(l, &b);
		}
		assert_int_equal(n, max_out ? 4 + max_out : 5);
		ct_loader_destroy(l);
	}
	ct_dataset_close(d);
}

static void test_misuse(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (int n_threads = 0; n_threads <= 2; n_threads++) {
		struct ct_loader_opts o = options(n_threads, 0, 2);
		struct ct_loader_batch a, b, c = {.n = 7}, copy;
		int status = 0;
		ct_loader *l;
		pid_t pid;

		assert_ok(ct_loader_create(d, &o, &l));
		assert_ok(ct_loader_next(l, CT_FOREVER, &a));
		assert_ok(ct_loader_next(l, CT_FOREVER, &b));
		assert_int_equal(ct_loader_next(l, CT_FOREVER, &c), CT_BUG);
		assert_non_null(strstr(ct_error_message(), "2 are out"));
		assert_int_equal(c.n, 0);
		assert_int_equal(ct_loader_seek(l, 0, 0), CT_BUG);
		copy = a;
		ct_loader_release(l, &a);
		ct_loader_release(l, &a);
		ct_loader_release(l, &c);
		assert_int_equal(ct_loader_seek(l, 0, 0), CT_BUG);
		ct_loader_release(l, &b);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			signal(SIGABRT, SIG_DFL);
			ct_loader_release(l, &copy);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
		assert_ok(ct_loader_seek(l, 0, 0));
		assert_ok(ct_loader_next(l, CT_FOREVER, &a));
		assert_int_equal(a.step, 0);
		ct_loader_destroy(l);
	}
	ct_dataset_close(d);
}

static void test_no_allocation(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);
	struct ct_loader_opts o = options(2, 3, 3);
	struct ct_loader_batch b[3];
	uint64_t before;
	ct_loader *l;

	(void)state;
	assert_ok(ct_loader_create(d, &o, &l));
	before = ct_mem_count();
	for (int i = 0; i < 50; i++) {
		for (int k = 0; k < 3; k++)
			assert_ok(ct_loader_next(l, CT_FOREVER, &b[k]));
		for (int k = 0; k < 3; k++)
			ct_loader_release(l, &b[(k + i) % 3]);
	}
	assert_int_equal(ct_mem_count(), before);
	ct_loader_destroy(l);
	ct_dataset_close(d);
}

/* Batches in memory of a device: copies are posted straight from them. `early` releases a batch before its copy has
 * run, which the lazy device reports when the loader uses the slot again. */
static enum ct_status copy_batches(const ct_dataset *data, const char *kind, int n_threads, bool early)
{
	struct ct_loader_opts o = options(n_threads, 2, 2);
	struct ct_loader_batch b = {0};
	enum ct_status st = CT_OK;
	ct_device *device = NULL;
	ct_stream *s;
	ct_loader *l;
	void *x, *back;

	st = ct_device_open(kind, 0, &device);
	if (st < 0)
		return st;
	assert_ok(ct_stream_create(device, false, &s));
	assert_ok(ct_device_mem_alloc(device, 8 * PIXELS, false, &x));
	assert_ok(ct_device_host_alloc(device, 8 * PIXELS, &back));
	o.device = device;
	assert_ok(ct_loader_create(data, &o, &l));
	for (int i = 0; i < 50 && st == CT_OK; i++) {
		size_t bytes;

		assert_ok(ct_loader_next(l, CT_FOREVER, &b));
		assert_int_equal((uintptr_t)b.x % 64, 0);
		bytes = b.n * (size_t)PIXELS;
		assert_ok(ct_device_copy(device, x, b.x, bytes, s));
		if (early) {
			ct_loader_release(l, &b);
			for (int k = 0; k < 3; k++) {
				assert_ok(ct_loader_next(l, CT_FOREVER, &b));
				ct_loader_release(l, &b);
			}
			st = ct_stream_sync(s, CT_FOREVER);
			continue;
		}
		assert_ok(ct_device_copy(device, back, x, bytes, s));
		assert_ok(ct_stream_sync(s, CT_FOREVER));
		assert_memory_equal(back, b.x, bytes);
		ct_loader_release(l, &b);
	}
	ct_loader_destroy(l);
	ct_device_mem_free(device, x);
	ct_device_host_free(device, back);
	ct_stream_destroy(s);
	ct_device_close(device); /* asserts that everything was given back */
	return st;
}

static void test_device_memory(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (int n_threads = 0; n_threads <= 2; n_threads++) {
		assert_int_equal(copy_batches(d, "lazy", n_threads, false), CT_OK);
		assert_int_equal(copy_batches(d, "cpu", n_threads, false), CT_OK);
	}
	ct_dataset_close(d);
}

static void test_released_early(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);
	enum ct_status st = copy_batches(d, "lazy", 0, true);

	(void)state;
	ct_dataset_close(d);
	assert_int_equal(st, CT_BUG);
	assert_non_null(strstr(ct_error_message(), "host memory changed while a posted copy was waiting"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_several_out),   cmocka_unit_test(test_number_of_slots),
		cmocka_unit_test(test_misuse),        cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_device_memory), cmocka_unit_test(test_released_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
