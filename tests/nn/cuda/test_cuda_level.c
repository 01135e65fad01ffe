/* What level 1 of the CUDA engine changes: fewer tasks, values that are not stored, weights with folded norms. The
 * results are compared with those of level 0. */
#include <math.h>

#include "base/clock.h"
#include "nn/cuda/program/program.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"
#include "tests/soft_gpu/soft_gpu.h"

extern const struct ct_device_ops ct__device_cuda_ops;

#define BOTTLENECKS                                                                                                         \
	"conv2d 8 kernel=3 padding=1 bias=false name=stem;batch_norm name=stem_norm;relu name=r;"                           \
	"conv2d 4 kernel=1 bias=false;batch_norm;relu;conv2d 8 kernel=3 stride=2 padding=1 bias=false;batch_norm name=m;"   \
	"conv2d 8 kernel=1 stride=2 bias=false from=r name=p;batch_norm name=q;add from=m;relu name=s;"                     \
	"conv2d 4 kernel=3 padding=1 bias=false;batch_norm;relu;conv2d 8 kernel=1 bias=false;batch_norm eps=0.1 name=last;" \
	"add from=s name=sum;relu name=end;global_avg_pool;linear 5"
#define LAYERS "conv2d 8 kernel=3 name=c;relu name=d;max_pool 2;flatten;linear 16 name=l;relu;dropout 0.2;linear 5"
/* The input of the ReLU has a second user, so the ReLU must not overwrite it. */
#define TWO_USERS "conv2d 8 kernel=3 name=a;relu;conv2d 8 kernel=3 padding=1;add from=a;flatten;linear 5"
enum { ROWS = 4, SIZE = 10, CLASSES = 5, STEPS = 4 };

static void open_rig(struct cuda_rig *f, const char *level, const char *layers, enum ct_precision precision)
{
	const struct ct_net_opts opts = {
		.batch = ROWS, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true, .precision = precision};

	assert_int_equal(setenv("CTRAIN_CUDA_LEVEL", level, 1), 0);
	cuda_rig_open(f, layers, SIZE, CLASSES, ROWS, &opts);
	assert_ok(ct_program_create(f->net, ROWS, CT_TRAIN, &f->train));
	assert_ok(ct_program_create(f->net, ROWS, CT_EVAL, &f->eval));
}

static int count(const ct_program *base, enum cuda_kind kind, bool backward)
{
	const struct cuda_program *p = (const struct cuda_program *)base;
	int n = 0;

	for (size_t i = backward ? p->n_forward : 0; i < (backward ? p->n_tasks : p->n_forward); i++)
		n += p->tasks[i].kind == kind;
	return n;
}

/* No kernel only adds, copies or masks. */
static void test_tasks(void **state)
{
	struct cuda_rig f;

	(void)state;
	open_rig(&f, "1", BOTTLENECKS, CT_PRECISION_BF16);
	assert_int_equal(count(f.train, CUDA_MAP, false), 0);
	assert_int_equal(count(f.train, CUDA_MAP, true), 0);
	assert_int_equal(count(f.train, CUDA_NORM_APPLY, false), 6);
	assert_int_equal(count(f.train, CUDA_NORM_BACKWARD_DATA, true), 6);
	assert_int_equal(count(f.eval, CUDA_FOLD, false), 6);
	assert_int_equal(count(f.eval, CUDA_MAP, false), 0);
	assert_int_equal(count(f.eval, CUDA_NORM_APPLY, false) + count(f.eval, CUDA_BIAS, false), 0);
	cuda_rig_close(&f);
	open_rig(&f, "1", LAYERS, CT_PRECISION_FP32);
	assert_int_equal(count(f.train, CUDA_MAP, false) + count(f.train, CUDA_BIAS, false), 0);
	assert_int_equal(count(f.train, CUDA_MAP, true), 0);
	assert_int_equal(count(f.train, CUDA_BIAS_BACKWARD, true), 3);
	cuda_rig_close(&f);
}

static void expect_read(const struct cuda_rig *f, const char *name, bool gradient, const char *why)
{
	float out[ROWS * 8 * SIZE * SIZE];

	assert_fails(ct_program_read(f->train, node_named(f->graph, name), gradient, out), CT_UNSUPPORTED, why);
}

