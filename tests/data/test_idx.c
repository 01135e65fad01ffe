/* IDX files: every kind of damage is reported precisely, and memory use is limited by the declared size. */
#include "tests/data/fixture.h"

#include <string.h>

#include "base/file.h"
#include "data/formats/idx_impl.h"

struct files {
	struct bytes images, labels;
};

static void set_be32(struct bytes b, size_t at, uint32_t v)
{
	for (size_t i = 0; i < 4; i++)
		b.p[at + i] = (uint8_t)(v >> (24 - 8 * i));
}

static void resize(struct bytes *b, size_t n)
{
	uint8_t *p = ct_calloc(n, 1);

	assert_non_null(p);
	memcpy(p, b->p, n < b->n ? n : b->n);
	ct_free(b->p);
	b->p = p;
	b->n = n;
}

static void replace(struct bytes *b, const char *text)
{
	bytes_release(b);
	*b = bytes_copy(text, strlen(text));
}

/* clang-format off */
static void same(struct files *f) { (void)f; }
static void images_empty(struct files *f) { resize(&f->images, 0); }
static void labels_empty(struct files *f) { resize(&f->labels, 0); }
static void images_web_page(struct files *f) { replace(&f->images, "<html><body>404 not found</body></html>"); }
static void images_text(struct files *f) { replace(&f->images, "not an idx file at all"); }
static void images_3_bytes(struct files *f) { resize(&f->images, 3); }
static void images_header_cut(struct files *f) { resize(&f->images, 15); }
static void labels_header_cut(struct files *f) { resize(&f->labels, 7); }
static void type_float(struct files *f) { f->images.p[2] = 0x0d; }
static void type_unknown(struct files *f) { f->images.p[2] = 0x07; }
static void dims_0(struct files *f) { f->images.p[3] = 0; }
static void dims_2(struct files *f) { f->images.p[3] = 2; }
static void dims_4(struct files *f) { f->images.p[3] = 4; }
static void dims_255(struct files *f) { f->images.p[3] = 255; }
static void labels_dims_3(struct files *f) { f->labels.p[3] = 3; }
static void no_images(struct files *f) { set_be32(f->images, 4, 0); }
static void no_labels(struct files *f) { set_be32(f->labels, 4, 0); }
static void no_rows(struct files *f) { set_be32(f->images, 8, 0); }
static void no_columns(struct files *f) { set_be32(f->images, 12, 0); }
static void wide(struct files *f) { set_be32(f->images, 12, 65537); }
static void body_long(struct files *f) { resize(&f->images, f->images.n + 1); }
static void body_short(struct files *f) { resize(&f->images, f->images.n - 1); }
static void fewer_declared(struct files *f) { set_be32(f->images, 4, 5); }
static void more_declared(struct files *f) { set_be32(f->images, 4, 13); }
static void huge(struct files *f) { set_be32(f->images, 4, UINT32_MAX); }
static void label_10(struct files *f) { f->labels.p[f->labels.n - 1] = 10; }
static void label_255(struct files *f) { f->labels.p[8] = 255; }
static void shape_other(struct files *f) { set_be32(f->images, 8, 3), set_be32(f->images, 12, 4); }
/* clang-format on */

static void wraps_64_bits(struct files *f)
{
	set_be32(f->images, 4, UINT32_MAX);
	set_be32(f->images, 8, 65536);
	set_be32(f->images, 12, 65536);
}

static void swapped(struct files *f)
{
	struct bytes t = f->images;

	f->images = f->labels;
	f->labels = t;
}

static void fewer_labels(struct files *f)
{
	set_be32(f->labels, 4, 11);
	resize(&f->labels, f->labels.n - 1);
}

/* Declared within the limit, and more than 1032 times the file: refused before any memory is asked for. */
static void cannot_hold(struct files *f)
{
	set_be32(f->images, 4, 1000000);
	set_be32(f->images, 8, 28);
	set_be32(f->images, 12, 28);
}

