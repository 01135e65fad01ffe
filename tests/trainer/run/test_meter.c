/* The clock of a run, for steps that end at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "trainer/run/loop/meter.h"

enum { TOGETHER = 4 };
static int64_t now_ns = 50 * CT_SEC;

int64_t __wrap_ct_now_ns(void);
int64_t __wrap_ct_now_ns(void)
{
	return now_ns;
}

static void test_same_end(void **state)
{
	struct ct_meter m;

	(void)state;
	ct_meter_init(&m, now_ns);
	now_ns += 20 * CT_MS;
	for (int left = TOGETHER - 1; left >= 0; left--) {
		ct_meter_add(&m, &(struct ct_step_result){.n_global = 8, .same_end = left});
		assert_true(m.share_ns == 5 * CT_MS);
		assert_true(m.ahead_ns == left * m.share_ns);
	}
	/* The next step has its own time. */
	const int64_t ended = m.added_ns;
	now_ns += 7 * CT_MS;
	ct_meter_add(&m, &(struct ct_step_result){.n_global = 8});
	assert_true(m.share_ns == 7 * CT_MS && m.ahead_ns == 0);
	assert_true(m.added_ns - ended == m.share_ns);
	assert_true(m.run.steps == TOGETHER + 1 && m.run.images == 40);
}

/* Evaluations and compilations do not count, but for the time of the whole run. */
static void test_excluded(void **state)
{
	struct ct_meter m;

	(void)state;
	ct_meter_init(&m, now_ns - 3 * CT_SEC);
	now_ns += 10 * CT_SEC;
	ct_meter_exclude_since(&m, now_ns - 6 * CT_SEC);
	ct_meter_add(&m, &(struct ct_step_result){.n_global = 8, .compile_ns = 3 * CT_SEC});
	assert_true(m.share_ns == CT_SEC && m.startup_s == 13);
	assert_true(ct_meter_seconds(&m, &m.window) == 1 && ct_meter_seconds(&m, &m.run) == 1);
	ct_meter_restart(&m, &m.window);
	now_ns += 2 * CT_SEC;
	assert_true(ct_meter_seconds(&m, &m.window) == 2 && ct_meter_seconds(&m, &m.epoch) == 3);
	assert_true(ct_meter_take_seconds(&m) == 12 && ct_meter_take_seconds(&m) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_end), cmocka_unit_test(test_excluded)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
