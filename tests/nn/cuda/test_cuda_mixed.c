/* Mixed precision. The copy of the weights in a 16-bit type, which convolutions read, must equal the parameters after
 * everything that changes them; updates and swaps must write it themselves, because recorded steps do nothing else. The
 * loss scale must be read when work runs, not when it is posted or recorded. */
#include <math.h>

#include "base/clock.h"
#include "base/half.h"
#include "nn/cuda/program/program.h"
#include "tests/nn/cuda/cuda_check.h"
#include "tests/nn/train_rig.h"
#include "tests/soft_gpu/soft_gpu.h"

enum { ROWS = 3, FEATURES = 5, CLASSES = 4 };

struct fixture {
	struct train_rig rig;
	ct_arena *scalars;
};

static ct_stream *stream_of(struct fixture *f)
{
	return ct_engine_stream(f->rig.engine);
}

static void open_fixture(struct fixture *f, enum ct_precision precision, double loss_scale)
{
	const struct ct_net_opts opts = {
		.batch = ROWS, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true, .precision = precision};
	const struct ct_optim_opts optim = {.kind = CT_ADAMW,
					    .beta1 = 0.9,
					    .beta2 = 0.99,
					    .eps = 1e-6,
					    .loss_scale = loss_scale,
					    .loss_scale_interval = 3};

	*f = (struct fixture){.scalars = NULL};
	open_engine(true, &f->rig.device, &f->rig.engine);
	f->rig.graph = graph_make((struct ct_shape){FEATURES, 1, 1}, "linear 9;relu;linear 4", CLASSES,
				  CT_LOSS_CROSS_ENTROPY, 0);
	train_rig_create(&f->rig, &opts, &optim, 0.5);
	assert_ok(ct_arena_create(f->rig.device, CT_F32, 1, &f->scalars));
	ct_optim_watch_loss(f->rig.optim, f->scalars, 0);
}

static void close_fixture(struct fixture *f)
{
	ct_arena_destroy(f->scalars);
	train_rig_destroy(&f->rig);
}

static int expect_all_freed(void **state)
{
	(void)state;
	return soft_gpu_live() == 0 ? 0 : -1;
}

static void forward(struct fixture *f)
{
	const struct ct_batch b = train_rig_batch(&f->rig);

	assert_ok(ct_program_forward(f->rig.program, &b));
}

static void backward(struct fixture *f)
{
	assert_ok(ct_program_backward(f->rig.program, &(struct ct_backward_opts){.scale = 1.0f / ROWS}));
}

static void begin(struct fixture *f)
{
	train_rig_begin(&f->rig, 0.01);
}

static void update(struct fixture *f)
{
	begin(f);
	assert_ok(ct_optim_post(f->rig.optim));
	assert_ok(ct_stream_sync(stream_of(f), CT_FOREVER));
}

/* Changes the parameters as a load of a checkpoint does. */
static void import(struct fixture *f, uint32_t seed)
{
	const size_t n = ct_graph_param(f->rig.graph, 0)->n;
	float *values = test_malloc(n * sizeof(*values));
	struct ct_mirror m;

	fill_floats(seed, values, n);
	assert_ok(ct_mirror_open(ct_net_params(f->rig.net), CT_MIRROR_WRITE, stream_of(f), &m));
	assert_ok(ct_net_import(f->rig.net, &m, 0, values));
	assert_ok(ct_mirror_close(&m));
	test_free(values);
}

static void copy_arena(struct fixture *a, ct_arena *from, struct fixture *b, ct_arena *to)
{
	struct ct_mirror m;

	assert_ok(ct_mirror_open(from, CT_MIRROR_READ, stream_of(a), &m));
	assert_ok(ct_arena_write(to, 0, ct_arena_elems(to), m.data, stream_of(b)));
	assert_ok(ct_mirror_close(&m));
}

