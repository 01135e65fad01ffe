/* Arenas, slices, the digest of the layout, and the order of finished gradients, on every engine. */
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

static void check_order(const char *engine, enum ct_dtype reduce_type, const char *const order[10])
{
	struct ct_net_opts opts = train_opts(ROWS);
	struct rig r;
	size_t end = 0, bytes = 0;

	opts.reduce_type = reduce_type;
	rig_open(&r, engine, graph_make(shape, layers, 3, CT_LOSS_CROSS_ENTROPY, 0), &opts);
	assert_int_equal(ct_net_n_slices(r.net), 10);
	for (int i = 0; i < ct_net_n_slices(r.net); i++) {
		const struct ct_slice *s = ct_net_slice(r.net, i);

		assert_string_equal(ct_graph_param(r.graph, s->param)->name, order[i]);
		assert_int_equal(s->dtype, i < 4 ? reduce_type : CT_F32);
		assert_int_equal(s->offset % 16, 0);
		assert_true(s->offset >= end && s->offset - end < 16);
		assert_true(s->n >= ct_graph_param(r.graph, s->param)->n);
		end = s->offset + s->n;
	}
	bytes = ct_net_arena_elems(r.net) * sizeof(float);
	assert_true(ct_net_arena_elems(r.net) >= end && ct_net_arena_elems(r.net) % 16 == 0);
	assert_int_equal((uintptr_t)on_host(ct_net_params(r.net)) % 64, 0);
	assert_int_equal((uintptr_t)on_host(ct_net_grads(r.net)) % 64, 0);
	assert_int_equal(ct_arena_elems(ct_net_buffers(r.net)), 10);
	struct ct_net_memory m;
	ct_net_memory(r.net, &m);
	assert_int_equal(m.params, bytes);
	assert_int_equal(m.grads, bytes);
	assert_int_equal(m.buffers, 40);
	assert_true(m.activations > 0 && m.activations <= m.activations_unplanned);
	rig_close(&r);
}

/* If weights are summed over ranks in another type than other parameters, they come first. */
static void check_slices(const char *engine)
{
	static const char *const plain[] = {"f2.weight", "f2.bias",   "f1.weight", "f1.bias",   "c2.weight",
					    "c2.bias",   "b1.weight", "b1.bias",   "c1.weight", "c1.bias"},
				 *const typed[] = {"f2.weight", "f1.weight", "c2.weight", "c1.weight", "f2.bias",
						   "f1.bias",   "c2.bias",   "b1.weight", "b1.bias",   "c1.bias"};

	check_order(engine, CT_F32, plain);
	check_order(engine, CT_BF16, typed);
}

static void test_slices_in_backward_order(void **state)
{
	(void)state;
	each_engine(check_slices);
}

static void check_round_trip(const char *engine)
{
	struct rig r;

	open_rig(&r, engine);
	float *arena = CT_NEW_ARRAY(float, ct_net_arena_elems(r.net));
	for (int i = 0; i < ct_graph_n_params(r.graph); i++) {
		const struct ct_param *p = ct_graph_param(r.graph, i);
		float *x = CT_NEW_ARRAY(float, p->n);

		fill_floats((uint32_t)i, x, p->n);
		assert_ok(import_now(r.net, arena, i, x));
		ct_free(x);
	}
	for (int i = 0; i < ct_graph_n_params(r.graph); i++) {
		const struct ct_param *p = ct_graph_param(r.graph, i);
		float *x = CT_NEW_ARRAY(float, p->n), *back = export_param(r.net, arena, i);

		fill_floats((uint32_t)i, x, p->n);
		assert_memory_equal(x, back, p->n * sizeof(float));
		ct_free(back);
		ct_free(x);
	}
	/* What is no value of a parameter is zero. */
	double sum = 0, of_params = 0;
	for (size_t i = 0; i < ct_net_arena_elems(r.net); i++)
		sum += fabs((double)arena[i]);
	for (int i = 0; i < ct_graph_n_params(r.graph); i++) {
		float *x = export_param(r.net, arena, i);

		for (size_t k = 0; k < ct_graph_param(r.graph, i)->n; k++)
			of_params += fabs((double)x[k]);
		ct_free(x);
	}
	assert_float_equal(sum, of_params, 1e-9);
	ct_free(arena);
	rig_close(&r);
}

static void test_import_export(void **state)
{
	(void)state;
	each_engine(check_round_trip);
}

static void check_layout_digest(const char *engine)
{
	struct rig r, s;
	char a[65], b[65];
	struct ct_net_opts opts = train_opts(ROWS);

	open_rig(&r, engine);
	open_rig(&s, engine);
	ct_net_layout_digest(r.net, a);
	ct_net_layout_digest(s.net, b);
	assert_string_equal(a, b);
	rig_close(&s);
	rig_open(&s, engine, graph_make(shape, "linear 4;linear 3", 3, CT_LOSS_MSE, 0), &opts);
	ct_net_layout_digest(s.net, b);
	assert_string_not_equal(a, b);
	rig_close(&s);
	rig_close(&r);
}

