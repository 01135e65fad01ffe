/* The kernels of optimizers, against loops in double. */
#include <math.h>

#include "nn/optim/optim.h"
#include "tests/nn/cuda/kernel_check.h"

_Static_assert((int)CT__K_LAMB == (int)CT_LAMB && (int)CT__K_LARS == (int)CT_LARS && (int)CT__K_ADAMW == (int)CT_ADAMW,
	       "kinds");
_Static_assert((int)CT__K_BAD_NORM == (int)CT_UPDATE_BAD_NORM && (int)CT__K_BAD_LOSS == (int)CT_UPDATE_BAD_LOSS &&
		       (int)CT__K_BAD_SCALE == (int)CT_UPDATE_BAD_SCALE && (int)CT__K_SKIPPED == (int)CT_UPDATE_SKIPPED,
	       "outcomes");
_Static_assert((int)CT__K_RESULT_OUTCOME == (int)CT_UPDATE_OUTCOME && (int)CT__K_RESULT_SCALE == (int)CT_UPDATE_SCALE &&
		       (int)CT__K_RESULT_SCALE_STEPS == (int)CT_UPDATE_SCALE_STEPS &&
		       (int)CT__K_RESULT_N_SKIPPED == (int)CT_UPDATE_N_SKIPPED &&
		       (int)CT__K_RESULTS == (int)CT_UPDATE_RESULTS,
	       "results");

/* Three segments: one chunk, three chunks, and one without decay and trust ratio. */
static const struct ct__k_chunk chunks[] = {{0, 10, 0}, {16, 1500, 1}, {1516, 1500, 1}, {3016, 7, 1}, {3024, 33, 2}};
static const struct ct__k_segment segments[] = {{0, 1, 1, 1, 1}, {1, 3, 1, 1, 0.5}, {4, 1, 0, 0, 2}};
static const struct ct__k_chunk parts[] = {{0, 10, 0},     {16, 1024, 1}, {1040, 476, 1}, {1516, 1024, 1},
					   {2540, 476, 1}, {3016, 7, 1},  {3024, 33, 2}};
enum { N = 3057, N_CHUNKS = 5, N_SEGMENTS = 3 };

struct fixture {
	struct ct__k_update_args a;
	float *p, *g, *m, *v; /* host copies; the reference updates p, m and v */
	double lr;
	uint64_t t;
};

static void open_fixture(struct fixture *f, const struct ct__k_update_args *opts, float loss, float bad_gradient)
{
	const struct ct__k_step step = {.step = 4, .update = 3, .lr = 0.05};
	const int32_t stopped = 0;

	*f = (struct fixture){.a = *opts, .lr = step.lr, .t = step.update};
	f->p = gpu_random(N, 1);
	f->g = gpu_random(N, 2);
	f->m = gpu_random(N, 3);
	f->v = gpu_random(N, 4);
	for (int i = 0; i < N; i++)
		f->v[i] = fabsf(f->v[i]);
	f->g[20] += bad_gradient;
	f->a.segments = gpu_bytes(segments, sizeof(segments));
	f->a.chunks = gpu_bytes(chunks, sizeof(chunks));
	f->a.n_segments = N_SEGMENTS;
	f->a.n_chunks = N_CHUNKS;
	f->a.parts = gpu_bytes(parts, sizeof(parts));
	f->a.n_parts = CT_ARRAY_LEN(parts);
	f->a.sums = gpu_bytes(NULL, 2 * N_CHUNKS * sizeof(double));
	f->a.factors = gpu_bytes(NULL, N_SEGMENTS * sizeof(struct ct__k_factors));
	f->a.control = gpu_bytes(NULL, sizeof(struct ct__k_control));
	f->a.params = gpu_upload(f->p, N, CT_F32);
	f->a.grads = gpu_upload(f->g, N, CT_F32);
	f->a.state[0] = opts->kind == CT_SGD && !(opts->momentum > 0) ? NULL : gpu_upload(f->m, N, CT_F32);
	f->a.state[1] = gpu_upload(f->v, N, CT_F32);
	f->a.weights = opts->weights_type == CT_F32 ? NULL : gpu_upload(NULL, N, opts->weights_type);
	f->a.step = gpu_bytes(&step, sizeof(step));
	f->a.loss = gpu_upload(&loss, 1, CT_F32);
	f->a.stopped = gpu_bytes(&stopped, sizeof(stopped));
	f->a.result = gpu_upload(NULL, CT_UPDATE_RESULTS, CT_F32);
}

