/* Bad samples in the loader are replaced or skipped, reported once, and counted. */
#include "tests/data/encoded.h"

#include <string.h>

#include "base/clock.h"
#include "tests/data/batches.h"

enum { N = ENCODED_N, BYTES = ENCODED_SIDE * ENCODED_SIDE * 3 };

struct told {
	int n[N];
	char text[N][200];
};

static void on_bad(void *user, uint32_t sample, const char *text)
{
	struct told *t = user;

	t->n[sample]++;
	strncpy(t->text[sample], text, sizeof(t->text[sample]) - 1);
}

/* Each told once, with place and reason, however often it comes up; no bad one is delivered. */
static void test_bad_replaced(void **state)
{
	static const uint32_t bad[] = {3, 17, 40, 60};
	struct encoded_set *s = encoded_open(N);
	struct told *told = ct_calloc(1, sizeof(*told));
	struct ct_loader_opts o = encoded_options(2);
	struct ct_loader_stats stats;
	struct ct_loader_batch b = {0};
	uint32_t rows = 0, of_epoch = 0;
	ct_loader *l;

	(void)state;
	encoded_spoil(s, bad, CT_ARRAY_LEN(bad));
	o.bad = CT_BAD_REPLACE;
	o.max_bad = 4;
	o.on_bad = on_bad;
	o.user = told;
	l = encoded_loader(s, &o);
	for (int i = 0; i < 40; i++) {
		assert_ok(next_batch(l, &b));
		rows += b.n;
		of_epoch += b.n_bad;
		if (b.last_of_epoch) {
			assert_int_equal(of_epoch, 4);
			of_epoch = 0;
		}
		for (uint32_t k = 0; k < b.n; k++) {
			for (size_t j = 0; j < CT_ARRAY_LEN(bad); j++)
				assert_int_not_equal(b.samples[k], bad[j]);
		}
	}
	assert_int_equal(rows, 8 * N);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(told->n[i], i == 3 || i == 17 || i == 40 || i == 60);
	assert_string_equal(told->text[3], "shard 3: key \"3\": rotten");
	assert_non_null(strstr(told->text[17], "shard 3: key \"17\": jpeg-"));
	ct_loader_stats(l, &stats);
	assert_int_equal(stats.bad, 4);
	assert_int_equal(stats.batches, 40);
	assert_true(stats.times.images >= rows && stats.times.decode_ns > 0 && stats.times.resize_ns > 0);
	ct_loader_destroy(l);
	ct_free(told);
	encoded_close(s);
}

/* One more than allowed: an error that names the last and stays; batches before it come. */
static void test_bad_budget(void **state)
{
	static const uint32_t bad[] = {3, 17, 40, 60};
	struct encoded_set *s = encoded_open(N);

	(void)state;
	encoded_spoil(s, bad, CT_ARRAY_LEN(bad));
	for (int n_threads = 0; n_threads <= 3; n_threads++) {
		struct ct_loader_opts o = encoded_options(n_threads);
		struct ct_loader_batch b = {0};
		ct_loader *l;

		o.sampler.shuffle = false;
		o.sampler.seed = 8; /* replaces 3 and 17 by good ones */
		o.bad = CT_BAD_REPLACE;
		o.max_bad = 2;
		l = encoded_loader(s, &o);
		/* The third lies in the third batch of 14. */
		for (int i = 0; i < 2; i++)
			assert_ok(next_batch(l, &b));
		for (int i = 0; i < 2; i++) {
			assert_int_equal(next_batch(l, &b), CT_DATA);
			assert_string_equal(
				ct_error_message(),
				"3 samples of encoded are unreadable, but only 2 are allowed; the last one is shard 3: "
				"key \"40\": rotten");
		}
		assert_ok(ct_loader_seek(l, 0, 0));
		assert_int_equal(next_batch(l, &b), CT_DATA);
		ct_loader_destroy(l);

		o.bad = CT_BAD_FAIL;
		l = encoded_loader(s, &o);
		assert_int_equal(next_batch(l, &b), CT_DATA);
		assert_string_equal(ct_error_message(), "shard 3: key \"3\": rotten");
		ct_loader_destroy(l);
	}
	encoded_close(s);
}

/* Nothing that is good at all: an error, not an endless search. */
static void test_all_bad(void **state)
{
	struct encoded_set *s = encoded_open(N);
	struct ct_loader_opts o = encoded_options(2);
	struct ct_loader_batch b = {0};
	uint32_t all[N];
	ct_loader *l;

	(void)state;
	for (uint32_t i = 0; i < N; i++)
		all[i] = i;
	encoded_spoil(s, all, N);
	o.bad = CT_BAD_REPLACE;
	o.max_bad = UINT64_MAX;
	l = encoded_loader(s, &o);
	assert_int_equal(next_batch(l, &b), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "100 samples of encoded in succession"));
	ct_loader_destroy(l);
	o.bad = CT_BAD_DROP;
	l = encoded_loader(s, &o);
	assert_ok(next_batch(l, &b));
	assert_int_equal(b.n, 0);
	ct_loader_destroy(l);
	encoded_close(s);
}

