/* Paths that only the oneDNN engine has: fused norm and pooling on odd shapes, gradients in shared memory, reading
 * values, NaN. Skipped in a build without the engine. */
#include "nn/onednn/kernels/norm_kernels.h"
#include "tests/nn/onednn_check.h"

/* The first norm is computed with its ReLU and max pool, so that the value of the ReLU is not stored. */
static void assert_pooled(const struct job *j)
{
	struct bench b;
	float *x;

	run(&b, j);
	int relu = 0;
	while (ct_graph_node(b.r.graph, relu)->op != CT_OP_RELU)
		relu++;
	assert_non_null(x = CT_NEW_ARRAY(float, (size_t)j->n *shape_elems(ct_graph_node(b.r.graph, relu)->shape)));
	assert_fails(ct_program_read(b.r.program, relu, false, x), CT_UNSUPPORTED, "its value is not stored");
	ct_free(x);
	bench_close(&b);
}

/* Norm, ReLU and max pool in one kernel, in both layouts: windows that overlap, leave a rest, reach over the edge;
 * channels that do not fill a vector; a norm that reads something else than a convolution. */
static void test_norm_pool_shapes(void **state)
{
	static const char *const layers[] = {
		"conv2d 17 kernel=3;batch_norm;relu;max_pool 3 stride=2 padding=1;flatten;linear 10",
		"conv2d 5 kernel=3;batch_norm;relu;max_pool 2;flatten;linear 10",
		"conv2d 33 kernel=3;batch_norm;relu;max_pool 2x3 stride=1x2 padding=1x0;flatten;linear 10",
		"conv2d 16 kernel=3;batch_norm;relu;max_pool 2 stride=3;flatten;linear 10",
		"conv2d 16 kernel=3 name=c;batch_norm;relu;max_pool 3 stride=2;batch_norm;relu;max_pool 2 stride=1;"
		"global_avg_pool;linear 10",
		"conv2d 16 kernel=1 name=c;batch_norm;relu;max_pool 3 stride=1 padding=1;add from=c;flatten;linear 10",
	};
	static const struct ct_net_plan nhwc = {.layout = CT_LAYOUT_NHWC};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		struct job j = {.engine = "onednn",
				.layers = layers[i],
				.input = {2, 11, 13},
				.batch = 5,
				.n = 5,
				.kind = CT_INPUT_F32_NCHW,
				.steps = 2};

		for (int layout = 0; layout < 2; layout++) {
			j.plan = layout ? &nhwc : NULL;
			for (j.threads = 1; j.threads <= 2; j.threads++)
				assert_equals_ref(&j, 2e-4);
			if (ct__norm_usable(false))
				assert_pooled(&j);
		}
	}
}

/* Gradients of several users of one value, in every order of those that share memory and those that do not. */
static void test_fan_out(void **state)
{
	static const char *const layers[] = {
		"conv2d 4 kernel=1 name=a;conv2d 4 kernel=3 padding=1;add from=a name=s;conv2d 4 kernel=1 from=a;add from=s;"
		"flatten;linear 10",
		"conv2d 4 kernel=1 name=a;add from=a name=s;add from=a;add from=s;relu;flatten;linear 10",
		"conv2d 4 kernel=1 name=a;relu name=r;add from=a name=s;relu;add from=r;dropout 0.5;add from=s;flatten;linear 10",
		"conv2d 4 kernel=1 name=a;flatten name=f;linear 5 name=l;relu;linear 5;add from=l name=m;relu;linear 5;add from=m;"
		"linear 10",
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		struct job j = {.engine = "onednn",
				.layers = layers[i],
				.input = {2, 5, 6},
				.threads = 1,
				.batch = 3,
				.n = 3,
				.kind = CT_INPUT_F32_NCHW,
				.steps = 2};

		assert_equals_ref(&j, 2e-5);
	}
}

struct reads {
	int equal, used_again, not_kept;
};

