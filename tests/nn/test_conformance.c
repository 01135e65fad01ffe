/* Compares every available engine with ref in every case of op_cases: loss, metrics, logits, the gradient of every
 * parameter, running statistics, evaluation, and accumulation. Engines that have plans are also compared with a plan
 * in NHWC. Each case runs as is and also after a 1x1 convolution,
 * whose weight gradient depends on the gradient of the case's input. Inputs are float images and, with up to 4
 * channels, byte images.
 *
 * The tolerance is 2e-5 of the tensor's largest magnitude. For tensors that are zero up to rounding, such as biases
 * before a batch norm, it is 2e-5 of a hundredth of the net's largest gradient. After batch norm it is 3e-4, because
 * statistics of a few values amplify rounding errors. In bf16, the Euclidean norm of the difference may be 0.02 of the
 * norm of logits and statistics, 0.06 of the norm of all gradients, and 0.2 with ReLUs and maxima; after batch norm,
 * twice as much. */
#include <math.h>

#include "tests/nn/nn_check.h"
#include "tests/nn/op_cases.h"

#define TOLERANCE 2e-5
#define TOLERANCE_NORM 3e-4
#define TOLERANCE_BF16 0.02
#define TOLERANCE_BF16_NORM 0.04

struct inputs {
	struct ct_net_opts opts;
	void *x;
	int32_t *labels, *labels_b; /* labels_b NULL: rows are not mixed */
	float *targets, *mix;
	size_t row_bytes;
};

/* What one engine made of a case. */
struct outcome {
	struct ct_metrics train, eval;
	float *logits, *eval_logits, *buffers;
	float **grads, **sums; /* [n_params], one backward and three accumulated */
};

struct comparison {
	const char *engine, *text;
	enum ct_precision precision;
	const struct ct_net_plan *plan; /* NULL: the one that the engine chooses */
	const struct op_case *c;
	double tolerance, largest_gradient;
	int64_t compared;
	double worst;
};

static struct ct_batch batch_of(const struct inputs *in, int n)
{
	return (struct ct_batch){.n = n,
				 .x = in->x,
				 .labels = in->labels,
				 .labels_b = in->labels_b,
				 .mix = in->mix,
				 .targets = in->targets,
				 .first = 100};
}

static void run_backward(struct rig *r, const struct ct_batch *b, bool accumulate)
{
	struct ct_metrics ignored = {0};
	struct ct_backward_opts back = {.scale = 1.0f / (float)b->n, .accumulate = accumulate};

	assert_ok(forward_now(r->program, b, &ignored));
	assert_ok(ct_program_backward(r->program, &back));
}

static void export_grads(struct rig *r, float **out)
{
	for (int i = 0; i < ct_graph_n_params(r->graph); i++)
		out[i] = export_param(r->net, on_host(ct_net_grads(r->net)), i);
}

static void evaluate(struct rig *r, const struct op_case *c, const struct inputs *in, struct outcome *o)
{
	ct_program *eval;
	int n = c->batch > 1 ? c->batch - 1 : 1; /* a batch that is not full */
	struct ct_batch b = batch_of(in, n);

	assert_ok(ct_program_create(r->net, c->batch, CT_EVAL, &eval));
	assert_ok(forward_now(eval, &b, &o->eval));
	assert_ok(
		ct_program_read(eval, ct_graph_node(r->graph, ct_graph_loss(r->graph))->in[0], false, o->eval_logits));
	b.n = 0;
	struct ct_metrics before = o->eval;
	assert_ok(forward_now(eval, &b, &o->eval));
	assert_memory_equal(&before, &o->eval, sizeof(before));
	ct_program_destroy(eval);
}

static void run_engine(const char *engine, const struct op_case *c, const char *text, const struct inputs *in,
		       struct outcome *o)
{
	struct rig r;
	struct ct_batch b = batch_of(in, c->batch);
	struct ct_backward_opts back = {.scale = 1.0f / (float)c->batch};