static void close_fixture(struct fixture *f)
{
	const void *device[] = {f->a.segments, f->a.chunks, f->a.parts,   f->a.sums,     f->a.factors,
				f->a.control,  f->a.params, f->a.grads,   f->a.state[0], f->a.state[1],
				f->a.step,     f->a.loss,   f->a.stopped, f->a.result,   f->a.weights};

	for (size_t i = 0; i < CT_ARRAY_LEN(device); i++)
		gpu_free(device[i]);
	test_free(f->v);
	test_free(f->m);
	test_free(f->g);
	test_free(f->p);
}

static double norm_of(const float *x, const struct ct__k_segment *s)
{
	double sum = 0;

	for (int k = s->first_chunk; k < s->first_chunk + s->n_chunks; k++)
		for (uint32_t i = 0; i < chunks[k].n; i++)
			sum += (double)x[chunks[k].offset + i] * (double)x[chunks[k].offset + i];
	return sqrt(sum);
}

static double total_norm(const float *g)
{
	double sum = 0;

	for (int i = 0; i < N_SEGMENTS; i++)
		sum += pow(norm_of(g, &segments[i]), 2);
	return sqrt(sum);
}

static void reference_sgd(struct fixture *f, int i, double clip, double decay, double lr)
{
	const double d = clip * (double)f->g[i] + decay * (double)f->p[i], buffer = f->a.momentum * (double)f->m[i] + d;
	double move = d;

	if (f->a.state[0]) {
		f->m[i] = (float)buffer;
		move = f->a.nesterov ? d + f->a.momentum * buffer : buffer;
	}
	f->p[i] = (float)((double)f->p[i] - lr * move);
}

/* Moments of element i; returns the direction of Adam without weight decay. */
static double reference_moments(struct fixture *f, int i, double clip, double l2)
{
	const double d = clip * (double)f->g[i] + l2 * (double)f->p[i], t = (double)f->t;

	f->m[i] = (float)((double)f->m[i] + (1 - f->a.beta1) * (d - (double)f->m[i]));
	f->v[i] = (float)(f->a.beta2 * (double)f->v[i] + (1 - f->a.beta2) * d * d);
	return (double)f->m[i] / (1 - pow(f->a.beta1, t)) /
	       (sqrt((double)f->v[i] / (1 - pow(f->a.beta2, t))) + f->a.eps);
}

static void reference_adam(struct fixture *f, const struct ct__k_segment *s, double clip)
{
	const bool trusted = f->a.kind == CT_LAMB && s->adapt;
	const double w = norm_of(f->p, s), lr = f->lr * s->lr_factor,
		     l2 = f->a.kind == CT_ADAM && s->decay ? f->a.weight_decay : 0,
		     shrink = f->a.kind == CT_ADAMW && s->decay ? 1 - lr * f->a.weight_decay : 1;
	double u2 = 0;
	float *u = test_malloc(N * sizeof(*u));

	for (int k = s->first_chunk; k < s->first_chunk + s->n_chunks; k++)
		for (uint32_t j = 0; j < chunks[k].n; j++) {
			const int i = (int)(chunks[k].offset + j);
			const double direction =
				reference_moments(f, i, clip, l2) + (trusted ? f->a.weight_decay * (double)f->p[i] : 0);

			u[i] = (float)direction;
			u2 += direction * direction;
		}
	const double ratio = trusted && w > 0 && u2 > 0 ? w / sqrt(u2) : 1;
	for (int k = s->first_chunk; k < s->first_chunk + s->n_chunks; k++)
		for (uint32_t j = 0; j < chunks[k].n; j++) {
			const int i = (int)(chunks[k].offset + j);

			f->p[i] = (float)((double)f->p[i] * shrink - lr * ratio * (double)u[i]);
		}
	test_free(u);
}

