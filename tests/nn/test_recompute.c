/* train.recompute: recomputing norms or blocks of residual nets in the backward pass gives the same bits with less
 * memory. Also tests other guarantees of the oneDNN engine for residual nets: no reorders, and the size of the memory
 * plan. */
#include "tests/nn/onednn_check.h"

struct outcome {
	float *params, *buffers;
	size_t n_params, n_buffers;
	struct ct_metrics metrics;
	struct ct_net_memory memory;
	int reorders;
	size_t sums;
	bool wide; /* vectors that ctrain's kernels need */
};

struct setup {
	const char *model;
	struct ct_shape input;
	int batch, threads;
	enum ct_precision precision;
	enum ct_recompute recompute;
	float drop_path;
	bool sync;
	const struct ct_net_plan *plan; /* NULL: the one that the engine chooses */
};

static enum ct_status sum_of_one_rank(void *user, double *v, size_t n, ct_stream *s)
{
	(void)s;
	*(size_t *)user += n;
	return v ? CT_OK : CT_BUG;
}

/* sums: counts what the ranks would add up. */
static bool opened(struct rig *r, const struct setup *s, size_t *sums)
{
	const struct ct_model_spec spec = {.name = s->model,
					   .input = s->input,
					   .n_outputs = 10,
					   .loss = CT_LOSS_CROSS_ENTROPY,
					   .small_stem = s->input.h < 32,
					   .drop_path = s->drop_path};
	const struct ct_net_opts opts = {.batch = s->batch,
					 .input = CT_INPUT_U8_NHWC,
					 .mean = {0.4f, 0.5f, 0.6f},
					 .std = {0.2f, 0.2f, 0.2f},
					 .seed = 7,
					 .train = true,
					 .precision = s->precision,
					 .recompute = s->recompute,
					 .plan = s->plan,
					 .sync = s->sync ? sum_of_one_rank : NULL,
					 .sync_user = sums};

	*r = (struct rig){0};
	assert_ok(ct_model_build(&spec, &r->graph));
	assert_ok(ct_device_open("cpu", 0, &r->device));
	assert_ok(ct_engine_open("onednn", r->device, s->threads, &r->engine));
	if (ct_engine_check_precision(r->engine, s->precision) != CT_OK) {
		rig_close(r);
		return false;
	}
	assert_ok(ct_net_create(r->engine, r->graph, &opts, &r->net));
	assert_ok(ct_net_init(r->net, CT_INIT_KAIMING, 1));
	vary_norms(r->net);
	assert_ok(ct_program_create(r->net, s->batch, CT_TRAIN, &r->program));
	return true;
}

static float *copy_of(const float *x, size_t n)
{
	float *y = CT_NEW_ARRAY(float, n);

	assert_non_null(y);
	memcpy(y, x, n * sizeof(*x));
	return y;
}

/* Three steps, the last of them accumulated from two batches. */
static void train(struct rig *r, const struct setup *s, struct ct_metrics *metrics)
{
	const struct ct_optim_opts sgd = {.kind = CT_SGD, .momentum = 0.9f};
	const size_t n = shape_elems(s->input) * (size_t)s->batch;
	uint8_t *x = CT_NEW_ARRAY(uint8_t, n);
	int32_t *labels = CT_NEW_ARRAY(int32_t, (size_t)s->batch);
	ct_optim *optim;

	fill_bytes(2, x, n);
	fill_labels(3, labels, (size_t)s->batch, 10);
	assert_ok(ct_optim_create(r->net, &sgd, &optim));
	for (uint64_t i = 0; i < 4; i++) {
		const struct ct_backward_opts back = {.scale = 1.0f / (float)s->batch, .accumulate = i == 3};
		struct ct_batch b = {.n = s->batch, .x = x, .labels = labels, .first = 11};

		set_step(r->net, i);
		assert_ok(forward_now(r->program, &b, metrics));
		memset(&b, 0xff, sizeof(b)); /* the caller's again */
		assert_ok(ct_program_backward(r->program, &back));
		if (i != 2)
			assert_ok(update_now(optim, 0.05f, NULL));
	}
	ct_optim_destroy(optim);
	ct_free(labels);
	ct_free(x);
}

