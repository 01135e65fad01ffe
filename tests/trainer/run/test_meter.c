/* The clock of a run, for steps that end at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "base/clock.h"
#include "trainer/run/loop/meter.h"

enum { TOGETHER = 4, WAIT_MS = 20 };

static void test_same_end(void **state)
{
	struct ct_meter m;

	(void)state;
	ct_meter_init(&m, ct_now_ns());
	nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * CT_MS}, NULL);
	for (int left = TOGETHER - 1; left >= 0; left--) {
		ct_meter_add(&m, &(struct ct_step_result){.n_global = 8, .same_end = left});
		assert_true(m.share_ns >= WAIT_MS * CT_MS / TOGETHER);
		assert_true(m.ahead_ns == left * m.share_ns);
	}
	/* The next step has its own time. */
	const int64_t share = m.share_ns, ended = m.added_ns;
	nanosleep(&(struct timespec){.tv_nsec = 2 * share}, NULL);
	ct_meter_add(&m, &(struct ct_step_result){.n_global = 8});
	assert_true(m.share_ns >= 2 * share && m.ahead_ns == 0);
	assert_true(m.added_ns - ended == m.share_ns);
	assert_true(m.run.steps == TOGETHER + 1 && m.run.images == 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_end)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