/* The copy in device memory, and the parameters that it should equal. */
static void expect_copy(struct fixture *f, const char *after)
{
	const struct cuda_net *cn = f->rig.net->impl;
	const enum ct_dtype type = cuda_type(f->rig.net->opts.precision);
	const size_t n = ct_net_arena_elems(f->rig.net);
	struct ct_mirror m;
	void *copy;

	assert_ok(ct_device_host_alloc(f->rig.device, n * sizeof(uint16_t), &copy));
	assert_ok(ct_device_copy(f->rig.device, copy, cn->weights, n * sizeof(uint16_t), stream_of(f)));
	assert_ok(ct_mirror_open(ct_net_params(f->rig.net), CT_MIRROR_READ, stream_of(f), &m));
	for (size_t i = 0; i < n; i++) {
		const float p = ((const float *)m.data)[i];
		const uint16_t want = type == CT_F16 ? ct_f16_from_f32(p) : ct_bf16_from_f32(p);

		if (((const uint16_t *)copy)[i] != want)
			fail_msg("after %s: the copy of element %zu is 0x%04x and should be 0x%04x", after, i,
				 ((const uint16_t *)copy)[i], want);
	}
	assert_ok(ct_mirror_close(&m));
	ct_device_host_free(f->rig.device, copy);
}

static void check_copy(enum ct_precision precision)
{
	struct fixture f;

	open_fixture(&f, precision, 16);
	forward(&f);
	expect_copy(&f, "the initialization and a forward pass");
	backward(&f);
	update(&f);
	expect_copy(&f, "an update");
	assert_ok(ct_ema_swap(f.rig.ema));
	expect_copy(&f, "a swap with the EMA weights");
	assert_ok(ct_ema_swap(f.rig.ema));
	expect_copy(&f, "a second swap");
	import(&f, 7);
	forward(&f);
	expect_copy(&f, "an import and a forward pass");
	import(&f, 8);
	update(&f);
	expect_copy(&f, "an import and an update");
	import(&f, 9);
	assert_ok(ct_arena_write(f.scalars, 0, 1, &(float){NAN}, stream_of(&f)));
	update(&f);
	expect_copy(&f, "an import and an update that does nothing");
	close_fixture(&f);
}

static void test_copy_of_weights(void **state)
{
	(void)state;
	check_copy(CT_PRECISION_BF16);
	check_copy(CT_PRECISION_FP16);
}

static void post_step(struct fixture *f)
{
	forward(f);
	backward(f);
	assert_ok(ct_optim_post(f->rig.optim));
}

/* The results of the update, and the digest of the parameters after it. */
struct outcome {
	float results[CT_UPDATE_RESULTS];
	char digest[65];
};

static void take(struct fixture *f, struct outcome *out)
{
	*out = (struct outcome){0};
	assert_ok(ct_arena_read(ct_optim_result(f->rig.optim), 0, CT_UPDATE_RESULTS, out->results, stream_of(f)));
	assert_ok(ct_net_digest(f->rig.net, out->digest));
	/* The norm of a gradient that overflows may be one of several NaNs. */
	if (out->results[CT_UPDATE_OUTCOME] == CT_UPDATE_SKIPPED)
		out->results[CT_UPDATE_NORM] = 0;
}

/* A recording is made while the gradient overflows, and posted until after the scale has become small enough and has
 * grown again. */
static void test_recorded_scale(void **state)
{
	enum { STEPS = 24 };
	struct fixture plain, recorded;
	struct outcome want = {.digest = ""}, got, before = {.digest = ""};
	ct_recording *r = NULL;
	int n_skipped = 0, n_done = 0;
	float smallest = INFINITY;
	bool grown = false;

	(void)state;
	open_fixture(&plain, CT_PRECISION_FP16, 0x1p26);
	open_fixture(&recorded, CT_PRECISION_FP16, 0x1p26);
	for (int step = 0; step < STEPS; step++) {
		before = want;
		begin(&plain);
		post_step(&plain);
		take(&plain, &want);
		begin(&recorded);
		if (step == 0) {
			post_step(&recorded);
		} else if (step == 1) {
			assert_ok(ct_recording_begin(stream_of(&recorded)));
			post_step(&recorded);
			assert_ok(ct_recording_end(stream_of(&recorded), &r));
		}
		if (r)
			assert_ok(ct_recording_post(r, stream_of(&recorded)));
		take(&recorded, &got);
		assert_memory_equal(&got, &want, sizeof(got));

		const bool skipped = want.results[CT_UPDATE_OUTCOME] == CT_UPDATE_SKIPPED;
		const float scale = want.results[CT_UPDATE_SCALE];
		if (step > 0)
			assert_int_equal(strcmp(want.digest, before.digest) == 0, skipped);
		n_skipped += skipped;
		n_done += !skipped;
		smallest = fminf(smallest, scale);
		grown |= scale > smallest;
	}
	assert_true(n_skipped >= 3 && n_done >= 8 && grown);
	ct_recording_destroy(r);
	close_fixture(&recorded);
	close_fixture(&plain);
}