/* 12 images of 4 x 3, 12 labels 0..9, 0, 1. Expected shape 4 x 3. */
static const struct bad_case {
	const char *name;
	void (*make)(struct files *f);
	const char *says; /* NULL: good */
} cases[] = {
	{"same", same, NULL},
	{"images empty", images_empty, "images is empty"},
	{"labels empty", labels_empty, "labels is empty"},
	{"web page", images_web_page, "web page"},
	{"text", images_text, "images is not an IDX file: it starts with 6e 6f 74 20"},
	{"3 bytes", images_3_bytes, "truncated inside its header"},
	{"images header cut", images_header_cut, "truncated inside its header"},
	{"labels header cut", labels_header_cut, "truncated inside its header"},
	{"floats", type_float, "32-bit floats"},
	{"unknown type", type_unknown, "element type 0x07"},
	{"0 dimensions", dims_0, "has 0 dimensions, but images have 3"},
	{"2 dimensions", dims_2, "has 2 dimensions"},
	{"4 dimensions", dims_4, "has 4 dimensions"},
	{"255 dimensions", dims_255, "has 255 dimensions"},
	{"labels with 3 dimensions", labels_dims_3, "labels has 3 dimensions"},
	{"swapped", swapped, "swapped?"},
	{"no images", no_images, "declares 0 images"},
	{"no labels", no_labels, "declares 0 labels"},
	{"no rows", no_rows, "dimension 1 is 0"},
	{"no columns", no_columns, "dimension 2 is 0"},
	{"wide", wide, "too large"},
	{"body long", body_long, "more data than its header declares"},
	{"body short", body_short, "" /* "can contain" when plain, "too short" in gzip */},
	{"fewer declared", fewer_declared, "more data than its header declares"},
	{"more declared", more_declared, ""},
	{"huge", huge, "more than the 16384 MiB allowed"},
	{"wraps 64 bits", wraps_64_bits, "more than the 16384 MiB allowed"},
	{"cannot hold", cannot_hold, "more than the file can contain"},
	{"label 10", label_10, "label 10 of sample 11"},
	{"label 255", label_255, "label 255 of sample 0"},
	{"fewer labels", fewer_labels, "images has 12 images, but labels has 11 labels"},
	{"shape", shape_other, "images of 3 x 4, expected 4 x 3"},
};

static enum ct_status open_files(const struct files *f, ct_dataset **d)
{
	struct ct_dataset_spec spec = {.name = "idx", .c = 1, .h = 4, .w = 3};

	return ct__dataset_idx_open_memory(&spec, f->images.p, f->images.n, f->labels.p, f->labels.n, d);
}

static void check_case(const struct bad_case *c, const struct files *f)
{
	ct_dataset *d = NULL;
	enum ct_status st = open_files(f, &d);

	if (!c->says) {
		assert_ok(st);
		ct_dataset_close(d);
		return;
	}
	if (st != CT_DATA || !strstr(ct_error_message(), c->says))
		print_error("%s: %s %s\n", c->name, ct_status_name(st), ct_error_message());
	assert_int_equal(st, CT_DATA);
	assert_non_null(strstr(ct_error_message(), c->says));
	assert_true(strlen(ct_error_hint_text()) > 0);
}

static void test_cases(void **state)
{
	size_t before = peak_rss_bytes();

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		struct files f = {idx_images(12, 4, 3), idx_labels(12)}, z;

		cases[i].make(&f);
		check_case(&cases[i], &f);
		z = (struct files){gzip(f.images), gzip(f.labels)};
		check_case(&cases[i], &z);
		bytes_release(&f.images);
		bytes_release(&f.labels);
		bytes_release(&z.images);
		bytes_release(&z.labels);
	}
	assert_true(peak_rss_bytes() - before < (size_t)64 << 20);
}

static void test_content(void **state)
{
	struct bytes images = idx_images(12, 4, 3), labels = idx_labels(12), z = gzip(images);
	const struct ct_dataset_info *info;
	struct files f = {z, labels};
	char hex[65], hex2[65];
	ct_dataset *d;

	(void)state;
	assert_ok(open_files(&f, &d));
	info = ct_dataset_info(d);
	assert_string_equal(info->name, "idx");
	assert_int_equal(info->n, 12);
	assert_int_equal(info->c, 1);
	assert_int_equal(info->h, 4);
	assert_int_equal(info->w, 3);
	assert_int_equal(info->sample_bytes, 12);
	assert_int_equal(info->n_classes, 10);
	assert_int_equal(info->bytes, 12 * 12 + 12);
	for (uint32_t i = 0; i < 12; i++) {
		uint8_t x[12];
		int32_t label;

		assert_ok(ct_dataset_read(d, i, x, &label, NULL));
		assert_memory_equal(x, images.p + 16 + 12 * i, 12);
		assert_int_equal(label, labels.p[8 + i]);
	}
	assert_int_equal(ct_dataset_read(d, 12, hex, NULL, NULL), CT_BUG);

	/* The digest is that of the content: not of the packing, but of every byte. */
	ct_dataset_digest(d, hex);
	ct_dataset_close(d);
	f.images = images;
	assert_ok(open_files(&f, &d));
	ct_dataset_digest(d, hex2);
	ct_dataset_close(d);
	assert_string_equal(hex, hex2);
	images.p[100] ^= 1;
	assert_ok(open_files(&f, &d));
	ct_dataset_digest(d, hex2);
	ct_dataset_close(d);
	assert_string_not_equal(hex, hex2);
	images.p[100] ^= 1;
	labels.p[9] = 9;
	assert_ok(open_files(&f, &d));
	ct_dataset_digest(d, hex2);
	ct_dataset_close(d);
	assert_string_not_equal(hex, hex2);
	bytes_release(&images);
	bytes_release(&labels);
	bytes_release(&z);
}

