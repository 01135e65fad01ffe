/* The real and the malformed files in ../shared/data, which is not part of the project. The test is skipped if that
 * directory is missing. */
#include "tests/data/fixture.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash/sha256.h"

/* A word of the message that says what the tag of INDEX.tsv means. */
static const char *const tags[][2] = {
	{"gzip-isize", "gzip length field"},
	{"magic", "not an IDX file"},
	{"empty", "is empty"},
	{"short-header", "truncated inside its header"},
	{"dtype", "element type"},
	{"ndim", "dimensions"},
	{"extra-body", "more data than its header declares"},
	{"short-body", "too short"},
	{"huge", "MiB allowed"},
	{"zero-dim", "is 0"},
	{"shape", "expected 28 x 28"},
	{"count-mismatch", "has 16 images, but"},
	{"label-range", "out of range"},
};

static const char *meaning(const char *file, const char *tag)
{
	if (strstr(file, "labels-ndim-3"))
		return "are images and labels swapped?";
	for (size_t i = 0; i < CT_ARRAY_LEN(tags); i++) {
		if (strcmp(tags[i][0], tag) == 0)
			return tags[i][1];
	}
	fail_msg("tag %s has no meaning here", tag);
	return NULL;
}

static void link_as(const char *dir, const char *name, const char *bad, const char *file)
{
	char *path = ct_path_join(dir, name), *target = ct_path_join(bad, file);

	assert_int_equal(symlink(target, path), 0);
	ct_free(path);
	ct_free(target);
}

static void check_line(const char *bad, const char *file, bool good, const char *tag)
{
	bool labels = strstr(file, "labels") != NULL;
	char *dir = temp_dir();
	struct ct_dataset_spec spec = {.name = "mnist", .dir = dir, .split = "x"};
	enum ct_status st;
	ct_dataset *d;

	link_as(dir, "x-images-idx3-ubyte.gz", bad, labels ? "idx/good-images.gz" : file);
	link_as(dir, "x-labels-idx1-ubyte.gz", bad, labels ? file : "idx/good-labels.gz");
	st = ct_dataset_open(&spec, &d);
	if (good) {
		assert_ok(st);
		assert_int_equal(ct_dataset_info(d)->n, 16);
		ct_dataset_close(d);
	} else {
		const char *says = meaning(file, tag);

		if (st != CT_DATA || !strstr(ct_error_message(), says))
			print_error("%s (%s): %s %s\n", file, tag, ct_status_name(st), ct_error_message());
		assert_int_equal(st, CT_DATA);
		/* html.gz is gzip inside or outside: both sentences are right for it. */
		assert_true(strstr(ct_error_message(), says) || strstr(ct_error_message(), "web page"));
		assert_non_null(strstr(ct_error_message(), labels ? "x-labels" : "x-images"));
		assert_true(strlen(ct_error_hint_text()) > 0);
	}
	temp_dir_remove(dir);
}

static void test_bad_files(void **state)
{
	char *bad = shared_path("data/bad"), *index, *text, *line, *rest;
	size_t before = peak_rss_bytes(), len;
	int n = 0;

	(void)state;
	if (!bad)
		skip();
	index = ct_path_join(bad, "INDEX.tsv");
	assert_ok(ct_file_read(index, 1 << 20, &text, &len));
	for (rest = text; (line = strsep(&rest, "\n"));) {
		char *file = strsep(&line, "\t"), *verdict = strsep(&line, "\t"), *tag = strsep(&line, "\t");

		if (!tag || strncmp(file, "idx/", 4) != 0)
			continue;
		check_line(bad, file, strcmp(verdict, "ok") == 0, tag);
		n++;
	}
	assert_in_range(n, 23, 1000);
	/* The bomb holds 64 MiB. */
	assert_true(peak_rss_bytes() - before < (size_t)32 << 20);
	ct_free(text);
	ct_free(index);
	ct_free(bad);
}

static void check_digest(const char *name, const char *directory, const char *split, uint32_t n, const char *pixels,
			 const char *labels)
{
	char *dir = shared_path(directory), hex[CT_SHA256_HEX];
	struct ct_dataset_spec spec = {.name = name, .dir = dir, .split = split};
	struct ct_sha256 hx, hy;
	ct_dataset *d;

	if (!dir)
		skip();
	assert_ok(ct_dataset_open(&spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, n);
	ct_sha256_init(&hx);
	ct_sha256_init(&hy);
	for (uint32_t i = 0; i < n; i++) {
		uint8_t x[784], y;
		int32_t label;

		assert_ok(ct_dataset_read(d, i, x, &label, NULL));
		y = (uint8_t)label;
		ct_sha256_update(&hx, x, sizeof(x));
		ct_sha256_update(&hy, &y, 1);
	}
	ct_sha256_final_hex(&hx, hex);
	assert_string_equal(hex, pixels);
	ct_sha256_final_hex(&hy, hex);
	assert_string_equal(hex, labels);
	ct_dataset_close(d);
	ct_free(dir);
}

static void test_mnist(void **state)
{
	(void)state;
	check_digest("mnist", "data/mnist", "train", 60000,
		     "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
		     "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13");
	check_digest("mnist", "data/mnist", "t10k", 10000,
		     "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
		     "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5");
}

static void test_fashion(void **state)
{
	(void)state;
	check_digest("fashion_mnist", "data/fashion-mnist", "train", 60000,
		     "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
		     "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7");
	check_digest("fashion_mnist", "data/fashion-mnist", "t10k", 10000,
		     "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
		     "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_files), /* first: it looks at the peak of memory */
		cmocka_unit_test(test_mnist),
		cmocka_unit_test(test_fashion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