static float element(struct fixture *f, const ct_arena *a, size_t i)
{
	float x;

	assert_ok(ct_arena_read(a, i, 1, &x, stream_of(f)));
	return x;
}

/* As in PyTorch scripts, where the EMA does not know that the optimizer was not called. */
static void test_ema_after_skipped_update(void **state)
{
	struct fixture f;
	struct outcome o;

	(void)state;
	open_fixture(&f, CT_PRECISION_FP16, 0x1p40);
	import(&f, 7);
	/* Parameter 0 is the weight of the first layer, whose slices are the last ones. */
	const size_t at = ct_net_slice(f.rig.net, ct_net_n_slices(f.rig.net) - 2)->offset;
	const float average = element(&f, ct_ema_params(f.rig.ema), at),
		    value = element(&f, ct_net_params(f.rig.net), at);

	begin(&f);
	post_step(&f);
	assert_ok(ct_ema_update(f.rig.ema));
	take(&f, &o);
	assert_int_equal((int)o.results[CT_UPDATE_OUTCOME], CT_UPDATE_SKIPPED);
	assert_true(element(&f, ct_net_params(f.rig.net), at) == value && value != average);
	assert_true(element(&f, ct_ema_params(f.rig.ema), at) == 0.5f * average + 0.5f * value);
	close_fixture(&f);
}

/* A net that continues with the weights, states and scale of another one does the same updates. */
static void test_continued_scale(void **state)
{
	struct fixture a, b;
	struct outcome x, y;

	(void)state;
	open_fixture(&a, CT_PRECISION_FP16, 0x1p21);
	open_fixture(&b, CT_PRECISION_FP16, 0x1p10);
	for (int step = 0; step < 7; step++) {
		begin(&a);
		post_step(&a);
		take(&a, &x);
	}
	assert_true(x.results[CT_UPDATE_N_SKIPPED] > 0);
	copy_arena(&a, ct_net_params(a.rig.net), &b, ct_net_params(b.rig.net));
	for (int i = 0; ct_optim_state(a.rig.optim, i); i++)
		copy_arena(&a, ct_optim_state(a.rig.optim, i), &b, ct_optim_state(b.rig.optim, i));
	ct_optim_set_steps(b.rig.optim, ct_optim_steps(a.rig.optim));
	assert_ok(ct_optim_set_loss_scale(b.rig.optim, (double)x.results[CT_UPDATE_SCALE],
					  (uint32_t)x.results[CT_UPDATE_SCALE_STEPS],
					  (uint64_t)x.results[CT_UPDATE_N_SKIPPED]));
	for (int step = 0; step < 5; step++) {
		begin(&a);
		post_step(&a);
		take(&a, &x);
		begin(&b);
		post_step(&b);
		take(&b, &y);
		assert_memory_equal(&x, &y, sizeof(x));
	}
	close_fixture(&b);
	close_fixture(&a);
}

static void test_bad_scales(void **state)
{
	const struct ct_optim_opts bad[] = {{.kind = CT_SGD, .loss_scale_interval = 1},
					    {.kind = CT_SGD, .loss_scale = NAN, .loss_scale_interval = 1},
					    {.kind = CT_SGD, .loss_scale = INFINITY, .loss_scale_interval = 1},
					    {.kind = CT_SGD, .loss_scale = 1}};
	struct fixture f;
	ct_optim *o;

	(void)state;
	open_fixture(&f, CT_PRECISION_FP16, 1);
	for (size_t i = 0; i < CT_ARRAY_LEN(bad); i++)
		assert_fails(ct_optim_create(f.rig.net, &bad[i], &o), CT_CONFIG, "loss scale");
	assert_fails(ct_optim_set_loss_scale(f.rig.optim, 0, 0, 0), CT_DATA, "0 is not a loss scale");
	close_fixture(&f);
}

