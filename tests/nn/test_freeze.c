/* Frozen parameters and factors of the learning rate on the CPU engines; what patterns mean. */
#include "tests/nn/freeze_check.h"
#include "tests/nn/on_host.h"

static void check_cpu(const char *engine)
{
	freeze_check(freeze_open_cpu, engine);
}

static void test_engines(void **state)
{
	(void)state;
	each_engine(check_cpu);
}

static ct_graph *small(void)
{
	return graph_make((struct ct_shape){3, 8, 8}, FREEZE_LAYERS, FREEZE_CLASSES, CT_LOSS_CROSS_ENTROPY, 0);
}

static enum ct_status freeze(ct_graph *g, const char *pattern)
{
	return ct_graph_freeze(g, &pattern, 1, true);
}

static void test_patterns(void **state)
{
	ct_graph *g = small();
	char before[65], after[65];

	(void)state;
	ct_graph_digest(g, before);
	assert_ok(ct_graph_freeze(g, NULL, 0, true));
	ct_graph_digest(g, after);
	assert_string_equal(before, after); /* checkpoints of runs without frozen parameters stay valid */
	assert_fails(freeze(g, "layer1.*"), CT_CONFIG, "no parameter of the model matches \"layer1.*\"");
	assert_ok(freeze(g, "bn2.weight"));
	assert_true(ct_graph_trains(g, node_named(g, "bn2")) && !ct_graph_node(g, node_named(g, "bn2"))->fixed_stats);
	assert_ok(freeze(g, "bn2.bias"));
	assert_true(!ct_graph_trains(g, node_named(g, "bn2")) && ct_graph_node(g, node_named(g, "bn2"))->fixed_stats);
	ct_graph_digest(g, after);
	assert_string_not_equal(before, after); /* ranks that freeze other parameters disagree */
	assert_ok(freeze(g, "backbone"));
	for (int i = 0; i < ct_graph_n_params(g); i++) {
		const struct ct_param *p = ct_graph_param(g, i);

		assert_int_equal(p->frozen, strncmp(p->name, "fc2.", 4) != 0);
	}
	assert_fails(freeze(g, "fc2.*"), CT_CONFIG, "nothing to train");
	ct_graph_destroy(g);
}

/* The gradient stops where nothing before it trains. */
static void test_gradients_needed(void **state)
{
	ct_graph *g = small();
	bool needs[64];

	(void)state;
	assert_true(ct_graph_n_nodes(g) <= 64);
	ct_graph_gradients(g, false, needs);
	assert_true(!needs[0] && needs[1]);
	assert_ok(freeze(g, "conv[123].*"));
	assert_ok(freeze(g, "bn[123].*"));
	ct_graph_gradients(g, false, needs);
	assert_true(!needs[node_named(g, "stem")] && !needs[node_named(g, "add1")]);
	assert_true(needs[node_named(g, "conv4")] && needs[ct_graph_loss(g)]);
	ct_graph_gradients(g, true, needs);
	assert_true(needs[0] && needs[node_named(g, "stem")]);
	ct_graph_destroy(g);
}

static void test_lr_factors(void **state)
{
	static const char *const rules[] = {"backbone=0.5", "conv1.*=0.25", "fc2.weight=10", "*.bias=2"};
	const struct ct_optim_opts opts = {.kind = CT_SGD, .lr_factors = rules, .n_lr_factors = 4};
	const struct ct_net_opts no = {.batch = 2, .input = CT_INPUT_F32_NCHW, .train = true};
	static const struct {
		const char *name;
		float factor;
	} want[] = {{"conv1.weight", 0.25f},
		    {"conv2.weight", 0.5f},
		    {"conv2.bias", 2},
		    {"fc2.weight", 10},
		    {"fc2.bias", 2}};
	const char *bad[] = {"fc", "=1", "fc.*=0", "fc.*=x", "fc.*=-1", "fc.*=nan", "fc.*=1e999"};
	struct rig r;
	ct_optim *o;

	(void)state;
	rig_open(&r, "ref", small(), &no);
	assert_ok(ct_lr_factors_check(rules, 4, r.graph));
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++)
		assert_fails(ct_lr_factors_check(&bad[i], 1, NULL), CT_CONFIG, "is not a factor of the learning rate");
	const char *other = "layer1.*=2";
	assert_fails(ct_lr_factors_check(&other, 1, r.graph), CT_CONFIG, "no parameter of the model matches");
	assert_ok(ct_optim_create(r.net, &opts, &o));
	memset(on_host(ct_net_params(r.net)), 0, ct_net_arena_elems(r.net) * sizeof(float));
	for (size_t i = 0; i < ct_net_arena_elems(r.net); i++)
		on_host(ct_net_grads(r.net))[i] = -1;
	assert_ok(update_now(o, 0.125, NULL));
	for (size_t i = 0; i < CT_ARRAY_LEN(want); i++) {
		float *x = export_param(r.net, on_host(ct_net_params(r.net)), param_named(r.graph, want[i].name));

		assert_true(x[0] == 0.125f * want[i].factor);
		ct_free(x);
	}
	ct_optim_destroy(o);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_engines),
		cmocka_unit_test(test_patterns),
		cmocka_unit_test(test_gradients_needed),
		cmocka_unit_test(test_lr_factors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
