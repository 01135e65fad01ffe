/* Creates configurations from a YAML string and KEY=VALUE strings that override it, for tests of the plan. */
#ifndef CT_TESTS_TRAINER_PLAN_FIXTURE_H
#define CT_TESTS_TRAINER_PLAN_FIXTURE_H

#include "tests/trainer/tmpdir.h"
#include "trainer/config/config.h"

/* `list` is a NULL-terminated list of KEY=VALUE strings. The caller owns the result. */
static inline struct ct_config *load_over(const char *base, const char *const *list)
{
	struct ct_config_set sets[16];
	char keys[16][64];
	struct ct_config *c = NULL;
	size_t n = 0;

	assert_int_equal(ct_file_replace(in_tmpdir("c.yaml"), base, strlen(base)), CT_OK);
	for (; list[n]; n++) {
		size_t len = strcspn(list[n], "=");

		snprintf(keys[n], sizeof(keys[n]), "%.*s", (int)len, list[n]);
		sets[n] = (struct ct_config_set){keys[n], list[n] + len + 1, "test"};
	}
	if (ct_config_load(in_tmpdir("c.yaml"), sets, n, &c) < 0)
		print_error("%s\n", ct_error_message());
	assert_non_null(c);
	return c;
}

#define LOAD(...) load_over(base, (const char *const[]){__VA_ARGS__, NULL})

#endif