static void test_reading(void **state)
{
	static const char not_stored[] = "not stored", reused[] = "reused";
	float logits[ROWS * CLASSES];
	struct cuda_rig f;

	(void)state;
	open_rig(&f, "1", BOTTLENECKS, CT_PRECISION_FP32);
	const struct ct_batch b = cuda_rig_batch(&f, ROWS);
	assert_ok(ct_program_forward(f.train, &b));
	expect_read(&f, "stem_norm", false, not_stored);
	expect_read(&f, "last", false, not_stored);
	expect_read(&f, "sum", false, not_stored);
	expect_read(&f, "s", true, reused); /* not computed yet */
	assert_ok(ct_program_backward(f.train, &(struct ct_backward_opts){.scale = 1}));
	expect_read(&f, "sum", true, not_stored);
	expect_read(&f, "s", true, reused);
	assert_ok(ct_program_read(f.train, node_named(f.graph, "fc1"), false, logits));
	cuda_rig_close(&f);
}

static void evaluate(struct cuda_rig *f, ct_program *p, float logits[ROWS * CLASSES])
{
	const struct ct_batch b = cuda_rig_batch(f, ROWS);

	assert_ok(ct_program_forward(p, &b));
	assert_ok(ct_program_read(p, node_named(f->graph, "fc1"), false, logits));
}

/* The parameters and running statistics, multiplied by a factor. */
static void scale(struct cuda_rig *f, ct_arena *a, float factor)
{
	struct ct_mirror m;
	float *x;

	assert_ok(ct_mirror_open(a, CT_MIRROR_WRITE, ct_engine_stream(f->engine), &m));
	x = m.data;
	for (size_t i = 0; i < m.n; i++)
		x[i] *= factor;
	assert_ok(ct_mirror_close(&m));
}

static double largest_difference(const float *a, const float *b)
{
	double d = 0;

	for (int i = 0; i < ROWS * CLASSES; i++)
		d = fmax(d, fabs((double)a[i] - (double)b[i]));
	return d;
}

/* Weights are folded again if and only if parameters or statistics have changed, or another program has used the
 * memory. */
static void test_folding_follows_changes(void **state)
{
	struct cuda_rig f, unfused;
	ct_program *other;
	float got[ROWS * CLASSES], want[ROWS * CLASSES], before[ROWS * CLASSES];

	(void)state;
	open_rig(&f, "1", BOTTLENECKS, CT_PRECISION_FP32);
	open_rig(&unfused, "0", BOTTLENECKS, CT_PRECISION_FP32);
	assert_ok(ct_program_create(f.net, ROWS - 1, CT_EVAL, &other));
	for (int i = 0; i < 4; i++) {
		struct cuda_rig *both[] = {&f, &unfused};

		for (int k = 0; k < 2; k++) {
			const struct ct_batch b = cuda_rig_batch(both[k], ROWS);

			if (i == 1)
				scale(both[k], ct_net_params(both[k]->net), 1.5f);
			if (i == 2)
				scale(both[k], ct_net_buffers(both[k]->net), 0.7f);
			if (i == 3)
				assert_ok(ct_program_forward(both[k]->train, &b));
			evaluate(both[k], both[k]->eval, k ? want : got);
		}
		assert_true(largest_difference(got, want) < 1e-5);
		assert_true(i == 0 || largest_difference(got, before) > 1e-4);
		evaluate(&f, f.eval, before);
		assert_memory_equal(got, before, sizeof(got));
		assert_ok(ct_program_forward(other, &(struct ct_batch){.n = 1, .x = f.x, .labels = f.labels}));
		evaluate(&f, f.eval, before);
		assert_memory_equal(got, before, sizeof(got));
	}
	ct_program_destroy(other);
	cuda_rig_close(&unfused);
	cuda_rig_close(&f);
}

