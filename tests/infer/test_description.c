#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "infer/description.h"
#include "infer/ranking.h"

static const char *const layers[] = {"conv2d 4 kernel=3", "flatten", "linear 3"};
static const char *const classes[] = {"cat", "dog \"b\"", "\xc3\xa9t\xc3\xa9"};

static void describe(struct ct_description *d)
{
	const struct ct_model_spec spec = {.name = "layers",
					   .input = {3, 8, 10},
					   .n_outputs = 3,
					   .hidden = (const int[]){7, 5},
					   .n_hidden = 2,
					   .dropout = 0.25f,
					   .layers = layers,
					   .n_layers = 3,
					   .small_stem = true,
					   .drop_path = 0.1f};

	*d = (struct ct_description){.resize = 12, .exif = true, .mean = {0.1f, 0.2f, 0.3f}, .std = {0.4f, 0.5f, 0.6f}};
	assert_int_equal(ct_description_set_model(d, &spec), CT_OK);
	assert_int_equal(ct_description_set_classes(d, classes, 3), CT_OK);
}

static void test_round_trip(void **state)
{
	struct ct_description d, e;
	struct ct_str text = {0}, again = {0};

	(void)state;
	describe(&d);
	assert_int_equal(ct_description_write(&d, &text), CT_OK);
	assert_int_equal(ct_description_parse(ct_str_text(&text), "a file", &e), CT_OK);
	assert_string_equal(e.model.name, "layers");
	assert_int_equal(e.model.input.c, 3);
	assert_int_equal(e.model.input.h, 8);
	assert_int_equal(e.model.input.w, 10);
	assert_int_equal(e.model.n_outputs, 3);
	assert_int_equal(e.model.n_hidden, 2);
	assert_int_equal(e.model.hidden[1], 5);
	assert_true(e.model.dropout == 0.25f && e.model.drop_path == 0.1f && e.model.small_stem);
	assert_int_equal(e.model.n_layers, 3);
	assert_string_equal(e.model.layers[2], "linear 3");
	assert_int_equal(e.resize, 12);
	assert_true(e.exif && !e.fast);
	for (int i = 0; i < 3; i++)
		assert_true(e.mean[i] == d.mean[i] && e.std[i] == d.std[i]);
	assert_int_equal(e.n_classes, 3);
	for (int i = 0; i < 3; i++)
		assert_string_equal(e.classes[i], classes[i]);
	assert_int_equal(ct_description_write(&e, &again), CT_OK);
	assert_string_equal(ct_str_text(&text), ct_str_text(&again));
	ct_description_release(&d);
	ct_description_release(&e);
	ct_str_release(&text);
	ct_str_release(&again);
}

/* Replaces the first `from` in the valid text by `to`, and expects this to be refused with `why` in the message. */
static void refuse(const char *from, const char *to, const char *why)
{
	struct ct_description d, e = {0};
	struct ct_str text = {0}, bad = {0};
	const char *at;

	describe(&d);
	assert_int_equal(ct_description_write(&d, &text), CT_OK);
	at = strstr(ct_str_text(&text), from);
	assert_non_null(at);
	ct_str_add_bytes(&bad, text.s, (size_t)(at - text.s));
	ct_str_add(&bad, to);
	ct_str_add(&bad, at + strlen(from));
	assert_int_equal(ct_description_parse(ct_str_text(&bad), "some file", &e), CT_DATA);
	assert_non_null(strstr(ct_error_message(), "some file"));
	if (!strstr(ct_error_message(), why))
		fail_msg("%s -> %s: %s", from, to, ct_error_message());
	assert_null(e.classes); /* nothing is left to release */
	ct_description_release(&d);
	ct_str_release(&text);
	ct_str_release(&bad);
}

