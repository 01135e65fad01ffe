/* Compares small models of every operation, and the loss heads alone, with values and gradients of PyTorch, on every
 * engine. */
#include <math.h>

#include "nn/engine_impl.h"
#include "nn/host/host.h"
#include "tests/golden/golden.h"
#include "tests/nn/on_host.h"

#define TOLERANCE 1e-5
#define TOLERANCE_NORM 5e-5 /* batch norm over few values amplifies rounding */

struct run {
	const ct_json *c;
	struct rig rig;
	int rows, n_outputs;
	double tolerance;
	float *x, *targets, *logits;
	int32_t *labels;
};

static void compare_grads(struct run *r)
{
	const ct_json *grads = golden_get(r->c, "grads");
	double floor = 0; /* biases before a batch norm have gradients that are zero up to rounding */

	for (int i = 0; i < ct_graph_n_params(r->rig.graph); i++) {
		double size = golden_size(golden_get(grads, ct_graph_param(r->rig.graph, i)->name)) / 10;

		floor = size > floor ? size : floor;
	}
	for (int i = 0; i < ct_graph_n_params(r->rig.graph); i++) {
		const struct ct_param *p = ct_graph_param(r->rig.graph, i);
		float *x = export_param(r->rig.net, on_host(ct_net_grads(r->rig.net)), i);

		golden_compare(p->name, golden_get(grads, p->name), x, p->n, r->tolerance, floor);
		ct_free(x);
	}
}

static void compare_buffers(struct run *r)
{
	const float *x = on_host(ct_net_buffers(r->rig.net));

	for (int i = 0; i < ct_graph_n_buffers(r->rig.graph); i++) {
		const struct ct_param *p = ct_graph_buffer(r->rig.graph, i);

		golden_compare(p->name, golden_get(golden_get(r->c, "buffers"), p->name), x, p->n, r->tolerance, 0);
		x += p->n;
	}
}

static void compare_logits(struct run *r, ct_program *p, const char *key)
{
	int node = ct_graph_node(r->rig.graph, ct_graph_loss(r->rig.graph))->in[0];

	assert_ok(ct_program_read(p, node, false, r->logits));
	golden_compare(key, golden_get(r->c, key), r->logits, (size_t)(r->rows * r->n_outputs), r->tolerance, 0);
}

static void compare_model(struct run *r)
{
	struct ct_batch b = {.n = r->rows, .x = r->x, .labels = r->labels, .targets = r->targets};
	struct ct_backward_opts back = {.scale = 1.0f / (float)r->rows};
	struct ct_metrics m = {0};
	size_t n = shape_elems(ct_graph_node(r->rig.graph, 0)->shape) * (size_t)r->rows;
	ct_program *eval;

	assert_ok(forward_now(r->rig.program, &b, &m));
	assert_float_equal(m.loss / r->rows, golden_f64(r->c, "loss"), r->tolerance);
	compare_logits(r, r->rig.program, "logits");
	assert_ok(ct_program_backward(r->rig.program, &back));
	compare_grads(r);
	compare_buffers(r);
	float *dx = CT_NEW_ARRAY(float, n);
	enum ct_status st = ct_program_read(r->rig.program, 0, true, dx);
	if (st == CT_OK)
		golden_compare("gradient of the input", golden_get(r->c, "input_grad"), dx, n, r->tolerance, 0);
	else
		assert_int_equal(st, CT_UNSUPPORTED); /* engines need not compute it; ref does */
	assert_true(st == CT_OK || strcmp(r->rig.engine->ops->name, "ref"));
	ct_free(dx);
	assert_ok(ct_program_create(r->rig.net, r->rows, CT_EVAL, &eval));
	assert_ok(forward_now(eval, &b, &m));
	compare_logits(r, eval, "eval_logits");
	ct_program_destroy(eval);
}

static void run_case(const char *engine, const ct_json *c)
{
	const ct_json *input = golden_get(c, "input");
	const char *layers = golden_str(c, "layers");
	bool mse = !strcmp(golden_str(c, "loss_kind"), "mse");
	struct ct_shape shape = {(int)golden_at(input, 0), (int)golden_at(input, 1), (int)golden_at(input, 2)};
	struct run r = {.c = c, .rows = golden_int(c, "batch"), .n_outputs = 3};
	struct ct_net_opts opts = {.batch = r.rows, .input = CT_INPUT_F32_NCHW, .train = true};
	size_t n = shape_elems(shape) * (size_t)r.rows, n_out = (size_t)(r.rows * r.n_outputs);

	printf("%-8s %s\n", engine, layers);
	r.tolerance = strstr(layers, "batch_norm") ? TOLERANCE_NORM : TOLERANCE;
	rig_open(&r.rig, engine,
		 graph_make(shape, layers, r.n_outputs, mse ? CT_LOSS_MSE : CT_LOSS_CROSS_ENTROPY,
			    (float)golden_f64(c, "label_smoothing")),
		 &opts);
	vary_norms(r.rig.net);
	r.x = CT_NEW_ARRAY(float, n);
	r.targets = CT_NEW_ARRAY(float, n_out);
	r.logits = CT_NEW_ARRAY(float, n_out);
	r.labels = CT_NEW_ARRAY(int32_t, (size_t)r.rows);
	fill_floats(1, r.x, n);
	fill_floats(2, r.targets, n_out);
	fill_labels(3, r.labels, (size_t)r.rows, r.n_outputs);
	compare_model(&r);
	ct_free(r.labels);
	ct_free(r.logits);
	ct_free(r.targets);
	ct_free(r.x);
	rig_close(&r.rig);
}