/* Where cuDNN has no plan for the fused operations, kernels add the bias, the residual and the ReLU. */
static void test_layers_without_fused_plans(void **state)
{
	struct cuda_rig f, unfused;
	float got[ROWS * CLASSES], want[ROWS * CLASSES];

	(void)state;
	soft_cudnn_set_broken(0, SOFT_CUDNN_FINALIZE); /* in fp32, the only engine of the stand-in for fused graphs */
	open_rig(&f, "1", BOTTLENECKS, CT_PRECISION_FP32);
	soft_cudnn_set_broken(-1, SOFT_CUDNN_FINALIZE);
	open_rig(&unfused, "0", BOTTLENECKS, CT_PRECISION_FP32);
	assert_int_equal(count(f.eval, CUDA_FOLD, false), 6);
	assert_int_equal(count(f.eval, CUDA_BIAS, false), 7);
	assert_int_equal(count(f.eval, CUDA_MAP, false), 2);
	evaluate(&f, f.eval, got);
	evaluate(&unfused, unfused.eval, want);
	assert_true(largest_difference(got, want) < 1e-5);
	cuda_rig_close(&unfused);
	cuda_rig_close(&f);
}

/* Losses of a few steps of gradient descent. */
static void descend(struct cuda_rig *f, double losses[STEPS])
{
	const size_t n = ct_net_arena_elems(f->net);
	float *grads = CT_NEW_ARRAY(float, n);

	for (int step = 0; step < STEPS; step++) {
		const struct ct_batch b = cuda_rig_batch(f, ROWS);
		struct ct_metrics m;
		struct ct_mirror params;

		assert_ok(ct_program_forward(f->train, &b));
		assert_ok(ct_program_backward(f->train, &(struct ct_backward_opts){.scale = 1.0f / ROWS}));
		assert_ok(ct_net_take_metrics(f->net, &m));
		losses[step] = m.loss;
		assert_ok(ct_arena_read(ct_net_grads(f->net), 0, n, grads, ct_engine_stream(f->engine)));
		assert_ok(ct_mirror_open(ct_net_params(f->net), CT_MIRROR_WRITE, ct_engine_stream(f->engine), &params));
		for (size_t i = 0; i < n; i++)
			((float *)params.data)[i] -= 0.1f * grads[i];
		assert_ok(ct_mirror_close(&params));
	}
	ct_free(grads);
}

static void test_losses_are_equal(void **state)
{
	static const struct {
		enum ct_precision precision;
		double tolerance;
	} cases[] = {{CT_PRECISION_FP32, 2e-5}, {CT_PRECISION_TF32, 2e-5}, {CT_PRECISION_BF16, 3e-2}};
	static const char *const models[] = {BOTTLENECKS, LAYERS, TWO_USERS};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		for (size_t k = 0; k < CT_ARRAY_LEN(models); k++) {
			struct cuda_rig a, b;
			double x[STEPS], y[STEPS];

			open_rig(&a, "0", models[k], cases[i].precision);
			open_rig(&b, "1", models[k], cases[i].precision);
			descend(&a, x);
			descend(&b, y);
			for (int step = 0; step < STEPS; step++) {
				if (fabs(x[step] - y[step]) > cases[i].tolerance * x[step])
					fail_msg("precision %d, model %zu, step %d: loss %.8g, %.8g",
						 (int)cases[i].precision, k, step, x[step], y[step]);
			}
			assert_true(x[STEPS - 1] < x[0]);
			cuda_rig_close(&b);
			cuda_rig_close(&a);
		}
}

static void test_bad_level(void **state)
{
	ct_device *d;
	ct_engine *e;

	(void)state;
	assert_int_equal(setenv("CTRAIN_CUDA_LEVEL", "2", 1), 0);
	assert_ok(ct__device_cuda_ops.open(0, &d));
	assert_fails(ct__engine_open_with(&ct__engine_ops_cuda, d, 1, &e), CT_CONFIG, "must be 0 or 1");
	ct_device_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tasks),
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_folding_follows_changes),
		cmocka_unit_test(test_layers_without_fused_plans),
		cmocka_unit_test(test_losses_are_equal),
		cmocka_unit_test(test_bad_level),
	};

	const int failed = cmocka_run_group_tests(tests, NULL, NULL);
	return failed || soft_gpu_live() > 0;
}
