/* Compares optimizers on given gradients, and tables of learning rates, with PyTorch. */
#include <math.h>

#include "nn/optim/lr_schedule.h"
#include "tests/golden/golden.h"
#include "tests/nn/on_host.h"

static void fill_gradients(struct rig *r, int step)
{
	for (int i = 0; i < ct_graph_n_params(r->graph); i++) {
		size_t n = ct_graph_param(r->graph, i)->n;
		float *x = CT_NEW_ARRAY(float, n);

		fill_floats((uint32_t)(100 * step + i), x, n);
		assert_ok(import_now(r->net, on_host(ct_net_grads(r->net)), i, x));
		ct_free(x);
	}
}

static void compare_params(struct rig *r, const ct_json *after)
{
	for (int i = 0; i < ct_graph_n_params(r->graph); i++) {
		const struct ct_param *p = ct_graph_param(r->graph, i);
		float *x = export_param(r->net, on_host(ct_net_params(r->net)), i);

		golden_compare(p->name, golden_get(golden_get(after, "params"), p->name), x, p->n, 2e-6, 0);
		ct_free(x);
	}
}

static void run_case(const char *engine, const ct_json *file, const ct_json *c)
{
	const ct_json *o = golden_get(c, "optim"), *norms = golden_get(c, "norms"), *after = golden_get(c, "after");
	struct ct_net_opts opts = {.batch = 2, .input = CT_INPUT_F32_NCHW, .train = true};
	struct ct_optim_opts settings = golden_optim(o);
	struct rig r;
	ct_optim *optim;
	size_t next = 0;

	rig_open(&r, engine,
		 graph_make((struct ct_shape){9, 1, 1}, golden_str(file, "layers"), 3, CT_LOSS_CROSS_ENTROPY, 0),
		 &opts);
	if (settings.clip_norm == 0)
		settings.clip_norm = 1e6; /* above all norms, so that only the norm is computed */
	assert_ok(ct_optim_create(r.net, &settings, &optim));
	for (int step = 0; step < 12; step++) {
		double norm = 0;

		fill_gradients(&r, step);
		assert_ok(update_now(optim, golden_f64(o, "lr") * (1 - step / 20.0), &norm));
		assert_float_equal(norm, golden_at(norms, (size_t)step), 1e-6 * norm);
		if (next < ct_json_len(after) && golden_int(ct_json_at(after, next), "step") == step)
			compare_params(&r, ct_json_at(after, next++));
	}
	assert_int_equal(next, 3);
	ct_optim_destroy(optim);
	rig_close(&r);
}

static void run_all(const char *engine)
{
	ct_json *file = golden_load("optim.json");
	const ct_json *cases = golden_get(file, "cases");

	assert_true(ct_json_len(cases) >= 28);
	for (size_t i = 0; i < ct_json_len(cases); i++)
		run_case(engine, file, ct_json_at(cases, i));
	ct_json_destroy(file);
}

/* A new optimizer needs a case. */
static void expect_every_optimizer(void)
{
	static const char *const names[] = {CT_OPTIMIZERS(CT_CHOICE_NAME) NULL};
	ct_json *file = golden_load("optim.json");
	const ct_json *cases = golden_get(file, "cases");

	for (int kind = 0; kind < CT_N_OPTIMIZERS; kind++) {
		bool found = false;

		for (size_t i = 0; i < ct_json_len(cases); i++)
			found |= golden_optim(golden_get(ct_json_at(cases, i), "optim")).kind ==
				 (enum ct_optim_kind)kind;
		if (!found)
			fail_msg("optim.json has no case of the optimizer %s", names[kind]);
	}
	ct_json_destroy(file);
}

static void test_optimizers(void **state)
{
	(void)state;
	expect_every_optimizer();
	each_engine(run_all);
}

