/* The loader delivers exactly the samples that sampler, data set and augmentation determine, for any number of threads
 * and from any starting point. */
#include "tests/data/fixture.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "data/dataset_impl.h"
#include "tests/data/batches.h"

enum { N = 103, SIDE = 6, BIG = 96, MAX_PIXELS = BIG * BIG };

static struct ct_loader_opts options(uint32_t batch, int n_threads)
{
	return (struct ct_loader_opts){
		.sampler = {.n = N, .global_batch = batch, .world = 1, .accumulate = 1, .seed = 11, .shuffle = true},
		.n_threads = n_threads,
	};
}

static ct_loader *create(const ct_dataset *d, const struct ct_loader_opts *o)
{
	ct_loader *l;

	assert_ok(ct_loader_create(d, o, &l));
	return l;
}

/* What micro-batch (epoch, step, micro) must be, made the plain way. */
static void check_batch(const ct_dataset *d, const struct ct_loader_opts *o, uint32_t epoch, uint64_t step,
			uint32_t micro, const struct ct_loader_batch *b)
{
	const struct ct_sampler *s = &o->sampler;
	struct ct_sampler_slice slice = ct_sampler_slice(s, step, micro);
	const struct ct_dataset_info *info = ct_dataset_info(d);
	uint64_t steps = ct_sampler_steps(s);
	uint32_t perm[N];

	ct_sampler_order(s, epoch, perm);
	assert_int_equal(b->epoch, epoch);
	assert_int_equal(b->step, step);
	assert_int_equal(b->micro, micro);
	assert_int_equal(b->n, slice.count);
	assert_int_equal(b->n_global, slice.n_global);
	assert_int_equal(b->in_batch, slice.in_batch);
	assert_int_equal(b->last_of_step, micro + 1 == s->accumulate);
	assert_int_equal(b->last_of_epoch, micro + 1 == s->accumulate && step + 1 == steps);
	assert_int_equal((uintptr_t)b->x % 64, 0);
	assert_null(b->targets);
	for (uint32_t i = 0; i < b->n; i++) {
		uint8_t x[MAX_PIXELS], y[MAX_PIXELS], scratch[MAX_PIXELS];
		int32_t label;

		assert_int_equal(b->samples[i], perm[slice.first + i]);
		assert_ok(ct_dataset_read(d, b->samples[i], x, &label, NULL));
		assert_int_equal(b->labels[i], label);
		memcpy(y, x, info->sample_bytes);
		if (ct_augment_active(&o->transform.augment))
			ct_augment_apply(&o->transform.augment, s->seed, epoch, b->samples[i], info->h, info->w, 1, x,
					 y, scratch);
		assert_memory_equal((const uint8_t *)b->x + i * info->sample_bytes, y, info->sample_bytes);
	}
}

/* From (epoch, step) on, n steps. */
static void check_run(ct_loader *l, const ct_dataset *d, const struct ct_loader_opts *o, uint32_t epoch, uint64_t step,
		      int n)
{
	struct ct_loader_batch b = {0};

	for (; n > 0; n--) {
		for (uint32_t micro = 0; micro < o->sampler.accumulate; micro++) {
			assert_ok(next_batch(l, &b));
			check_batch(d, o, epoch, step, micro, &b);
		}
		if (++step == ct_sampler_steps(&o->sampler)) {
			step = 0;
			epoch++;
		}
	}
	ct_loader_release(l, &b);
}

