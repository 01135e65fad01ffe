/* What the oneDNN engine promises beyond conformance: no allocation in a step, padding that stays zero, the same bits every
 * time, one layout for all batch sizes, a memory plan, times, order of finished gradients, and its own fused kernels on odd
 * shapes. Skipped in a build without the engine. */
#include <math.h>

#include "nn/optim.h"
#include "tests/nn/nn_check.h"

#define CONVNET                                                                                                 \
	"conv2d 16 kernel=5 padding=2;batch_norm;relu;max_pool 2;conv2d 20 kernel=5 padding=2;batch_norm;relu;" \
	"max_pool 2;flatten;linear 10"
#define MIXED                                                                                                     \
	"conv2d 6 kernel=3 padding=1 name=a;relu name=r;conv2d 6 kernel=3 padding=1;add from=r;relu;dropout 0.3;" \
	"avg_pool 2;flatten;linear 33;relu;dropout 0.5;linear 10"

struct job {
	const char *engine, *layers;
	struct ct_shape input;
	int threads, batch; /* of the net */
	int n;              /* of the program */
	enum ct_input_kind kind;
	int steps;
};

/* A net with data that runs. */
struct bench {
	struct rig r;
	ct_optim *optim;
	float *floats;
	uint8_t *bytes;
	int32_t *labels;
	struct ct_metrics metrics;
};

static struct ct_batch batch_of(const struct bench *b, const struct job *j)
{
	return (struct ct_batch){.n = j->n,
				 .x = j->kind == CT_INPUT_U8_NHWC ? (const void *)b->bytes : b->floats,
				 .labels = b->labels,
				 .step = 3,
				 .first = 50};
}

static void bench_open(struct bench *b, const struct job *j)
{
	const struct ct_net_opts opts = {.batch = j->batch,
					 .input = j->kind,
					 .mean = {0.3f, 0.4f},
					 .std = {0.5f, 0.6f},
					 .seed = 5,
					 .train = true};
	const struct ct_optim_opts sgd = {
		.kind = CT_SGD, .momentum = 0.9f, .weight_decay = 1e-2f, .decay_norm_bias = true};
	size_t elems = shape_elems(j->input) * (size_t)j->n;

	*b = (struct bench){.floats = CT_NEW_ARRAY(float, elems),
			    .bytes = CT_NEW_ARRAY(uint8_t, elems),
			    .labels = CT_NEW_ARRAY(int32_t, (size_t)j->n)};
	fill_floats(1, b->floats, elems);
	fill_bytes(2, b->bytes, elems);
	fill_labels(3, b->labels, (size_t)j->n, 10);
	b->r.graph = graph_make(j->input, j->layers, 10, CT_LOSS_CROSS_ENTROPY, 0);
	assert_ok(ct_device_open("cpu", 0, &b->r.device));
	assert_ok(ct_engine_open(j->engine, b->r.device, j->threads, &b->r.engine));
	assert_ok(ct_net_create(b->r.engine, b->r.graph, &opts, &b->r.net));
	assert_ok(ct_net_init(b->r.net, CT_INIT_PYTORCH, 1));
	vary_norms(b->r.net);
	assert_ok(ct_program_create(b->r.net, j->n, CT_TRAIN, &b->r.program));
	assert_ok(ct_optim_create(b->r.net, &sgd, &b->optim));
}

static void bench_close(struct bench *b)
{
	ct_optim_destroy(b->optim);
	rig_close(&b->r);
	ct_free(b->floats);
	ct_free(b->bytes);
	ct_free(b->labels);
}

static void step(struct bench *b, const struct job *j, bool accumulate)
{
	const struct ct_backward_opts back = {.scale = 1.0f / (float)j->n, .accumulate = accumulate};
	const struct ct_batch batch = batch_of(b, j);

	assert_ok(ct_program_forward(b->r.program, &batch, &b->metrics));
	assert_ok(ct_program_backward(b->r.program, &back));
	assert_ok(ct_optim_step(b->optim, 0.1f, NULL));
}