/* What can be read equals ref's; the rest is refused. */
static struct reads compare_reads(ct_program *ref, ct_program *p, const ct_graph *g, int n, bool gradient)
{
	struct reads r = {0};

	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		size_t elems = shape_elems(ct_graph_node(g, id)->shape) * (size_t)n;
		float *want = CT_NEW_ARRAY(float, elems), *got = CT_NEW_ARRAY(float, elems);
		enum ct_status st = ct_program_read(p, id, gradient, got);

		if (st == CT_OK) {
			assert_ok(ct_program_read(ref, id, gradient, want));
			double size = largest(want, NULL, elems), error = largest(want, got, elems);
			if (!(error <= 1e-4 * size))
				fail_msg("%s %s is off by %.1e of %.1e", gradient ? "gradient of" : "value of",
					 ct_graph_node(g, id)->name, error, size);
			r.equal++;
		} else {
			assert_int_equal(st, CT_UNSUPPORTED);
			*(strstr(ct_error_message(), "reused") ? &r.used_again : &r.not_kept) += 1;
		}
		ct_free(want);
		ct_free(got);
	}
	return r;
}

/* Norms that are computed with the sum behind them, and gradients that two users give. */
static const struct job joins = {
	.engine = "onednn",
	.layers =
		"conv2d 16 kernel=3 padding=1 name=a;batch_norm;relu name=r;conv2d 16 kernel=3 padding=1;batch_norm;relu;"
		"conv2d 16 kernel=3 padding=1;batch_norm name=joined;add from=r;relu name=s;conv2d 32 kernel=1 name=d;"
		"batch_norm name=e;conv2d 32 kernel=3 padding=1 from=s;batch_norm;drop_path 0.3;add from=e name=t;"
		"conv2d 32 kernel=3 padding=1;batch_norm;add from=t;max_pool 2;flatten;linear 10",
	.input = {2, 9, 7},
	.threads = 2,
	.batch = 6,
	.n = 6,
	.kind = CT_INPUT_F32_NCHW,
	.steps = 3};

static void test_joins(void **state)
{
	struct bench b;
	float *x;

	(void)state;
	assert_equals_ref(&joins, 2e-4);
	run(&b, &joins);
	assert_non_null(x = CT_NEW_ARRAY(float, 6 * 16 * 63));
	if (ct__norm_usable(false))
		assert_fails(ct_program_read(b.r.program, node_named(b.r.graph, "joined"), false, x), CT_UNSUPPORTED,
			     "joined: its value is not stored");
	ct_free(x);
	bench_close(&b);
}

static void test_read(void **state)
{
	static const struct job *const jobs[] = {&convnet, &mixed, &joins};
	int gradients_equal = 0; /* on some processors, the first net keeps none */

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(jobs); i++) {
		struct bench a, b;
		struct job j = *jobs[i], ref = j;
		struct ct_metrics m = {0};
		ct_program *eval[2];

		j.steps = ref.steps = 0;
		ref.engine = "ref";
		run(&a, &ref);
		run(&b, &j);
		const int logits = ct_graph_node(b.r.graph, ct_graph_loss(b.r.graph))->in[0];
		const struct ct_batch batch = batch_of(&b, &j);
		const struct ct_backward_opts back = {.scale = 1};
		float *x = CT_NEW_ARRAY(float, (size_t)j.n * 10);
		assert_ok(forward_now(a.r.program, &batch, &m));
		assert_ok(forward_now(b.r.program, &batch, &m));
		struct reads r = compare_reads(a.r.program, b.r.program, b.r.graph, j.n, false);
		assert_true(r.equal > 3 && r.not_kept > 1);
		assert_int_equal(compare_reads(a.r.program, b.r.program, b.r.graph, j.n, true).equal, 0);
		assert_ok(ct_program_backward(a.r.program, &back));
		assert_ok(ct_program_backward(b.r.program, &back));
		r = compare_reads(a.r.program, b.r.program, b.r.graph, j.n, false);
		assert_true(r.equal > 1 && r.used_again > 0);
		r = compare_reads(a.r.program, b.r.program, b.r.graph, j.n, true);
		assert_true(r.used_again > 0 && r.not_kept > 0);
		gradients_equal += r.equal;
		assert_ok(ct_program_read(b.r.program, logits, false, x)); /* always */
		assert_ok(ct_program_create(a.r.net, j.n, CT_EVAL, &eval[0]));
		assert_ok(ct_program_create(b.r.net, j.n, CT_EVAL, &eval[1]));
		assert_ok(forward_now(eval[0], &batch, &m));
		assert_ok(forward_now(eval[1], &batch, &m));
		r = compare_reads(eval[0], eval[1], b.r.graph, j.n, false);
		assert_true(r.equal > 1 && r.used_again > 1);
		assert_ok(ct_program_read(eval[1], logits, false, x));
		ct_program_destroy(eval[0]);
		ct_program_destroy(eval[1]);
		ct_free(x);
		bench_close(&a);
		bench_close(&b);
	}
	assert_true(gradients_equal > 0);
}

