/* Batch norm over ranks: two nets in two threads, each with its share of the rows, must equal one net with all rows, as
 * with torch.nn.SyncBatchNorm. Compares values, running statistics, and the sums of gradients. */
#include <math.h>

#include "base/thread.h"
#include "tests/nn/nn_check.h"

#define WORLD 2
#define MAX_SUMS 256
#define STEPS 2

struct meeting {
	pthread_barrier_t barrier;
	double part[WORLD][MAX_SUMS];
	size_t n[WORLD];
	bool differs; /* the ranks came with different lengths */
};

struct rank {
	struct meeting *meeting;
	int id, calls;
	struct rig rig;
	struct ct_thread thread;
	struct ct_batch batch;
	struct ct_metrics metrics;
	float scale;
	float *logits;
	enum ct_status st;
};

static enum ct_status sum_over_ranks(void *user, double *v, size_t n, ct_stream *s)
{
	(void)s;
	struct rank *r = user;
	struct meeting *m = r->meeting;

	if (n > MAX_SUMS)
		return CT_FAIL(CT_BUG, "%zu sums", n);
	r->calls++;
	memcpy(m->part[r->id], v, n * sizeof(*v));
	m->n[r->id] = n;
	pthread_barrier_wait(&m->barrier);
	if (m->n[0] != m->n[1])
		m->differs = true;
	for (size_t i = 0; i < n; i++)
		v[i] = m->part[0][i] + m->part[1][i];
	pthread_barrier_wait(&m->barrier);
	return CT_OK;
}

static enum ct_status train(struct rank *r)
{
	const struct ct_graph *g = r->rig.graph;

	for (int step = 0; step < STEPS; step++) {
		struct ct_backward_opts back = {.scale = r->scale, .accumulate = step > 0};

		CT_TRY(forward_now(r->rig.program, &r->batch, &r->metrics));
		CT_TRY(ct_program_read(r->rig.program, ct_graph_node(g, ct_graph_loss(g))->in[0], false, r->logits));
		CT_TRY(ct_program_backward(r->rig.program, &back));
	}
	return CT_OK;
}

static void *train_thread(void *arg)
{
	struct rank *r = arg;

	r->st = train(r);
	return NULL;
}

struct sync_case {
	const char *layers;
	struct ct_shape shape;
	int rows[WORLD];
};

/* How the ranks compute. */
struct way {
	const char *engines[WORLD]; /* of each rank; the whole batch runs on the first */
	enum ct_precision precision;
	const struct ct_net_plan *plan; /* NULL: the one that the engine chooses */
	double tolerance;
};

static void open_rank(struct rank *r, const char *engine, const struct way *way, const struct sync_case *c, int rows,
		      int first, const float *x, const int32_t *labels)
{
	const size_t elems = shape_elems(c->shape);
	struct ct_net_opts opts = {.batch = rows,
				   .input = CT_INPUT_F32_NCHW,
				   .seed = 3,
				   .train = true,
				   .precision = way->precision,
				   .plan = way->plan};

	if (r->meeting) {
		opts.sync = sum_over_ranks;
		opts.sync_user = r;
	}
	rig_open(&r->rig, engine, graph_make(c->shape, c->layers, 5, CT_LOSS_CROSS_ENTROPY, 0), &opts);
	vary_norms(r->rig.net);
	r->batch = (struct ct_batch){
		.n = rows, .x = x + (size_t)first * elems, .labels = labels + first, .first = (uint64_t)first};
	r->scale = 1.0f / (float)(c->rows[0] + c->rows[1]);
	r->logits = CT_NEW_ARRAY(float, (size_t)rows * 5);
	assert_non_null(r->logits);
}

static void close_rank(struct rank *r)
{
	ct_free(r->logits);
	rig_close(&r->rig);
}

/* |got - want| relative to the largest |want|. */
static double off_by(const float *got, const float *want, size_t n, double floor)
{
	double worst = 0, largest = floor;

	for (size_t i = 0; i < n; i++)
		largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
	for (size_t i = 0; i < n; i++) {
		double error = fabs((double)got[i] - (double)want[i]) / largest;

		worst = error > worst || isnan(error) ? error : worst;
	}
	return worst;
}