static void run(struct bench *b, const struct job *j)
{
	bench_open(b, j);
	for (int i = 0; i < j->steps; i++)
		step(b, j, false);
}

static double largest(const float *x, const float *minus, size_t n)
{
	double max = 0;

	for (size_t k = 0; k < n; k++) {
		double d = fabs((double)x[k] - (minus ? (double)minus[k] : 0));
		max = d > max ? d : max;
	}
	return max;
}

/* Of the tensor's largest magnitude, or of a hundredth of the largest of all: a bias before a norm has a gradient of zero. */
static double worst_difference(struct bench *a, struct bench *b, bool grads)
{
	double worst = 0, floor = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (int i = 0; i < ct_graph_n_params(a->r.graph); i++) {
			size_t n = ct_graph_param(a->r.graph, i)->n;
			float *x = export_param(a->r.net, grads ? ct_net_grads(a->r.net) : ct_net_params(a->r.net), i);
			float *y = export_param(b->r.net, grads ? ct_net_grads(b->r.net) : ct_net_params(b->r.net), i);
			double size = largest(x, NULL, n), error;
			if (pass == 0) {
				floor = size / 100 > floor ? size / 100 : floor;
			} else {
				error = largest(x, y, n) / (size > floor ? size : floor);
				worst = error > worst ? error : worst;
			}
			ct_free(x);
			ct_free(y);
		}
	}
	return worst;
}

/* The same job on ref: parameters, gradients, loss and running statistics after its steps. */
static void assert_equals_ref(const struct job *j, double tolerance)
{
	struct job ref = *j;
	struct bench a, b;

	ref.engine = "ref";
	ref.batch = ref.n;
	run(&a, &ref);
	run(&b, j);
	double params = worst_difference(&a, &b, false), grads = worst_difference(&a, &b, true);
	double loss = fabs(a.metrics.loss - b.metrics.loss) / a.metrics.loss, buffers = 0;
	for (size_t i = 0; i < ct_net_buffers_elems(a.r.net); i++) {
		double error = fabs((double)ct_net_buffers(a.r.net)[i] - (double)ct_net_buffers(b.r.net)[i]);
		buffers = error > buffers ? error : buffers;
	}
	if (!(params < tolerance) || !(grads < tolerance) || !(loss < tolerance) || !(buffers < tolerance))
		fail_msg("%s: off from ref by %.1e (parameters), %.1e (gradients), %.1e (loss), %.1e (statistics)",
			 j->layers, params, grads, loss, buffers);
	bench_close(&a);
	bench_close(&b);
}

static const struct job convnet = {.engine = "onednn",
				   .layers = CONVNET,
				   .input = {1, 20, 20},
				   .threads = 1,
				   .batch = 8,
				   .n = 8,
				   .kind = CT_INPUT_F32_NCHW,
				   .steps = 3};
static const struct job mixed = {.engine = "onednn",
				 .layers = MIXED,
				 .input = {2, 9, 7},
				 .threads = 1,
				 .batch = 6,
				 .n = 6,
				 .kind = CT_INPUT_F32_NCHW,
				 .steps = 3};

static void test_no_allocation(void **state)
{
	struct job jobs[] = {convnet, mixed, mixed};
	struct bench b;

	(void)state;
	jobs[2].kind = CT_INPUT_U8_NHWC;
	for (size_t i = 0; i < CT_ARRAY_LEN(jobs); i++) {
		run(&b, &jobs[i]);
		step(&b, &jobs[i], true); /* makes the scratch arena */
		uint64_t before = ct_mem_count();
		step(&b, &jobs[i], false);
		step(&b, &jobs[i], true);
		assert_int_equal(ct_mem_count() - before, 0);
		bench_close(&b);
	}
}

/* The blocked layouts and the fused kernels that some tests are about. */
static bool has_wide_vectors(const struct bench *b)
{
	return strstr(ct_engine_version(b->r.engine), "avx512") != NULL;
}