	rig_open(&r, engine, graph_make(c->input, text, c->n_outputs, c->loss, c->smoothing), &in->opts);
	vary_norms(r.net);
	size_t n_params = (size_t)ct_graph_n_params(r.graph), n_logits = (size_t)c->batch * (size_t)c->n_outputs;
	*o = (struct outcome){.logits = CT_NEW_ARRAY(float, n_logits),
			      .eval_logits = CT_NEW_ARRAY(float, n_logits),
			      .buffers = CT_NEW_ARRAY(float, ct_arena_elems(ct_net_buffers(r.net))),
			      .grads = CT_NEW_ARRAY(float *, n_params),
			      .sums = CT_NEW_ARRAY(float *, n_params)};
	assert_ok(forward_now(r.program, &b, &o->train));
	assert_ok(ct_program_read(r.program, ct_graph_node(r.graph, ct_graph_loss(r.graph))->in[0], false, o->logits));
	assert_ok(ct_program_backward(r.program, &back));
	export_grads(&r, o->grads);
	memcpy(o->buffers, on_host(ct_net_buffers(r.net)), ct_arena_elems(ct_net_buffers(r.net)) * sizeof(float));
	evaluate(&r, c, in, o);
	for (int k = 0; k < 3; k++)
		run_backward(&r, &b, k > 0);
	export_grads(&r, o->sums);
	rig_close(&r);
}

static void outcome_release(struct outcome *o, int n_params)
{
	for (int i = 0; i < n_params; i++) {
		ct_free(o->grads[i]);
		ct_free(o->sums[i]);
	}
	ct_free(o->grads);
	ct_free(o->sums);
	ct_free(o->buffers);
	ct_free(o->eval_logits);
	ct_free(o->logits);
}

static double largest(const float *x, size_t n)
{
	double max = 0;

	for (size_t i = 0; i < n; i++)
		max = fabs((double)x[i]) > max ? fabs((double)x[i]) : max;
	return max;
}

static void compare(struct comparison *cmp, const char *what, const float *want, const float *got, size_t n,
		    double floor)
{
	double scale = largest(want, n);

	scale = scale > floor ? scale : floor;
	for (size_t i = 0; i < n; i++) {
		double error = fabs((double)want[i] - (double)got[i]) / (scale > 0 ? scale : 1);

		if (!(error <= cmp->tolerance))
			fail_msg("%s, \"%s\" (%s): %s[%zu] is %.9g, ref has %.9g: off by %.1e of the largest",
				 cmp->engine, cmp->c->name, cmp->text, what, i, (double)got[i], (double)want[i], error);
		cmp->worst = error > cmp->worst ? error : cmp->worst;
		cmp->compared++;
	}
}

static void compare_outcomes(struct comparison *cmp, const ct_graph *g, const struct outcome *want,
			     const struct outcome *got)
{
	const struct op_case *c = cmp->c;
	size_t n_logits = (size_t)c->batch * (size_t)c->n_outputs,
	       n_eval = (size_t)want->eval.count * (size_t)c->n_outputs;
	size_t n_buffers = 0;
	const float losses[2] = {(float)want->train.loss, (float)want->eval.loss};
	const float got_losses[2] = {(float)got->train.loss, (float)got->eval.loss};
	double floor = 0;

	compare(cmp, "logits", want->logits, got->logits, n_logits, 0);
	compare(cmp, "evaluation's logits", want->eval_logits, got->eval_logits, n_eval, 0);
	compare(cmp, "loss", losses, got_losses, 2, 0);
	assert_int_equal(want->train.count, got->train.count);
	assert_int_equal(want->eval.count, got->eval.count);
	assert_int_equal(want->train.top1, got->train.top1);
	assert_int_equal(want->eval.top5, got->eval.top5);
	for (int i = 0; i < ct_graph_n_buffers(g); i++)
		n_buffers += ct_graph_buffer(g, i)->n;
	compare(cmp, "running statistics", want->buffers, got->buffers, n_buffers, 0);
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		double size = largest(want->grads[i], ct_graph_param(g, i)->n);

		floor = size / 100 > floor ? size / 100 : floor;
	}
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);

		compare(cmp, p->name, want->grads[i], got->grads[i], p->n, floor);
		compare(cmp, p->name, want->sums[i], got->sums[i], p->n, 3 * floor);
	}
}

