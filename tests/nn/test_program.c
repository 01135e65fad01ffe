/* Several programs of one net: for other image sizes, and one after the other in the same memory. Also tests precisions
 * that engines refuse. */
#include <math.h>

#include "tests/nn/nn_check.h"

#define LAYERS                                                                                                             \
	"conv2d 16 kernel=3 stride=2 padding=1 bias=false;batch_norm;relu name=r;conv2d 16 kernel=3 padding=1 bias=false;" \
	"batch_norm;add from=r;relu;global_avg_pool;linear 5"
#define ROWS 3
#define MANY 40

static ct_graph *graph_of(int size, const char *layers)
{
	return graph_make((struct ct_shape){3, size, size}, layers, 5, CT_LOSS_CROSS_ENTROPY, 0);
}

static const struct ct_net_opts options = {.batch = ROWS, .input = CT_INPUT_F32_NCHW, .train = true};

/* Loss, logits and gradient of one batch; both exported arrays are owned by the caller. */
static void run(struct rig *r, ct_program *p, float logits[ROWS * 5], float **dw, struct ct_metrics *m)
{
	const ct_graph *g = r->graph;
	float *x = CT_NEW_ARRAY(float, 3 * 32 * 32 * ROWS);
	int32_t labels[ROWS] = {0, 3, 4};
	const struct ct_batch b = {.n = ROWS, .x = x, .labels = labels};
	const struct ct_backward_opts back = {.scale = 1.0f / ROWS};

	fill_floats(3, x, 3 * 32 * 32 * ROWS);
	*m = (struct ct_metrics){0};
	assert_ok(forward_now(p, &b, m));
	assert_ok(ct_program_read(p, ct_graph_node(g, ct_graph_loss(g))->in[0], false, logits));
	assert_ok(ct_program_backward(p, &back));
	*dw = export_param(r->net, on_host(ct_net_grads(r->net)), 0);
	ct_free(x);
}

static double difference(const float *a, const float *b, size_t n)
{
	double d = 0;

	for (size_t i = 0; i < n; i++)
		d = fmax(d, fabs((double)a[i] - (double)b[i]));
	return d;
}

/* A net made for 32x32 runs 20x20 as a net made for that. */
static void check_sizes(const char *engine)
{
	struct rig large, small;
	ct_graph *g = graph_of(20, LAYERS);
	ct_program *p;
	float a[ROWS * 5], b[ROWS * 5], *da, *db;
	struct ct_metrics ma, mb;

	rig_open(&large, engine, graph_of(32, LAYERS), &options);
	rig_open(&small, engine, graph_of(20, LAYERS), &options);
	assert_ok(ct_program_create_for(large.net, g, ROWS, CT_TRAIN, &p));
	run(&large, p, a, &da, &ma);
	run(&small, small.program, b, &db, &mb);
	assert_true(fabs(ma.loss - mb.loss) < 1e-5);
	assert_true(difference(a, b, ROWS * 5) < 1e-5);
	assert_true(difference(da, db, 16 * 3 * 9) < 1e-5);
	ct_free(da);
	run(&large, large.program, b, &da, &mb);
	assert_true(difference(a, b, ROWS * 5) > 1e-4);
	ct_free(da);
	ct_free(db);
	ct_program_destroy(p);
	ct_graph_destroy(g);
	rig_close(&small);
	rig_close(&large);
}

static void test_sizes(void **state)
{
	(void)state;
	each_engine(check_sizes);
}

static double evaluated(ct_program *p, int n)
{
	float *x = CT_NEW_ARRAY(float, (size_t)(3 * 20 * 20 * n));
	int32_t labels[MANY];
	const struct ct_batch b = {.n = n, .x = x, .labels = labels};
	struct ct_metrics m = {0};

	fill_floats(4, x, (size_t)(3 * 20 * 20 * n));
	fill_labels(5, labels, (size_t)n, 5);
	assert_ok(forward_now(p, &b, &m));
	ct_free(x);
	return m.loss;
}