static void test_content(void **state)
{
	static const struct {
		uint32_t batch, world, rank, accumulate;
		bool drop_last, augment;
		int depth;
	} cases[] = {
		{16, 1, 0, 1, false, false, 0}, {16, 3, 1, 1, false, true, 2},   {16, 8, 7, 2, false, false, 3},
		{16, 2, 0, 3, true, true, 8},   {103, 1, 0, 1, false, false, 4}, {1000, 4, 3, 3, false, true, 8},
		{1, 1, 0, 1, false, false, 4},  {60, 1, 0, 1, true, false, 16},
	};
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		for (int n_threads = 0; n_threads <= 4; n_threads++) {
			struct ct_loader_opts o = options(cases[i].batch, n_threads);
			ct_loader *l;

			o.sampler.world = cases[i].world;
			o.sampler.rank = cases[i].rank;
			o.sampler.accumulate = cases[i].accumulate;
			o.sampler.drop_last = cases[i].drop_last;
			o.depth = cases[i].depth;
			if (cases[i].augment)
				o.transform.augment =
					(struct ct_augment){.crop_padding = 1, .flip = true, .degrees = 10};
			l = create(d, &o);
			check_run(l, d, &o, 0, 0, (int)(4 * ct_sampler_steps(&o.sampler)));
			ct_loader_destroy(l);
		}
	}
	ct_dataset_close(d);
}

/* Epochs of one batch, a ring of many: several epochs are in work at once, and only two orders are kept. */
static void test_tiny_epochs(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (int n_threads = 0; n_threads <= 4; n_threads++) {
		struct ct_loader_opts o = options(2, n_threads);
		ct_loader *l;

		o.sampler.n = 3;
		o.depth = 32;
		l = create(d, &o);
		check_run(l, d, &o, 0, 0, 3000);
		ct_loader_destroy(l);
	}
	ct_dataset_close(d);
}

/* Samples so large that a batch is many threads' work, in short epochs, with seeks into the middle of it. */
static void test_shared_batches(void **state)
{
	ct_dataset *d = open_images(N, BIG, BIG);

	(void)state;
	for (int n_threads = 0; n_threads <= 4; n_threads++) {
		struct ct_loader_opts o = options(50, n_threads);
		struct ct_loader_batch b = {0};
		ct_loader *l = create(d, &o);

		check_run(l, d, &o, 0, 0, 20);
		for (uint32_t i = 0; i < 40; i++) {
			assert_ok(ct_loader_seek(l, i * 3, i % 3));
			check_run(l, d, &o, i * 3, i % 3, (int)(i % 4));
			assert_ok(next_batch(l, &b));
			ct_loader_release(l, &b);
		}
		check_run(l, d, &o, b.epoch + (b.step == 2), (b.step + 1) % 3, 10);
		ct_loader_destroy(l);
	}
	ct_dataset_close(d);
}

static void test_seek(void **state)
{
	static const struct {
		uint32_t epoch;
		uint64_t step;
	} places[] = {{0, 0}, {0, 5}, {0, 4}, {3, 0}, {1000000, 6}, {2, 3}, {3, 1}, {3, 0}};
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (int n_threads = 0; n_threads <= 4; n_threads++) {
		struct ct_loader_opts o = options(16, n_threads);
		struct ct_loader_batch b = {0};
		ct_loader *l;

		o.sampler.accumulate = 2;
		l = create(d, &o);
		for (size_t i = 0; i < CT_ARRAY_LEN(places); i++) {
			assert_ok(ct_loader_seek(l, places[i].epoch, places[i].step));
			check_run(l, d, &o, places[i].epoch, places[i].step, 1 + (int)i * 3);
			/* And away in the middle of a step. */
			assert_ok(next_batch(l, &b));
			ct_loader_release(l, &b);
		}
		/* The end of an epoch is the start of the next; past it is no place at all. */
		assert_ok(ct_loader_seek(l, 4, 7));
		check_run(l, d, &o, 5, 0, 2);
		assert_int_equal(ct_loader_seek(l, 4, 8), CT_DATA);
		check_run(l, d, &o, 5, 2, 2);
		ct_loader_destroy(l);
	}
	ct_dataset_close(d);
}

