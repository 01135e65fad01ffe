/* No key of data.augment, optim and schedule is forgotten on its way from the config to the plan: for each of them,
 * another value makes another plan. And a resume compares it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/trainer/tmpdir.h"
#include "trainer/config/config_impl.h"
#include "trainer/plan/run_plan.h"

static const struct ct_dataset_info cifar = {.name = "cifar10", .n = 320, .c = 3, .h = 32, .w = 32, .n_classes = 10};
static const struct ct_dataset_info shards = {
	.name = "shards", .kind = CT_SAMPLE_ENCODED, .n = 320, .c = 3, .n_classes = 10};

static const char base[] = "model: {name: resnet18}\ndata: {name: cifar10}\ntrain: {epochs: 3}\n";

/* Reads the base with `condition` and `set` ("": none). NULL: they are refused. */
static struct ct_config *config_of(const char *condition, const char *key, const char *value)
{
	struct ct_config_set sets[2];
	char controller[64];
	struct ct_config *c = NULL;
	size_t n = 0;

	if (condition[0]) {
		size_t len = strcspn(condition, "=");

		snprintf(controller, sizeof(controller), "%.*s", (int)len, condition);
		sets[n++] = (struct ct_config_set){controller, condition + len + 1, "test"};
	}
	if (key)
		sets[n++] = (struct ct_config_set){key, value, "test"};
	assert_ok(ct_file_replace(in_tmpdir("c.yaml"), base, strlen(base)));
	if (ct_config_load(in_tmpdir("c.yaml"), sets, n, &c) < 0)
		ct_error_clear();
	return c;
}

static bool plan_of(const char *condition, const char *key, const char *value, struct ct_run_plan *p)
{
	struct ct_config *c = config_of(condition, key, value);

	memset(p, 0, sizeof(*p));
	if (!c)
		return false;
	const struct ct_dataset_info *info = c->data.name == CT_CFG_DATA_SHARDS ? &shards : &cifar;
	enum ct_status st = ct_run_plan_make(c, 1, info, NULL, p);
	if (st < 0)
		ct_error_clear();
	ct_config_destroy(c);
	return st == CT_OK;
}

/* The condition of the key with one of its words: "data.name=cifar10" if that is allowed, else the first one. */
static void condition_of(const struct ct_key *k, char *buf, size_t size)
{
	size_t controller;
	char word[64];

	buf[0] = 0;
	if (!k->only)
		return;
	const char *words = ct__key_only(k, &controller);
	const char *name = ct__key_at(controller)->name;
	if (strcmp(name, "data.name") == 0)
		snprintf(word, sizeof(word), "%s", ct__word_in(words, "cifar10") ? "cifar10" : "shards");
	else
		assert_true(ct__word_at(words, 0, word, sizeof(word)));
	snprintf(buf, size, "%s=%s", name, word);
}

/* The i-th value to try: NULL is the default, "" the end. */
static const char *value_at(const struct ct_key *k, size_t i)
{
	static const char *const values[] = {NULL,    "0.5",      "1.5", "2",   "3", "true",
					     "false", "0.5,0.75", "1,2", "*=2", ""};

	return i < CT_ARRAY_LEN(values) - 1 ? values[i]
	       : k->type == CT_KEY_ENUM && k->choices[i - CT_ARRAY_LEN(values) + 1]
		       ? k->choices[i - CT_ARRAY_LEN(values) + 1]
		       : "";
}

/* An option of struct ct_augment switches the augmentation on: data/transform knows it, too. */
static bool is_used(const struct ct_key *k, const struct ct_run_plan *off, const struct ct_run_plan *on)
{
	const struct ct_augment *a = &off->transform.augment, *b = &on->transform.augment;

	if (strcmp(k->name, "data.augment.rand_magnitude") == 0) /* only with rand_augment */
		return true;
	return memcmp(a, b, sizeof(*a)) == 0 || (!ct_augment_active(a) && ct_augment_active(b));
}

static void check_key(const struct ct_key *k)
{
	struct ct_run_plan first, again, p;
	char condition[128];
	const char *value;
	int n = 0;

	if (!(k->flags & CT_KEY_LEARNED))
		fail_msg("%s changes what is learned: its flag CT_KEY_LEARNED is missing", k->name);
	condition_of(k, condition, sizeof(condition));
	for (size_t i = 0; !(value = value_at(k, i)) || value[0]; i++) {
		if (!plan_of(condition, value ? k->name : NULL, value, &p))
			continue;
		if (n++ == 0) {
			first = p;
			assert_true(plan_of(condition, value ? k->name : NULL, value, &again));
			assert_memory_equal(&p, &again, sizeof(p));
		} else if (memcmp(&p, &first, sizeof(p)) != 0 && is_used(k, &first, &p)) {
			return;
		}
	}
	fail_msg("%s has no effect (%d values were accepted)", k->name, n);
}

static void test_keys(void **state)
{
	static const char *const prefixes[] = {"data.augment.", "optim.", "schedule."};
	int n = 0;

	(void)state;
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);

		for (size_t j = 0; j < CT_ARRAY_LEN(prefixes); j++) {
			if (strncmp(k->name, prefixes[j], strlen(prefixes[j])) == 0) {
				check_key(k);
				n++;
			}
		}
	}
	assert_true(n > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),
	};

	return cmocka_run_group_tests(tests, tmpdir_setup, tmpdir_teardown);
}
