/* Explanations of statuses, exit codes and checks, and the page that consists of them. */
#include "tests/trainer/tmpdir.h"

#include "trainer/tools/doctor/checks.h"
#include "trainer/tools/doctor/explain.h"

static void test_explain(void **state)
{
	static const char *const words[] = {"PEER_LOST", "peer-lost", "ct_peer_lost"};
	struct ct_str text = {0};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(words); i++) {
		assert_ok(ct_explain(words[i], &text));
		assert_non_null(strstr(ct_str_text(&text), "PEER_LOST: lost a peer (exit code 5)"));
		ct_str_clear(&text);
	}
	assert_ok(ct_explain("5", &text));
	assert_non_null(strstr(ct_str_text(&text), "COMM: "));
	assert_non_null(strstr(ct_str_text(&text), "TIMEOUT: "));
	assert_null(strstr(ct_str_text(&text), "CONFIG: "));
	ct_str_clear(&text);
	assert_ok(ct_explain("lost-gpu", &text));
	assert_non_null(strstr(ct_str_text(&text), "nvidia-smi"));
	ct_str_clear(&text);
	assert_fails(ct_explain("PEER_LOSS", &text), CT_USAGE, "\"PEER_LOSS\" is neither");
	assert_string_equal(ct_error_hint_text(), "did you mean PEER_LOST?");
	assert_fails(ct_explain("99", &text), CT_USAGE, "\"99\" is neither");
	ct_str_release(&text);
}

/* Every status, exit code and check has an explanation. */
static void test_explanations_are_complete(void **state)
{
	static const struct {
		const char *name;
		int code;
	} all[] = {
#define ENTRY(name, value, code, text) {#name, code},
		CT_STATUS_LIST(ENTRY)
#undef ENTRY
	};
	struct ct_str text = {0};
	char code[16];

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(all); i++) {
		assert_ok(ct_explain(all[i].name, &text));
		if (strstr(ct_str_text(&text), "\n    \n"))
			fail_msg("%s has no explanation", all[i].name);
		snprintf(code, sizeof(code), "%d", all[i].code);
		assert_ok(ct_explain(code, &text));
		ct_str_clear(&text);
	}
	for (size_t i = 0; ct_check_at(i); i++)
		assert_ok(ct_explain(ct_check_at(i)->name, &text));
	ct_str_release(&text);
}

/* After a change: ctrain explain --out docs/DOCTOR.md, or CTRAIN_UPDATE_DOCS=1 test_explain. */
static void test_page(void **state)
{
	const char *path = CT_SOURCE_DIR "/docs/DOCTOR.md";
	struct ct_str want = {0};
	char *have;
	size_t len;

	(void)state;
	ct_explain_page(&want);
	assert_ok(ct_str_status(&want));
	if (getenv("CTRAIN_UPDATE_DOCS"))
		assert_ok(ct_file_replace(path, ct_str_text(&want), want.len));
	assert_ok(ct_file_read(path, (size_t)1 << 20, &have, &len));
	if (len != want.len || memcmp(have, want.s, len) != 0)
		fail_msg("%s is not what trainer/tools/doctor/ says: run ctrain explain --out docs/DOCTOR.md", path);
	ct_free(have);
	ct_str_release(&want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_explain),
		cmocka_unit_test(test_explanations_are_complete),
		cmocka_unit_test(test_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