/* By a program of its own, on another net with the same values. */
static double judged(struct rig *judge, const struct rig *r, int n)
{
	ct_program *p;

	memcpy(on_host(ct_net_params(judge->net)), on_host(ct_net_params(r->net)),
	       ct_net_arena_elems(r->net) * sizeof(float));
	memcpy(on_host(ct_net_buffers(judge->net)), on_host(ct_net_buffers(r->net)),
	       ct_arena_elems(ct_net_buffers(r->net)) * sizeof(float));
	assert_ok(ct_program_create(judge->net, n, CT_EVAL, &p));
	const double loss = evaluated(p, n);
	ct_program_destroy(p);
	return loss;
}

static void descend(struct rig *r)
{
	for (size_t i = 0; i < ct_net_arena_elems(r->net); i++)
		on_host(ct_net_params(r->net))[i] -= 0.3f * on_host(ct_net_grads(r->net))[i];
}

/* Training goes on to the bit among programs of fewer and of more rows, some of them made when it has begun; and they
 * see what it has done. */
static void check_neighbours(const char *engine)
{
	struct rig alone, among, judge;
	ct_program *few, *many = NULL;
	float a[ROWS * 5], b[ROWS * 5], *da, *db;
	struct ct_metrics ma, mb;

	rig_open(&alone, engine, graph_of(20, LAYERS), &options);
	rig_open(&among, engine, graph_of(20, LAYERS), &options);
	rig_open(&judge, engine, graph_of(20, LAYERS), &options);
	assert_ok(ct_program_create(among.net, 1, CT_EVAL, &few));
	for (int step = 0; step < 4; step++) {
		run(&alone, alone.program, a, &da, &ma);
		run(&among, among.program, b, &db, &mb);
		assert_memory_equal(a, b, sizeof(a));
		assert_memory_equal(da, db, (size_t)16 * 3 * 9 * sizeof(*da));
		assert_memory_equal(&ma, &mb, sizeof(ma));
		ct_free(da);
		ct_free(db);
		descend(&alone);
		descend(&among);
		if (step == 1)
			assert_ok(ct_program_create(among.net, MANY, CT_EVAL, &many));
		for (int again = 0; again < 2; again++) {
			assert_true(evaluated(few, 1) == judged(&judge, &among, 1));
			assert_true(!many || evaluated(many, MANY) == judged(&judge, &among, MANY));
		}
	}
	ct_program_destroy(many);
	ct_program_destroy(few);
	rig_close(&judge);
	rig_close(&among);
	rig_close(&alone);
}

static void test_neighbours(void **state)
{
	(void)state;
	each_engine(check_neighbours);
}

static void check_lost_values(const char *engine)
{
	struct rig r;
	ct_program *eval, *other;
	float x[ROWS * 3 * 20 * 20], logits[ROWS * 5];
	int32_t labels[ROWS] = {0, 3, 4};
	const struct ct_batch b = {.n = ROWS, .x = x, .labels = labels};
	const struct ct_backward_opts back = {.scale = 1};
	struct ct_metrics m = {0};

	fill_floats(3, x, CT_ARRAY_LEN(x));
	rig_open(&r, engine, graph_of(20, LAYERS), &options);
	const int node = ct_graph_node(r.graph, ct_graph_loss(r.graph))->in[0];
	assert_ok(ct_program_create(r.net, ROWS, CT_EVAL, &eval));
	assert_ok(forward_now(r.program, &b, &m));
	assert_ok(forward_now(eval, &b, &m));
	assert_fails(ct_program_backward(r.program, &back), CT_BUG, "between forward and backward");
	assert_fails(ct_program_read(r.program, node, false, logits), CT_UNSUPPORTED,
		     "fc1: another program of the net has reused the memory since");
	assert_ok(ct_program_read(eval, node, false, logits));
	assert_ok(forward_now(r.program, &b, &m));
	assert_ok(ct_program_create(r.net, 1, CT_TRAIN, &other));
	assert_fails(ct_program_backward(r.program, &back), CT_BUG, "between forward and backward");
	assert_ok(forward_now(r.program, &b, &m));
	ct_program_destroy(other);
	ct_program_destroy(eval);
	assert_ok(ct_program_backward(r.program, &back));
	rig_close(&r);
}