struct squares {
	double difference, size;
};

static void add_squares(struct squares *s, const float *want, const float *got, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const double d = (double)got[i] - (double)want[i];

		s->difference += d * d;
		s->size += (double)want[i] * (double)want[i];
	}
}

static void check_squares(struct comparison *cmp, const char *what, const struct squares *s, double tolerance)
{
	const double error = sqrt(s->difference / fmax(s->size, 1e-12));

	if (!(error <= tolerance))
		fail_msg("%s bf16, \"%s\" (%s): %s are off by %.1e", cmp->engine, cmp->c->name, cmp->text, what, error);
	cmp->worst = error > cmp->worst ? error : cmp->worst;
}

/* Rounding to 8 bits flips a ReLU here and a maximum there, so single gradients differ at will: all of them together
 * count. */
static void compare_rounded(struct comparison *cmp, const ct_graph *g, const struct outcome *want,
			    const struct outcome *got)
{
	const char *layers = cmp->c->layers;
	const bool flips = strstr(layers, "relu") || strstr(layers, "max_pool");
	const size_t n = (size_t)cmp->c->batch * (size_t)cmp->c->n_outputs;
	struct squares logits = {0}, grads = {0}, buffers = {0};
	size_t n_buffers = 0;

	for (int i = 0; i < ct_graph_n_buffers(g); i++)
		n_buffers += ct_graph_buffer(g, i)->n;
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		add_squares(&grads, want->grads[i], got->grads[i], ct_graph_param(g, i)->n);
		add_squares(&grads, want->sums[i], got->sums[i], ct_graph_param(g, i)->n);
		cmp->compared += 2 * (int64_t)ct_graph_param(g, i)->n;
	}
	add_squares(&logits, want->logits, got->logits, n);
	add_squares(&logits, want->eval_logits, got->eval_logits, (size_t)want->eval.count * (size_t)cmp->c->n_outputs);
	add_squares(&buffers, want->buffers, got->buffers, n_buffers);
	check_squares(cmp, "logits", &logits, cmp->tolerance);
	check_squares(cmp, "running statistics", &buffers, cmp->tolerance);
	check_squares(cmp, "gradients", &grads, (flips ? 10 : 3) * cmp->tolerance);
}

static void make_inputs(const struct op_case *c, enum ct_input_kind kind, struct inputs *in)
{
	size_t n = shape_elems(c->input) * (size_t)c->batch;

	*in = (struct inputs){.opts = {.batch = c->batch,
				       .input = kind,
				       .mean = {0.4f, 0.5f, 0.6f, 0.3f},
				       .std = {0.2f, 0.25f, 0.3f, 0.35f},
				       .seed = 9,
				       .class_weights = op_case_weights(c),
				       .n_class_weights = op_case_weights(c) ? c->n_outputs : 0,
				       .train = true}};
	in->labels = CT_NEW_ARRAY(int32_t, (size_t)c->batch);
	in->targets = CT_NEW_ARRAY(float, (size_t)c->batch *(size_t)c->n_outputs);
	fill_labels(1, in->labels, (size_t)c->batch, c->n_outputs);
	in->mix = CT_NEW_ARRAY(float, (size_t)c->batch);
	fill_shares(4, in->mix, (size_t)c->batch);
	if (c->mixed) {
		in->labels_b = CT_NEW_ARRAY(int32_t, (size_t)c->batch);
		fill_labels(5, in->labels_b, (size_t)c->batch, c->n_outputs);
	}
	fill_floats(2, in->targets, (size_t)c->batch * (size_t)c->n_outputs);
	if (kind == CT_INPUT_F32_NCHW) {
		in->x = CT_NEW_ARRAY(float, n);
		fill_floats(3, in->x, n);
	} else {
		in->x = CT_NEW_ARRAY(uint8_t, n);
		fill_bytes(3, in->x, n);
	}
}

