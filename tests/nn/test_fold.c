/* Evaluation programs of the oneDNN engine fold batch norms into convolutions. The results must be those of ref, which
 * does not fold, and the weights must be folded again whenever parameters or running statistics change. */
#include "tests/nn/onednn_check.h"

#define ROWS 3

struct setup {
	const char *model; /* or layers, with ';' between them */
	struct ct_shape input;
	float drop_path;
	enum ct_precision precision;
	const struct ct_net_plan *plan; /* NULL: the one that the engine chooses */
};

static const struct ct_net_plan nhwc = {.layout = CT_LAYOUT_NHWC};
static const struct setup setups[] = {
	{"resnet20", {3, 16, 16}, 0.5f, CT_PRECISION_FP32, NULL}, /* the first stage by Winograd */
	{"resnet50", {3, 32, 32}, 0, CT_PRECISION_FP32, NULL},
	{"convnet", {1, 20, 20}, 0, CT_PRECISION_FP32, NULL},
	/* Sums that convolutions must not write over the other addend: a vector, an image under another name. */
	{"linear 32 name=l;conv2d 32 kernel=1;relu;conv2d 32 kernel=1;batch_norm;add from=l;relu;linear 10",
	 {3, 4, 4},
	 0,
	 CT_PRECISION_FP32,
	 NULL},
	{"conv2d 16 kernel=3 padding=1;flatten name=f;conv2d 32 kernel=1;relu;conv2d 256 kernel=1;batch_norm;add from=f;"
	 "relu;linear 10",
	 {3, 4, 4},
	 0,
	 CT_PRECISION_FP32,
	 NULL},
	{"conv2d 32 kernel=3;global_avg_pool name=g;flatten name=f;conv2d 32 kernel=1;relu;conv2d 32 kernel=1;batch_norm;"
	 "add from=f;add from=g;linear 10",
	 {3, 6, 6},
	 0,
	 CT_PRECISION_FP32,
	 NULL},
	{"resnet20", {3, 16, 16}, 0.5f, CT_PRECISION_FP32, &nhwc},
	{"resnet50", {3, 32, 32}, 0, CT_PRECISION_FP32, &nhwc},
	{"convnet", {1, 20, 20}, 0, CT_PRECISION_FP32, &nhwc},
};
static const struct setup nhwc_fp32 = {"resnet20", {3, 16, 16}, 0, CT_PRECISION_FP32, &nhwc};
static const struct setup bf16 = {"resnet20", {3, 32, 32}, 0, CT_PRECISION_BF16, NULL};
static const struct setup nhwc_bf16 = {"resnet20", {3, 32, 32}, 0, CT_PRECISION_BF16, &nhwc};

static void open_net(struct rig *r, const char *engine, const struct setup *s, bool train)
{
	const struct ct_model_spec spec = {.name = s->model,
					   .input = s->input,
					   .n_outputs = 10,
					   .loss = CT_LOSS_CROSS_ENTROPY,
					   .small_stem = true,
					   .drop_path = s->drop_path};
	const struct ct_net_opts opts = {.batch = ROWS,
					 .input = CT_INPUT_F32_NCHW,
					 .seed = 7,
					 .train = train,
					 .precision = s->precision,
					 .plan = s->plan};

	*r = (struct rig){0};
	if (strchr(s->model, ';'))
		r->graph = graph_make(s->input, s->model, 10, CT_LOSS_CROSS_ENTROPY, 0);
	else
		assert_ok(ct_model_build(&spec, &r->graph));
	assert_ok(ct_device_open("cpu", 0, &r->device));
	assert_ok(ct_engine_open(engine, r->device, 1, &r->engine));
	assert_ok(ct_net_create(r->engine, r->graph, &opts, &r->net));
	assert_ok(ct_net_init(r->net, CT_INIT_KAIMING, 1));
	vary_norms(r->net);
	assert_ok(ct_program_create(r->net, ROWS, CT_EVAL, &r->program));
}

/* Running statistics that are not 0 and 1. */
static void vary_statistics(ct_net *net)
{
	const ct_graph *g = ct_net_graph(net);
	float *x = on_host(ct_net_buffers(net));

	for (int i = 0; i < ct_graph_n_buffers(g); i++) {
		const struct ct_param *b = ct_graph_buffer(g, i);

		fill_floats(500 + (uint32_t)i, x, b->n);
		for (size_t k = 0; k < b->n; k++)
			x[k] = b->kind == CT_PARAM_RUNNING_VAR ? 1.1f + 0.5f * x[k] : 0.4f * x[k];
		x += b->n;
	}
}

