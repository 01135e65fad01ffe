/* Compares ResNets with torchvision's in PyTorch, from the same weights and images: logits and the gradient of every
 * parameter in one pass; the loss of each of 20 training steps; and after these, parameters, running statistics and
 * logits in evaluation.
 *
 * The tolerance of losses is 1e-5 relative. The other tolerances are about three times the deviation of PyTorch from
 * its own fp64 run if its convolutions have errors like ctrain's (Winograd transforms in fp32:
 * nn/onednn/winograd/winograd.h), or if the last bit of its initial weights changes. These deviations are in
 * resnet.json (shaken_most), whose generator describes how cases are chosen. */
#include <math.h>

#include "tests/golden/golden.h"
#include "tests/nn/on_host.h"

#define LOSS_TOLERANCE 1e-5
#define MARGIN 3
#define LEAST 2e-6 /* of any quantity: what sums in another order give */
#define MAX_ROWS 16
#define MAX_IMAGE 64
#define CLASSES 10
#define STEPS 20
#define FIRST_STEPS 2
/* Sanitizers: plain loops take minutes and show nothing that other tests do not show. Two steps of a case reach all
 * code but that of the end of the training, which one case reaches. */
#ifdef __SANITIZE_ADDRESS__
#define SLOW 1
#else
#define SLOW 0
#endif

/* Names of streams in make_golden_resnet.py. */
enum { LOGITS = 4999, GRADS = 5000, PARAMS = 6000, BUFFERS = 7000 };

struct run {
	const char *engine;
	const ct_json *c;
	struct rig rig;
	ct_optim *optim;
	int rows, image;
	uint8_t x[MAX_ROWS * MAX_IMAGE * MAX_IMAGE * 3];
	int32_t labels[MAX_ROWS];
};

static double tolerance_of(const ct_json *results, const char *part)
{
	double t = MARGIN * golden_f64(golden_get(results, "shaken_most"), part);

	return t > LEAST ? t : LEAST;
}

static struct ct_model_spec spec_of(const ct_json *c)
{
	struct ct_model_spec spec = {.name = golden_str(c, "model"),
				     .input = {3, golden_int(c, "image"), golden_int(c, "image")},
				     .n_outputs = CLASSES,
				     .label_smoothing = (float)golden_f64(c, "label_smoothing")};

	assert_ok(ct_json_get_bool(c, "small_stem", &spec.small_stem));
	return spec;
}

/* Where make_golden_resnet.py has the batch norms start, and why. */
static void shift_norms(ct_net *net, const char *last, bool calm)
{
	const ct_graph *g = ct_net_graph(net);

	vary_norms(net);
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);

		if (p->kind != CT_PARAM_BN_WEIGHT && p->kind != CT_PARAM_BN_BIAS)
			continue;
		float *x = export_param(net, on_host(ct_net_params(net)), i);
		float factor = strstr(p->name, last) ? 0.2f : calm ? 0.5f : 1.0f;
		for (size_t k = 0; k < p->n; k++) {
			if (p->kind == CT_PARAM_BN_WEIGHT)
				x[k] *= factor;
			else if (calm)
				x[k] = k % 4 == 3 ? x[k] + 2.0f - 4.0f : x[k] + 2.0f;
		}
		assert_ok(import_now(net, on_host(ct_net_params(net)), i, x));
		ct_free(x);
	}
}

static double compare_arena(struct run *r, const ct_json *want, const char *part, const float *arena, uint32_t stream)
{
	double worst = 0;

	for (int i = 0; i < ct_graph_n_params(r->rig.graph); i++) {
		const struct ct_param *p = ct_graph_param(r->rig.graph, i);
		float *x = export_param(r->rig.net, arena, i);
		double error = golden_compare_digest(p->name, golden_get(golden_get(want, part), p->name),
						     stream + (uint32_t)i, x, p->n, tolerance_of(want, part));

		worst = error > worst ? error : worst;
		ct_free(x);
	}
	return worst;
}