/* A NaN anywhere shows in the loss: oneDNN's ReLU alone would hide it. */
static void test_nan_shows(void **state)
{
	static const char *const layers[] = {
		"flatten;linear 32;relu;linear 10",
		"conv2d 16 kernel=3 name=c;relu;flatten;linear 10",
		"conv2d 16 kernel=3 name=c;batch_norm;relu;flatten;linear 10",
		"conv2d 16 kernel=3 name=c;batch_norm;relu;max_pool 2;flatten;linear 10",
		"conv2d 16 kernel=1 name=c;conv2d 16 kernel=3 padding=1;add from=c;relu;flatten;linear 10",
		"conv2d 16 kernel=1 name=c;conv2d 16 kernel=3 padding=1;batch_norm;add from=c;relu;flatten;linear 10",
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		struct job j = {
			.engine = "onednn", .layers = layers[i], .input = {1, 8, 8}, .threads = 1, .batch = 4, .n = 4};
		struct bench b;

		bench_open(&b, &j);
		step(&b, &j, false);
		assert_true(isfinite(b.metrics.loss));
		float *w = export_param(b.r.net, on_host(ct_net_params(b.r.net)), 0);
		w[0] = NAN;
		assert_ok(import_now(b.r.net, on_host(ct_net_params(b.r.net)), 0, w));
		step(&b, &j, false);
		if (!isnan(b.metrics.loss))
			fail_msg("%s: a weight is NaN, the loss %g", layers[i], b.metrics.loss);
		ct_free(w);
		bench_close(&b);
	}
}

/* The same in evaluation, where no statistics are computed that would tell; norms that are not folded into a layer. */
static void test_nan_shows_in_evaluation(void **state)
{
	static const char *const layers[] = {
		"conv2d 16 kernel=3;avg_pool 2;batch_norm;relu;flatten;linear 10",
		"conv2d 16 kernel=3;relu;batch_norm;relu;flatten;linear 10",
		"flatten;linear 33;relu;batch_norm;relu;linear 10",
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		struct job j = {
			.engine = "onednn", .layers = layers[i], .input = {1, 8, 8}, .threads = 1, .batch = 4, .n = 4};
		struct ct_metrics m[2] = {{0}};
		struct bench b;
		ct_program *p;

		bench_open(&b, &j);
		struct ct_batch batch = batch_of(&b, &j);
		float *w = export_param(b.r.net, on_host(ct_net_params(b.r.net)), 0);
		assert_ok(ct_program_create(b.r.net, j.n, CT_EVAL, &p));
		assert_ok(forward_now(p, &batch, &m[0]));
		w[0] = NAN;
		assert_ok(import_now(b.r.net, on_host(ct_net_params(b.r.net)), 0, w));
		assert_ok(forward_now(p, &batch, &m[1]));
		if (!isfinite(m[0].loss) || !isnan(m[1].loss))
			fail_msg("%s: the loss is %g, and %g when a weight is NaN", layers[i], m[0].loss, m[1].loss);
		ct_program_destroy(p);
		ct_free(w);
		bench_close(&b);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_norm_pool_shapes),
		cmocka_unit_test(test_fan_out),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_joins),
		cmocka_unit_test(test_nan_shows),
		cmocka_unit_test(test_nan_shows_in_evaluation),
	};
	int skipped = skip_without_onednn(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