static void evaluate_rows(const struct rig *r, ct_program *p, const struct setup *s, int rows, float logits[ROWS * 10])
{
	const size_t n = shape_elems(s->input) * (size_t)rows;
	float *x = CT_NEW_ARRAY(float, n);
	int32_t labels[ROWS] = {1, 2, 3};
	struct ct_metrics m = {0};
	const struct ct_batch b = {.n = rows, .x = x, .labels = labels};

	fill_floats(9, x, n);
	assert_ok(forward_now(p, &b, &m));
	assert_ok(ct_program_read(p, ct_graph_node(r->graph, ct_graph_loss(r->graph))->in[0], false, logits));
	assert_int_equal(m.count, rows);
	ct_free(x);
}

static void evaluate(const struct rig *r, ct_program *p, const struct setup *s, float logits[ROWS * 10])
{
	evaluate_rows(r, p, s, ROWS, logits);
}

static void test_equals_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(setups); i++) {
		for (int train = 0; train < 2; train++) {
			struct rig a, b;
			float want[ROWS * 10], got[ROWS * 10];

			open_net(&a, "ref", &setups[i], train);
			open_net(&b, "onednn", &setups[i], train);
			vary_statistics(a.net);
			vary_statistics(b.net);
			evaluate(&a, a.program, &setups[i], want);
			evaluate(&b, b.program, &setups[i], got);
			const double error = largest(want, got, ROWS * 10) / largest(want, NULL, ROWS * 10);
			printf("%s: off by %.1e of the largest logit\n", setups[i].model, error);
			assert_true(error < 1e-5);
			rig_close(&a);
			rig_close(&b);
		}
	}
}

static void check_norms_cost_nothing(const struct setup *s)
{
	struct rig r;
	float logits[ROWS * 10];
	double forward, backward;

	open_net(&r, "onednn", s, true);
	ct_program_profile(r.program, true);
	evaluate(&r, r.program, s, logits);
	for (int i = 0; i < ct_graph_n_nodes(r.graph); i++) {
		const enum ct_op op = ct_graph_node(r.graph, i)->op;

		assert_ok(ct_program_times(r.program, i, &forward, &backward));
		if (op == CT_OP_BATCH_NORM)
			assert_true(forward == 0);
		if (op == CT_OP_CONV2D)
			assert_true(forward > 0);
	}
	rig_close(&r);
}

static void test_norms_cost_nothing(void **state)
{
	(void)state;
	check_norms_cost_nothing(&setups[0]);
	check_norms_cost_nothing(&nhwc_fp32);
}

/* A program that has folded before gives what a new one gives; and again, when one of another size has used the memory.
 */
static void assert_like_new(const struct rig *r, const struct setup *s, const float before[ROWS * 10])
{
	float a[ROWS * 10], b[ROWS * 10];
	ct_program *fresh, *small;

	evaluate(r, r->program, s, a);
	assert_ok(ct_program_create(r->net, ROWS, CT_EVAL, &fresh));
	evaluate(r, fresh, s, b);
	assert_memory_equal(a, b, sizeof(a));
	assert_ok(ct_program_create(r->net, 1, CT_EVAL, &small));
	for (int i = 0; i < 2; i++) {
		evaluate(r, r->program, s, b);
		assert_memory_equal(a, b, sizeof(a));
		evaluate_rows(r, small, s, 1, b);
	}
	ct_program_destroy(small);
	ct_program_destroy(fresh);
	assert_true(largest(a, before, ROWS * 10) > 0);
}

static void check_changes(const struct setup *setup)
{
	struct rig r;
	float first[ROWS * 10], again[ROWS * 10];

	open_net(&r, "onednn", setup, true);
	vary_statistics(r.net);
	evaluate(&r, r.program, setup, first);
	evaluate(&r, r.program, setup, again);
	assert_memory_equal(first, again, sizeof(first));
	const struct ct_slice *s = ct_net_slice(r.net, ct_net_n_slices(r.net) / 2);
	on_host(ct_net_params(r.net))[s->offset] += 0.5f;
	assert_like_new(&r, setup, first);
	on_host(ct_net_params(r.net))[s->offset] -= 0.5f;
	on_host(ct_net_buffers(r.net))[3] += 0.25f;
	assert_like_new(&r, setup, first);
	assert_ok(ct_net_init(r.net, CT_INIT_KAIMING, 2));
	assert_like_new(&r, setup, first);
	rig_close(&r);
}

static void test_follows_changes(void **state)
{
	(void)state;
	check_changes(&setups[0]);
	check_changes(&nhwc_fp32);
	if (has_precision("onednn", CT_PRECISION_BF16)) {
		check_changes(&bf16);
		check_changes(&nhwc_bf16);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equals_ref),
		cmocka_unit_test(test_norms_cost_nothing),
		cmocka_unit_test(test_follows_changes),
	};
	int skipped = skip_without_onednn(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