static bool run_setup(const struct setup *s, struct outcome *o)
{
	struct rig r;

	*o = (struct outcome){0};
	if (!opened(&r, s, &o->sums))
		return false;
	train(&r, s, &o->metrics);
	o->n_params = ct_net_arena_elems(r.net);
	o->n_buffers = ct_arena_elems(ct_net_buffers(r.net));
	o->params = copy_of(on_host(ct_net_params(r.net)), o->n_params);
	o->buffers = copy_of(on_host(ct_net_buffers(r.net)), o->n_buffers);
	o->reorders = r.program->reorders;
	o->wide = strstr(ct_engine_version(r.engine), "avx512") != NULL;
	ct_net_memory(r.net, &o->memory);
	rig_close(&r);
	return true;
}

static void outcome_free(struct outcome *o)
{
	ct_free(o->params);
	ct_free(o->buffers);
}

static const struct ct_net_plan nhwc = {.layout = CT_LAYOUT_NHWC};
static const struct setup setups[] = {
	{"resnet20", {3, 16, 16}, 4, 1, CT_PRECISION_FP32, CT_RECOMPUTE_NONE, 0, false, NULL},
	{"resnet20", {3, 16, 16}, 3, 2, CT_PRECISION_FP32, CT_RECOMPUTE_NONE, 0.5f, false, NULL},
	{"resnet20", {3, 16, 16}, 4, 2, CT_PRECISION_BF16, CT_RECOMPUTE_NONE, 0.5f, false, NULL},
	{"resnet50", {3, 64, 64}, 2, 2, CT_PRECISION_FP32, CT_RECOMPUTE_NONE, 0, false, NULL},
	{"resnet50", {3, 64, 64}, 2, 2, CT_PRECISION_BF16, CT_RECOMPUTE_NONE, 0.2f, false, NULL},
	{"resnet20", {3, 16, 16}, 4, 1, CT_PRECISION_FP32, CT_RECOMPUTE_NONE, 0.5f, true, NULL},
	{"resnet20", {3, 16, 16}, 4, 1, CT_PRECISION_FP32, CT_RECOMPUTE_NONE, 0.5f, true, &nhwc},
	{"resnet50", {3, 64, 64}, 2, 2, CT_PRECISION_BF16, CT_RECOMPUTE_NONE, 0.2f, false, &nhwc},
};

static void check_same_bits(enum ct_recompute recompute)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(setups); i++) {
		struct setup again = setups[i];
		struct outcome a, b;

		again.recompute = recompute;
		if (!run_setup(&setups[i], &a)) {
			printf("not run: %s\n", ct_error_message());
			continue;
		}
		assert_true(run_setup(&again, &b));
		assert_memory_equal(a.params, b.params, a.n_params * sizeof(float));
		assert_memory_equal(a.buffers, b.buffers, a.n_buffers * sizeof(float));
		assert_memory_equal(&a.metrics, &b.metrics, sizeof(a.metrics));
		assert_int_equal(a.sums, b.sums); /* statistics of all ranks are not asked for again */
		assert_true((a.sums > 0) == setups[i].sync);
		assert_true(isfinite(a.metrics.loss) && a.metrics.count == 4 * setups[i].batch);
		printf("%s, precision %d: %.2f MB of activations, %.2f MB with %s computed again\n", setups[i].model,
		       (int)setups[i].precision, (double)a.memory.activations * 1e-6,
		       (double)b.memory.activations * 1e-6, recompute == CT_RECOMPUTE_NORMS ? "norms" : "blocks");
		/* Norms of the library are computed again in blocks only. */
		const bool saves = a.wide || recompute == CT_RECOMPUTE_BLOCKS;
		assert_true(b.memory.activations + saves <= a.memory.activations);
		assert_true(a.memory.activations < a.memory.activations_unplanned);
		outcome_free(&a);
		outcome_free(&b);
	}
}

static void test_norms_again(void **state)
{
	(void)state;
	check_same_bits(CT_RECOMPUTE_NORMS);
}

static void test_blocks_again(void **state)
{
	(void)state;
	check_same_bits(CT_RECOMPUTE_BLOCKS);
}

/* In NHWC, oneDNN 2.6 computes gradients of weights in fp32 from blocked copies. */
static void test_no_reorders(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(setups); i++) {
		struct rig r;
		size_t sums = 0;

		if (!opened(&r, &setups[i], &sums))
			continue;
		if (strstr(ct_engine_version(r.engine), "avx512") && !setups[i].plan)
			assert_int_equal(r.program->reorders, 0);
		rig_close(&r);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms_again), cmocka_unit_test(test_blocks_again),
					   cmocka_unit_test(test_no_reorders)};
	int skipped = skip_without_onednn(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