static double compare_buffers(struct run *r, const ct_json *want)
{
	const float *x = on_host(ct_net_buffers(r->rig.net));
	double worst = 0;

	for (int i = 0; i < ct_graph_n_buffers(r->rig.graph); i++) {
		const struct ct_param *p = ct_graph_buffer(r->rig.graph, i);
		double error = golden_compare_digest(p->name, golden_get(golden_get(want, "buffers"), p->name),
						     BUFFERS + (uint32_t)i, x, p->n, tolerance_of(want, "buffers"));

		worst = error > worst ? error : worst;
		x += p->n;
	}
	return worst;
}

static double compare_logits(struct run *r, const ct_json *want, ct_program *program, const char *part)
{
	float logits[MAX_ROWS * CLASSES];
	const ct_graph *g = r->rig.graph;

	assert_ok(ct_program_read(program, ct_graph_node(g, ct_graph_loss(g))->in[0], false, logits));
	return golden_compare_digest(part, golden_get(want, part), LOGITS, logits, (size_t)r->rows * CLASSES,
				     tolerance_of(want, part));
}

static double forward(struct run *r, ct_program *program, uint32_t step)
{
	struct ct_batch b = {.n = r->rows, .x = r->x, .labels = r->labels};
	struct ct_metrics m = {0};

	golden_photos(step, r->rows, r->image, r->x, r->labels);
	assert_ok(forward_now(program, &b, &m));
	return m.loss / r->rows;
}

static void set_weights(struct run *r, bool calm)
{
	assert_ok(ct_net_init(r->rig.net, CT_INIT_PYTORCH, (uint64_t)golden_int(r->c, "init_seed")));
	shift_norms(r->rig.net, strcmp(golden_str(r->c, "model"), "resnet50") ? ".bn2." : ".bn3.", calm);
}

static void first_pass(struct run *r)
{
	const ct_json *want = golden_get(r->c, "calm");
	struct ct_backward_opts back = {.scale = 1.0f / (float)r->rows};

	set_weights(r, true);
	forward(r, r->rig.program, 0);
	assert_ok(ct_program_backward(r->rig.program, &back));
	double logits = compare_logits(r, want, r->rig.program, "logits");
	double grads = compare_arena(r, want, "grads", on_host(ct_net_grads(r->rig.net)), GRADS);
	printf("  logits off by %.1e, gradients by %.1e (PyTorch in fp32: %.1e, %.1e)\n", logits, grads,
	       golden_f64(golden_get(want, "fp32_against_fp64"), "logits"),
	       golden_f64(golden_get(want, "fp32_against_fp64"), "grads"));
}

static void train(struct run *r, const ct_json *want, uint32_t steps)
{
	const ct_json *losses = golden_get(want, "losses");
	double lr = golden_f64(golden_get(r->c, "optim"), "lr"), worst = 0;
	struct ct_backward_opts back = {.scale = 1.0f / (float)r->rows};

	assert_int_equal(ct_json_len(losses), STEPS);
	for (uint32_t step = 0; step < steps; step++) {
		double loss = forward(r, r->rig.program, step), wanted = golden_at(losses, step);
		double error = fabs(loss - wanted) / wanted;

		assert_ok(ct_program_backward(r->rig.program, &back));
		assert_ok(update_now(r->optim, lr, NULL));
		if (!(error <= LOSS_TOLERANCE))
			fail_msg("%s, %s: loss of step %d is %.9g, PyTorch has %.9g: off by %.1e", r->engine,
				 golden_str(r->c, "case"), (int)step, loss, wanted, error);
		worst = error > worst ? error : worst;
	}
	printf("  largest relative error of %d losses %.1e (fp32 against fp64 in PyTorch: %.1e)\n", (int)steps, worst,
	       golden_f64(golden_get(want, "fp32_against_fp64"), "losses"));
}

static void compare_end(struct run *r, const ct_json *want)
{
	ct_program *eval;

	double params = compare_arena(r, want, "params", on_host(ct_net_params(r->rig.net)), PARAMS);
	double buffers = compare_buffers(r, want);
	assert_ok(ct_program_create(r->rig.net, r->rows, CT_EVAL, &eval));
	forward(r, eval, 1000);
	double logits = compare_logits(r, want, eval, "eval_logits");
	printf("  parameters %.1e, running statistics %.1e, logits in evaluation %.1e\n", params, buffers, logits);
	ct_program_destroy(eval);
}

