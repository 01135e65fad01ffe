/* Initial values of parameters and the digest of all values, on every engine. */
#include "nn/engine.h"

#include <math.h>

#include "nn/optim/optim.h"
#include "tests/nn/nn_check.h"

static const char *const layers =
	"conv2d 5 kernel=3 padding=1 name=c1;batch_norm name=b1;relu;conv2d 6 kernel=3 groups=1 name=c2;"
	"relu;flatten;linear 11 name=f1;relu;linear 3 name=f2";
static const struct ct_shape shape = {3, 6, 7};
#define ROWS 6

static struct ct_net_opts train_opts(int batch)
{
	return (struct ct_net_opts){.batch = batch, .input = CT_INPUT_F32_NCHW, .train = true};
}

static void open_rig(struct rig *r, const char *engine)
{
	struct ct_net_opts opts = train_opts(ROWS);

	rig_open(r, engine, graph_make(shape, layers, 3, CT_LOSS_CROSS_ENTROPY, 0), &opts);
}

/* Largest and root mean square of a parameter. */
static void measure(struct rig *r, const char *name, double *max, double *rms)
{
	int id = param_named(r->graph, name);
	size_t n = ct_graph_param(r->graph, id)->n;
	float *x = export_param(r->net, on_host(ct_net_params(r->net)), id);

	*max = *rms = 0;
	for (size_t i = 0; i < n; i++) {
		*max = fabs((double)x[i]) > *max ? fabs((double)x[i]) : *max;
		*rms += (double)x[i] * (double)x[i];
	}
	*rms = sqrt(*rms / (double)n);
	ct_free(x);
}

static void check_init(const char *engine)
{
	struct rig r;
	double max, rms, bound;

	open_rig(&r, engine);
	assert_ok(ct_net_init(r.net, CT_INIT_PYTORCH, 7));
	bound = 1 / sqrt(6 * 4 * 5); /* f1: 6 channels of 4x5 */
	measure(&r, "f1.weight", &max, &rms);
	assert_true(max <= bound && max > 0.98 * bound);
	assert_float_equal(rms, bound / sqrt(3), 0.03 * bound);
	measure(&r, "f1.bias", &max, &rms);
	assert_true(max <= bound && max > 0.5 * bound);
	bound = 1 / sqrt(5 * 9);
	measure(&r, "c2.weight", &max, &rms);
	assert_true(max <= bound && max > 0.95 * bound);
	measure(&r, "b1.weight", &max, &rms);
	assert_true(max == 1 && rms == 1);
	measure(&r, "b1.bias", &max, &rms);
	assert_true(max == 0);
	const float *buffers = on_host(ct_net_buffers(r.net));
	for (int i = 0; i < 10; i++)
		assert_true(buffers[i] == (i < 5 ? 0.0f : 1.0f)); /* mean, then variance */

	assert_ok(ct_net_init(r.net, CT_INIT_KAIMING, 7));
	measure(&r, "c2.weight", &max, &rms);
	assert_float_equal(rms, sqrt(2.0 / (6 * 9)), 0.15 * sqrt(2.0 / (6 * 9)));
	assert_true(max > 2 * rms);
	measure(&r, "c2.bias", &max, &rms);
	assert_true(max == 0);
	measure(&r, "f1.weight", &max, &rms);
	assert_true(max <= 1 / sqrt(6 * 4 * 5));
	rig_close(&r);
}

static void test_initial_values(void **state)
{
	(void)state;
	each_engine(check_init);
}

/* The norm `zero` of the two starts with gamma 0, whatever the initialisation. */
static void check_zero_gamma(const char *engine)
{
	struct ct_net_opts opts = {.batch = 2, .input = CT_INPUT_F32_NCHW};
	ct_graph *g;
	struct rig r;
	double max, rms;

	assert_ok(ct_graph_create((struct ct_shape){3, 4, 4}, &g));
	int x = ct_graph_batch_norm(g, "zero", 0, 1e-5f, 0.1f);
	ct_graph_zero_gamma(g, x);
	ct_graph_mse(g, ct_graph_linear(g, "fc", ct_graph_batch_norm(g, "one", x, 1e-5f, 0.1f), 2, true));
	assert_ok(ct_graph_finish(g));
	rig_open(&r, engine, g, &opts);
	for (int init = 0; init < 2; init++) {
		assert_ok(ct_net_init(r.net, init ? CT_INIT_KAIMING : CT_INIT_PYTORCH, 3));
		measure(&r, "zero.weight", &max, &rms);
		assert_true(max == 0);
		measure(&r, "one.weight", &max, &rms);
		assert_true(max == 1 && rms == 1);
	}
	for (int i = 0; i < 12; i++)
		assert_true(on_host(ct_net_buffers(r.net))[i] == (float)(i / 3 % 2));
	rig_close(&r);
}

