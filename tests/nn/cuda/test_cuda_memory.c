/* The memory for the values of a net, which all programs of the CUDA engine share. */
#include "base/clock.h"
#include "nn/cuda/program/program.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/soft_gpu/cudnn/soft_cudnn.h"
#include "tests/soft_gpu/soft_gpu.h"

#define LAYERS                                                                                                             \
	"conv2d 16 kernel=3 stride=2 padding=1 bias=false;batch_norm;relu name=r;conv2d 16 kernel=3 padding=1 bias=false;" \
	"batch_norm;add from=r;relu;global_avg_pool;linear 5"
enum { ROWS = 3, MANY = 20, SIZE = 9, CLASSES = 5 };

static void open_rig(struct cuda_rig *f)
{
	const struct ct_net_opts opts = {.batch = ROWS, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true};

	cuda_rig_open(f, LAYERS, SIZE, CLASSES, MANY, &opts);
}

static void close_rig(struct cuda_rig *f)
{
	cuda_rig_close(f);
	assert_int_equal(soft_gpu_live(), 0);
}

static size_t activations(const struct cuda_rig *f)
{
	struct ct_net_memory m;

	ct_net_memory(f->net, &m);
	return m.activations;
}

/* One forward and one backward pass; the bits of all gradients. The caller frees them. */
static float *pass(struct cuda_rig *f, bool accumulate)
{
	const struct ct_batch b = cuda_rig_batch(f, ROWS);
	const size_t n = ct_net_arena_elems(f->net);
	float *grads = CT_NEW_ARRAY(float, n);

	assert_ok(ct_program_forward(f->train, &b));
	assert_ok(ct_program_backward(f->train,
				      &(struct ct_backward_opts){.scale = 1.0f / ROWS, .accumulate = accumulate}));
	assert_ok(ct_arena_read(ct_net_grads(f->net), 0, n, grads, ct_engine_stream(f->engine)));
	return grads;
}

static float *train(struct cuda_rig *f)
{
	return pass(f, false);
}

static double evaluate(struct cuda_rig *f, ct_program *p, int n)
{
	const struct ct_batch b = cuda_rig_batch(f, n);
	struct ct_metrics m;

	assert_ok(ct_net_take_metrics(f->net, &m)); /* of other programs */
	assert_ok(ct_program_forward(p, &b));
	assert_ok(ct_net_take_metrics(f->net, &m));
	assert_int_equal(m.count, n);
	return m.loss;
}

static void assert_same(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		assert_true(a[i] == b[i]);
}

/* The memory is as large as the largest program needs, whatever the order of creation. */
static void test_size(void **state)
{
	struct cuda_rig f;
	ct_program *small, *large;
	struct ct_net_memory m;

	(void)state;
	open_rig(&f);
	assert_ok(ct_program_create(f.net, ROWS, CT_EVAL, &small));
	const size_t eval = activations(&f);
	assert_ok(ct_program_create(f.net, ROWS, CT_TRAIN, &f.train));
	const size_t training = activations(&f);
	assert_true(training > eval);
	assert_int_equal(training, ((const struct cuda_program *)f.train)->plan.bytes);
	ct_program_destroy(small);
	assert_ok(ct_program_create(f.net, 1, CT_TRAIN, &small));
	assert_int_equal(activations(&f), training);
	assert_ok(ct_program_create(f.net, MANY, CT_EVAL, &large));
	assert_true(activations(&f) > training);
	ct_net_memory(f.net, &m);
	assert_true(m.activations < m.activations_unplanned);
	const struct ct_net_memory all = m;
	ct_program_destroy(large);
	ct_net_memory(f.net, &m);
	assert_true(m.activations_unplanned < all.activations_unplanned); /* the programs that exist */
	assert_ok(ct_program_create(f.net, MANY, CT_EVAL, &large));
	ct_net_memory(f.net, &m);
	assert_memory_equal(&m, &all, sizeof(m));
	ct_program_destroy(large);
	ct_program_destroy(small);
	close_rig(&f);
}

/* Programs do not disturb each other, also when the memory moves. */
static void test_neighbours(void **state)
{
	struct cuda_rig f;
	ct_program *few, *many;

	(void)state;
	for (unsigned seed = 1; seed <= 3; seed++) {
		soft_gpu_set_seed(seed);
		open_rig(&f);
		const size_t n = ct_net_arena_elems(f.net);
		assert_ok(ct_program_create(f.net, ROWS, CT_TRAIN, &f.train));
		float *first = train(&f);

		assert_ok(ct_program_create(f.net, 2, CT_EVAL, &few));
		const struct ct_batch b = cuda_rig_batch(&f, ROWS);
		assert_ok(ct_program_forward(f.train, &b)); /* still runs when the memory moves */
		assert_ok(ct_program_create(f.net, MANY, CT_EVAL, &many));
		assert_fails(ct_program_backward(f.train, &(struct ct_backward_opts){.scale = 1}), CT_BUG,
			     "between forward and backward");
		for (int i = 0; i < 2; i++) {
			float *again = train(&f);

			assert_same(first, again, n);
			ct_free(again);
			(void)evaluate(&f, many, MANY);
			(void)evaluate(&f, few, 2);
		}
		ct_program_destroy(many);
		ct_program_destroy(few);
		ct_free(first);
		close_rig(&f);
	}
}

/* A program that cannot be created because memory is missing leaves the others usable. */
static void test_no_memory(void **state)
{
	struct cuda_rig f;
	ct_program *many;

	(void)state;
	open_rig(&f);
	assert_ok(ct_program_create(f.net, ROWS, CT_TRAIN, &f.train));
	float *first = train(&f);
	soft_gpu_set_faults("cudaMalloc:1:2");
	assert_true(ct_program_create(f.net, MANY, CT_EVAL, &many) < 0);
	ct_error_clear();
	soft_gpu_set_faults(NULL);
	float *again = train(&f);
	assert_same(first, again, ct_net_arena_elems(f.net));
	ct_free(again);
	ct_free(first);
	close_rig(&f);
}

/* A step with accumulation writes gradients to two arenas in turn. The variant packs for both are made once, and again
 * when memory moves. */
static void test_accumulation(void **state)
{
	int packs[4] = {soft_cudnn_finalized(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)}; /* a real GPU skips the test */
	struct cuda_rig f;
	ct_program *many;

	(void)state;
	open_rig(&f);
	assert_ok(ct_program_create(f.net, ROWS, CT_TRAIN, &f.train));
	const size_t n = ct_net_arena_elems(f.net);
	float *first = NULL;
	for (int i = 0; i < 4; i++) {
		if (i == 3)
			assert_ok(ct_program_create(f.net, MANY, CT_EVAL, &many));
		packs[i] = -soft_cudnn_finalized(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
		ct_free(train(&f));
		float *sum = pass(&f, true);
		packs[i] += soft_cudnn_finalized(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
		if (first)
			assert_same(first, sum, n);
		ct_free(first);
		first = sum;
	}
	assert_int_equal(packs[0], 2 * 3); /* three layers */
	assert_int_equal(packs[1] + packs[2], 0);
	assert_true(packs[3] >= 2 * 3);
	ct_free(first);
	ct_program_destroy(many);
	close_rig(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_accumulation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
