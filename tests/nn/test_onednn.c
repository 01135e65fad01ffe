/* Guarantees of the oneDNN engine that test_conformance does not cover: no allocation in a step, padding that stays
 * zero, reproducible results, one layout for all batch sizes, the memory plan, times, and the order of finished
 * gradients. Skipped in a build without the engine. */
#include "nn/onednn/kernels/norm_kernels.h"
#include "tests/nn/onednn_check.h"

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

/* What an export forgets, an import makes zero. Returns the elements of padding. */
static size_t assert_padding_zero(ct_net *net, const float *arena)
{
	float *again = CT_NEW_ARRAY(float, ct_net_arena_elems(net));
	size_t padded = 0;

	for (int i = 0; i < ct_net_n_slices(net); i++) {
		const struct ct_slice *s = ct_net_slice(net, i);
		float *x = export_param(net, arena, s->param);

		assert_ok(import_now(net, again, s->param, x));
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
		size_t padded = assert_padding_zero(b.r.net, on_host(ct_net_params(b.r.net)));
		assert_true(padded > 0 || !ct__norm_usable(false)); /* or this tests nothing */
		assert_padding_zero(b.r.net, on_host(ct_net_grads(b.r.net)));
		assert_padding_zero(b.r.net, on_host(ct_optim_state(b.optim, 0)));
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
			assert_memory_equal(on_host(ct_net_params(a.r.net)), on_host(ct_net_params(b.r.net)),
					    ct_net_arena_elems(a.r.net) * sizeof(float));
			assert_memory_equal(on_host(ct_net_buffers(a.r.net)), on_host(ct_net_buffers(b.r.net)),
					    ct_arena_elems(ct_net_buffers(a.r.net)) * sizeof(float));
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
	assert_ok(forward_now(tail, &batch, &m));
	assert_ok(ct_program_backward(tail, &back));
	assert_ok(forward_now(eval, &batch, &m));
	step(&b, &j, false);
	assert_int_equal(m.count, 6);
	ct_program_destroy(eval);
	ct_program_destroy(tail);
	bench_close(&b);
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

static size_t activations(const struct bench *b)
{
	struct ct_net_memory m;

	ct_net_memory(b->r.net, &m);
	return m.activations;
}

/* Programs that run one after the other take no more than the largest of them. */
static void test_memory_of_programs(void **state)
{
	struct bench b, c;
	ct_program *few, *many;

	(void)state;
	bench_open(&b, &convnet);
	const size_t train = activations(&b);
	assert_ok(ct_program_create(b.r.net, 1, CT_EVAL, &few));
	assert_int_equal(activations(&b), train);
	assert_ok(ct_program_create(b.r.net, 300, CT_EVAL, &many));
	assert_true(activations(&b) > train);
	bench_open(&c, &convnet);
	ct_program_destroy(c.r.program);
	assert_ok(ct_program_create(c.r.net, 300, CT_EVAL, &c.r.program));
	assert_int_equal(activations(&b), activations(&c));
	bench_close(&c);
	ct_program_destroy(many);
	ct_program_destroy(few);
	step(&b, &convnet, false);
	bench_close(&b);
}

static void test_profile(void **state)
{
	struct bench b;
	double forward, backward;

	(void)state;
	bench_open(&b, &convnet);
	assert_fails(ct_program_times(b.r.program, 1, &forward, &backward), CT_BUG, "profiling is off");
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
	memcpy(w->seen + s->offset, on_host(ct_net_grads(w->net)) + s->offset, s->n * sizeof(float));
	if (slice == 0)
		w->early = isnan(on_host(ct_net_grads(w->net))[last->offset]);
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
		on_host(ct_net_grads(b.r.net))[ct_net_slice(b.r.net, i)->offset] = NAN;
	assert_ok(forward_now(b.r.program, &batch, &b.metrics));
	assert_ok(ct_program_backward(b.r.program, &back));
	assert_int_equal(w.next, ct_net_n_slices(b.r.net));
	assert_true(w.early);
	for (int i = 0; i < ct_net_n_slices(b.r.net); i++) {
		const struct ct_slice *s = ct_net_slice(b.r.net, i);

		assert_memory_equal(w.seen + s->offset, on_host(ct_net_grads(b.r.net)) + s->offset,
				    s->n * sizeof(float));
	}
	int calls = 0;
	back.grad_ready = refuse_second;
	back.user = &calls;
	assert_ok(forward_now(b.r.program, &batch, &b.metrics));
	assert_fails(ct_program_backward(b.r.program, &back), CT_PEER_LOST, "rank 1 is gone");
	assert_int_equal(calls, 2);
	ct_free(w.seen);
	bench_close(&b);
}

static void test_out_of_memory(void **state)
{
	(void)state;
	for (uint64_t after = 1;; after++) {
		struct rig r = {.graph = graph_make(convnet.input, convnet.layers, 10, CT_LOSS_CROSS_ENTROPY, 0)};
		const struct ct_net_opts opts = {.batch = 4, .input = CT_INPUT_F32_NCHW, .train = true};
		ct_program *eval = NULL;

		assert_ok(ct_device_open("cpu", 0, &r.device));
		ct_mem_fail_after(after);
		enum ct_status st = ct_engine_open("onednn", r.device, 1, &r.engine);
		if (st == CT_OK)
			st = ct_net_create(r.engine, r.graph, &opts, &r.net);
		if (st == CT_OK)
			st = ct_program_create(r.net, 4, CT_TRAIN, &r.program);
		if (st == CT_OK)
			st = ct_program_create(r.net, 4, CT_EVAL, &eval);
		ct_mem_fail_after(0);
		if (st != CT_OK)
			assert_int_equal(st, CT_NOMEM);
		ct_program_destroy(eval);
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

/* Training goes on to the bit when there is no memory for another, larger program, wherever that shows. */
static void test_no_memory_for_a_neighbour(void **state)
{
	const struct ct_net_opts opts = {.batch = convnet.batch, .input = convnet.kind, .train = true};
	struct bench a, b;
	ct_program *many = NULL;
	ct_net *other;
	enum ct_status st = CT_NOMEM;

	(void)state;
	bench_open(&a, &convnet);
	bench_open(&b, &convnet);
	/* The engine keeps its primitives: from here on every try asks for the same memory in the same order. */
	assert_ok(ct_net_create(b.r.engine, b.r.graph, &opts, &other));
	assert_ok(ct_program_create(other, 300, CT_EVAL, &many));
	ct_program_destroy(many);
	ct_net_destroy(other);
	many = NULL;
	for (uint64_t after = 1; st != CT_OK; after++) {
		ct_mem_fail_after(after);
		st = ct_program_create(b.r.net, 300, CT_EVAL, &many);
		ct_mem_fail_after(0);
		assert_true(st == CT_OK || st == CT_NOMEM);
		step(&a, &convnet, false);
		step(&b, &convnet, false);
	}
	assert_memory_equal(on_host(ct_net_params(a.r.net)), on_host(ct_net_params(b.r.net)),
			    ct_net_arena_elems(a.r.net) * sizeof(float));
	ct_program_destroy(many);
	bench_close(&a);
	bench_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_allocation),     cmocka_unit_test(test_padding_stays_zero),
		cmocka_unit_test(test_same_bits),         cmocka_unit_test(test_threads_equal_ref),
		cmocka_unit_test(test_other_batch_sizes), cmocka_unit_test(test_programs_share_arenas),
		cmocka_unit_test(test_memory_plan),       cmocka_unit_test(test_memory_of_programs),
		cmocka_unit_test(test_profile),           cmocka_unit_test(test_gradients_in_order),
		cmocka_unit_test(test_out_of_memory),     cmocka_unit_test(test_no_memory_for_a_neighbour),
	};
	int skipped = skip_without_onednn(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
