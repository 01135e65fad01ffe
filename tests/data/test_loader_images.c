/* The loader with compressed images delivers the same pixels for any number of threads and ranks, with or without
 * mixing, and from any starting point. */
#include "tests/data/encoded.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/data/batches.h"

enum { N = ENCODED_N, BATCH = ENCODED_BATCH, SIDE = ENCODED_SIDE, BYTES = SIDE * SIDE * 3 };

/* A whole epoch of all ranks, put together: rows in the order of the epoch. */
struct epoch {
	uint8_t x[N][BYTES];
	int32_t labels[N], labels_b[N];
	float mix[N];
	uint32_t samples[N];
	uint32_t n;
};

static void add_batch(struct epoch *e, const struct ct_loader_batch *b)
{
	uint32_t at = (uint32_t)b->step * BATCH + b->in_batch;

	assert_true(at + b->n <= N);
	assert_int_equal(b->h, SIDE);
	assert_int_equal(b->w, SIDE);
	assert_int_equal(b->labels_b != NULL, b->mix != NULL);
	for (uint32_t i = 0; i < b->n; i++) {
		memcpy(e->x[at + i], (const uint8_t *)b->x + (size_t)i * BYTES, BYTES);
		e->labels[at + i] = b->labels[i];
		e->labels_b[at + i] = b->labels_b ? b->labels_b[i] : -1;
		e->mix[at + i] = b->mix ? b->mix[i] : -1;
		e->samples[at + i] = b->samples[i];
	}
	e->n += b->n;
}

/* From (epoch, step) to its end. */
static void read_epoch(const struct encoded_set *s, struct ct_loader_opts o, uint32_t epoch, uint64_t step,
		       struct epoch *e)
{
	memset(e, 0, sizeof(*e));
	for (o.sampler.rank = 0; o.sampler.rank < o.sampler.world; o.sampler.rank++) {
		ct_loader *l = encoded_loader(s, &o);
		struct ct_loader_batch b = {0};

		assert_ok(ct_loader_seek(l, epoch, step));
		do {
			assert_ok(next_batch(l, &b));
			assert_int_equal(b.epoch, epoch);
			add_batch(e, &b);
		} while (!b.last_of_epoch);
		ct_loader_destroy(l);
	}
	assert_int_equal(e->n, N - step * BATCH);
}

static void expect_equal(const struct epoch *a, const struct epoch *b)
{
	assert_memory_equal(a->samples, b->samples, sizeof(a->samples));
	assert_memory_equal(a->labels, b->labels, sizeof(a->labels));
	assert_memory_equal(a->labels_b, b->labels_b, sizeof(a->labels_b));
	assert_memory_equal(a->mix, b->mix, sizeof(a->mix));
	assert_memory_equal(a->x, b->x, sizeof(a->x));
}

/* Rows are what the transformer makes of the samples of the sampler's order. */
static void test_content(void **state)
{
	struct encoded_set *s = encoded_open(N);
	struct ct_loader_opts o = encoded_options(2);
	struct epoch *e = ct_calloc(1, sizeof(*e));
	ct_transformer *t;
	uint32_t perm[N];

	(void)state;
	read_epoch(s, o, 3, 0, e);
	ct_sampler_order(&o.sampler, 3, perm);
	assert_ok(ct_transformer_create(&o.transform, &s->base, &t));
	for (uint32_t i = 0; i < N; i++) {
		uint8_t x[BYTES];
		int32_t label;

		assert_int_equal(e->samples[i], perm[i]);
		assert_ok(ct_transformer_run(t, 5, 3, perm[i], x, &label));
		assert_int_equal(label, e->labels[i]);
		assert_memory_equal(x, e->x[i], BYTES);
	}
	ct_transformer_destroy(t);
	ct_free(e);
	encoded_close(s);
}

/* Any number of threads, ranks and micro-batches; mixed or not; with bad samples; from the middle. */
static void test_same_for_all(void **state)
{
	static const uint32_t bad[] = {3, 17, 18, 40, 60};
	static const float mixing[][2] = {{0, 0}, {0.4f, 0}, {0, 1}, {0.8f, 1}};
	struct epoch *one = ct_calloc(1, sizeof(*one)), *many = ct_calloc(1, sizeof(*many));

	(void)state;
	for (size_t m = 0; m < CT_ARRAY_LEN(mixing); m++) {
		struct encoded_set *s = encoded_open(N);
		struct ct_loader_opts o = encoded_options(0);

		o.mixup = mixing[m][0];
		o.cutmix = mixing[m][1];
		if (m % 2) {
			o.bad = CT_BAD_REPLACE;
			o.max_bad = 10;
			encoded_spoil(s, bad, CT_ARRAY_LEN(bad));
		}
		read_epoch(s, o, 1, 0, one);
		for (int n_threads = 1; n_threads <= 4; n_threads++) {
			o.n_threads = n_threads;
			read_epoch(s, o, 1, 0, many);
			expect_equal(one, many);
		}
		for (o.sampler.world = 2; o.sampler.world <= 8; o.sampler.world++) {
			o.n_threads = (int)o.sampler.world % 3;
			o.sampler.accumulate = o.sampler.world == 3 || o.sampler.world == 4 ? 2 : 1;
			read_epoch(s, o, 1, 0, many);
			expect_equal(one, many);
		}
		o.sampler.world = 3;
		for (uint64_t step = 1; step < 4; step++) {
			read_epoch(s, o, 1, step, many);
			assert_memory_equal(one->x[step * BATCH], many->x[step * BATCH], (N - step * BATCH) * BYTES);
		}
		encoded_close(s);
	}
	ct_free(one);
	ct_free(many);
}