/* What an export forgets, an import makes zero. Returns the elements of padding. */
static size_t assert_padding_zero(ct_net *net, const float *arena)
{
	float *again = CT_NEW_ARRAY(float, ct_net_arena_elems(net));
	size_t padded = 0;

	for (int i = 0; i < ct_net_n_slices(net); i++) {
		const struct ct_slice *s = ct_net_slice(net, i);
		float *x = export_param(net, arena, s->param);
		assert_ok(ct_net_import(net, again, s->param, x));
		assert_memory_equal(again + s->offset, arena + s->offset, s->n * sizeof(float));
		padded += s->n - ct_graph_param(ct_net_graph(net), s->param)->n;
		ct_free(x);
	}
	ct_free(again);
	return padded;
}

static void test_padding_stays_zero(void **state)
{
	const struct job *jobs[] = {&convnet, &mixed};
	struct bench b;

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(jobs); i++) {
		run(&b, jobs[i]);
		size_t padded = assert_padding_zero(b.r.net, ct_net_params(b.r.net));
		assert_true(padded > 0 || !has_wide_vectors(&b)); /* or this tests nothing */
		assert_padding_zero(b.r.net, ct_net_grads(b.r.net));
		assert_padding_zero(b.r.net, ct_optim_state(b.optim, 0));
		bench_close(&b);
	}
}

static void test_same_bits(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 3; threads++) {
		struct job jobs[] = {convnet, mixed};
		for (size_t i = 0; i < CT_ARRAY_LEN(jobs); i++) {
			struct bench a, b;
			jobs[i].threads = threads;
			run(&a, &jobs[i]);
			run(&b, &jobs[i]);
			assert_memory_equal(ct_net_params(a.r.net), ct_net_params(b.r.net),
					    ct_net_arena_elems(a.r.net) * sizeof(float));
			assert_memory_equal(ct_net_buffers(a.r.net), ct_net_buffers(b.r.net),
					    ct_net_buffers_elems(a.r.net) * sizeof(float));
			assert_memory_equal(&a.metrics, &b.metrics, sizeof(a.metrics));
			bench_close(&a);
			bench_close(&b);
		}
	}
}

static void test_threads_equal_ref(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 3; threads++) {
		struct job a = convnet, b = mixed;
		a.threads = b.threads = threads;
		a.kind = CT_INPUT_U8_NHWC;
		assert_equals_ref(&a, 2e-4);
		assert_equals_ref(&b, 2e-5);
	}
}

/* Tail batches: programs for other sizes read and write the layout that the full batch chose. */
static void test_other_batch_sizes(void **state)
{
	static const int sizes[] = {1, 3, 32, 67};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(sizes); i++) {
		struct job a = convnet, b = mixed;
		a.n = b.n = sizes[i];
		assert_equals_ref(&a, 5e-4);
		assert_equals_ref(&b, 2e-5);
	}
}

static void test_programs_share_arenas(void **state)
{
	struct job j = convnet;
	struct bench b;
	ct_program *tail, *eval;
	char before[65], after[65];
	struct ct_metrics m = {0};

	(void)state;
	run(&b, &j);
	ct_net_layout_digest(b.r.net, before);
	assert_ok(ct_program_create(b.r.net, 3, CT_TRAIN, &tail));
	assert_ok(ct_program_create(b.r.net, 5, CT_EVAL, &eval));
	ct_net_layout_digest(b.r.net, after);
	assert_string_equal(before, after);
	struct ct_batch batch = batch_of(&b, &j);
	batch.n = 3;
	const struct ct_backward_opts back = {.scale = 1};
	assert_ok(ct_program_forward(tail, &batch, &m));
	assert_ok(ct_program_backward(tail, &back));
	assert_ok(ct_program_forward(eval, &batch, &m));
	step(&b, &j, false);
	assert_int_equal(m.count, 6);
	ct_program_destroy(eval);
	ct_program_destroy(tail);
	bench_close(&b);
}