/* Evaluation: every good sample once, over any world. */
static void test_bad_dropped(void **state)
{
	static const uint32_t bad[] = {0, 13, 14, 15, 60};
	struct encoded_set *s = encoded_open(N), *whole = encoded_open(N);
	struct ct_loader_opts o = encoded_options(0);
	ct_transformer *t;

	(void)state;
	encoded_spoil(s, bad, CT_ARRAY_LEN(bad));
	o.bad = CT_BAD_DROP;
	o.max_bad = 5;
	o.transform.crop = CT_CROP_CENTER;
	o.transform.augment = (struct ct_augment){0};
	o.sampler.shuffle = false;
	assert_ok(ct_transformer_create(&o.transform, &whole->base, &t));
	for (o.sampler.world = 1; o.sampler.world <= 8; o.sampler.world++) {
		int seen[N] = {0};

		for (o.sampler.rank = 0; o.sampler.rank < o.sampler.world; o.sampler.rank++) {
			struct ct_loader_batch b = {0};
			ct_loader *l;

			o.n_threads = (int)o.sampler.rank % 3;
			l = encoded_loader(s, &o);
			do {
				assert_ok(next_batch(l, &b));
				for (uint32_t i = 0; i < b.n; i++) {
					uint8_t x[BYTES];
					int32_t label;

					seen[b.samples[i]]++;
					assert_ok(ct_transformer_run(t, 5, 0, b.samples[i], x, &label));
					assert_int_equal(b.labels[i], label);
					assert_memory_equal((const uint8_t *)b.x + (size_t)i * BYTES, x, BYTES);
				}
			} while (!b.last_of_epoch);
			ct_loader_destroy(l);
		}
		for (uint32_t i = 0; i < N; i++)
			assert_int_equal(seen[i], !(i == 0 || (i >= 13 && i <= 15) || i == 60));
	}
	ct_transformer_destroy(t);
	encoded_close(s);
	encoded_close(whole);
}

/* What is not the sample's fault ends the run under every policy, and says where it happened. */
static void test_not_its_fault(void **state)
{
	static const enum ct_bad_sample policies[] = {CT_BAD_FAIL, CT_BAD_REPLACE, CT_BAD_DROP};
	static const uint32_t bad[] = {5};
	struct encoded_set *s = encoded_open(N);

	(void)state;
	encoded_spoil(s, bad, 1);
	s->io = true;
	for (size_t i = 0; i < CT_ARRAY_LEN(policies); i++) {
		struct ct_loader_opts o = encoded_options((int)i);
		struct ct_loader_batch b = {0};
		ct_loader *l;

		o.bad = policies[i];
		o.max_bad = N;
		o.sampler.shuffle = false;
		l = encoded_loader(s, &o);
		for (int k = 0; k < 2; k++) {
			assert_int_equal(next_batch(l, &b), CT_IO);
			assert_string_equal(ct_error_message(), "shard 3: key \"5\": rotten");
		}
		ct_loader_destroy(l);
	}
	encoded_close(s);
}

/* A second loader does not read what the first one has found to be bad: here it would find nothing wrong. */
static void test_known_bad(void **state)
{
	static const uint32_t bad[] = {3, 17};
	struct encoded_set *sets[] = {encoded_open(N), encoded_open(N)};
	struct told *told = ct_calloc(1, sizeof(*told));
	_Atomic uint32_t known[N / 32 + 1] = {0};
	struct ct_loader_opts o = encoded_options(2);

	(void)state;
	encoded_spoil(sets[0], bad, CT_ARRAY_LEN(bad));
	o.bad = CT_BAD_DROP;
	o.max_bad = 2;
	o.known_bad = known;
	o.on_bad = on_bad;
	o.user = told;
	for (int i = 0; i < 2; i++) {
		ct_loader *l = encoded_loader(sets[i], &o);
		struct ct_loader_batch b = {0};
		uint32_t rows = 0;

		do {
			assert_ok(next_batch(l, &b));
			rows += b.n;
		} while (!b.last_of_epoch);
		assert_int_equal(rows, N - 2);
		assert_true(told->n[3] == i + 1 && told->n[17] == i + 1);
		if (i == 0)
			assert_non_null(strstr(told->text[3], "rotten"));
		ct_loader_destroy(l);
	}
	/* The message names no sample that this loader has not found. */
	o.max_bad = 1;
	ct_loader *l = encoded_loader(sets[1], &o);
	struct ct_loader_batch b = {0};
	enum ct_status st;

	do
		st = next_batch(l, &b);
	while (st == CT_OK && !b.last_of_epoch);
	assert_int_equal(st, CT_DATA);
	assert_non_null(strstr(ct_error_message(), "but only 1 are allowed"));
	assert_null(strstr(ct_error_message(), "the last one"));
	ct_loader_destroy(l);
	ct_free(told);
	encoded_close(sets[0]);
	encoded_close(sets[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_replaced), cmocka_unit_test(test_bad_budget),
		cmocka_unit_test(test_all_bad),      cmocka_unit_test(test_bad_dropped),
		cmocka_unit_test(test_known_bad),    cmocka_unit_test(test_not_its_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