/* Mixed rows are those of the plain loader, pair by pair; the last row of an odd epoch is not mixed. */
static void test_mixed(void **state)
{
	struct encoded_set *s = encoded_open(N);
	struct epoch *plain = ct_calloc(1, sizeof(*plain)), *mixed = ct_calloc(1, sizeof(*mixed));
	struct ct_loader_opts o = encoded_options(2);
	int changed = 0;

	(void)state;
	read_epoch(s, o, 0, 0, plain);
	o.mixup = 1;
	read_epoch(s, o, 0, 0, mixed);
	for (uint32_t i = 0; i < N; i++) {
		uint32_t other = i == N - 1 ? i : i ^ 1;
		int weight = (int)(mixed->mix[i] * 256);

		assert_true(mixed->mix[i] == mixed->mix[other]);
		assert_int_equal(mixed->labels[i], plain->labels[i]);
		assert_int_equal(mixed->labels_b[i], plain->labels[other]);
		assert_true(i < N - 1 || weight == 256);
		changed += weight < 256;
		for (int k = 0; k < BYTES; k++)
			assert_int_equal(mixed->x[i][k],
					 (plain->x[i][k] * weight + plain->x[other][k] * (256 - weight) + 128) >> 8);
	}
	assert_true(changed > N / 2);
	ct_free(plain);
	ct_free(mixed);
	encoded_close(s);
}

static void test_sizes(void **state)
{
	static const struct ct_loader_size sizes[] = {{1, 12, 16}, {3, 40, 40}, {4, 8, 8}};
	static const int want[][2] = {{SIDE, SIDE}, {12, 16}, {12, 16}, {40, 40}, {8, 8}, {8, 8}};
	struct encoded_set *s = encoded_open(N);

	(void)state;
	for (int n_threads = 0; n_threads <= 3; n_threads++) {
		struct ct_loader_opts o = encoded_options(n_threads);
		struct ct_loader_batch b = {0};
		ct_loader *l;

		o.sizes = sizes;
		o.n_sizes = CT_ARRAY_LEN(sizes);
		o.mixup = 0.2f;
		l = encoded_loader(s, &o);
		for (uint32_t epoch = 0; epoch < CT_ARRAY_LEN(want); epoch++) {
			struct ct_transform t = o.transform;
			ct_transformer *alone;
			uint8_t x[40 * 40 * 3];
			int32_t label;

			t.h = want[epoch][0];
			t.w = want[epoch][1];
			assert_ok(ct_transformer_create(&t, &s->base, &alone));
			do {
				assert_ok(next_batch(l, &b));
				assert_int_equal(b.epoch, epoch);
				assert_int_equal(b.h, t.h);
				assert_int_equal(b.w, t.w);
			} while (!b.last_of_epoch);
			/* The last row of the epoch is not mixed. */
			assert_ok(ct_transformer_run(alone, 5, epoch, b.samples[b.n - 1], x, &label));
			assert_memory_equal((const uint8_t *)b.x + (size_t)((b.n - 1) * 3) * (size_t)(t.h * t.w), x,
					    (size_t)(t.h * t.w * 3));
			ct_transformer_destroy(alone);
		}
		ct_loader_destroy(l);
	}
	encoded_close(s);
}

/* Twenty epochs need no more memory than three. */
static void test_steady_memory(void **state)
{
	struct encoded_set *s = encoded_open(N);
	struct ct_loader_opts o = encoded_options(2);
	struct ct_loader_batch b = {0};
	uint64_t ours = 0;
	size_t heap = 0;
	ct_loader *l;

	(void)state;
	o.mixup = 0.2f;
	o.transform.augment.erasing = 0.2f;
	l = encoded_loader(s, &o);
	for (int i = 0; i < 20 * 5; i++) {
		if (i == 3 * 5) {
			ours = ct_mem_count();
			heap = mallinfo2().uordblks;
		}
		assert_ok(next_batch(l, &b));
	}
	/* A thread's tables grow until it has met the largest window: that is seldom, against more than 1000 images.
	 * And libjpeg takes and gives back memory for each: where two threads are in that moves. */
	assert_true(ct_mem_count() - ours < 100);
	assert_true(mallinfo2().uordblks < heap + ((size_t)4 << 20));
	ct_loader_destroy(l);
	encoded_close(s);
}