static void training(struct run *r, uint32_t steps)
{
	const ct_json *want = golden_get(r->c, "training");
	struct ct_optim_opts settings = golden_optim(golden_get(r->c, "optim"));
	bool calm = false;

	assert_ok(ct_json_get_bool(r->c, "calm_training", &calm));
	set_weights(r, calm);
	assert_ok(ct_optim_create(r->rig.net, &settings, &r->optim));
	train(r, want, steps);
	if (steps == STEPS)
		compare_end(r, want);
	ct_optim_destroy(r->optim);
}

static void run_case(const char *engine, const ct_json *c, uint32_t steps)
{
	static struct run r;
	struct ct_model_spec spec = spec_of(c);
	struct ct_net_opts opts = {.batch = golden_int(c, "batch"),
				   .input = CT_INPUT_U8_NHWC,
				   .mean = {0.485f, 0.456f, 0.406f},
				   .std = {0.229f, 0.224f, 0.225f},
				   .train = true};
	ct_graph *g = NULL;

	r.engine = engine;
	r.c = c;
	r.rows = opts.batch;
	r.image = spec.input.h;
	assert_true(r.rows <= MAX_ROWS && r.image <= MAX_IMAGE);
	assert_ok(ct_model_build(&spec, &g));
	rig_open(&r.rig, engine, g, &opts);
	printf("%s, %s\n", engine, golden_str(c, "case"));
	first_pass(&r);
	training(&r, steps);
	rig_close(&r.rig);
}

static void run_all(const char *engine)
{
	ct_json *file = golden_load("resnet.json");
	const ct_json *cases = golden_get(file, "cases");
	bool ref = strcmp(engine, "ref") == 0;

	assert_int_equal(ct_json_len(cases), 3);
	for (size_t i = 0; i < ct_json_len(cases); i++) {
		if (ref && (i > 0 || SLOW))
			printf("%s: %s is left to the other engines (plain loops take minutes)\n", engine,
			       golden_str(ct_json_at(cases, i), "case"));
		else
			run_case(engine, ct_json_at(cases, i), ref || (SLOW && i > 0) ? FIRST_STEPS : STEPS);
	}
	ct_json_destroy(file);
}

static void test_training(void **state)
{
	(void)state;
	each_engine(run_all);
}

/* Cases are mild for a reason: at an everyday learning rate PyTorch loses its own track, told apart by the last bit of
 * its initial weights, by far more than the tolerance. */
static void test_chaos(void **state)
{
	ct_json *file = golden_load("resnet.json");
	const ct_json *cases = golden_get(file, "cases");

	(void)state;
	for (size_t i = 0; i < ct_json_len(cases); i++) {
		const ct_json *c = ct_json_at(cases, i), *chaotic = golden_get(c, "chaotic");

		assert_true(golden_f64(golden_get(golden_get(c, "training"), "shaken_most"), "losses") <
			    LOSS_TOLERANCE);
		assert_true(golden_f64(chaotic, "apart") > 10 * LOSS_TOLERANCE);
	}
	ct_json_destroy(file);
}

static void compare_names(const ct_json *models, const char *name)
{
	struct ct_model_spec spec = {.name = name, .input = {3, 224, 224}, .n_outputs = 1000};
	const ct_json *theirs = golden_get(models, name);
	ct_graph *g = NULL;

	assert_ok(ct_model_build(&spec, &g));
	int n_params = ct_graph_n_params(g), n = n_params + ct_graph_n_buffers(g);
	assert_int_equal(ct_json_len(theirs), n);
	for (int i = 0; i < n; i++) {
		const struct ct_param *p = i < n_params ? ct_graph_param(g, i) : ct_graph_buffer(g, i - n_params);
		const ct_json *shape = golden_get(theirs, p->name);

		assert_int_equal(ct_json_len(shape), p->ndim);
		for (int k = 0; k < p->ndim; k++)
			assert_int_equal(golden_at(shape, (size_t)k), p->dims[k]);
	}
	ct_graph_destroy(g);
}

static void test_names(void **state)
{
	ct_json *file = golden_load("names.json");

	(void)state;
	compare_names(golden_get(file, "models"), "resnet18");
	compare_names(golden_get(file, "models"), "resnet50");
	ct_json_destroy(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_chaos),
		cmocka_unit_test(test_training),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
