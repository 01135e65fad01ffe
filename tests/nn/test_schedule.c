/* Start, end and transitions of the schedules. tests/golden has complete tables from PyTorch. */
#include "nn/optim/lr_schedule.h"

#include "tests/nn/nn_check.h"

static void at(const struct ct_schedule *s, uint64_t step, double want)
{
	assert_float_equal(ct_schedule_lr(s, step), want, 1e-12);
}

static void test_warmup_joins_every_schedule(void **state)
{
	(void)state;
	for (int kind = CT_LR_CONSTANT; kind <= CT_LR_ONE_CYCLE; kind++) {
		struct ct_schedule s = {.kind = (enum ct_schedule_kind)kind,
					.base_lr = 2,
					.total_steps = 50,
					.warmup_steps = 10,
					.warmup_start = 0.1,
					.gamma = 0.5,
					.step_size = 10,
					.milestones = {10, 20},
					.n_milestones = 2,
					.power = 1,
					.pct_start = 0.3,
					.div_factor = 25,
					.final_div_factor = 1e4};

		at(&s, 0, 0.2);
		at(&s, 5, 2 * (0.1 + 0.9 * 0.5));
		at(&s, 9, 2 * (0.1 + 0.9 * 0.9));
		at(&s, 10, kind == CT_LR_ONE_CYCLE ? 2.0 / 25 : 2);
	}
}

static void test_ends_hold(void **state)
{
	struct ct_schedule s = {.kind = CT_LR_COSINE, .base_lr = 1, .total_steps = 100, .min_lr = 0.01};

	(void)state;
	at(&s, 0, 1);
	at(&s, 50, 0.505);
	at(&s, 100, 0.01);
	at(&s, 1000000, 0.01);
	s.kind = CT_LR_POLY;
	s.power = 2;
	at(&s, 50, 0.01 + 0.99 * 0.25);
	at(&s, 100, 0.01);
	at(&s, 5000, 0.01);
	s = (struct ct_schedule){.kind = CT_LR_ONE_CYCLE,
				 .base_lr = 1,
				 .total_steps = 10,
				 .pct_start = 0.3,
				 .div_factor = 25,
				 .final_div_factor = 1e4};
	at(&s, 2, 1);
	at(&s, 9, 1 / 25e4);
	at(&s, 10, 1 / 25e4);
	at(&s, 5000, 1 / 25e4);
}

static void test_odd_settings_stay_finite(void **state)
{
	(void)state;
	for (int kind = CT_LR_CONSTANT; kind <= CT_LR_ONE_CYCLE; kind++) {
		for (uint64_t total = 0; total < 4; total++) {
			for (int pct = 0; pct <= 2; pct++) {
				struct ct_schedule s = {.kind = (enum ct_schedule_kind)kind,
							.base_lr = 1,
							.total_steps = total,
							.warmup_steps = 2,
							.warmup_start = 0,
							.pct_start = pct / 2.0,
							.div_factor = 25,
							.final_div_factor = 1e4,
							.power = 1};

				for (uint64_t step = 0; step < 8; step++) {
					double lr = ct_schedule_lr(&s, step);

					assert_true(lr >= 0 && lr <= 1);
				}
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_warmup_joins_every_schedule),
		cmocka_unit_test(test_ends_hold),
		cmocka_unit_test(test_odd_settings_stay_finite),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