static void test_layout_digest(void **state)
{
	(void)state;
	each_engine(check_layout_digest);
}

static struct ct_net_memory memory_of(const struct rig *r)
{
	struct ct_net_memory m;

	ct_net_memory(r->net, &m);
	return m;
}

/* Programs are counted only while they exist. Memory that they share is kept for the next one. */
static void check_memory(const char *engine)
{
	struct ct_net_memory with = {0};
	ct_program *p;
	struct rig r;

	open_rig(&r, engine);
	const struct ct_net_memory before = memory_of(&r);
	for (int i = 0; i < 3; i++) {
		assert_ok(ct_program_create(r.net, 4 * ROWS, CT_TRAIN, &p));
		const struct ct_net_memory m = memory_of(&r);
		assert_true(m.activations > before.activations);
		assert_true(m.activations_unplanned > before.activations_unplanned);
		assert_true(i == 0 || memcmp(&m, &with, sizeof(m)) == 0);
		with = m;
		ct_program_destroy(p);
		const struct ct_net_memory after = memory_of(&r);
		assert_int_equal(after.activations_unplanned, before.activations_unplanned);
		if (strcmp(engine, "ref") == 0)
			assert_memory_equal(&after, &before, sizeof(after));
	}
	rig_close(&r);
}

static void test_memory(void **state)
{
	(void)state;
	each_engine(check_memory);
}

struct listener {
	struct rig *rig;
	int next, fail_at;
	float *seen; /* copy of the arena, slice by slice, at the time of each call */
};

static enum ct_status hear(void *user, int slice)
{
	struct listener *l = user;
	const struct ct_slice *s = ct_net_slice(l->rig->net, slice);

	assert_int_equal(slice, l->next++);
	memcpy(l->seen + s->offset, on_host(ct_net_grads(l->rig->net)) + s->offset, s->n * sizeof(float));
	return slice == l->fail_at ? CT_FAIL(CT_PEER_LOST, "rank 3 is gone") : CT_OK;
}

static void make_batch(struct ct_batch *b, int rows, float *x, int32_t *labels)
{
	fill_floats(1, x, (size_t)rows * shape_elems(shape));
	fill_labels(2, labels, (size_t)rows, 3);
	*b = (struct ct_batch){.n = rows, .x = x, .labels = labels};
}

static void check_grad_ready(const char *engine)
{
	struct rig r;
	float x[ROWS * 126];
	int32_t labels[ROWS];
	struct ct_batch b;
	struct ct_metrics m = {0};

	open_rig(&r, engine);
	make_batch(&b, ROWS, x, labels);
	struct listener l = {.rig = &r, .fail_at = -1};
	struct ct_backward_opts back = {.scale = 0.25f, .grad_ready = hear, .user = &l};
	l.seen = CT_NEW_ARRAY(float, ct_net_arena_elems(r.net));
	assert_ok(forward_now(r.program, &b, &m));
	assert_ok(ct_program_backward(r.program, &back));
	assert_int_equal(l.next, ct_net_n_slices(r.net));
	assert_memory_equal(l.seen, on_host(ct_net_grads(r.net)),
			    ct_net_arena_elems(r.net) * sizeof(float)); /* final when told */

	l.next = 0;
	back.accumulate = true;
	assert_ok(forward_now(r.program, &b, &m));
	assert_ok(ct_program_backward(r.program, &back));
	assert_memory_equal(l.seen, on_host(ct_net_grads(r.net)), ct_net_arena_elems(r.net) * sizeof(float));

	l.next = 0;
	l.fail_at = 2;
	assert_ok(forward_now(r.program, &b, &m));
	assert_fails(ct_program_backward(r.program, &back), CT_PEER_LOST, "rank 3 is gone");
	assert_int_equal(l.next, 3);
	ct_free(l.seen);
	rig_close(&r);
}

static void test_slices_are_final_when_told(void **state)
{
	(void)state;
	each_engine(check_grad_ready);
}