static void compare_gradients(struct rank *ranks, struct rank *whole, double tolerance)
{
	const struct ct_graph *g = whole->rig.graph;
	double floor = 0;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < ct_graph_n_params(g); i++) {
			const size_t n = ct_graph_param(g, i)->n;
			float *want = export_param(whole->rig.net, on_host(ct_net_grads(whole->rig.net)), i);
			float *sum = export_param(ranks[0].rig.net, on_host(ct_net_grads(ranks[0].rig.net)), i);
			float *other = export_param(ranks[1].rig.net, on_host(ct_net_grads(ranks[1].rig.net)), i);

			for (size_t k = 0; k < n; k++) {
				sum[k] += other[k];
				floor = fabs((double)want[k]) / 100 > floor ? fabs((double)want[k]) / 100 : floor;
			}
			double worst = off_by(sum, want, n, floor);
			if (round > 0 && !(worst <= tolerance))
				fail_msg("%s: off by %g", ct_graph_param(g, i)->name, worst);
			ct_free(other);
			ct_free(sum);
			ct_free(want);
		}
	}
}

static void check_case(const struct way *way, const struct sync_case *c)
{
	const char *const *engines = way->engines;
	const double tolerance = way->tolerance;
	const int rows = c->rows[0] + c->rows[1];
	struct meeting meeting = {0};
	struct rank ranks[WORLD] = {{.meeting = &meeting}, {.meeting = &meeting, .id = 1}}, whole = {0};
	float *x = CT_NEW_ARRAY(float, (size_t)rows *shape_elems(c->shape));
	int32_t labels[32];

	fill_floats(1, x, (size_t)rows * shape_elems(c->shape));
	for (int i = 0; i < rows; i++) { /* ranks that see different data */
		for (size_t k = 0; k < shape_elems(c->shape); k++)
			x[(size_t)i * shape_elems(c->shape) + k] += 0.3f * (float)i;
	}
	fill_labels(2, labels, (size_t)rows, 5);
	assert_int_equal(pthread_barrier_init(&meeting.barrier, NULL, WORLD), 0);
	open_rank(&whole, engines[0], way, c, rows, 0, x, labels);
	for (int i = 0; i < WORLD; i++)
		open_rank(&ranks[i], engines[i], way, c, c->rows[i], i ? c->rows[0] : 0, x, labels);
	for (int i = 0; i < WORLD; i++)
		assert_ok(ct_thread_start(&ranks[i].thread, "rank", train_thread, &ranks[i]));
	for (int i = 0; i < WORLD; i++)
		ct_thread_join(&ranks[i].thread);
	assert_ok(train(&whole));
	assert_int_equal(ranks[0].st, CT_OK);
	assert_int_equal(ranks[1].st, CT_OK);
	assert_int_equal(ranks[0].calls, ranks[1].calls);
	assert_false(meeting.differs);
	assert_true(ranks[0].calls >= 2 * STEPS);

	assert_float_equal(ranks[0].metrics.loss + ranks[1].metrics.loss, whole.metrics.loss,
			   tolerance * whole.metrics.loss);
	assert_true(off_by(ranks[0].logits, whole.logits, (size_t)c->rows[0] * 5, 1) <= tolerance);
	assert_true(off_by(ranks[1].logits, whole.logits + c->rows[0] * 5, (size_t)c->rows[1] * 5, 1) <= tolerance);
	for (int i = 0; i < WORLD; i++)
		assert_true(off_by(on_host(ct_net_buffers(ranks[i].rig.net)), on_host(ct_net_buffers(whole.rig.net)),
				   ct_arena_elems(ct_net_buffers(whole.rig.net)), 0) <= tolerance);
	/* The same to the bit on all ranks, or they would drift apart. */
	if (strcmp(engines[0], engines[1]) == 0)
		assert_memory_equal(on_host(ct_net_buffers(ranks[0].rig.net)),
				    on_host(ct_net_buffers(ranks[1].rig.net)),
				    ct_arena_elems(ct_net_buffers(whole.rig.net)) * sizeof(float));
	compare_gradients(ranks, &whole, 4 * tolerance); /* those that are zero up to rounding */
	for (int i = 0; i < WORLD; i++)
		close_rank(&ranks[i]);
	close_rank(&whole);
	pthread_barrier_destroy(&meeting.barrier);
	ct_free(x);
}

static const struct sync_case cases[] = {
	{"batch_norm;flatten;linear 5", {3, 4, 5}, {3, 3}},
	{"conv2d 16 kernel=3 padding=1;batch_norm;relu;flatten;linear 5", {3, 6, 5}, {1, 4}},
	{"conv2d 17 kernel=3;batch_norm;flatten;linear 5", {2, 6, 7}, {5, 2}},
	{"linear 20;batch_norm;relu;linear 5", {9, 1, 1}, {1, 3}}, /* one value a channel on rank 0 */
	{"conv2d 32 kernel=3 padding=1;batch_norm;relu;max_pool 2;flatten;linear 5", {3, 8, 8}, {2, 3}},
	{"conv2d 32 kernel=1 name=a;conv2d 32 kernel=3 padding=1;batch_norm;relu;conv2d 32 kernel=3 padding=1;batch_norm;"
	 "add from=a;relu;global_avg_pool;linear 5",
	 {3, 6, 6},
	 {2, 3}},
};