/* ---- gradients of weights in their 16-bit type */

enum { GRAD_ROWS = 2, GRAD_MAX = 4096 };

/* Runs a step, and reads n gradients; with `half`, those that the step writes there into *out_half. */
static void gradients(enum ct_precision precision, bool half, size_t *n, float *out, uint16_t *out_half)
{
	const enum ct_dtype type = cuda_type(precision);
	const struct ct_net_opts opts = {.batch = GRAD_ROWS,
					 .input = CT_INPUT_F32_NCHW,
					 .train = true,
					 .precision = precision,
					 .reduce_type = type};
	const struct ct_backward_opts back = {.scale = 0.5f}, again = {.scale = 0.5f, .accumulate = true};
	ct_arena *memory = NULL;
	struct cuda_rig r;
	bool writes = false;

	cuda_rig_open(&r, "conv2d 6 kernel=3 groups=3;batch_norm;relu;conv2d 5 kernel=1;linear 4", 6, 4, GRAD_ROWS,
		      &opts);
	const struct ct_batch b = cuda_rig_batch(&r, GRAD_ROWS);
	*n = ct_net_arena_elems(r.net);
	assert_true(*n <= GRAD_MAX);
	assert_ok(ct_net_init(r.net, CT_INIT_PYTORCH, 1));
	if (half) {
		assert_ok(ct_arena_create(r.device, type, *n, &memory));
		assert_ok(ct_net_bind_half(r.net, memory, &writes));
		assert_true(writes);
	}
	assert_ok(ct_program_create(r.net, GRAD_ROWS, CT_TRAIN, &r.train));
	assert_ok(ct_program_forward(r.train, &b));
	assert_ok(ct_program_backward(r.train, &back));
	assert_ok(ct_arena_read(ct_net_grads(r.net), 0, *n, out, ct_engine_stream(r.engine)));
	if (half) {
		assert_ok(ct_arena_read(memory, 0, *n, out_half, ct_engine_stream(r.engine)));
		assert_ok(ct_program_forward(r.train, &b));
		assert_fails(ct_program_backward(r.train, &again), CT_BUG, "cannot be accumulated");
	}
	ct_arena_destroy(memory); /* before the rig closes the device; nothing uses it any more */
	cuda_rig_close(&r);
}

/* The gradients of weights are either stored in the 16-bit type, or converted to fp32; all others are fp32. */
static void test_stored_gradients(void **state)
{
	static float plain[GRAD_MAX], other[GRAD_MAX];
	static uint16_t half[GRAD_MAX];
	static const enum ct_precision precisions[] = {CT_PRECISION_BF16, CT_PRECISION_FP16};

	(void)state;
	for (size_t p = 0; p < CT_ARRAY_LEN(precisions); p++) {
		size_t n, n_weights = 0, n_others = 0;

		gradients(precisions[p], false, &n, plain, NULL);
		gradients(precisions[p], true, &n, other, half);
		for (size_t i = 0; i < n; i++) {
			const float h = p ? ct_f16_to_f32(half[i]) : ct_bf16_to_f32(half[i]);

			assert_true(plain[i] == h || plain[i] == other[i]);
			assert_true(h == 0 || other[i] == 0);
			n_weights += h != 0;
			n_others += other[i] != 0;
		}
		assert_true(n_weights > 100);
		assert_in_range(n_others, 10, 6 + 6 + 6 + 5 + 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_copy_of_weights, expect_all_freed),
		cmocka_unit_test_teardown(test_recorded_scale, expect_all_freed),
		cmocka_unit_test_teardown(test_ema_after_skipped_update, expect_all_freed),
		cmocka_unit_test_teardown(test_continued_scale, expect_all_freed),
		cmocka_unit_test_teardown(test_bad_scales, expect_all_freed),
		cmocka_unit_test_teardown(test_stored_gradients, expect_all_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
