/* Compares the gradients of the reference engine with finite differences, for parameters and input, in every case of
 * op_cases. */
#include <math.h>

#include "tests/nn/nn_check.h"
#include "tests/nn/op_cases.h"

/* Elements tried of each tensor. Under a sanitizer a forward pass takes ten times as long, and shows all it can at the
 * first. */
#ifdef __SANITIZE_ADDRESS__
#define PROBES 4
#else
#define PROBES 24
#endif

struct probe {
	struct rig rig;
	const struct op_case *c;
	float *x, *targets, *mix;
	int32_t *labels, *labels_b;
	int tried, skipped;
	double worst;
};

static double loss_now(struct probe *p)
{
	struct ct_metrics m = {0};
	struct ct_batch b = {.n = p->c->batch,
			     .x = p->x,
			     .labels = p->labels,
			     .labels_b = p->c->mixed ? p->labels_b : NULL,
			     .mix = p->mix,
			     .targets = p->targets,
			     .first = 11};

	assert_ok(forward_now(p->rig.program, &b, &m));
	assert_int_equal(m.count, p->c->batch);
	return m.loss / p->c->batch;
}

struct difference {
	double slope; /* central */
	double bend;  /* (f(x+h) - 2 f(x) + f(x-h)) / h */
};

static struct difference differ(struct probe *p, float *value, float h, double middle)
{
	float keep = *value;

	*value = keep + h;
	double above = loss_now(p);
	volatile float up = *value;
	*value = keep - h;
	double below = loss_now(p);
	volatile float down = *value;
	*value = keep;
	return (struct difference){(above - below) / ((double)up - (double)down),
				   (above - 2 * middle + below) / (double)h};
}

enum verdict { AGREES, KINK, DIFFERS };

/* Where the loss is smooth, slopes at two step sizes agree and the bend halves with the step; a kink (ReLU, max pool)
 * at distance d < h breaks one of the two by a third of its size at least. Elsewhere Richardson's extrapolation takes
 * the quadratic error away. */
static enum verdict try_step(struct probe *p, float *value, double gradient, double h, double *best)
{
	double middle = loss_now(p);
	struct difference wide = differ(p, value, (float)h, middle), narrow = differ(p, value, (float)h / 2, middle);
	*best = (4 * narrow.slope - wide.slope) / 3;
	double error = fabs(*best - gradient), size = fabs(*best) + fabs(gradient);
	double limit = 1e-6 / h + 2e-3 * size; /* the loss is good to 1e-8: fp32 logits, summed in double */

	if (fabs(wide.slope - narrow.slope) > limit / 2 || fabs(wide.bend - 2 * narrow.bend) > limit / 2)
		return KINK;
	if (error > limit)
		return DIFFERS;
	p->worst = error > p->worst ? error : p->worst;
	return AGREES;
}

/* A wrong gradient differs at every step size; several kinks together may look smooth at one. */
static void check_element(struct probe *p, float *value, double gradient, const char *what, size_t i)
{
	static const double steps[] = {1e-2, 4e-3, 1.5e-3};
	enum verdict verdict = KINK;
	double best = 0;

	p->tried++;
	for (size_t k = 0; k < CT_ARRAY_LEN(steps) && verdict != AGREES; k++)
		verdict = try_step(p, value, gradient, steps[k], &best);
	if (verdict == DIFFERS)
		fail_msg("%s: %s[%zu]: gradient %.8g, finite difference %.8g", p->c->name, what, i, gradient, best);
	p->skipped += verdict == KINK;
}

static size_t stride_for(size_t n)
{
	return n <= PROBES ? 1 : n / PROBES | 1;
}

static void check_parameters(struct probe *p)
{
	float *params = on_host(ct_net_params(p->rig.net));

	for (int i = 0; i < ct_net_n_slices(p->rig.net); i++) {
		const struct ct_slice *s = ct_net_slice(p->rig.net, i);
		const struct ct_param *param = ct_graph_param(p->rig.graph, s->param);
		float *gradient = export_param(p->rig.net, on_host(ct_net_grads(p->rig.net)), s->param);

		for (size_t e = 0; e < param->n; e += stride_for(param->n))
			check_element(p, &params[s->offset + e], (double)gradient[e], param->name, e);
		ct_free(gradient);
	}
}

static void check_case(const struct op_case *c)
{
	struct probe p = {.c = c};
	struct ct_net_opts opts = {.batch = c->batch,
				   .input = CT_INPUT_F32_NCHW,
				   .seed = 5,
				   .class_weights = op_case_weights(c),
				   .n_class_weights = op_case_weights(c) ? c->n_outputs : 0,
				   .train = true};
	size_t n = shape_elems(c->input) * (size_t)c->batch;

	rig_open(&p.rig, "ref", graph_make(c->input, c->layers, c->n_outputs, c->loss, c->smoothing), &opts);
	vary_norms(p.rig.net);
	p.x = CT_NEW_ARRAY(float, n);
	p.targets = CT_NEW_ARRAY(float, (size_t)c->batch *(size_t)c->n_outputs);
	p.labels = CT_NEW_ARRAY(int32_t, (size_t)c->batch);
	p.labels_b = CT_NEW_ARRAY(int32_t, (size_t)c->batch);
	p.mix = CT_NEW_ARRAY(float, (size_t)c->batch);
	float *dx = CT_NEW_ARRAY(float, n);
	fill_floats(1, p.x, n);
	fill_floats(2, p.targets, (size_t)c->batch * (size_t)c->n_outputs);
	fill_labels(3, p.labels, (size_t)c->batch, c->n_outputs);
	fill_labels(4, p.labels_b, (size_t)c->batch, c->n_outputs);
	fill_shares(5, p.mix, (size_t)c->batch);

	loss_now(&p);
	struct ct_backward_opts back = {.scale = 1.0f / (float)c->batch};
	assert_ok(ct_program_backward(p.rig.program, &back));
	assert_ok(ct_program_read(p.rig.program, 0, true, dx));
	check_parameters(&p);
	for (size_t e = 0; e < n; e += stride_for(n))
		check_element(&p, &p.x[e], (double)dx[e], "input", e);
	if (p.skipped * 4 > p.tried)
		fail_msg("%s: %d of %d elements lie at a kink: the case proves too little", c->name, p.skipped,
			 p.tried);
	printf("%-32s %4d elements, %2d at a kink, largest error %.1e\n", c->name, p.tried, p.skipped, p.worst);
	ct_free(dx);
	ct_free(p.mix);
	ct_free(p.labels_b);
	ct_free(p.labels);
	ct_free(p.targets);
	ct_free(p.x);
	rig_close(&p.rig);
}

static void test_all_cases(void **state)
{
	bool seen[CT_N_OPS] = {0};

	(void)state;
	for (size_t i = 0; i < n_op_cases; i++) {
		const struct op_case *c = &op_cases[i];
		ct_graph *g = graph_make(c->input, c->layers, c->n_outputs, c->loss, c->smoothing);

		for (int id = 0; id < ct_graph_n_nodes(g); id++)
			seen[ct_graph_node(g, id)->op] = true;
		ct_graph_destroy(g);
		check_case(c);
	}
	for (int op = 0; op < CT_N_OPS; op++) {
		if (!seen[op] && op != CT_OP_OUTPUT) /* tests/nn/test_stage.c tests it */
			fail_msg("no case has the operation %s", ct_op_name((enum ct_op)op));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_cases)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