static void compare_case(struct comparison *cmp, const char *text, enum ct_input_kind kind)
{
	const struct op_case *c = cmp->c;
	struct inputs in;
	struct outcome want, got;

	cmp->text = text;
	make_inputs(c, kind, &in);
	ct_graph *g = graph_make(c->input, text, c->n_outputs, c->loss, c->smoothing);
	run_engine("ref", c, text, &in, &want);
	in.opts.precision = cmp->precision;
	in.opts.plan = cmp->plan;
	run_engine(cmp->engine, c, text, &in, &got);
	if (cmp->precision == CT_PRECISION_BF16)
		compare_rounded(cmp, g, &want, &got);
	else
		compare_outcomes(cmp, g, &want, &got);
	outcome_release(&want, ct_graph_n_params(g));
	outcome_release(&got, ct_graph_n_params(g));
	ct_graph_destroy(g);
	ct_free(in.x);
	ct_free(in.mix);
	ct_free(in.labels_b);
	ct_free(in.labels);
	ct_free(in.targets);
}

static double tolerance_of(const struct op_case *c, enum ct_precision precision)
{
	const bool norm = strstr(c->layers, "batch_norm") != NULL;

	if (precision == CT_PRECISION_BF16)
		return norm ? TOLERANCE_BF16_NORM : TOLERANCE_BF16;
	return norm ? TOLERANCE_NORM : TOLERANCE;
}

static int64_t compare_engine(const char *engine, enum ct_precision precision, const struct ct_net_plan *plan)
{
	int64_t total = 0;

	for (size_t i = 0; i < n_op_cases; i++) {
		struct comparison cmp = {.engine = engine, .precision = precision, .plan = plan, .c = &op_cases[i]};
		char *behind = ct_strfmt("conv2d %d kernel=1 name=before;%s", cmp.c->input.c, cmp.c->layers);
		const char *texts[] = {cmp.c->layers, behind};

		assert_non_null(behind);
		cmp.tolerance = tolerance_of(cmp.c, precision);
		for (size_t t = 0; t < CT_ARRAY_LEN(texts); t++) {
			compare_case(&cmp, texts[t], CT_INPUT_F32_NCHW);
			if (cmp.c->input.c <= 4)
				compare_case(&cmp, texts[t], CT_INPUT_U8_NHWC);
		}
		printf("%-10s %s%s %-34s %7lld values, largest error %.1e\n", engine,
		       precision == CT_PRECISION_BF16 ? "bf16" : "fp32", plan ? " nhwc" : "", cmp.c->name,
		       (long long)cmp.compared, cmp.worst);
		assert_true(cmp.compared > 0);
		total += cmp.compared;
		ct_free(behind);
	}
	return total;
}

static void engines_equal_ref(enum ct_precision precision)
{
	const struct ct_net_plan nhwc = {.layout = CT_LAYOUT_NHWC};
	const char *name;
	bool available;
	char why[256];
	int compared = 0;

	for (size_t i = 0; ct_engine_at(i, &name, &available, why, sizeof(why)); i++) {
		if (!strcmp(name, "ref"))
			continue;
		if (!available) {
			printf("not compared: engine %s is not available: %s\n", name, why);
			continue;
		}
		if (!has_precision(name, precision))
			continue;
		int64_t values = compare_engine(name, precision, NULL);
		if (!strcmp(name, "onednn"))
			values += compare_engine(name, precision, &nhwc);
		printf("%s: %lld values compared with ref\n", name, (long long)values);
		assert_true(values > 0);
		compared++;
	}
	if (!compared) {
		printf("skipped: ref is the only engine here, there is nothing to compare it with\n");
		skip();
	}
}

static void test_fp32(void **state)
{
	(void)state;
	engines_equal_ref(CT_PRECISION_FP32);
}

static void test_bf16(void **state)
{
	(void)state;
	engines_equal_ref(CT_PRECISION_BF16);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_fp32), cmocka_unit_test(test_bf16)};

	int skipped = limit_isa(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