static void run_all(const char *engine)
{
	ct_json *file = golden_load("ops.json");
	const ct_json *cases = golden_get(file, "cases");

	assert_true(ct_json_len(cases) > 20);
	for (size_t i = 0; i < ct_json_len(cases); i++)
		run_case(engine, ct_json_at(cases, i));
	ct_json_destroy(file);
}

static void test_models_of_one_operation(void **state)
{
	(void)state;
	each_engine(run_all);
}

/* Class weights, and in rows with two labels the second label and the share of the first one, as in make_golden.py. */
static float *add_weights(const ct_json *c, struct ct_batch *b, int32_t *labels_b, float *mix)
{
	const size_t n = (size_t)b->n, k = (size_t)golden_int(c, "k");
	float *weights = CT_NEW_ARRAY(float, k);
	bool mixed;

	assert_ok(ct_json_get_bool(c, "mixed", &mixed));
	fill_floats(90 + (uint32_t)k, weights, k);
	for (size_t j = 0; j < k; j++)
		weights[j] = 0.125f + fabsf(weights[j]) * 2;
	if (!mixed)
		return weights;
	fill_labels(52 + (uint32_t)k, labels_b, n, (int)k);
	fill_floats(91 + (uint32_t)k, mix, n);
	for (size_t i = 0; i < n; i++)
		mix[i] = fabsf(mix[i]);
	b->labels_b = labels_b;
	b->mix = mix;
	return weights;
}

static void run_loss(const ct_json *c, bool weighted)
{
	int n = golden_int(c, "n"), k = golden_int(c, "k");
	size_t elems = (size_t)(n * k);
	float *z = CT_NEW_ARRAY(float, elems), *d = CT_NEW_ARRAY(float, elems), *t = CT_NEW_ARRAY(float, elems);
	int32_t labels[8], labels_b[8];
	float mix[8], *weights = NULL;
	struct ct_metrics m = {0};

	assert_true(n <= (int)CT_ARRAY_LEN(labels));
	fill_floats(50 + (uint32_t)k, z, elems);
	if (!strcmp(golden_str(c, "kind"), "mse")) {
		fill_floats(80 + (uint32_t)k, t, elems);
		ct_loss_mse(1, z, &(struct ct_batch){.n = n, .targets = t}, k, d, &m);
	} else {
		for (size_t i = 0; i < elems; i++)
			z[i] *= (float)golden_f64(c, "spread");
		fill_labels(51 + (uint32_t)k, labels, (size_t)n, k);
		struct ct_batch b = {.n = n, .labels = labels};
		weights = weighted ? add_weights(c, &b, labels_b, mix) : NULL;
		ct_loss_softmax_xent(1, z, &b, k, (float)golden_f64(c, "label_smoothing"), weights, d, &m);
	}
	assert_float_equal(m.loss, golden_f64(c, "loss"), 1e-6 * golden_f64(c, "loss"));
	golden_compare("gradient of the logits", golden_get(c, "grad"), d, elems, 1e-6, 0);
	ct_free(weights);
	ct_free(t);
	ct_free(d);
	ct_free(z);
}

static void run_losses(const char *name, size_t n, bool weighted)
{
	ct_json *file = golden_load(name);
	const ct_json *cases = golden_get(file, "losses");

	assert_int_equal(ct_json_len(cases), n);
	for (size_t i = 0; i < ct_json_len(cases); i++)
		run_loss(ct_json_at(cases, i), weighted);
	ct_json_destroy(file);
}

static void test_losses(void **state)
{
	(void)state;
	run_losses("ops.json", 8, false);
}

static void test_losses_with_class_weights(void **state)
{
	(void)state;
	run_losses("class_weights.json", 5, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_models_of_one_operation),
		cmocka_unit_test(test_losses),
		cmocka_unit_test(test_losses_with_class_weights),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