static void reference(struct fixture *f)
{
	const double norm = total_norm(f->g), limit = f->a.clip_norm / (norm + 1e-6),
		     clip = f->a.clip_norm > 0 && limit < 1 ? limit : 1;

	for (int n = 0; n < N_SEGMENTS; n++) {
		const struct ct__k_segment *s = &segments[n];
		double factor = clip, decay = s->decay ? f->a.weight_decay : 0;

		if (f->a.kind == CT_ADAM || f->a.kind == CT_ADAMW || f->a.kind == CT_LAMB) {
			reference_adam(f, s, clip);
			continue;
		}
		if (f->a.kind == CT_LARS && s->adapt) {
			const double w = norm_of(f->p, s), g = clip * norm_of(f->g, s),
				     q = f->a.trust * w / (g + f->a.weight_decay * w + 1e-8);

			factor = q * clip;
			decay = q * f->a.weight_decay;
		}
		for (int k = s->first_chunk; k < s->first_chunk + s->n_chunks; k++)
			for (uint32_t i = 0; i < chunks[k].n; i++)
				reference_sgd(f, (int)chunks[k].offset + (int)i, factor, decay, f->lr * s->lr_factor);
	}
}

static void expect_floats(const char *what, const float *device, const float *want)
{
	float *got = gpu_download(device, N, CT_F32);

	gpu_expect(what, got, want, N, 3e-6);
	test_free(got);
}

/* The 16-bit copy has the parameters of all chunks, and nothing is written between them. */
static void expect_weights(const struct fixture *f)
{
	float *p = gpu_download(f->a.params, N, CT_F32), *want = test_malloc(N * sizeof(*want));

	for (int i = 0; i < N; i++)
		want[i] = NAN;
	for (int k = 0; k < N_CHUNKS; k++)
		for (uint64_t i = chunks[k].offset; i < chunks[k].offset + chunks[k].n; i++)
			want[i] = gpu_round(p[i], f->a.weights_type);
	expect_device("16-bit weights", f->a.weights, want, N, f->a.weights_type, 0);
	test_free(want);
	test_free(p);
}

/* weights: the type of the copy of the parameters; CT_F32: none. */
static void check_update(const struct ct__k_update_args *opts, enum ct_dtype weights)
{
	struct ct__k_update_args with = *opts;
	struct fixture f;
	float result[CT_UPDATE_RESULTS];

	with.weights_type = weights;
	open_fixture(&f, &with, 1.5f, 0);
	check_cuda(ct__k_update(&f.a, NULL));
	reference(&f);
	expect_floats("parameters", f.a.params, f.p);
	if (f.a.state[0])
		expect_floats("first state", f.a.state[0], f.m);
	expect_floats("second state", f.a.state[1], f.v);
	if (f.a.weights)
		expect_weights(&f);
	gpu_read(result, f.a.result, sizeof(result));
	assert_true(result[CT_UPDATE_OUTCOME] == CT_UPDATE_DONE);
	if (opts->need_norm)
		assert_true(fabs((double)result[CT_UPDATE_NORM] - total_norm(f.g)) < 1e-4);
	else
		assert_true(result[CT_UPDATE_NORM] == -1.0f);
	close_fixture(&f);
}