/* A step allocates nothing, nor does a seek. */
static void test_no_allocation(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (int n_threads = 0; n_threads <= 3; n_threads++) {
		struct ct_loader_opts o = options(16, n_threads);
		struct ct_loader_batch b = {0};
		uint64_t before;
		ct_loader *l;

		o.transform.augment.flip = true;
		l = create(d, &o);
		before = ct_mem_count();
		for (int i = 0; i < 100; i++)
			assert_ok(next_batch(l, &b));
		ct_loader_release(l, &b);
		assert_ok(ct_loader_seek(l, 7, 2));
		for (int i = 0; i < 100; i++)
			assert_ok(next_batch(l, &b));
		assert_int_equal(ct_mem_count(), before);
		ct_loader_destroy(l);
	}
	ct_dataset_close(d);
}

/* Destroyed at any moment: threads end, nothing leaks (ASan), nothing races (TSan). */
static void test_destroy(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);

	(void)state;
	for (int i = 0; i < 200; i++) {
		struct ct_loader_opts o = options(4, i % 5);
		ct_loader *l = create(d, &o);
		struct ct_loader_batch b = {0};

		for (int k = 0; k < i / 5 % 40; k++)
			assert_ok(next_batch(l, &b));
		ct_loader_destroy(l);
	}
	ct_loader_destroy(NULL);
	ct_dataset_close(d);
}

static void test_regression(void **state)
{
	struct ct_dataset_spec spec = {
		.name = "synthetic_regression", .n = N, .c = 10, .n_targets = 5, .seed = 2, .train = true};
	ct_dataset *d;

	(void)state;
	assert_ok(ct_dataset_open(&spec, &d));
	for (int n_threads = 0; n_threads <= 2; n_threads++) {
		struct ct_loader_opts o = options(10, n_threads);
		struct ct_loader_batch b = {0};
		ct_loader *l = create(d, &o);

		for (int k = 0; k < 30; k++) {
			assert_ok(next_batch(l, &b));
			assert_null(b.labels);
			for (uint32_t i = 0; i < b.n; i++) {
				float x[10], t[5];

				assert_ok(ct_dataset_read(d, b.samples[i], x, NULL, t));
				assert_memory_equal((const float *)b.x + 10 * i, x, sizeof(x));
				assert_memory_equal(b.targets + 5 * i, t, sizeof(t));
			}
		}
		ct_loader_destroy(l);
	}
	ct_dataset_close(d);
}

/* A data set that fails at given samples and can be made to hang. */
struct faulty {
	ct_dataset base;
	pthread_mutex_t lock;
	pthread_cond_t opened;
	bool shut;
	uint32_t bad; /* this sample and above */
};

static enum ct_status faulty_read(const ct_dataset *d, uint32_t i, void *x, int32_t *label, float *target)
{
	struct faulty *f = (struct faulty *)(uintptr_t)d;

	(void)target;
	pthread_mutex_lock(&f->lock);
	while (f->shut)
		pthread_cond_wait(&f->opened, &f->lock);
	pthread_mutex_unlock(&f->lock);
	if (i >= f->bad)
		return CT_FAIL(CT_DATA, "rotten at %u", i);
	memset(x, (int)i, d->info.sample_bytes);
	*label = 1;
	return CT_OK;
}

static const struct ct_dataset_ops faulty_ops = {.read = faulty_read};

static void faulty_init(struct faulty *f, uint32_t bad, bool shut)
{
	*f = (struct faulty){
		.base = {.ops = &faulty_ops,
			 .info = {.name = "faulty", .n = N, .n_classes = 2, .sample_bytes = 65536}}, /* one to a job */
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.opened = PTHREAD_COND_INITIALIZER,
		.shut = shut,
		.bad = bad};
}