static void test_refused(void **state)
{
	static const char *const cases[][3] = {
		/* {from, to, why} */
		{"\"v\":1", "\"v\":2", "supports only 1"},
		{"\"name\":\"layers\"", "\"name\":\"vit\"", "no model \"vit\""},
		{"\"outputs\":3", "\"outputs\":0", "outputs"},
		{"\"outputs\":3", "\"outputs\":4", "3 names"},
		{"\"outputs\":3", "\"outputs\":1e99", "outputs"},
		{"cross_entropy", "hinge", "hinge"},
		{"[7,5]", "[7,-5]", "hidden"},
		{"[7,5]", "7", "hidden"},
		{"\"linear 3\"", "3", "layers"},
		{"\"height\":8", "\"height\":-8", "height"},
		{"\"std\":[0.4", "\"std\":[-0.4", "std"},
		{"\"mean\":[", "\"mean\":[1,", "mean"},
		{"\"resize\":12", "\"resize\":9", "resize"},
		{"\"resize\":12", "\"resize\":100000", "resize"},
		{"\"exif\":true", "\"exif\":1", "exif"},
		{"\"classes\":[", "\"classes\":[[],", "classes"},
		{"\"input\":{", "\"input\":[{", ""},
		{"{", "", ""},
	};
	struct ct_str many = {0};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		refuse(cases[i][0], cases[i][1], cases[i][2]);
	for (int i = 0; i < 1024; i++)
		ct_str_add(&many, "\"relu\",");
	ct_str_add(&many, "\"linear 3\"");
	refuse("\"linear 3\"", ct_str_text(&many), "at most 1024");
	ct_str_release(&many);
}

/* mean and std have values for at most 4 channels. */
static void test_many_channels(void **state)
{
	const struct ct_model_spec spec = {.name = "mlp", .input = {6, 8, 10}, .n_outputs = 3};
	struct ct_description d = {.std = {1, 1, 1, 1}}, e;
	struct ct_str text = {0};

	(void)state;
	assert_int_equal(ct_description_set_model(&d, &spec), CT_OK);
	assert_int_equal(ct_description_write(&d, &text), CT_OK);
	assert_int_equal(ct_description_parse(ct_str_text(&text), "a file", &e), CT_OK);
	assert_int_equal(e.model.input.c, 6);
	ct_description_release(&e);
	for (int i = 0; i < 2; i++) {
		d.mean[3] = i == 0 ? 0.5f : 0;
		d.std[0] = i == 0 ? 1 : 0.5f;
		ct_str_clear(&text);
		assert_int_equal(ct_description_write(&d, &text), CT_OK);
		assert_int_equal(ct_description_parse(ct_str_text(&text), "a file", &e), CT_DATA);
		assert_non_null(strstr(ct_error_message(), "the input has 6"));
	}
	ct_description_release(&d);
	ct_str_release(&text);
}

/* A failed allocation anywhere leaves nothing behind (checked by the address sanitizer) and is reported. */
static void test_out_of_memory(void **state)
{
	struct ct_description d, e;
	struct ct_str text = {0};
	enum ct_status st = CT_NOMEM;

	(void)state;
	describe(&d);
	assert_int_equal(ct_description_write(&d, &text), CT_OK);
	for (uint64_t n = 1; st != CT_OK; n++) {
		assert_true(n < 1000);
		ct_mem_fail_after(n);
		st = ct_description_parse(ct_str_text(&text), "a file", &e);
		ct_mem_fail_after(0);
		assert_true(st == CT_OK || st == CT_NOMEM);
	}
	ct_description_release(&e);
	ct_description_release(&d);
	ct_str_release(&text);
}

static void test_gray(void **state)
{
	static const uint8_t rgb[] = {255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30};
	static const uint8_t expected[] = {255, 0, 76, 150, 29, 18}; /* of Pillow */
	uint8_t gray[6];

	(void)state;
	ct_description_gray(rgb, 6, gray);
	assert_memory_equal(gray, expected, 6);
}

static void test_ranking(void **state)
{
	float x[] = {1, 3, 2, 3, -1000}, value[5], sum = 0;
	int label[5];

	(void)state;
	ct_softmax(x, 5);
	for (int i = 0; i < 5; i++)
		sum += x[i];
	assert_true(sum > 0.999999f && sum < 1.000001f);
	assert_true(x[4] == 0 && x[1] == x[3] && x[1] / x[2] > 2.71827f && x[1] / x[2] < 2.71829f);
	ct_top_k(x, 5, 3, label, value);
	assert_int_equal(label[0], 1);
	assert_int_equal(label[1], 3);
	assert_int_equal(label[2], 2);
	assert_true(value[0] == x[1] && value[2] == x[2]);
	ct_top_k(x, 5, 5, label, value);
	assert_int_equal(label[4], 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused), cmocka_unit_test(test_out_of_memory),
		cmocka_unit_test(test_gray),       cmocka_unit_test(test_ranking), cmocka_unit_test(test_many_channels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