static void check_bound_grads(const char *engine)
{
	struct ct_net_opts opts = train_opts(ROWS);
	struct rig own, r = {0};
	float x[ROWS * 126];
	int32_t labels[ROWS];
	struct ct_batch b;
	struct ct_metrics m = {0};
	struct ct_backward_opts back = {.scale = 1};

	open_rig(&own, engine);
	make_batch(&b, ROWS, x, labels);
	assert_fails(ct_net_bind_grads(own.net, ct_net_grads(own.net)), CT_BUG, "before its first program");
	size_t n = ct_net_arena_elems(own.net);
	float *mine = ct_calloc_aligned(256, (n + 1) * sizeof(float));
	ct_arena *arena, *odd;
	r.graph = graph_make(shape, layers, 3, CT_LOSS_CROSS_ENTROPY, 0);
	assert_ok(ct_device_open("cpu", 0, &r.device));
	assert_ok(ct_engine_open(engine, r.device, 1, &r.engine));
	assert_ok(ct_net_create(r.engine, r.graph, &opts, &r.net));
	assert_ok(ct_net_init(r.net, CT_INIT_PYTORCH, 1));
	assert_ok(ct_arena_wrap(r.device, CT_F32, n, mine + 1, &odd));
	assert_ok(ct_arena_wrap(r.device, CT_F32, n, mine, &arena));
	assert_fails(ct_net_bind_grads(r.net, odd), CT_BUG, "aligned to 256");
	assert_ok(ct_net_bind_grads(r.net, arena));
	assert_ptr_equal(on_host(ct_net_grads(r.net)), mine);
	assert_ok(ct_program_create(r.net, ROWS, CT_TRAIN, &r.program));
	for (int pass = 0; pass < 2; pass++) {
		assert_ok(forward_now(r.program, &b, &m));
		assert_ok(ct_program_backward(r.program, &back));
		assert_ok(forward_now(own.program, &b, &m));
		assert_ok(ct_program_backward(own.program, &back));
		assert_memory_equal(mine, on_host(ct_net_grads(own.net)), n * sizeof(float));
		back.accumulate = true;
	}
	ct_arena_destroy(odd);
	rig_close(&r);
	ct_arena_destroy(arena);
	ct_free_aligned(mine);
	rig_close(&own);
}

static void test_bound_gradients(void **state)
{
	(void)state;
	each_engine(check_bound_grads);
}

/* Gradients of `micro` batches of rows/micro rows against those of one batch, for a model without batch norm. */
static void accumulate_in(const char *engine, int rows, int micro, float *arena_of_first_param)
{
	struct ct_net_opts opts = train_opts(rows / micro);
	struct rig r;
	float *x = CT_NEW_ARRAY(float, (size_t)rows *shape_elems(shape));
	int32_t labels[12];
	struct ct_batch b;
	struct ct_metrics m = {0};

	rig_open(&r, engine,
		 graph_make(shape, "conv2d 5 kernel=3;relu;max_pool 2;flatten;dropout 0.3;linear 3", 3,
			    CT_LOSS_CROSS_ENTROPY, 0.1f),
		 &opts);
	make_batch(&b, rows, x, labels);
	for (int k = 0; k < micro; k++) {
		struct ct_backward_opts back = {.scale = 1.0f / (float)rows, .accumulate = k > 0};
		struct ct_batch part = {.n = rows / micro,
					.x = x + (size_t)(k * (rows / micro)) * shape_elems(shape),
					.labels = labels + k * (rows / micro),
					.first = (uint64_t)(k * (rows / micro))};

		assert_ok(forward_now(r.program, &part, &m));
		assert_ok(ct_program_backward(r.program, &back));
	}
	assert_int_equal(m.count, rows);
	arena_of_first_param[0] = (float)m.loss;
	assert_ok(export_now(r.net, on_host(ct_net_grads(r.net)), param_named(r.graph, "conv1.weight"),
			     arena_of_first_param + 1));
	rig_close(&r);
	ct_free(x);
}

static void check_accumulation(const char *engine)
{
	float whole[1 + 135], parts[1 + 135];

	accumulate_in(engine, 12, 1, whole);
	for (int micro = 2; micro <= 12; micro++) {
		if (12 % micro)
			continue;
		accumulate_in(engine, 12, micro, parts);
		for (int i = 0; i < 136; i++)
			assert_float_equal(parts[i], whole[i], 2e-6 * (i ? 1 : 12));
	}
}

static void test_accumulation_equals_one_batch(void **state)
{
	(void)state;
	each_engine(check_accumulation);
}

/* The same net twice gives the same bits, step after step. */
static void check_repeatable(const char *engine)
{
	char hex[2][65];

	for (int run = 0; run < 2; run++) {
		struct rig r;
		float x[ROWS * 126];
		int32_t labels[ROWS];
		struct ct_batch b;
		struct ct_metrics m = {0};
		struct ct_backward_opts back = {.scale = 1.0f / ROWS};
		struct ct_optim_opts opts = {.kind = CT_SGD, .momentum = 0.9, .weight_decay = 1e-3};
		ct_optim *o;

		open_rig(&r, engine);
		make_batch(&b, ROWS, x, labels);
		assert_ok(ct_optim_create(r.net, &opts, &o));
		for (int step = 0; step < 5; step++) {
			assert_ok(forward_now(r.program, &b, &m));
			assert_ok(ct_program_backward(r.program, &back));
			assert_ok(update_now(o, 0.1, NULL));
		}
		assert_ok(ct_net_digest(r.net, hex[run]));
		ct_optim_destroy(o);
		rig_close(&r);
	}
	assert_string_equal(hex[0], hex[1]);
}

static void test_runs_repeat_to_the_bit(void **state)
{
	(void)state;
	each_engine(check_repeatable);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slices_in_backward_order),
		cmocka_unit_test(test_import_export),
		cmocka_unit_test(test_layout_digest),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_slices_are_final_when_told),
		cmocka_unit_test(test_bound_gradients),
		cmocka_unit_test(test_accumulation_equals_one_batch),
		cmocka_unit_test(test_runs_repeat_to_the_bit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
