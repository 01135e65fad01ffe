/* The names that the schema lists are those that models, data sets, engines and communicators answer to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "data/dataset.h"
#include "dist/comm/comm.h"
#include "nn/engine.h"
#include "nn/models/model.h"
#include "trainer/config/config_impl.h"

/* The choices of a key, but for `extra`, are exactly the registered names; returns how many there are. */
static size_t count_choices(const char *key, const char *extra)
{
	const char *choices = ct__key_find(key)->choices;
	char word[64];
	size_t n = 0;

	for (size_t i = 0; ct__choice_at(choices, i, word, sizeof(word)); i++)
		n += strcmp(word, extra) != 0;
	return n;
}

static void expect_choice(const char *key, const char *name)
{
	if (!ct__choice_has(ct__key_find(key)->choices, name))
		fail_msg("%s does not know %s", key, name);
}

static void test_models(void **state)
{
	size_t n = 0;

	(void)state;
	for (; ct_model_name_at(n); n++)
		expect_choice("model.name", ct_model_name_at(n));
	assert_int_equal(n, count_choices("model.name", ""));
}

static void test_data_sets(void **state)
{
	size_t n = 0;

	(void)state;
	for (; ct_dataset_name_at(n); n++)
		expect_choice("data.name", ct_dataset_name_at(n));
	assert_int_equal(n, count_choices("data.name", ""));
}

static void test_engines(void **state)
{
	const char *name;
	bool available;
	char why[256];
	size_t n = 0;

	(void)state;
	for (; ct_engine_at(n, &name, &available, why, sizeof(why)); n++)
		expect_choice("train.engine", name);
	assert_int_equal(n, count_choices("train.engine", "auto"));
}

static void test_backends(void **state)
{
	const char *name;
	bool available;
	char why[256];
	size_t n = 0;

	(void)state;
	for (; ct_comm_backend_at(n, &name, &available, why, sizeof(why)); n++)
		expect_choice("dist.backend", name);
	assert_int_equal(n, count_choices("dist.backend", "auto"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_models),
		cmocka_unit_test(test_data_sets),
		cmocka_unit_test(test_engines),
		cmocka_unit_test(test_backends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