/* Norm, ReLU and max pool in one kernel: windows that overlap, leave a rest, reach over the edge; channels that do not fill a
 * vector; a norm that reads something else than a convolution. */
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

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		for (int threads = 1; threads <= 2; threads++) {
			struct job j = {.engine = "onednn",
					.layers = layers[i],
					.input = {2, 11, 13},
					.threads = threads,
					.batch = 5,
					.n = 5,
					.kind = CT_INPUT_F32_NCHW,
					.steps = 2};
			assert_equals_ref(&j, 2e-4);
		}
	}
}

static void test_memory_plan(void **state)
{
	struct bench b;
	struct ct_net_memory m;

	(void)state;
	bench_open(&b, &convnet);
	ct_net_memory(b.r.net, &m);
	assert_true(m.activations > 0);
	assert_true(m.activations < m.activations_unplanned);
	assert_true(m.params == ct_net_arena_elems(b.r.net) * sizeof(float) && m.grads == m.params);
	bench_close(&b);
}

static void test_profile(void **state)
{
	struct bench b;
	double forward, backward;

	(void)state;
	bench_open(&b, &convnet);
	assert_fails(ct_program_times(b.r.program, 1, &forward, &backward), CT_BUG, "does not profile");
	ct_program_profile(b.r.program, true);
	step(&b, &convnet, false);
	for (int i = 0; i < ct_graph_n_nodes(b.r.graph); i++) {
		const struct ct_node *node = ct_graph_node(b.r.graph, i);
		assert_ok(ct_program_times(b.r.program, i, &forward, &backward));
		assert_true(forward >= 0 && backward >= 0);
		if (node->weight >= 0)
			assert_true(forward > 0 && backward > 0);
	}
	bench_close(&b);
}

struct watch {
	ct_net *net;
	int next;
	float *seen; /* the slices as they were when told */
	bool early;  /* slice 0 was told before the last one was written */
};

static enum ct_status watch_slice(void *user, int slice)
{
	struct watch *w = user;
	const struct ct_slice *s = ct_net_slice(w->net, slice),
			      *last = ct_net_slice(w->net, ct_net_n_slices(w->net) - 1);

	assert_int_equal(slice, w->next);
	w->next++;
	memcpy(w->seen + s->offset, ct_net_grads(w->net) + s->offset, s->n * sizeof(float));
	if (slice == 0)
		w->early = isnan(ct_net_grads(w->net)[last->offset]);
	return CT_OK;
}

static enum ct_status refuse_second(void *user, int slice)
{
	(*(int *)user)++;
	return slice == 1 ? CT_FAIL(CT_PEER_LOST, "rank 1 is gone") : CT_OK;
}

static void test_gradients_in_order(void **state)
{
	struct bench b;
	struct job j = mixed;

	(void)state;
	run(&b, &j);
	struct watch w = {.net = b.r.net, .seen = CT_NEW_ARRAY(float, ct_net_arena_elems(b.r.net))};
	struct ct_backward_opts back = {.scale = 1, .grad_ready = watch_slice, .user = &w};
	const struct ct_batch batch = batch_of(&b, &j);
	for (int i = 0; i < ct_net_n_slices(b.r.net); i++)
		ct_net_grads(b.r.net)[ct_net_slice(b.r.net, i)->offset] = NAN;
	assert_ok(ct_program_forward(b.r.program, &batch, &b.metrics));
	assert_ok(ct_program_backward(b.r.program, &back));
	assert_int_equal(w.next, ct_net_n_slices(b.r.net));
	assert_true(w.early);
	for (int i = 0; i < ct_net_n_slices(b.r.net); i++) {
		const struct ct_slice *s = ct_net_slice(b.r.net, i);
		assert_memory_equal(w.seen + s->offset, ct_net_grads(b.r.net) + s->offset, s->n * sizeof(float));
	}
	int calls = 0;
	back.grad_ready = refuse_second;
	back.user = &calls;
	assert_ok(ct_program_forward(b.r.program, &batch, &b.metrics));
	assert_fails(ct_program_backward(b.r.program, &back), CT_PEER_LOST, "rank 1 is gone");
	assert_int_equal(calls, 2);
	ct_free(w.seen);
	bench_close(&b);
}

