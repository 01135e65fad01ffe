/* The file of the plan cache: damage, files of other GPUs, several writers, and claims. */
#include "tests/nn/cuda/plan_cache_check.h"

static const char key[] = "card, sm_90, cuDNN 9";

/* Writes a cache with two entries, and returns its path, which the caller frees. */
static char *write_cache(void)
{
	ct_plan_cache *c = open_cache(key);
	char *path = ct_strdup(ct_plan_cache_path(c));

	assert_ok(ct_plan_cache_put(c, "first", "0"));
	assert_ok(ct_plan_cache_put(c, "second graph x=1", "1:2=2"));
	assert_ok(ct_plan_cache_put(c, "first", "7:2=1,3=0"));
	assert_true(ct_plan_cache_save(c));
	ct_plan_cache_destroy(c);
	return path;
}

static void expect_empty(const char *path, const char *data, size_t n, const char *what)
{
	FILE *f = fopen(path, "wb"); /* ct_file_replace would wait for the disk thousands of times */

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
	ct_plan_cache *c = open_cache(key);
	if (ct_plan_cache_find(c, "first") || ct_plan_cache_find(c, "second graph x=1"))
		fail_msg("%s: the cache has entries", what);
	ct_plan_cache_destroy(c);
}

static void test_damage(void **state)
{
	char *path = write_cache(), *data, what[64];
	size_t n;

	(void)state;
	open_log();
	ct_plan_cache *c = open_cache(key);
	assert_string_equal(ct_plan_cache_find(c, "first"), "7:2=1,3=0");
	assert_string_equal(ct_plan_cache_find(c, "second graph x=1"), "1:2=2");
	assert_null(ct_plan_cache_find(c, "second graph"));
	ct_plan_cache_destroy(c);
	assert_ok(ct_file_read(path, 1 << 20, &data, &n));
	assert_false(has_logged("damaged"));
	for (size_t i = 0; i < n; i++) {
		for (int bit = 0; bit < 8; bit++) {
			snprintf(what, sizeof(what), "bit %d of byte %zu", bit, i);
			data[i] = (char)(data[i] ^ 1 << bit);
			expect_empty(path, data, n, what);
			data[i] = (char)(data[i] ^ 1 << bit);
		}
	}
	for (size_t i = 0; i < n; i++) {
		snprintf(what, sizeof(what), "truncated to %zu bytes", i);
		expect_empty(path, data, i, what);
	}
	snprintf(what, sizeof(what), "%s", ct_path_name(path));
	assert_true(has_logged(what) && has_logged("is damaged"));
	ct_free(data);
	ct_free(path);
}

/* The file of another GPU or version under this name. */
static void test_other_key(void **state)
{
	char *mine = write_cache(), *data;
	size_t n;

	(void)state;
	ct_plan_cache *c = open_cache("card, sm_90, cuDNN 10");
	assert_null(ct_plan_cache_find(c, "first"));
	assert_ok(ct_file_read(mine, 1 << 20, &data, &n));
	assert_ok(ct_file_replace(ct_plan_cache_path(c), data, n));
	assert_ok(ct_plan_cache_load(c));
	assert_null(ct_plan_cache_find(c, "first"));
	ct_plan_cache_destroy(c);
	ct_free(data);
	ct_free(mine);
}

/* Two processes save entries. Those of the other one remain, and an own one replaces that in the file. */
static void test_two_writers(void **state)
{
	ct_plan_cache *one = open_cache(key), *two = open_cache(key);

	(void)state;
	assert_ok(ct_plan_cache_put(one, "graph", "5"));
	assert_ok(ct_plan_cache_put(one, "other", "6"));
	assert_true(ct_plan_cache_save(one));
	assert_ok(ct_plan_cache_put(two, "graph", "7"));
	assert_true(ct_plan_cache_save(two));
	ct_plan_cache_destroy(one);
	one = open_cache(key);
	assert_string_equal(ct_plan_cache_find(one, "graph"), "7");
	assert_string_equal(ct_plan_cache_find(one, "other"), "6");
	ct_plan_cache_destroy(two);
	ct_plan_cache_destroy(one);
}

/* A name is claimed by one process until it ends its claims. */
static void test_claims(void **state)
{
	ct_plan_cache *one = open_cache(key), *two = open_cache(key);

	(void)state;
	assert_true(ct_plan_cache_claim(one, "graph")); /* no one has begun claims */
	assert_true(ct_plan_cache_claim(two, "graph"));
	assert_true(ct_plan_cache_begin_claims(one));
	assert_true(ct_plan_cache_begin_claims(two));
	assert_true(ct_plan_cache_claim(one, "graph"));
	assert_true(ct_plan_cache_claim(one, "graph"));
	assert_false(ct_plan_cache_claim(two, "graph"));
	assert_true(ct_plan_cache_claim(two, "other"));
	assert_false(ct_plan_cache_claim(one, "other"));
	ct_plan_cache_destroy(one);
	assert_true(ct_plan_cache_claim(two, "graph"));
	ct_plan_cache_destroy(two);
}

/* After a failed save there are no claims, because the other processes would not find the choices. */
static void test_cannot_save(void **state)
{
	ct_plan_cache *one = open_cache(key);

	(void)state;
	assert_true(ct_plan_cache_begin_claims(one));
	assert_ok(ct_dir_make(ct_plan_cache_path(one)));
	assert_ok(ct_plan_cache_put(one, "graph", "5"));
	assert_false(ct_plan_cache_save(one));
	ct_plan_cache_end_claims(one);
	assert_false(ct_plan_cache_begin_claims(one));
	assert_false(ct_plan_cache_save(one));
	assert_true(ct_plan_cache_claim(one, "graph"));
	ct_plan_cache_destroy(one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(test_damage), TEST(test_other_key), TEST(test_two_writers),
					   TEST(test_claims), TEST(test_cannot_save)};

	ct_log_off_terminal(true);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
