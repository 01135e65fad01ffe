/* Training in bfloat16 learns the same as in fp32, keeps parameters in fp32, and needs half of the memory.
 * test_conformance tests single operations. */
#include "tests/nn/onednn_check.h"

#define ROWS 32
#define STEPS 40

struct outcome {
	double first, last; /* mean loss of the first and of the last step */
	size_t activations;
	bool finer; /* some parameter is no bfloat16 */
};

static void train(struct rig *r, struct ct_shape input, struct outcome *o)
{
	const struct ct_optim_opts sgd = {.kind = CT_SGD, .momentum = 0.9f};
	const struct ct_backward_opts back = {.scale = 1.0f / ROWS};
	const size_t n = shape_elems(input) * ROWS;
	uint8_t *x = CT_NEW_ARRAY(uint8_t, n);
	int32_t labels[ROWS];
	ct_optim *optim;
	struct ct_net_memory memory;

	fill_bytes(2, x, n);
	fill_labels(3, labels, ROWS, 10);
	assert_ok(ct_net_init(r->net, CT_INIT_PYTORCH, 1));
	assert_ok(ct_program_create(r->net, ROWS, CT_TRAIN, &r->program));
	assert_ok(ct_optim_create(r->net, &sgd, &optim));
	for (uint64_t i = 0; i < STEPS; i++) {
		const struct ct_batch b = {.n = ROWS, .x = x, .labels = labels};
		struct ct_metrics m = {0};

		assert_ok(forward_now(r->program, &b, &m));
		assert_ok(ct_program_backward(r->program, &back));
		assert_ok(update_now(optim, 0.02f, NULL));
		o->first = i ? o->first : m.loss / ROWS;
		o->last = m.loss / ROWS;
	}
	ct_net_memory(r->net, &memory);
	o->activations = memory.activations;
	for (size_t i = 0; i < ct_net_arena_elems(r->net); i++) {
		uint32_t bits;

		memcpy(&bits, on_host(ct_net_params(r->net)) + i, sizeof(bits));
		o->finer = o->finer || (bits & 0xffff);
	}
	ct_optim_destroy(optim);
	ct_free(x);
}

static bool learn(const char *model, struct ct_shape input, enum ct_precision precision, struct outcome *o)
{
	const int hidden[2] = {64, 32};
	const struct ct_model_spec spec = {.name = model,
					   .input = input,
					   .n_outputs = 10,
					   .loss = CT_LOSS_CROSS_ENTROPY,
					   .hidden = hidden,
					   .n_hidden = 2,
					   .dropout = 0.1f};
	const struct ct_net_opts opts = {.batch = ROWS,
					 .input = CT_INPUT_U8_NHWC,
					 .mean = {0.5f, 0.5f, 0.5f},
					 .std = {0.3f, 0.3f, 0.3f},
					 .seed = 7,
					 .train = true,
					 .precision = precision};
	struct rig r = {0};

	*o = (struct outcome){0};
	assert_ok(ct_model_build(&spec, &r.graph));
	assert_ok(ct_device_open("cpu", 0, &r.device));
	assert_ok(ct_engine_open("onednn", r.device, 2, &r.engine));
	const bool can = ct_engine_check_precision(r.engine, precision) == CT_OK;
	if (can) {
		assert_ok(ct_net_create(r.engine, r.graph, &opts, &r.net));
		train(&r, input, o);
	} else {
		printf("not run: %s\n", ct_error_message());
	}
	rig_close(&r);
	return can;
}

static void test_learns(void **state)
{
	static const struct {
		const char *model;
		struct ct_shape input;
	} models[] = {
		{"mlp", {1, 12, 12}}, {"convnet", {1, 16, 16}}, {"lenet", {1, 28, 28}}, {"resnet20", {3, 16, 16}}};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(models); i++) {
		struct outcome a, b;

		assert_true(learn(models[i].model, models[i].input, CT_PRECISION_FP32, &a));
		if (!learn(models[i].model, models[i].input, CT_PRECISION_BF16, &b))
			return;
		printf("%s: loss %.4f to %.4f in fp32, %.4f to %.4f in bf16; activations %.2f and %.2f MB\n",
		       models[i].model, a.first, a.last, b.first, b.last, (double)a.activations * 1e-6,
		       (double)b.activations * 1e-6);
		assert_true(fabs(a.first - b.first) < 0.02 * a.first);
		assert_true(b.last < 0.5 * b.first || a.last > 0.45 * a.first);
		assert_true(fabs(a.last - b.last) < 0.1 * a.first);
		assert_true(b.finer);
		assert_true(b.activations < a.activations);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_learns)};
	int skipped = skip_without_onednn(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