static const struct ct__k_update_args cases[] = {
	{.kind = CT_SGD, .weight_decay = 0.01},
	{.kind = CT_SGD, .momentum = 0.9, .weight_decay = 0.01},
	{.kind = CT_SGD, .momentum = 0.9, .nesterov = 1, .need_norm = 1, .clip_norm = 0.5},
	{.kind = CT_LARS, .momentum = 0.9, .weight_decay = 0.01, .trust = 0.02},
	{.kind = CT_LARS, .momentum = 0.9, .weight_decay = 0.01, .trust = 0.02, .need_norm = 1, .clip_norm = 2},
	{.kind = CT_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1},
	{.kind = CT_ADAM, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1},
	{.kind = CT_ADAM, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .need_norm = 1, .clip_norm = 0.5},
	{.kind = CT_LAMB, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1, .need_norm = 1},
	{.kind = CT_LAMB,
	 .beta1 = 0.9,
	 .beta2 = 0.99,
	 .eps = 1e-6,
	 .weight_decay = 0.1,
	 .need_norm = 1,
	 .clip_norm = 1},
};

static void test_optimizers(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		check_update(&cases[i], CT_F32);
		check_update(&cases[i], CT_F16);
		check_update(&cases[i], CT_BF16);
	}
}

/* Nothing changes from the first bad step on, but the copy of the parameters is written. */
static void check_stop(const struct ct__k_update_args *opts, float loss, float bad_gradient, int outcome)
{
	const float good = 1.0f;
	struct fixture f;
	float result[CT_UPDATE_RESULTS];

	open_fixture(&f, opts, loss, bad_gradient);
	for (int i = 0; i < 2; i++) {
		check_cuda(ct__k_update(&f.a, NULL));
		expect_floats("parameters", f.a.params, f.p);
		expect_floats("first state", f.a.state[0], f.m);
		expect_floats("second state", f.a.state[1], f.v);
		if (f.a.weights)
			expect_weights(&f);
		gpu_read(result, f.a.result, sizeof(result));
		assert_int_equal((int)result[CT_UPDATE_OUTCOME], outcome);
		check_cuda(cudaMemcpy((void *)(uintptr_t)f.a.loss, &good, sizeof(good), cudaMemcpyHostToDevice));
	}
	close_fixture(&f);
}

static void test_stop(void **state)
{
	const struct ct__k_update_args sgd = {.kind = CT_SGD, .momentum = 0.9, .weights_type = CT_BF16},
				       clipped = {.kind = CT_SGD, .momentum = 0.9, .need_norm = 1, .clip_norm = 1},
				       checked = {.kind = CT_SGD, .momentum = 0.9, .need_norm = 1},
				       lars = {.kind = CT_LARS, .momentum = 0.9, .trust = 0.01},
				       lamb = {.kind = CT_LAMB, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6};

	(void)state;
	check_stop(&sgd, NAN, 0, CT_UPDATE_BAD_LOSS);
	check_stop(&lars, INFINITY, 0, CT_UPDATE_BAD_LOSS);
	check_stop(&lamb, NAN, 0, CT_UPDATE_BAD_LOSS);
	check_stop(&clipped, 1, INFINITY, CT_UPDATE_BAD_NORM);
	check_stop(&checked, 1, INFINITY, CT_UPDATE_BAD_NORM);
}

/* More chunks than `decide` loads at once, the last of them not full. */
static void test_norm_of_many_chunks(void **state)
{
	enum { MANY = 600, EACH = 3 };
	const struct ct__k_update_args opts = {.kind = CT_SGD, .need_norm = 1, .clip_norm = 1};
	const struct ct__k_segment one = {0, MANY, 1, 0, 1};
	struct ct__k_chunk many[MANY];
	struct fixture f;
	float result[CT_UPDATE_RESULTS];
	double sum = 0;

	(void)state;
	open_fixture(&f, &opts, 1.5f, 0);
	for (int i = 0; i < MANY; i++)
		many[i] = (struct ct__k_chunk){(uint64_t)i * EACH, i + 1 < MANY ? EACH : 1, 0};
	gpu_free(f.a.chunks);
	gpu_free(f.a.segments);
	gpu_free(f.a.sums);
	f.a.chunks = gpu_bytes(many, sizeof(many));
	f.a.segments = gpu_bytes(&one, sizeof(one));
	f.a.sums = gpu_bytes(NULL, 2 * MANY * sizeof(double));
	f.a.n_chunks = MANY;
	f.a.n_segments = 1;
	check_cuda(ct__k_update(&f.a, NULL));
	for (int i = 0; i < (MANY - 1) * EACH + 1; i++)
		sum += (double)f.g[i] * (double)f.g[i];
	gpu_read(result, f.a.result, sizeof(result));
	assert_true(fabs((double)result[CT_UPDATE_NORM] - sqrt(sum)) < 1e-5);
	close_fixture(&f);
}