static void test_zero_gamma(void **state)
{
	(void)state;
	each_engine(check_zero_gamma);
}

static void digest_with(const char *engine, const char *text, int batch, uint64_t seed, char hex[65])
{
	struct ct_net_opts opts = train_opts(batch);
	struct rig r;

	rig_open(&r, engine, graph_make(shape, text, 3, CT_LOSS_CROSS_ENTROPY, 0), &opts);
	assert_ok(ct_net_init(r.net, CT_INIT_PYTORCH, seed));
	assert_ok(ct_net_digest(r.net, hex));
	rig_close(&r);
}

/* The digest of the ref engine, batch 6, seed 7. */
static void check_digest(const char *engine)
{
	char ref[65], hex[65];

	digest_with("ref", layers, ROWS, 7, ref);
	digest_with(engine, layers, ROWS, 7, hex);
	assert_string_equal(ref, hex);
	digest_with(engine, layers, 19, 7, hex);
	assert_string_equal(ref, hex);
	digest_with(engine, layers, ROWS, 8, hex);
	assert_string_not_equal(ref, hex);
}

static void test_digest_is_the_same_everywhere(void **state)
{
	(void)state;
	each_engine(check_digest);
}

static void digest_with_threads(const char *engine, int threads, enum ct_init init, char hex[65])
{
	struct ct_net_opts opts = {.batch = 1, .input = CT_INPUT_F32_NCHW};
	struct rig r = {.graph = graph_make((struct ct_shape){16, 8, 8}, "conv2d 512 kernel=3 name=c;linear 5 name=f",
					    5, CT_LOSS_CROSS_ENTROPY, 0)};

	assert_ok(ct_device_open("cpu", 0, &r.device));
	assert_ok(ct_engine_open(engine, r.device, threads, &r.engine));
	assert_ok(ct_net_create(r.engine, r.graph, &opts, &r.net));
	assert_ok(ct_net_init(r.net, init, 7));
	assert_ok(ct_net_digest(r.net, hex));
	rig_close(&r);
}

/* These values never change, or runs could not be repeated. */
static void check_threads(const char *engine)
{
	static const struct {
		enum ct_init init;
		const char *digest;
	} stored[] = {
		{CT_INIT_PYTORCH, "62ca65cc463164e826665bf305f61b84fa10273497e36a58b12cd44a5709290a"},
		{CT_INIT_KAIMING, "82814b13934e6bbe88f6727b3db3bcfa1253fe11df70619d3fdcef4700da9174"},
	};
	char hex[65];

	for (size_t i = 0; i < CT_ARRAY_LEN(stored); i++) {
		for (int threads = 1; threads <= 7; threads++) {
			digest_with_threads(engine, threads, stored[i].init, hex);
			assert_string_equal(hex, stored[i].digest);
		}
	}
}

static void test_digest_is_the_same_with_any_threads(void **state)
{
	(void)state;
	each_engine(check_threads);
}

/* Values are keyed by name: a layer more elsewhere changes nothing in the others. */
static void test_initial_values_are_keyed_by_name(void **state)
{
	struct ct_net_opts opts = train_opts(2);
	struct rig a, b;

	(void)state;
	rig_open(&a, "ref", graph_make(shape, "linear 5 name=x;linear 3 name=y", 3, CT_LOSS_MSE, 0), &opts);
	rig_open(&b, "ref", graph_make(shape, "linear 5 name=x;linear 5 name=z;linear 3 name=y", 3, CT_LOSS_MSE, 0),
		 &opts);
	int ya = param_named(a.graph, "y.weight"), yb = param_named(b.graph, "y.weight"),
	    z = param_named(b.graph, "z.weight");
	float *wa = export_param(a.net, on_host(ct_net_params(a.net)), ya),
	      *wb = export_param(b.net, on_host(ct_net_params(b.net)), yb);
	float *wz = export_param(b.net, on_host(ct_net_params(b.net)), z);
	assert_memory_equal(wa, wb, 15 * sizeof(float));
	assert_memory_not_equal(wa, wz, 15 * sizeof(float));
	ct_free(wz);
	ct_free(wb);
	ct_free(wa);
	rig_close(&b);
	rig_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_initial_values),
		cmocka_unit_test(test_zero_gamma),
		cmocka_unit_test(test_digest_is_the_same_everywhere),
		cmocka_unit_test(test_digest_is_the_same_with_any_threads),
		cmocka_unit_test(test_initial_values_are_keyed_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