static void test_lost_values(void **state)
{
	(void)state;
	each_engine(check_lost_values);
}

static void check_other_tensors(const char *engine)
{
	static const char *const others[] = {
		"conv2d 16 kernel=3 name=other;global_avg_pool;linear 5",
		"conv2d 16 kernel=5 padding=2;global_avg_pool;linear 5",
		"conv2d 16 kernel=3;batch_norm;global_avg_pool;linear 5",
	};
	struct rig r;
	ct_program *p;

	rig_open(&r, engine, graph_of(16, "conv2d 16 kernel=3;global_avg_pool;linear 5"), &options);
	for (size_t i = 0; i < CT_ARRAY_LEN(others); i++) {
		ct_graph *g = graph_of(16, others[i]);

		assert_fails(ct_program_create_for(r.net, g, ROWS, CT_TRAIN, &p), CT_BUG, "different parameters");
		ct_graph_destroy(g);
	}
	rig_close(&r);
}

static void test_other_tensors(void **state)
{
	(void)state;
	each_engine(check_other_tensors);
}

static void test_ref_computes_fp32(void **state)
{
	struct rig r = {.graph = graph_of(16, LAYERS)};
	struct ct_net_opts opts = options;

	(void)state;
	opts.precision = CT_PRECISION_BF16;
	assert_ok(ct_device_open("cpu", 0, &r.device));
	assert_ok(ct_engine_open("ref", r.device, 1, &r.engine));
	assert_ok(ct_engine_check_precision(r.engine, CT_PRECISION_FP32));
	assert_fails(ct_engine_check_precision(r.engine, CT_PRECISION_BF16), CT_UNSUPPORTED,
		     "\"ref\" computes in fp32 only");
	assert_fails(ct_net_create(r.engine, r.graph, &opts, &r.net), CT_UNSUPPORTED, "bf16");
	rig_close(&r);
}

static void check_gpu_precisions(const char *engine)
{
	const enum ct_precision gpu[] = {CT_PRECISION_FP16, CT_PRECISION_TF32};
	struct rig r = {.graph = graph_of(16, LAYERS)};
	struct ct_net_opts opts = options;
	char start[64];

	assert_ok(ct_device_open("cpu", 0, &r.device));
	assert_ok(ct_engine_open(engine, r.device, 1, &r.engine));
	for (size_t i = 0; i < CT_ARRAY_LEN(gpu); i++) {
		snprintf(start, sizeof(start), "precision %s: the engine \"%s\" computes in fp32",
			 ct_precision_name(gpu[i]), engine);
		assert_fails(ct_engine_check_precision(r.engine, gpu[i]), CT_UNSUPPORTED, start);
		opts.precision = gpu[i];
		assert_fails(ct_net_create(r.engine, r.graph, &opts, &r.net), CT_UNSUPPORTED, start);
	}
	rig_close(&r);
}

static void test_gpu_precisions(void **state)
{
	(void)state;
	each_engine(check_gpu_precisions);
}

static void test_precision_names(void **state)
{
	(void)state;
	assert_string_equal(ct_precision_name(CT_PRECISION_FP32), "fp32");
	assert_string_equal(ct_precision_name(CT_PRECISION_TF32), "tf32");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_lost_values),
		cmocka_unit_test(test_other_tensors),
		cmocka_unit_test(test_ref_computes_fp32),
		cmocka_unit_test(test_gpu_precisions),
		cmocka_unit_test(test_precision_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
