/* A second thread exports parameters while a net computes, as the thread that writes a checkpoint does. Both use the
 * engine's caches of descriptors and primitives. The build with the thread sanitizer runs this test (scripts/test.sh):
 * it reports an access to the caches without their lock, which other builds might survive. */
#include <pthread.h>

#include "base/parallel.h"
#include "base/thread.h"
#include "tests/nn/onednn_check.h"

#define N_NETS 12
#define REPEATS 4 /* each with an engine of its own: what is found depends on which thread comes first */

/* What the second thread exports: nets of different sizes, so that each needs descriptors and primitives that are not
 * in the caches yet. */
struct exporter {
	ct_graph *graphs[N_NETS];
	ct_net *nets[N_NETS];
	const float *params[N_NETS];
	float *out[N_NETS];      /* all parameters one after the other */
	pthread_barrier_t start; /* of both threads */
	bool in_step;            /* also before each net */
	enum ct_status status;
};

static size_t n_params(const ct_graph *g)
{
	size_t n = 0;

	for (int i = 0; i < ct_graph_n_params(g); i++)
		n += ct_graph_param(g, i)->n;
	return n;
}

static enum ct_status export_net(const struct exporter *e, int k, float *out)
{
	const ct_graph *g = e->graphs[k];

	for (int i = 0; i < ct_graph_n_params(g); i++) {
		CT_TRY(export_now(e->nets[k], e->params[k], i, out));
		out += ct_graph_param(g, i)->n;
	}
	return CT_OK;
}

static void *export_all(void *arg)
{
	struct exporter *e = arg;

	ct_parallel_use_threads(1);
	pthread_barrier_wait(&e->start);
	for (int i = 0; i < N_NETS; i++) {
		if (e->in_step)
			pthread_barrier_wait(&e->start);
		if (e->status == CT_OK)
			e->status = export_net(e, i, e->out[i]);
	}
	return NULL;
}

static void open_nets(struct exporter *e, ct_engine *engine)
{
	const struct ct_net_opts opts = {.batch = 2, .input = CT_INPUT_F32_NCHW, .seed = 5, .train = true};
	char layers[160];

	*e = (struct exporter){0};
	for (int i = 0; i < N_NETS; i++) {
		int k = 16 * (i + 1);

		snprintf(layers, sizeof(layers),
			 "conv2d %d kernel=3;relu;conv2d %d kernel=5;global_avg_pool;flatten;linear %d;relu;linear 10",
			 k, k + 16, k);
		e->graphs[i] = graph_make((struct ct_shape){3, 12, 12}, layers, 10, CT_LOSS_CROSS_ENTROPY, 0);
		assert_ok(ct_net_create(engine, e->graphs[i], &opts, &e->nets[i]));
		assert_ok(ct_net_init(e->nets[i], CT_INIT_PYTORCH, (uint64_t)i));
		e->params[i] = on_host(ct_net_params(e->nets[i]));
		e->out[i] = CT_NEW_ARRAY(float, n_params(e->graphs[i]));
		assert_non_null(e->out[i]);
	}
}

static void close_nets(struct exporter *e)
{
	for (int i = 0; i < N_NETS; i++) {
		ct_free(e->out[i]);
		ct_net_destroy(e->nets[i]);
		ct_graph_destroy(e->graphs[i]);
	}
}

/* Steps, and new programs: these look for descriptors and primitives and add some. */
static void compute(struct bench *b, const struct job *j)
{
	for (int n = 1; n <= j->n; n++) {
		struct job other = *j;
		struct ct_metrics m = {0};
		ct_program *p;

		other.n = n;
		const struct ct_batch batch = batch_of(b, &other);
		const struct ct_backward_opts back = {.scale = 1};
		assert_ok(ct_program_create(b->r.net, n, CT_TRAIN, &p));
		assert_ok(forward_now(p, &batch, &m));
		assert_ok(ct_program_backward(p, &back));
		ct_program_destroy(p);
		step(b, j, false);
	}
}

/* What ct_net_digest does. It shares the primitives of the other thread from their first use on. */
static void export_too(struct exporter *e)
{
	for (int i = 0; i < N_NETS; i++) {
		float *out = CT_NEW_ARRAY(float, n_params(e->graphs[i]));

		pthread_barrier_wait(&e->start);
		assert_ok(export_net(e, i, out));
		ct_free(out);
	}
}

static void check(const struct job *j, bool computes)
{
	struct ct_thread t = {0};
	struct exporter e;
	struct bench b;

	bench_open(&b, j);
	open_nets(&e, b.r.engine);
	e.in_step = !computes;
	assert_int_equal(pthread_barrier_init(&e.start, NULL, 2), 0);
	assert_ok(ct_thread_start(&t, "exporter", export_all, &e));
	pthread_barrier_wait(&e.start);
	if (computes)
		compute(&b, j);
	else
		export_too(&e);
	ct_thread_join(&t);
	pthread_barrier_destroy(&e.start);
	assert_int_equal(e.status, CT_OK);
	/* The same as an export on this thread. */
	for (int i = 0; i < N_NETS; i++) {
		size_t n = n_params(e.graphs[i]);
		float *again = CT_NEW_ARRAY(float, n);

		assert_ok(export_net(&e, i, again));
		assert_memory_equal(e.out[i], again, n * sizeof(float));
		ct_free(again);
	}
	close_nets(&e);
	bench_close(&b);
}

static void test_export_beside_computing(void **state)
{
	(void)state;
	for (int i = 0; i < REPEATS; i++) {
		check(&convnet, true);
		check(&mixed, true);
	}
}

static void test_export_beside_exporting(void **state)
{
	(void)state;
	for (int i = 0; i < REPEATS; i++)
		check(&convnet, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_export_beside_computing),
		cmocka_unit_test(test_export_beside_exporting),
	};
	int skipped = skip_without_onednn(argc, argv);

	return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