static struct ct_schedule schedule_of(const ct_json *c)
{
	static const char *const kinds[] = {"constant", "step", "multistep", "cosine", "poly", "one_cycle"};
	struct ct_schedule s = {
		.base_lr = golden_f64(c, "base_lr"),
		.total_steps = (uint64_t)golden_f64_or(c, "total_steps", 0),
		.warmup_steps = (uint64_t)golden_f64(c, "warmup_steps"),
		.warmup_start = golden_f64(c, "warmup_start"),
		.min_lr = golden_f64_or(c, "min_lr", 0),
		.gamma = golden_f64_or(c, "gamma", 0),
		.step_size = (uint64_t)golden_f64_or(c, "step_size", 1),
		.power = golden_f64_or(c, "power", 1),
		.pct_start = golden_f64_or(c, "pct_start", 0),
		.div_factor = golden_f64_or(c, "div_factor", 1),
		.final_div_factor = golden_f64_or(c, "final_div_factor", 1),
	};
	size_t kind = 0;

	while (kind < CT_ARRAY_LEN(kinds) && strcmp(kinds[kind], golden_str(c, "kind")))
		kind++;
	assert_true(kind < CT_ARRAY_LEN(kinds));
	s.kind = (enum ct_schedule_kind)kind;
	const ct_json *milestones = ct_json_get(c, "milestones");
	for (size_t i = 0; milestones && i < ct_json_len(milestones); i++)
		s.milestones[s.n_milestones++] = (uint64_t)golden_at(milestones, i);
	return s;
}

static void test_schedules(void **state)
{
	ct_json *file = golden_load("schedules.json");
	const ct_json *cases = golden_get(file, "cases");

	(void)state;
	assert_true(ct_json_len(cases) > 30);
	for (size_t i = 0; i < ct_json_len(cases); i++) {
		const ct_json *c = ct_json_at(cases, i), *lrs = golden_get(c, "lrs");
		struct ct_schedule s = schedule_of(c);

		for (size_t step = 0; step < ct_json_len(lrs); step++) {
			double want = golden_at(lrs, step), got = ct_schedule_lr(&s, step);

			/* PyTorch's recursive forms carry rounding from step to step. */
			if (!(fabs(got - want) <= 1e-11 * s.base_lr))
				fail_msg("table %zu (%s, warm-up %d): step %zu has %.15g, PyTorch %.15g", i,
					 golden_str(c, "kind"), (int)s.warmup_steps, step, got, want);
		}
	}
	ct_json_destroy(file);
}

static void test_plateau(void **state)
{
	ct_json *file = golden_load("plateau.json");
	const ct_json *cases = golden_get(file, "cases");

	(void)state;
	assert_true(ct_json_len(cases) >= 8);
	for (size_t i = 0; i < ct_json_len(cases); i++) {
		const ct_json *c = ct_json_at(cases, i), *values = golden_get(c, "values"), *lrs = golden_get(c, "lrs");
		const struct ct_plateau_opts o = {.gamma = golden_f64(c, "factor"),
						  .min_lr = golden_f64(c, "min_lr"),
						  .threshold = golden_f64(c, "threshold"),
						  .patience = (uint32_t)golden_int(c, "patience"),
						  .cooldown = (uint32_t)golden_int(c, "cooldown"),
						  .larger = strcmp(golden_str(c, "kind"), "max") == 0};
		struct ct_plateau p = {.scale = 1};
		int drops = 0;

		for (size_t k = 0; k < ct_json_len(values); k++) {
			const double before = p.scale;
			const bool dropped = ct_plateau_note(&p, &o, 0.1, golden_at(values, k));

			assert_int_equal(dropped, p.scale != before);
			drops += dropped;
			if (!(fabs(0.1 * p.scale - golden_at(lrs, k)) <= 1e-14))
				fail_msg("setting %zu, evaluation %zu: %.17g, PyTorch has %.17g", i, k, 0.1 * p.scale,
					 golden_at(lrs, k));
		}
		assert_true(drops > 0);
	}
	ct_json_destroy(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_optimizers),
		cmocka_unit_test(test_schedules),
		cmocka_unit_test(test_plateau),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