static void write_device(const void *device, const void *from, size_t bytes)
{
	check_cuda(cudaMemcpy((void *)(uintptr_t)device, from, bytes, cudaMemcpyHostToDevice));
}

/* A fixture whose gradients are multiplied by a loss scale. */
static void open_scaled(struct fixture *f, const struct ct__k_update_args *opts, const struct ct__k_loss_scale *scale)
{
	struct ct__k_update_args scaled = *opts;
	float *g = test_malloc(N * sizeof(*g));

	scaled.need_norm = 1;
	scaled.loss_scale_min = 1e-4;
	scaled.loss_scale_interval = 3;
	open_fixture(f, &scaled, 1.5f, 0);
	f->a.loss_scale = gpu_bytes(scale, sizeof(*scale));
	for (int i = 0; i < N; i++)
		g[i] = f->g[i] * scale->scale;
	write_device(f->a.grads, g, N * sizeof(*g));
	test_free(g);
}

static void close_scaled(struct fixture *f)
{
	gpu_free(f->a.loss_scale);
	close_fixture(f);
}

static void set_update(struct fixture *f, uint64_t update)
{
	const struct ct__k_step step = {.step = 4, .update = update, .lr = f->lr};

	write_device(f->a.step, &step, sizeof(step));
}

static void expect_scale(const struct fixture *f, enum ct_update_outcome outcome, float scale, uint32_t steps,
			 uint64_t skipped)
{
	float result[CT_UPDATE_RESULTS];
	struct ct__k_loss_scale s;

	gpu_read(&s, f->a.loss_scale, sizeof(s));
	assert_true(s.scale == scale);
	assert_int_equal(s.steps, steps);
	assert_int_equal(s.skipped, skipped);
	gpu_read(result, f->a.result, sizeof(result));
	assert_int_equal((int)result[CT_UPDATE_OUTCOME], outcome);
	assert_true(result[CT_UPDATE_SCALE] == scale);
	assert_true(result[CT_UPDATE_SCALE_STEPS] == (float)steps);
	assert_true(result[CT_UPDATE_N_SKIPPED] == (float)skipped);
}

/* Dividing by a power of two is exact. */
static void expect_same_bits(const struct fixture *a, const struct fixture *b)
{
	const void *x[] = {a->a.params, a->a.state[0], a->a.state[1]},
		   *y[] = {b->a.params, b->a.state[0], b->a.state[1]};

	for (size_t i = 0; i < CT_ARRAY_LEN(x); i++) {
		if (!x[i])
			continue;
		float *u = gpu_download(x[i], N, CT_F32), *v = gpu_download(y[i], N, CT_F32);

		assert_memory_equal(u, v, N * sizeof(*u));
		test_free(v);
		test_free(u);
	}
}

static void check_scaled(const struct ct__k_update_args *opts)
{
	const struct ct__k_loss_scale scale = {.scale = 1024, .steps = 1, .skipped = 0};
	struct fixture plain, scaled;
	float result[CT_UPDATE_RESULTS];

	open_fixture(&plain, opts, 1.5f, 0);
	open_scaled(&scaled, opts, &scale);
	check_cuda(ct__k_update(&plain.a, NULL));
	check_cuda(ct__k_update(&scaled.a, NULL));
	expect_same_bits(&scaled, &plain);
	expect_scale(&scaled, CT_UPDATE_DONE, 1024, 2, 0);
	gpu_read(result, scaled.a.result, sizeof(result));
	assert_true(fabs((double)result[CT_UPDATE_NORM] - total_norm(scaled.g)) < 1e-4);
	check_cuda(ct__k_update(&scaled.a, NULL));
	expect_scale(&scaled, CT_UPDATE_DONE, 2048, 0, 0);
	close_scaled(&scaled);
	close_fixture(&plain);
}