/* Over shards of 7 x 41 + 33 samples, in windows of 2, each world sees each sample once and the same global batches. */
static void test_window(void **state)
{
	enum { ALL = 7 * 41 + 33 };
	static const uint32_t first[] = {0, 41, 82, 123, 164, 205, 246, 287, ALL};
	ct_dataset *d = open_images(ALL, 6, 6);
	uint32_t order[ALL], same[ALL];

	(void)state;
	for (uint32_t world = 1; world <= 8; world++) {
		int seen[ALL] = {0};

		for (uint32_t rank = 0; rank < world; rank++) {
			struct ct_loader_opts o = {.sampler = {.n = ALL,
							       .global_batch = 48,
							       .world = world,
							       .rank = rank,
							       .accumulate = 1 + world % 2,
							       .seed = 9,
							       .shuffle = true,
							       .window = 2,
							       .n_groups = 8,
							       .group_first = first},
						   .n_threads = (int)rank % 3};
			struct ct_loader_batch b = {0};
			ct_loader *l;

			assert_ok(ct_loader_create(d, &o, &l));
			do {
				assert_ok(next_batch(l, &b));
				for (uint32_t i = 0; i < b.n; i++) {
					seen[b.samples[i]]++;
					same[b.step * 48 + b.in_batch + i] = b.samples[i];
				}
			} while (!b.last_of_epoch);
			ct_loader_destroy(l);
		}
		for (uint32_t i = 0; i < ALL; i++)
			assert_int_equal(seen[i], 1);
		if (world == 1)
			memcpy(order, same, sizeof(order));
		assert_memory_equal(order, same, sizeof(order));
	}
	ct_dataset_close(d);
}

static void expect_refused(const struct encoded_set *s, struct ct_loader_opts o, const char *says)
{
	ct_loader *l;

	assert_int_equal(ct_loader_create(&s->base, &o, &l), CT_CONFIG);
	if (!strstr(ct_error_message(), says))
		print_error("%s\n", ct_error_message());
	assert_non_null(strstr(ct_error_message(), says));
}

static void test_refused(void **state)
{
	static const struct ct_loader_size falling[] = {{3, 8, 8}, {3, 9, 9}}, empty[] = {{0, 0, 8}};
	struct encoded_set *s = encoded_open(3);
	struct ct_loader_opts good = encoded_options(0), o;

	(void)state;
	good.sampler.n = 3;
	o = good;
	o.transform.crop = CT_CROP_NONE;
	expect_refused(s, o, "different sizes");
	o = good;
	o.transform.h = o.transform.w = 0;
	expect_refused(s, o, "different sizes");
	o = good;
	o.transform.w = 9000;
	expect_refused(s, o, "9000 x 24");
	o = good;
	o.transform.area_min = 0.5f;
	o.transform.area_max = 0.4f;
	expect_refused(s, o, "of the area");
	o = good;
	o.transform.crop = CT_CROP_CENTER;
	o.transform.resize = SIDE - 1;
	expect_refused(s, o, "cannot take a center crop of 24 x 24");
	o = good;
	o.mixup = -1;
	expect_refused(s, o, "mixup -1");
	o = good;
	o.cutmix = 1;
	o.bad = CT_BAD_DROP;
	expect_refused(s, o, "for training");
	o = good;
	o.sizes = falling;
	o.n_sizes = 2;
	expect_refused(s, o, "epochs must increase");
	o.sizes = empty;
	o.n_sizes = 1;
	expect_refused(s, o, "8 x 0");
	encoded_close(s);
}

static void test_no_memory(void **state)
{
	struct encoded_set *s = encoded_open(N);
	enum ct_status st = CT_NOMEM;
	uint64_t n;

	(void)state;
	for (n = 1; n < 200 && st != CT_OK; n++) {
		static const struct ct_loader_size sizes[] = {{0, 8, 8}};
		struct ct_loader_opts o = encoded_options(2);
		ct_loader *l;

		o.mixup = 1;
		o.bad = CT_BAD_REPLACE;
		o.sizes = sizes;
		o.n_sizes = 1;
		ct_mem_fail_after(n);
		st = ct_loader_create(&s->base, &o, &l);
		ct_mem_fail_after(0);
		if (st == CT_OK)
			ct_loader_destroy(l);
		else
			assert_int_equal(st, CT_NOMEM);
	}
	assert_in_range(n, 30, 199);
	encoded_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_content), cmocka_unit_test(test_same_for_all),  cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_sizes),   cmocka_unit_test(test_steady_memory), cmocka_unit_test(test_window),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