static void test_read(void **state)
{
	struct bench a, b;
	struct job j = convnet, ref = convnet;
	float x[8 * 20 * 20 * 20], y[8 * 10], z[8 * 10];

	(void)state;
	ref.engine = "ref";
	j.steps = ref.steps = 1;
	run(&a, &ref);
	run(&b, &j);
	int logits = ct_graph_node(b.r.graph, ct_graph_loss(b.r.graph))->in[0];
	assert_ok(ct_program_read(a.r.program, logits, false, y));
	assert_ok(ct_program_read(b.r.program, logits, false, z)); /* after backward, too */
	for (size_t i = 0; i < CT_ARRAY_LEN(y); i++)
		assert_true(fabsf(y[i] - z[i]) < 1e-4f);
	assert_ok(ct_program_read(b.r.program, 0, false, x));
	assert_memory_equal(x, b.floats, shape_elems(j.input) * 8 * sizeof(float));
	assert_fails(ct_program_read(b.r.program, 2, false, x), CT_UNSUPPORTED, "no value is kept"); /* norm */
	if (has_wide_vectors(&b))
		assert_fails(ct_program_read(b.r.program, 1, false, x), CT_UNSUPPORTED, "used again"); /* convolution */
	assert_fails(ct_program_read(b.r.program, 0, true, x), CT_UNSUPPORTED, "no gradient is kept");
	bench_close(&a);
	bench_close(&b);
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
	};

	(void)state;
	for (size_t i = 0; i < CT_ARRAY_LEN(layers); i++) {
		struct job j = {
			.engine = "onednn", .layers = layers[i], .input = {1, 8, 8}, .threads = 1, .batch = 4, .n = 4};
		struct bench b;
		bench_open(&b, &j);
		step(&b, &j, false);
		assert_true(isfinite(b.metrics.loss));
		float *w = export_param(b.r.net, ct_net_params(b.r.net), 0);
		w[0] = NAN;
		assert_ok(ct_net_import(b.r.net, ct_net_params(b.r.net), 0, w));
		step(&b, &j, false);
		if (!isnan(b.metrics.loss))
			fail_msg("%s: a weight is NaN, the loss %g", layers[i], b.metrics.loss);
		ct_free(w);
		bench_close(&b);
	}
}

static void test_out_of_memory(void **state)
{
	(void)state;
	for (uint64_t after = 1;; after++) {
		struct rig r = {
			.graph = graph_make((struct ct_shape){1, 12, 12}, CONVNET, 10, CT_LOSS_CROSS_ENTROPY, 0)};
		const struct ct_net_opts opts = {.batch = 4, .input = CT_INPUT_F32_NCHW, .train = true};
		assert_ok(ct_device_open("cpu", 0, &r.device));
		ct_mem_fail_after(after);
		enum ct_status st = ct_engine_open("onednn", r.device, 1, &r.engine);
		if (st == CT_OK)
			st = ct_net_create(r.engine, r.graph, &opts, &r.net);
		if (st == CT_OK)
			st = ct_program_create(r.net, 4, CT_TRAIN, &r.program);
		ct_mem_fail_after(0);
		if (st != CT_OK)
			assert_int_equal(st, CT_NOMEM);
		if (r.program)
			ct_program_destroy(r.program);
		ct_net_destroy(r.net);
		ct_engine_close(r.engine);
		ct_device_close(r.device);
		ct_graph_destroy(r.graph);
		if (st == CT_OK)
			break;
		assert_true(after < 5000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_padding_stays_zero),
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_threads_equal_ref),
		cmocka_unit_test(test_other_batch_sizes),
		cmocka_unit_test(test_programs_share_arenas),
		cmocka_unit_test(test_norm_pool_shapes),
		cmocka_unit_test(test_memory_plan),
		cmocka_unit_test(test_profile),
		cmocka_unit_test(test_gradients_in_order),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_nan_shows),
		cmocka_unit_test(test_out_of_memory),
	};
	const char *name;
	bool available;
	char why[128];

	if (!ct_engine_at(0, &name, &available, why, sizeof(why)) || !available) {
		printf("skipped: engine onednn is not available: %s\n", why);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