static void test_limit(void **state)
{
	struct bytes images = idx_images(12, 4, 3), labels = idx_labels(12);
	struct ct_dataset_spec spec = {.name = "idx", .max_bytes = 155};
	ct_dataset *d;

	(void)state;
	assert_int_equal(ct__dataset_idx_open_memory(&spec, images.p, images.n, labels.p, labels.n, &d), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "more than the 0 MiB allowed"));
	spec.max_bytes = 156;
	assert_ok(ct__dataset_idx_open_memory(&spec, images.p, images.n, labels.p, labels.n, &d));
	ct_dataset_close(d);
	bytes_release(&images);
	bytes_release(&labels);
}

static void put(const char *dir, const char *name, struct bytes b)
{
	char *path = ct_path_join(dir, name);

	assert_ok(ct_file_replace(path, b.p, b.n));
	ct_free(path);
}

static void expect_open(const struct ct_dataset_spec *spec, uint32_t n)
{
	ct_dataset *d;

	assert_ok(ct_dataset_open(spec, &d));
	assert_int_equal(ct_dataset_info(d)->n, n);
	ct_dataset_close(d);
}

/* NULL: the class has no name. */
static void expect_class_name(const struct ct_dataset_spec *spec, int label, const char *name)
{
	ct_dataset *d;

	assert_ok(ct_dataset_open(spec, &d));
	if (name)
		assert_string_equal(ct_dataset_class_name(d, label), name);
	else
		assert_null(ct_dataset_class_name(d, label));
	ct_dataset_close(d);
}

static void test_names(void **state)
{
	struct bytes images = idx_images(12, 28, 28), labels = idx_labels(12), zi = gzip(images),
		     few = idx_images(11, 28, 28), few_labels = idx_labels(11);
	char *dir = temp_dir(), *other = ct_strfmt("%s/other", dir), *prefix = ct_path_join(dir, "own");
	struct ct_dataset_spec spec = {.name = "mnist", .dir = dir, .split = "train"};

	(void)state;
	put(dir, "train-images-idx3-ubyte.gz", zi);
	put(dir, "train-labels-idx1-ubyte", labels);
	expect_open(&spec, 12);
	expect_class_name(&spec, 5, NULL);
	spec.name = "fashion_mnist";
	expect_open(&spec, 12);
	expect_class_name(&spec, 5, "Sandal");
	expect_class_name(&spec, 9, "Ankle boot");
	expect_class_name(&spec, 10, NULL);
	spec.name = "idx";
	expect_open(&spec, 12);
	/* Neither the name's end nor '-' or '.' matters; a prefix may be a path of its own. */
	put(dir, "t10k-images.idx3-ubyte.gz", few);
	put(dir, "t10k-labels.idx1-ubyte", few_labels);
	spec.split = "t10k";
	expect_open(&spec, 11);
	spec.split = NULL;
	expect_open(&spec, 11);
	spec.train = true;
	expect_open(&spec, 12);
	put(dir, "own-images-idx3-ubyte", images);
	put(dir, "own-labels-idx1-ubyte", labels);
	spec.dir = other;
	spec.split = prefix;
	expect_open(&spec, 12);
	ct_free(prefix);
	ct_free(other);
	temp_dir_remove(dir);
	bytes_release(&images);
	bytes_release(&labels);
	bytes_release(&zi);
	bytes_release(&few);
	bytes_release(&few_labels);
}

static void expect_failure(const struct ct_dataset_spec *spec, enum ct_status want, const char *says)
{
	ct_dataset *d;
	enum ct_status st = ct_dataset_open(spec, &d);

	if (st != want || !strstr(ct_error_message(), says))
		print_error("%s: %s (wanted %s)\n", ct_status_name(st), ct_error_message(), says);
	assert_int_equal(st, want);
	assert_non_null(strstr(ct_error_message(), says));
}

