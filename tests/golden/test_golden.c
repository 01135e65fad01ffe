/* Runs twenty training steps of mlp, lenet and convnet on every available engine and compares them with the same steps
 * in PyTorch: the loss of every step within 1e-5 relative, and parameters, running statistics and evaluation results at
 * the end. */
#include <math.h>

#include "tests/golden/golden.h"
#include "tests/nn/on_host.h"

#define LOSS_TOLERANCE 1e-5
#define PARAM_TOLERANCE 5e-5
#define EVAL_TOLERANCE 1e-4       /* running statistics, logits */
#define EVAL_TOLERANCE_NOISY 2e-2 /* Adam on biases before batch norms: see is_noise */
#define MAX_ROWS 32

struct run {
	const char *engine;
	const ct_json *c;
	struct rig rig;
	ct_optim *optim;
	uint8_t x[MAX_ROWS * 784];
	int32_t labels[MAX_ROWS];
};

static ct_graph *build(const ct_json *c)
{
	struct ct_model_spec spec = {.name = golden_str(c, "model"),
				     .input = {1, 28, 28},
				     .n_outputs = 10,
				     .label_smoothing = (float)golden_f64(c, "label_smoothing"),
				     .hidden = (int[]){512, 256},
				     .n_hidden = 2};
	ct_graph *g = NULL;

	if (ct_model_build(&spec, &g) < 0)
		fail_msg("%s", ct_error_message());
	return g;
}

/* The gradient of a bias before a batch norm is zero up to rounding, which Adam blows up to full steps. */
static bool is_noise(const ct_graph *g, const struct ct_param *p)
{
	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		const struct ct_node *node = ct_graph_node(g, id);

		if (node->op == CT_OP_BATCH_NORM && node->in[0] == p->node)
			return p->kind == CT_PARAM_BIAS;
	}
	return false;
}

static void compare_params(struct run *r, const char *key, double tolerance)
{
	for (int i = 0; i < ct_graph_n_params(r->rig.graph); i++) {
		const struct ct_param *p = ct_graph_param(r->rig.graph, i);

		if (is_noise(r->rig.graph, p) && strcmp(key, "initial"))
			continue;
		float *x = export_param(r->rig.net, on_host(ct_net_params(r->rig.net)), i);
		golden_compare(p->name, golden_get(golden_get(r->c, key), p->name), x, p->n, tolerance, 0);
		ct_free(x);
	}
}

static void compare_buffers(struct run *r, double tolerance)
{
	const float *x = on_host(ct_net_buffers(r->rig.net));

	for (int i = 0; i < ct_graph_n_buffers(r->rig.graph); i++) {
		const struct ct_param *p = ct_graph_buffer(r->rig.graph, i);

		golden_compare(p->name, golden_get(golden_get(r->c, "buffers"), p->name), x, p->n, tolerance, 0);
		x += p->n;
	}
}

static double train(struct run *r)
{
	const ct_json *losses = golden_get(r->c, "losses"), *o = golden_get(r->c, "optim");
	int rows = golden_int(r->c, "batch"), steps = golden_int(r->c, "steps");
	struct ct_backward_opts back = {.scale = 1.0f / (float)rows};
	double worst = 0;

	assert_int_equal(ct_json_len(losses), steps);
	for (int step = 0; step < steps; step++) {
		struct ct_batch b = {.n = rows, .x = r->x, .labels = r->labels};
		struct ct_metrics m = {0};

		golden_images((uint32_t)step, rows, r->x, r->labels);
		assert_ok(forward_now(r->rig.program, &b, &m));
		assert_ok(ct_program_backward(r->rig.program, &back));
		assert_ok(update_now(r->optim, golden_f64(o, "lr"), NULL));
		double want = golden_at(losses, (size_t)step), error = fabs(m.loss / rows - want) / want;
		if (!(error <= LOSS_TOLERANCE))
			fail_msg("%s, %s with %s: loss of step %d is %.9g, PyTorch has %.9g: off by %.1e", r->engine,
				 golden_str(r->c, "model"), golden_str(o, "name"), step, m.loss / rows, want, error);
		worst = error > worst ? error : worst;
	}
	return worst;
}

static void compare_evaluation(struct run *r, double tolerance)
{
	const ct_json *want = golden_get(r->c, "eval");
	int rows = golden_int(r->c, "batch");
	struct ct_batch b = {.n = rows, .x = r->x, .labels = r->labels};
	struct ct_metrics m = {0};
	float logits[MAX_ROWS * 10];
	ct_program *eval;

	golden_images(1000, rows, r->x, r->labels);
	assert_ok(ct_program_create(r->rig.net, rows, CT_EVAL, &eval));
	assert_ok(forward_now(eval, &b, &m));
	assert_ok(
		ct_program_read(eval, ct_graph_node(r->rig.graph, ct_graph_loss(r->rig.graph))->in[0], false, logits));
	golden_compare("evaluation's logits", golden_get(want, "logits"), logits, (size_t)rows * 10, tolerance, 0);
	assert_float_equal(m.loss / rows, golden_f64(want, "loss"), tolerance);
	assert_int_equal(m.top1, golden_int(want, "top1"));
	ct_program_destroy(eval);
}

static void run_case(const char *engine, const ct_json *c)
{
	static struct run r;
	const ct_json *o = golden_get(c, "optim");
	int rows = golden_int(c, "batch");
	struct ct_net_opts opts = {
		.batch = rows, .input = CT_INPUT_U8_NHWC, .mean = {0.1307f}, .std = {0.3081f}, .train = true};
	struct ct_optim_opts settings = golden_optim(o);

	assert_true(rows <= MAX_ROWS);
	r.engine = engine;
	r.c = c;
	rig_open(&r.rig, engine, build(c), &opts);
	assert_ok(ct_net_init(r.rig.net, CT_INIT_PYTORCH, (uint64_t)golden_int(c, "init_seed")));
	assert_ok(ct_optim_create(r.rig.net, &settings, &r.optim));
	compare_params(&r, "initial", 1e-7);
	double worst = train(&r);
	printf("%-8s %-8s %-6s largest relative error of a loss %.1e (fp32 against fp64 in PyTorch: %.1e)\n", engine,
	       golden_str(c, "model"), golden_str(o, "name"), worst, golden_f64(c, "fp32_against_fp64"));
	compare_params(&r, "params", PARAM_TOLERANCE);
	bool noisy = settings.kind == CT_ADAMW && ct_graph_n_buffers(r.rig.graph) > 0;
	compare_buffers(&r, noisy ? EVAL_TOLERANCE_NOISY : EVAL_TOLERANCE);
	compare_evaluation(&r, noisy ? EVAL_TOLERANCE_NOISY : EVAL_TOLERANCE);
	ct_optim_destroy(r.optim);
	rig_close(&r.rig);
}

static void run_all(const char *engine)
{
	ct_json *file = golden_load("train.json");
	const ct_json *cases = golden_get(file, "cases");

	assert_int_equal(ct_json_len(cases), 6);
	for (size_t i = 0; i < ct_json_len(cases); i++)
		run_case(engine, ct_json_at(cases, i));
	ct_json_destroy(file);
}

static void test_training(void **state)
{
	(void)state;
	each_engine(run_all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_training)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