static void check_way(const struct way *way)
{
	for (size_t i = 0; i < CT_ARRAY_LEN(cases); i++)
		check_case(way, &cases[i]);
}

/* The engine's plan, and NHWC. */
static void check_plans(struct way way)
{
	const struct ct_net_plan nhwc = {.layout = CT_LAYOUT_NHWC};

	check_way(&way);
	if (strcmp(way.engines[0], "onednn") != 0)
		return;
	way.plan = &nhwc;
	check_way(&way);
}

static void check_engine(const char *engine)
{
	check_plans((struct way){.engines = {engine, engine}, .tolerance = strcmp(engine, "ref") ? 3e-4 : 1e-6});
}

/* Values of 8 bits: what is rounded differently in another layout shows in the third digit. */
static void check_bf16(const char *engine)
{
	if (has_precision(engine, CT_PRECISION_BF16))
		check_plans(
			(struct way){.engines = {engine, engine}, .precision = CT_PRECISION_BF16, .tolerance = 0.03});
}

static void test_bf16(void **state)
{
	(void)state;
	each_engine(check_bf16);
}

static void test_ranks_equal_the_whole_batch(void **state)
{
	(void)state;
	each_engine(check_engine);
}

/* Which loops a rank takes for a norm follows from its layouts, which other ranks need not share. */
static void check_beside_ref(const char *engine)
{
	check_way(&(struct way){.engines = {"ref", engine}, .tolerance = 3e-4});
}

static void test_ranks_of_other_engines(void **state)
{
	(void)state;
	each_engine(check_beside_ref);
}

static enum ct_status refuse(void *user, double *v, size_t n, ct_stream *s)
{
	(void)s;
	(void)v;
	(void)n;
	return --*(int *)user < 0 ? CT_FAIL(CT_PEER_LOST, "rank 1 is gone") : CT_OK;
}

/* A rank that is lost ends forward and backward with its reason, and the layer's name. */
static void check_failure(const char *engine)
{
	float x[2 * 48];
	const int32_t labels[2] = {0, 1};

	fill_floats(1, x, CT_ARRAY_LEN(x));
	for (int good = 0; good < 2; good++) {
		int left = good;
		struct ct_net_opts opts = {
			.batch = 2, .input = CT_INPUT_F32_NCHW, .train = true, .sync = refuse, .sync_user = &left};
		struct ct_batch b = {.n = 2, .x = x, .labels = labels};
		struct ct_backward_opts back = {.scale = 1};
		struct ct_metrics m = {0};
		struct rig r;

		rig_open(&r, engine,
			 graph_make((struct ct_shape){3, 4, 4}, "batch_norm name=bee;flatten;linear 3", 3,
				    CT_LOSS_CROSS_ENTROPY, 0),
			 &opts);
		enum ct_status st = forward_now(r.program, &b, &m);
		if (good)
			st = st == CT_OK ? ct_program_backward(r.program, &back) : st;
		assert_fails(st, CT_PEER_LOST, "bee: summing the statistics of all ranks: rank 1 is gone");
		rig_close(&r);
	}
}

static void test_a_lost_rank(void **state)
{
	(void)state;
	each_engine(check_failure);
}

static enum ct_status alone(void *user, double *v, size_t n, ct_stream *s)
{
	(void)s;
	(void)user;
	(void)v;
	(void)n;
	return CT_OK;
}

/* One value a channel is refused when all ranks have no more together. */
static void check_one_value(const char *engine)
{
	const float x[4] = {1, 2, 3, 4};
	const int32_t label = 0;
	struct ct_net_opts opts = {.batch = 1, .input = CT_INPUT_F32_NCHW, .train = true, .sync = alone};
	struct ct_batch b = {.n = 1, .x = x, .labels = &label};
	struct ct_metrics m = {0};
	struct rig r;

	rig_open(&r, engine, graph_make((struct ct_shape){4, 1, 1}, "batch_norm;linear 3", 3, CT_LOSS_CROSS_ENTROPY, 0),
		 &opts);
	assert_fails(forward_now(r.program, &b, &m), CT_CONFIG, "bn1: batch norm has only one value per channel");
	rig_close(&r);
}

static void test_one_value_a_channel(void **state)
{
	(void)state;
	each_engine(check_one_value);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranks_equal_the_whole_batch), cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_ranks_of_other_engines),      cmocka_unit_test(test_a_lost_rank),
		cmocka_unit_test(test_one_value_a_channel),
	};

	int skipped = limit_isa(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
