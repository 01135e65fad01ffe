/* The descriptions of rows that the loader delivers stand for exactly the pixels, labels and shares that it delivers
 * otherwise. */
#include "tests/data/fixture.h"

#include <string.h>

#include "tests/data/batches.h"
#include "tests/image_row_pixels.h"

enum { N = 61, H = 9, W = 7, C = 3, BYTES = H * W * C };

static ct_dataset *open_synthetic(void)
{
	const struct ct_dataset_spec spec = {
		.name = "synthetic", .n = N, .c = C, .h = H, .w = W, .train = true, .seed = 3};
	ct_dataset *d;

	assert_ok(ct_dataset_open(&spec, &d));
	return d;
}

static struct ct_loader_opts options(void)
{
	return (struct ct_loader_opts){
		.sampler = {.n = N, .global_batch = 14, .world = 1, .accumulate = 1, .seed = 11, .shuffle = true}};
}

static uint8_t *read_all(const ct_dataset *d)
{
	uint8_t *all;

	assert_non_null(all = ct_calloc(N, BYTES));
	for (uint32_t i = 0; i < N; i++)
		assert_ok(ct_dataset_read(d, i, all + (size_t)i * BYTES, NULL, NULL));
	return all;
}

static void compare_batch(const struct ct_loader_batch *rows, const struct ct_loader_batch *x, const uint8_t *all,
			  const uint8_t *fill)
{
	assert_null(rows->x);
	assert_null(x->rows);
	assert_int_equal(rows->n, x->n);
	assert_int_equal(rows->in_batch, x->in_batch);
	assert_int_equal(rows->n_global, x->n_global);
	for (uint32_t i = 0; i < x->n; i++) {
		const struct ct_image_row *r = &rows->rows[i];
		uint8_t pixels[BYTES];

		image_row_pixels(r, all, fill, H, W, C, pixels);
		assert_memory_equal(pixels, (const uint8_t *)x->x + (size_t)i * BYTES, BYTES);
		assert_int_equal(r->own.sample, x->samples[i]);
		assert_int_equal(rows->samples[i], x->samples[i]);
		assert_int_equal(r->label, x->labels[i]);
		assert_int_equal(rows->labels[i], x->labels[i]);
		assert_int_equal(r->label_b, x->labels_b ? x->labels_b[i] : x->labels[i]);
		assert_true(r->mix == (x->mix ? x->mix[i] : 1.0f));
	}
}

/* Two epochs and, after a seek, the rest of a third. */
static void compare_loaders(const ct_dataset *d, struct ct_loader_opts o, const uint8_t *all)
{
	struct ct_loader_batch rows = {0}, x = {0};
	uint64_t steps = ct_sampler_steps(&o.sampler) * o.sampler.accumulate;
	ct_loader *described, *plain;
	uint8_t fill[4];

	ct_augment_fill(&o.transform.augment, C, fill);
	assert_ok(ct_loader_create(d, &o, &plain));
	o.describe = true;
	assert_ok(ct_loader_create(d, &o, &described));
	for (uint64_t i = 0; i < 3 * steps - o.sampler.accumulate; i++) {
		if (i == 2 * steps) {
			ct_loader_release(described, &rows);
			ct_loader_release(plain, &x);
			assert_ok(ct_loader_seek(described, 2, 1));
			assert_ok(ct_loader_seek(plain, 2, 1));
		}
		assert_ok(next_batch(described, &rows));
		assert_ok(next_batch(plain, &x));
		compare_batch(&rows, &x, all, fill);
	}
	ct_loader_destroy(described);
	ct_loader_destroy(plain);
}

static void test_rows(void **state)
{
	static const struct {
		struct ct_augment augment;
		float mixup, cutmix;
	} cases[] = {
		{{0}, 0, 0},
		{{.crop_padding = 2}, 0, 0},
		{{.flip = true}, 0, 0},
		{{.crop_padding = 12, .flip = true}, 0, 0}, /* some crops have no pixel of the sample */
		{{.erasing = 0.9f, .mean = {0.2f, 0.4f, 0.6f}}, 0, 0},
		{{.crop_padding = 1}, 0.5f, 0},
		{{.flip = true}, 0, 1},
		{{.crop_padding = 3, .flip = true, .erasing = 0.5f, .mean = {0.2f, 0.4f, 0.6f}}, 0.4f, 1},
	};
	ct_dataset *d = open_synthetic();
	uint8_t *all = read_all(d);

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		for (uint32_t world = 1; world <= 3; world += 2) {
			struct ct_loader_opts o = options();

			o.transform.augment = cases[i].augment;
			o.mixup = cases[i].mixup;
			o.cutmix = cases[i].cutmix;
			o.sampler.world = world;
			for (; o.sampler.rank < world; o.sampler.rank++) {
				o.sampler.accumulate = 1 + o.sampler.rank % 2;
				o.n_threads = (int)(i % 3);
				compare_loaders(d, o, all);
			}
		}
	}
	ct_free(all);
	ct_dataset_close(d);
}

static void expect_refused(const ct_dataset *d, const struct ct_loader_opts *o, const char *says)
{
	ct_loader *l;

	assert_int_equal(ct_loader_create(d, o, &l), CT_CONFIG);
	assert_non_null(strstr(ct_error_message(), says));
	ct_error_clear();
}

static void test_refused(void **state)
{
	const struct ct_dataset_spec spec = {.name = "synthetic_regression", .n = N, .train = true};
	ct_dataset *images = open_synthetic(), *vectors;
	struct ct_loader_opts o = options();

	(void)state;
	assert_ok(ct_dataset_open(&spec, &vectors));
	o.describe = true;
	expect_refused(vectors, &o, "the samples are not images");
	o.transform.augment.degrees = 5;
	expect_refused(images, &o, "only crops, flips and erasing");
	o.transform.augment = (struct ct_augment){.brightness = 0.5f};
	expect_refused(images, &o, "only crops, flips and erasing");
	o.transform.augment = (struct ct_augment){.rand_augment = 1};
	expect_refused(images, &o, "only crops, flips and erasing");
	o.transform = (struct ct_transform){.crop = CT_CROP_CENTER};
	expect_refused(images, &o, "the images are resized");
	ct_dataset_close(vectors);
	ct_dataset_close(images);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_refused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
