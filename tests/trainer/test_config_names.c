/* The names in the schema are exactly the names of models, data sets, engines and communicators. */
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
	const char *const *choices = ct__key_find(key)->choices;
	size_t n = 0;

	for (size_t i = 0; choices[i]; i++)
		n += strcmp(choices[i], extra) != 0;
	return n;
}

static void expect_choice(const char *key, const char *name)
{
	if (ct_choice_find(ct__key_find(key)->choices, name) < 0)
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

/* What other programs call a key is found, wherever it was put, and every suggestion is a key. */
static void test_synonyms(void **state)
{
	static const char *const words[][2] = {
		{"optim.wd", "optim.weight_decay"},
		{"train.amp", "precision"},
		{"batch.size", "batch.per_rank"},
		{"data.path", "data.dir"},
		{"root", "data.dir"},
		{"augment.random_crop", "data.augment.crop_padding"},
		{"data.augment.random_resized_crop", "data.augment.area"},
		{"augment.color_jitter", "data.augment.brightness"},
		{"horizontal_flip", "data.augment.flip"},
		{"reprob", "data.augment.erasing"},
		{"output_dir", "run.dir"},
		{"exp_name", "run.name"},
		{"amp", "precision"},
		{"train.grad_clip", "optim.clip_norm"},
		{"model.pretrained", "model.weights"},
		{"model.num_classes", "data.classes"},
		{"img_size", "data.train.size"},
		{"model.arch", "model.name"},
		{"num_epochs", "train.epochs"},
		{"gradient_accumulation_steps", "train.accumulate"},
		{"ema_decay", "train.ema"},
		{"grad_checkpointing", "train.recompute"},
		{"nproc_per_node", "launch.procs"},
		{"parallel", "launch.procs"},
		{"train.data_parallel", "launch.procs"},
		{"model.device_ids", "launch.devices"},
		{"learning_rate", "optim.lr"},
		{"global_batch_size", "batch.global"},
		/* Spelling alone. */
		{"optim.lrr", "optim.lr"},
		{"dataset", "data"},
		{"seed", "run.seed"},
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(words); i++) {
		const char *near = ct_config_key_suggest(words[i][0]);
		struct ct_str page = {0};

		if (!near || strcmp(near, words[i][1]) != 0)
			fail_msg("%s: %s instead of %s", words[i][0], near ? near : "nothing", words[i][1]);
		assert_true(ct_config_help(near, &page));
		ct_str_release(&page);
	}
	assert_null(ct_config_key_suggest("qqqqqqqqqqqq"));
	assert_string_equal(ct_config_key_meant("lr"), "optim.lr");
	assert_null(ct_config_key_meant("lrr"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_models),   cmocka_unit_test(test_data_sets), cmocka_unit_test(test_engines),
		cmocka_unit_test(test_backends), cmocka_unit_test(test_synonyms),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