/* A gradient that is not finite skips its update, and no other; the next update has the number of the skipped one. */
static void check_skipped(const struct ct__k_update_args *opts, int at, float bad)
{
	const struct ct__k_loss_scale scale = {.scale = 1024, .steps = 2, .skipped = 0};
	struct fixture plain, f;

	open_fixture(&plain, opts, 1.5f, 0);
	check_cuda(ct__k_update(&plain.a, NULL));
	open_scaled(&f, opts, &scale);
	write_device(f.a.grads + at, &bad, sizeof(bad));
	check_cuda(ct__k_update(&f.a, NULL));
	expect_floats("parameters", f.a.params, f.p);
	if (f.a.state[0])
		expect_floats("first state", f.a.state[0], f.m);
	expect_floats("second state", f.a.state[1], f.v);
	expect_scale(&f, CT_UPDATE_SKIPPED, 512, 0, 1);
	for (int i = 0; i < N; i++)
		f.g[i] *= 512;
	write_device(f.a.grads, f.g, N * sizeof(*f.g));
	set_update(&f, f.t + 1);
	check_cuda(ct__k_update(&f.a, NULL));
	expect_same_bits(&f, &plain);
	expect_scale(&f, CT_UPDATE_DONE, 512, 1, 1);
	close_scaled(&f);
	close_fixture(&plain);
}

static void test_loss_scale(void **state)
{
	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++) {
		check_scaled(&cases[i]);
		check_skipped(&cases[i], 0, INFINITY);
		check_skipped(&cases[i], 1517, NAN);
		check_skipped(&cases[i], N - 1, -INFINITY);
	}
}

static void test_limits_of_loss_scale(void **state)
{
	const struct ct__k_loss_scale lowest = {.scale = 1.5e-4f, .steps = 2, .skipped = 7},
				      highest = {.scale = 0x1p127f, .steps = 2, .skipped = 0};
	const float bad = NAN, zero = 0;
	struct fixture f;

	(void)state;
	/* Too low: all updates stop, and the scale keeps its last value. */
	open_scaled(&f, &cases[1], &lowest);
	write_device(f.a.grads, &bad, sizeof(bad));
	check_cuda(ct__k_update(&f.a, NULL));
	expect_scale(&f, CT_UPDATE_BAD_SCALE, 0.75e-4f, 0, 8);
	write_device(f.a.grads, &zero, sizeof(zero));
	check_cuda(ct__k_update(&f.a, NULL));
	expect_scale(&f, CT_UPDATE_BAD_SCALE, 0.75e-4f, 0, 8);
	expect_floats("parameters", f.a.params, f.p);
	close_scaled(&f);
	/* The scale does not become infinite. */
	open_scaled(&f, &cases[1], &highest);
	for (int i = 0; i < N; i++)
		f.g[i] = 1;
	write_device(f.a.grads, f.g, N * sizeof(*f.g));
	check_cuda(ct__k_update(&f.a, NULL));
	expect_scale(&f, CT_UPDATE_DONE, 0x1p127f, 0, 0);
	close_scaled(&f);
	/* A loss that is not finite stops training, and is no overflow of the gradient. */
	open_scaled(&f, &cases[1], &(struct ct__k_loss_scale){.scale = 8});
	write_device(f.a.loss, &bad, sizeof(bad));
	write_device(f.a.grads, &bad, sizeof(bad));
	check_cuda(ct__k_update(&f.a, NULL));
	expect_scale(&f, CT_UPDATE_BAD_LOSS, 8, 0, 0);
	close_scaled(&f);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_optimizers),           cmocka_unit_test(test_stop),
		cmocka_unit_test(test_norm_of_many_chunks),  cmocka_unit_test(test_loss_scale),
		cmocka_unit_test(test_limits_of_loss_scale),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return run_on_gpu(run);
}
