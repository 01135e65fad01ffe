/* The names in the schema are exactly the names of models, data sets, engines and communicators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
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
		{"data.size", "data.train.size"},
		{"batch.size", "batch.per_rank"},
		{"gpu", "device"},
		{"sync_bn", "model.bn"},
		{"save_top_k", "checkpoint.best"},
		{"resume", "train.resume"},
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
	assert_string_equal(ct_config_key_meant("lr", NULL).key, "optim.lr");
	assert_null(ct_config_key_meant("lrr", NULL).key);
}

/* Each entry names a key, its example is a valid value of the key, and no name has two meanings. */
static void test_synonym_tables(void **state)
{
	const struct ct_synonym *s;
	const struct ct_value_synonym *v;

	(void)state;
	for (size_t i = 0; (s = ct__synonym_at(i)); i++) {
		struct ct_config_set set = {.key = s->key, .value = s->example, .origin = "table"};
		struct ct_config *c = NULL;

		if (s->key && !ct__key_find(s->key))
			fail_msg("%s: there is no key %s", s->words, s->key);
		assert_true(s->key || s->note);
		/* Other mistakes are expected: the file is missing, and the key may not apply. */
		if (s->key && s->example)
			assert_int_equal(ct_config_load("/nonexistent.yaml", &set, 1, &c), CT_CONFIG);
		if (s->key && s->example && strstr(ct_error_message(), "table: error: "))
			fail_msg("%s: %s", s->words, ct_error_message());
		for (const char *w = s->words; *w; w += strcspn(w, " "), w += *w == ' ') {
			char word[64];

			snprintf(word, sizeof(word), "%.*s", (int)strcspn(w, " "), w);
			if (ct__key_synonym(word) != s)
				fail_msg("%s has two meanings", word);
			if (ct__key_find(word) || ct__section_exists(word))
				fail_msg("%s is the name of a key or section", word);
		}
	}
	for (size_t i = 0; (v = ct__value_synonym_at(i)); i++) {
		assert_non_null(ct__key_find(v->key));
		if (strcmp(v->key, "device") != 0)
			expect_choice(v->key, v->choice);
	}
	assert_string_equal(ct__choice_synonym("schedule.name", "cosineannealinglr"), "cosine");
	assert_string_equal(ct__choice_synonym("device", "gpu"), "cuda");
}

static void expect_line(const char *name, const char *value, bool is_file, const char *want)
{
	struct ct_str text = {0};

	ct__key_suggest(name, value, is_file, &text);
	assert_string_equal(ct_str_text(&text), want);
	ct_str_release(&text);
}

/* A suggestion contains the line to write. */
static void test_lines(void **state)
{
	(void)state;
	expect_line("optim.wd", "1e-4", false, "; did you mean \"optim.weight_decay\"? Write optim.weight_decay=1e-4");
	expect_line("optim.wd", "1e-4", true,
		    "; did you mean \"optim.weight_decay\"? Write \"weight_decay: 1e-4\" in the section optim");
	expect_line("horizontal_flip", "0.5", true,
		    "; did you mean \"data.augment.flip\"? Write \"flip: true\" in the section data.augment");
	expect_line("amp", "true", true,
		    "; did you mean \"precision\"? Write \"precision: bf16\" at the top level (or fp16 on a GPU)");
	expect_line("amp", "fp16", false, "; did you mean \"precision\"? Write precision=fp16 (or fp16 on a GPU)");
	expect_line("optim.betas", NULL, false,
		    "; did you mean \"optim.beta1\"? Write optim.beta1=0.9 (the second value is optim.beta2)");
	expect_line("schedule.T_max", "5", true, "; not needed: the schedule ends with the run (train.epochs)");
	expect_line("dist.process_group", "[0, 1]", true,
		    "; not needed: ctrain makes the groups of ranks; ctrain plan lists those of a pipeline's stages");
	expect_line("optim.lrr", "1", true, "; did you mean \"optim.lr\"?");
	expect_line("qqqqqqqq", "1", true, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_models),   cmocka_unit_test(test_data_sets),
		cmocka_unit_test(test_engines),  cmocka_unit_test(test_backends),
		cmocka_unit_test(test_synonyms), cmocka_unit_test(test_synonym_tables),
		cmocka_unit_test(test_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