static void test_bad_sample(void **state)
{
	struct faulty f;

	(void)state;
	faulty_init(&f, 37, false);
	for (int n_threads = 0; n_threads <= 4; n_threads++) {
		struct ct_loader_opts o = options(10, n_threads);
		struct ct_loader_batch b = {0};
		ct_loader *l;

		o.sampler.shuffle = false;
		l = create(&f.base, &o);
		for (int i = 0; i < 3; i++)
			assert_ok(next_batch(l, &b));
		/* The batch with the bad sample, each time it is asked for, and the first of its bad ones. */
		for (int i = 0; i < 2; i++) {
			assert_int_equal(next_batch(l, &b), CT_DATA);
			assert_string_equal(ct_error_message(), "sample 37 of faulty: rotten at 37");
		}
		/* Another place is fine again. */
		assert_ok(ct_loader_seek(l, 1, 0));
		assert_ok(next_batch(l, &b));
		assert_int_equal(b.epoch, 1);
		ct_loader_destroy(l);
	}
}

static void test_deadline(void **state)
{
	struct ct_loader_opts o = options(10, 2);
	struct ct_loader_batch b = {0};
	struct faulty f;
	ct_loader *l;

	(void)state;
	faulty_init(&f, N, true);
	l = create(&f.base, &o);
	assert_int_equal(ct_loader_next(l, ct_now_ns(), &b), CT_TIMEOUT);
	assert_int_equal(ct_loader_next(l, ct_deadline_in(5 * CT_MS), &b), CT_TIMEOUT);
	pthread_mutex_lock(&f.lock);
	f.shut = false;
	pthread_mutex_unlock(&f.lock);
	pthread_cond_broadcast(&f.opened);
	assert_ok(next_batch(l, &b));
	assert_int_equal(b.step, 0);
	ct_loader_destroy(l);
}

static void expect_refused(const ct_dataset *d, struct ct_loader_opts o, enum ct_status want)
{
	ct_loader *l;

	assert_int_equal(ct_loader_create(d, &o, &l), want);
}

static void test_bad_options(void **state)
{
	struct ct_dataset_spec spec = {.name = "synthetic_regression", .n = N};
	ct_dataset *d = open_images(N, SIDE, SIDE), *floats;
	struct ct_loader_opts o = options(10, 0);

	(void)state;
	expect_refused(d, options(0, 0), CT_CONFIG);
	expect_refused(d, options(10, -1), CT_CONFIG);
	expect_refused(d, options(10, 100000), CT_CONFIG);
	o.depth = 1;
	expect_refused(d, o, CT_CONFIG);
	o.depth = 0;
	o.max_out = -1;
	expect_refused(d, o, CT_CONFIG);
	o.max_out = 100000;
	expect_refused(d, o, CT_CONFIG);
	o.max_out = 0;
	o.sampler.n = N + 1;
	expect_refused(d, o, CT_BUG);
	o.sampler.n = N;
	o.transform.augment.degrees = 1000;
	expect_refused(d, o, CT_CONFIG);
	assert_ok(ct_dataset_open(&spec, &floats));
	o.transform.augment.degrees = 10;
	expect_refused(floats, o, CT_CONFIG);
	ct_dataset_close(floats);
	ct_dataset_close(d);
}

static void test_no_memory(void **state)
{
	ct_dataset *d = open_images(N, SIDE, SIDE);
	enum ct_status st = CT_NOMEM;
	uint64_t n;

	(void)state;
	for (n = 1; n < 100 && st != CT_OK; n++) {
		struct ct_loader_opts o = options(10, 2);
		ct_loader *l;

		o.transform.augment.flip = true;
		ct_mem_fail_after(n);
		st = ct_loader_create(d, &o, &l);
		ct_mem_fail_after(0);
		if (st == CT_OK)
			ct_loader_destroy(l);
		else
			assert_int_equal(st, CT_NOMEM);
	}
	assert_in_range(n, 15, 99);
	ct_dataset_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_content),        cmocka_unit_test(test_tiny_epochs),
		cmocka_unit_test(test_shared_batches), cmocka_unit_test(test_seek),
		cmocka_unit_test(test_no_allocation),  cmocka_unit_test(test_destroy),
		cmocka_unit_test(test_regression),     cmocka_unit_test(test_bad_sample),
		cmocka_unit_test(test_deadline),       cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