static void test_missing(void **state)
{
	char *dir = temp_dir(), *none = ct_path_join(dir, "none"),
	     *looked_for = ct_path_join(dir, "train-images-idx3-ubyte");
	struct ct_dataset_spec spec = {.name = "mnist", .dir = dir, .split = "train"};
	struct bytes images = idx_images(12, 27, 28);

	(void)state;
	expect_failure(&spec, CT_NOT_FOUND, looked_for);
	assert_non_null(strstr(ct_error_hint_text(), "scripts/get_mnist.sh"));
	assert_non_null(strstr(ct_error_hint_text(), "ctrain data digits --out"));
	assert_non_null(strstr(ct_error_hint_text(), dir));
	spec.name = "fashion_mnist";
	expect_failure(&spec, CT_NOT_FOUND, looked_for);
	assert_non_null(strstr(ct_error_hint_text(), "scripts/get_mnist.sh --fashion"));
	spec.name = "mnist";
	spec.dir = none;
	expect_failure(&spec, CT_NOT_FOUND, "the directory does not exist");
	spec.dir = dir;
	put(dir, "train-images-idx3-ubyte", images);
	expect_failure(&spec, CT_NOT_FOUND, "train-labels-idx1-ubyte");
	put(dir, "train-labels-idx1-ubyte", images);
	expect_failure(&spec, CT_DATA, "train-labels-idx1-ubyte has 3 dimensions");
	bytes_release(&images);
	images = idx_labels(12);
	put(dir, "train-labels-idx1-ubyte", images);
	expect_failure(&spec, CT_DATA, "images of 27 x 28, expected 28 x 28");
	assert_non_null(strstr(ct_error_hint_text(), "the wrong one"));
	spec.name = "mnits";
	expect_failure(&spec, CT_CONFIG, "mnits");
	assert_non_null(strstr(ct_error_hint_text(), "\"mnist\""));
	spec.name = NULL;
	expect_failure(&spec, CT_CONFIG, "unknown data set");
	bytes_release(&images);
	ct_free(none);
	ct_free(looked_for);
	temp_dir_remove(dir);
}

/* The shape by the header: labels and pixels are not looked at. */
static void test_peek(void **state)
{
	char *dir = temp_dir();
	struct ct_dataset_spec spec = {.name = "idx", .dir = dir, .train = true};
	struct ct_dataset_info info = {.h = 5};
	struct bytes images = idx_images(12, 27, 26);

	(void)state;
	assert_int_equal(ct_dataset_peek(&spec, &info), CT_NOT_FOUND);
	assert_int_equal(info.h, 5);
	put(dir, "train-images-idx3-ubyte", images);
	assert_ok(ct_dataset_peek(&spec, &info));
	assert_true(info.c == 1 && info.h == 27 && info.w == 26);
	spec.h = 28;
	assert_int_equal(ct_dataset_peek(&spec, &info), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "images of 27 x 26, expected 28 x 26"));
	assert_non_null(strstr(ct_error_hint_text(), "data.shape"));
	images.p[3] = 1;
	put(dir, "train-images-idx3-ubyte", images);
	assert_int_equal(ct_dataset_peek(&spec, &info), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "swapped"));
	assert_non_null(strstr(ct_error_hint_text(), "the wrong one"));
	spec.name = "synthetic";
	info.h = 5;
	assert_ok(ct_dataset_peek(&spec, &info));
	assert_int_equal(info.h, 5);
	spec.name = "mnits";
	assert_int_equal(ct_dataset_peek(&spec, &info), CT_CONFIG);
	bytes_release(&images);
	temp_dir_remove(dir);
}

/* Every allocation of an open may fail: an error, and nothing left behind (ASan looks). */
static void test_no_memory(void **state)
{
	struct bytes images = idx_images(12, 28, 28), labels = idx_labels(12), zi = gzip(images);
	char *dir = temp_dir();
	struct ct_dataset_spec spec = {.name = "mnist", .dir = dir, .split = "train"};
	enum ct_status st = CT_NOMEM;
	uint64_t n;

	(void)state;
	put(dir, "train-images-idx3-ubyte.gz", zi);
	put(dir, "train-labels-idx1-ubyte.gz", labels);
	for (n = 1; n < 100 && st != CT_OK; n++) {
		ct_dataset *d;

		ct_mem_fail_after(n);
		st = ct_dataset_open(&spec, &d);
		ct_mem_fail_after(0);
		if (st == CT_OK)
			ct_dataset_close(d);
		else
			assert_int_equal(st, CT_NOMEM);
	}
	assert_in_range(n, 10, 99);
	temp_dir_remove(dir);
	bytes_release(&images);
	bytes_release(&labels);
	bytes_release(&zi);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),     cmocka_unit_test(test_content), cmocka_unit_test(test_limit),
		cmocka_unit_test(test_names),     cmocka_unit_test(test_missing), cmocka_unit_test(test_peek),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
