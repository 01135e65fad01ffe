/* docs/CONFIG.md and docs/config.schema.json are what trainer/config/keys.def says. After a change of this file:
 *   ctrain config docs --out docs/CONFIG.md && ctrain config schema --out docs/config.schema.json
 * or, without the program: CTRAIN_UPDATE_DOCS=1 test_config_docs. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "tests/trainer/pages.h"
#include "tests/trainer/tmpdir.h"
#include "trainer/config/config_impl.h"

static void expect_file(const char *path, const struct ct_str *want)
{
	char *have = NULL;
	size_t len = 0;

	if (getenv("CTRAIN_UPDATE_DOCS"))
		assert_ok(ct_file_replace(path, ct_str_text(want), want->len));
	assert_ok(ct_file_read(path, (size_t)1 << 20, &have, &len));
	if (len != want->len || memcmp(have, want->s, len) != 0)
		fail_msg("%s is not what trainer/config/keys.def says: see the top of test_config_docs.c", path);
	ct_free(have);
}

static void test_page(void **state)
{
	struct ct_str text = {0};

	(void)state;
	assert_ok(ct_config_docs(&text));
	for (size_t i = 0; i < ct__key_count(); i++) {
		char row[96];

		snprintf(row, sizeof(row), "\n| `%s` | ", ct__key_at(i)->name);
		if (!strstr(text.s, row))
			fail_msg("no row for %s", ct__key_at(i)->name);
		if ((strstr(text.s, row) > strstr(text.s, "\n## Advanced keys\n")) != ct__key_at(i)->advanced)
			fail_msg("%s is in the wrong section", ct__key_at(i)->name);
	}
	expect_file(CT_SOURCE_DIR "/docs/CONFIG.md", &text);
	ct_str_release(&text);
}

/* The schema of a key, following its sections. */
static const ct_json *schema_of(const ct_json *root, const char *name)
{
	const ct_json *at = ct_json_get(root, "properties");
	char part[64];

	while (at) {
		size_t n = strcspn(name, ".");

		snprintf(part, sizeof(part), "%.*s", (int)n, name);
		at = ct_json_get(at, part);
		if (!name[n])
			break;
		name += n + 1;
		at = at ? ct_json_get(at, "properties") : NULL;
	}
	return at;
}

static void test_json_schema(void **state)
{
	struct ct_str text = {0};
	ct_json *root = NULL;
	const ct_json *lr;
	double bound;

	(void)state;
	assert_ok(ct_config_json_schema(&text));
	assert_ok(ct_json_parse(text.s, text.len, "schema", &root));
	for (size_t i = 0; i < ct__key_count(); i++) {
		if (!schema_of(root, ct__key_at(i)->name))
			fail_msg("no schema for %s", ct__key_at(i)->name);
	}
	lr = schema_of(root, "optim.lr");
	assert_ok(ct_json_get_f64(lr, "exclusiveMinimum", &bound));
	assert_true(bound == 0);
	assert_ok(ct_json_get_f64(lr, "maximum", &bound));
	assert_true(bound == 1000);
	assert_int_equal(ct_json_len(ct_json_get(schema_of(root, "optim.name"), "enum")), CT_N_OPTIMIZERS);
	assert_int_equal(ct_json_len(ct_json_get(schema_of(root, "launch.procs"), "anyOf")), 2);
	lr = ct_json_at(ct_json_get(schema_of(root, "schedule.milestones"), "examples"), 0);
	assert_int_equal(ct_json_len(lr), 3);
	assert_string_equal(ct_json_as_str(ct_json_at(ct_json_get(schema_of(root, "launch.devices"), "examples"), 0)),
			    "0,2");
	ct_json_destroy(root);
	expect_file(CT_SOURCE_DIR "/docs/config.schema.json", &text);
	ct_str_release(&text);
}

/* Each example is a value that the key accepts. */
static void test_examples(void **state)
{
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < ct__key_count(); i++) {
		const struct ct_key *k = ct__key_at(i);
		struct ct_config_set set = {.key = k->name, .value = k->example, .origin = "example"};
		struct ct_config *c = NULL;
		char about[80];

		if (!k->example)
			continue;
		n++;
		/* A value that does not fit: `optim.lr: "x" is not a number`. Other errors are about other keys that
		 * are missing, or do not apply. */
		snprintf(about, sizeof(about), "%s: \"", k->name);
		if (ct_config_load(CT_SOURCE_DIR "/configs/smoke.yaml", &set, 1, &c) != CT_OK &&
		    strstr(ct_error_message(), about))
			fail_msg("%s: %s", k->name, ct_error_message());
		ct_error_clear();
		ct_config_destroy(c);
	}
	assert_true(n > 30);
}

/* Whether the text contains the name, and not only as a part of another name. */
static bool has_name(const char *text, const char *name)
{
	const size_t n = strlen(name);

	for (const char *at = text; (at = strstr(at, name)); at += n) {
		if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[n]))
			return true;
	}
	return false;
}

/* Keys whose documentation says something about each choice of a key. */
static void test_choices_are_described(void **state)
{
	static const char *const keys[][2] = {{"optim.lr", "optim.name"}, {"dist.backend", "dist.backend"}};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(keys); i++) {
		const struct ct_key *described = NULL, *chosen = NULL;

		for (size_t k = 0; k < ct__key_count(); k++) {
			described = strcmp(ct__key_at(k)->name, keys[i][0]) == 0 ? ct__key_at(k) : described;
			chosen = strcmp(ct__key_at(k)->name, keys[i][1]) == 0 ? ct__key_at(k) : chosen;
		}
		assert_true(described && chosen);
		for (size_t k = 0; chosen->choices[k]; k++) {
			if (!has_name(described->doc, chosen->choices[k]))
				fail_msg("the documentation of %s does not describe %s", described->name,
					 chosen->choices[k]);
		}
	}
}

static void test_help(void **state)
{
	struct ct_str text = {0};

	(void)state;
	for (size_t i = 0; i < ct__key_count(); i++) {
		ct_str_clear(&text);
		assert_true(ct_config_help(ct__key_at(i)->name, &text));
		assert_true(has_words(text.s, ct__key_at(i)->doc));
		assert_string_equal(too_wide(text.s), "");
	}
	ct_str_clear(&text);
	assert_true(ct_config_help("data.augment", &text));
	assert_non_null(strstr(text.s, "data.augment.shear"));
	assert_null(strstr(text.s, "data.mean"));
	assert_false(ct_config_help("optim.l", &text));
	assert_false(ct_config_help("opt", &text));
	ct_str_release(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),     cmocka_unit_test(test_json_schema),
		cmocka_unit_test(test_examples), cmocka_unit_test(test_choices_are_described),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
