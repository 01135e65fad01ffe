/* Splits models into stages, and compares a chain of stages with the complete net: loss, gradients, running statistics and
 * evaluation, with two micro-batches in flight. */
#include <math.h>
#include <string.h>

#include "tests/nn/nn_check.h"

enum { ROWS = 3, MICROS = 3, CLASSES = 5, CONTEXTS = 2, MOST_STAGES = 4 };

/* Residual blocks with two kinds of shortcut, stochastic depth, and a dropout. */
#define BLOCKS                                                                                                      \
	"conv2d 16 kernel=3 padding=1 bias=false;batch_norm;relu name=a;"                                           \
	"conv2d 16 kernel=3 padding=1 bias=false;batch_norm;relu;conv2d 16 kernel=3 padding=1 bias=false;"          \
	"batch_norm;drop_path 0.3;add from=a;relu name=b;"                                                          \
	"conv2d 32 kernel=3 stride=2 padding=1 bias=false;batch_norm;relu;conv2d 32 kernel=3 padding=1 bias=false;" \
	"batch_norm name=c;conv2d 32 kernel=1 stride=2 bias=false from=b;batch_norm;add from=c;relu;"               \
	"global_avg_pool;dropout 0.2;linear 5"
#define PLAIN "flatten;linear 24;relu;dropout 0.3;linear 20;linear 16;relu;linear 5"
#define CONVS "conv2d 8 kernel=3 padding=1;max_pool 2;relu;conv2d 16 kernel=3 padding=1;flatten;linear 5"

struct chain {
	int n;
	int first[MOST_STAGES + 1];
	struct rig rig[MOST_STAGES];
	ct_program *program[MOST_STAGES][CONTEXTS];
	float *y[MOST_STAGES][CONTEXTS]; /* outputs */
	float *dx[MOST_STAGES];          /* gradients of the inputs */
};

static struct ct_net_opts stage_opts(int k, int n)
{
	return (struct ct_net_opts){.batch = ROWS,
				    .input = CT_INPUT_F32_NCHW,
				    .seed = 7,
				    .train = true,
				    .contexts = n > 1 ? CONTEXTS : 1,
				    .input_gradient = k > 0};
}

/* vary_norms depends on the number of the parameter, which is another one in a stage. */
static void copy_params(ct_net *from, ct_net *to)
{
	for (int i = 0; i < ct_graph_n_params(ct_net_graph(to)); i++) {
		const int at = param_named(ct_net_graph(from), ct_graph_param(ct_net_graph(to), i)->name);
		float *x = export_param(from, on_host(ct_net_params(from)), at);

		assert_ok(import_now(to, on_host(ct_net_params(to)), i, x));
		ct_free(x);
	}
}

static void chain_open(struct chain *c, const char *engine, const ct_graph *whole, int n)
{
	*c = (struct chain){.n = n};
	assert_ok(ct_graph_cut(whole, n, c->first));
	for (int k = 0; k < n; k++) {
		const struct ct_net_opts opts = stage_opts(k, n);
		ct_graph *g;

		assert_ok(ct_graph_stage(whole, c->first[k], c->first[k + 1], &g));
		rig_open(&c->rig[k], engine, g, &opts);
		set_step(c->rig[k].net, 11);
		c->program[k][0] = c->rig[k].program;
		for (int i = 1; i < opts.contexts; i++)
			assert_ok(ct_program_create_in(c->rig[k].net, g, ROWS, CT_TRAIN, i, &c->program[k][i]));
		for (int i = 0; i < CONTEXTS; i++)
			c->y[k][i] = CT_NEW_ARRAY(float, ROWS *shape_elems(ct_graph_node(g, ct_graph_loss(g))->shape));
		c->dx[k] = CT_NEW_ARRAY(float, ROWS *shape_elems(ct_graph_node(g, 0)->shape));
	}
}

static void chain_close(struct chain *c)
{
	for (int k = 0; k < c->n; k++) {
		for (int i = 1; i < CONTEXTS; i++)
			ct_program_destroy(c->program[k][i]);
		for (int i = 0; i < CONTEXTS; i++)
			ct_free(c->y[k][i]);
		ct_free(c->dx[k]);
		rig_close(&c->rig[k]);
	}
}

struct data {
	float *x;
	int32_t labels[MICROS * ROWS];
	size_t elems;
};

static void chain_forward(struct chain *c, const struct data *d, int micro)
{
	for (int k = 0; k < c->n; k++) {
		const int i = c->n > 1 ? micro % CONTEXTS : 0;
		const struct ct_batch b = {.n = ROWS,
					   .x = k > 0 ? c->y[k - 1][i] : d->x + (size_t)micro * ROWS * d->elems,
					   .labels = d->labels + micro * ROWS,
					   .first = (uint64_t)micro * ROWS,
					   .y = k + 1 < c->n ? c->y[k][i] : NULL};

		assert_ok(ct_program_forward(c->program[k][i], &b));
	}
}

static void chain_backward(struct chain *c, int micro)
{
	for (int k = c->n - 1; k >= 0; k--) {
		const struct ct_backward_opts back = {.scale = 1.0f / (MICROS * ROWS),
						      .accumulate = micro > 0,
						      .dy = k + 1 < c->n ? c->dx[k + 1] : NULL,
						      .dx = k > 0 ? c->dx[k] : NULL};

		assert_ok(ct_program_backward(c->program[k][c->n > 1 ? micro % CONTEXTS : 0], &back));
	}
}

/* Runs all micro-batches, two of them at a time if there are several stages. */
static double chain_step(struct chain *c, const struct data *d)
{
	struct ct_metrics m;

	for (int i = 0; i < MICROS; i++) {
		chain_forward(c, d, i);
		if (c->n == 1)
			chain_backward(c, i);
		else if (i > 0)
			chain_backward(c, i - 1);
	}
	if (c->n > 1)
		chain_backward(c, MICROS - 1);
	assert_ok(ct_net_take_metrics(c->rig[c->n - 1].net, &m));
	assert_int_equal(m.count, MICROS * ROWS);
	return m.loss;
}

static void data_fill(struct data *d, const ct_graph *g)
{
	d->elems = shape_elems(ct_graph_node(g, 0)->shape);
	d->x = CT_NEW_ARRAY(float, MICROS *ROWS * d->elems);
	fill_floats(3, d->x, MICROS * ROWS * d->elems);
	fill_labels(4, d->labels, MICROS * ROWS, CLASSES);
}

static void assert_near(const char *engine, const char *name, const float *a, const float *b, size_t n)
{
	double most = 1e-3, worst = 0;

	for (size_t i = 0; i < n; i++) {
		most = fmax(most, fabs((double)a[i]));
		worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
	}
	if (!(worst <= 1e-5 * most))
		fail_msg("%s: %s differs by %g, its largest element is %g", engine, name, worst, most);
}

/* Every tensor of the stages, in order, must be that of the complete net. */
static void compare_gradients(const char *engine, struct chain *whole, struct chain *parts)
{
	const ct_graph *g = whole->rig[0].graph;
	int param = 0, buffer = 0;

	for (int k = 0; k < parts->n; k++) {
		ct_net *net = parts->rig[k].net;
		const ct_graph *part = ct_net_graph(net);
		const float *stats = on_host(ct_net_buffers(net));

		for (int i = 0; i < ct_graph_n_params(part); i++, param++) {
			const struct ct_param *p = ct_graph_param(part, i);
			float *a = export_param(whole->rig[0].net, on_host(ct_net_grads(whole->rig[0].net)), param);
			float *b = export_param(net, on_host(ct_net_grads(net)), i);

			assert_string_equal(p->name, ct_graph_param(g, param)->name);
			assert_near(engine, p->name, a, b, p->n);
			ct_free(a);
			ct_free(b);
		}
		for (int i = 0; i < ct_graph_n_buffers(part); i++, buffer++) {
			const struct ct_param *p = ct_graph_buffer(part, i);
			size_t at = 0;

			assert_string_equal(p->name, ct_graph_buffer(g, buffer)->name);
			for (int j = 0; j < buffer; j++)
				at += ct_graph_buffer(g, j)->n;
			assert_near(engine, p->name, on_host(ct_net_buffers(whole->rig[0].net)) + at, stats, p->n);
			stats += p->n;
		}
	}
	assert_int_equal(param, ct_graph_n_params(g));
	assert_int_equal(buffer, ct_graph_n_buffers(g));
}

/* Evaluates fewer rows than the programs have. */
static double evaluate(struct chain *c, const struct data *d)
{
	const float *x = d->x;
	struct ct_metrics m;

	for (int k = 0; k < c->n; k++) {
		const ct_graph *g = c->rig[k].graph;
		const struct ct_batch b = {
			.n = ROWS - 1, .x = x, .labels = d->labels, .y = k + 1 < c->n ? c->y[k][0] : NULL};
		ct_program *p;

		assert_ok(ct_program_create_for(c->rig[k].net, g, ROWS, CT_EVAL, &p));
		assert_ok(ct_program_forward(p, &b));
		ct_program_destroy(p);
		x = c->y[k][0];
	}
	assert_ok(ct_net_take_metrics(c->rig[c->n - 1].net, &m));
	assert_int_equal(m.count, ROWS - 1);
	return m.loss;
}

static void check_chain(const char *engine, const char *layers, struct ct_shape input, int n)
{
	ct_graph *g = graph_make(input, layers, CLASSES, CT_LOSS_CROSS_ENTROPY, 0);
	struct chain whole, parts;
	struct data d;

	data_fill(&d, g);
	chain_open(&whole, engine, g, 1);
	chain_open(&parts, engine, g, n);
	vary_norms(whole.rig[0].net);
	for (int k = 0; k < n; k++)
		copy_params(whole.rig[0].net, parts.rig[k].net);
	const double a = chain_step(&whole, &d), b = chain_step(&parts, &d);
	if (!(fabs(a - b) <= 1e-6 * fabs(a)))
		fail_msg("%s, %d stages: the loss is %.9g instead of %.9g", engine, n, b, a);
	compare_gradients(engine, &whole, &parts);
	assert_true(fabs(evaluate(&whole, &d) - evaluate(&parts, &d)) < 1e-5);
	chain_close(&parts);
	chain_close(&whole);
	ct_free(d.x);
	ct_graph_destroy(g);
}

static void check_engine(const char *engine)
{
	for (int n = 2; n <= 3; n++) {
		check_chain(engine, BLOCKS, (struct ct_shape){3, 8, 8}, n);
		check_chain(engine, PLAIN, (struct ct_shape){2, 5, 5}, n);
		check_chain(engine, CONVS, (struct ct_shape){3, 8, 8}, n);
	}
	check_chain(engine, PLAIN, (struct ct_shape){2, 5, 5}, 4);
}

static void test_chains(void **state)
{
	(void)state;
	each_engine(check_engine);
}

static ct_graph *resnet(const char *name)
{
	const struct ct_model_spec spec = {
		.name = name, .input = {3, 32, 32}, .n_outputs = 10, .loss = CT_LOSS_CROSS_ENTROPY, .small_stem = true};
	ct_graph *g;

	assert_ok(ct_model_build(&spec, &g));
	return g;
}

/* No cut is inside a block, and no stage has more FLOPs than the mean and one block. */
static void test_cuts(void **state)
{
	ct_graph *g = resnet("resnet18");
	const int most = ct_graph_max_stages(g);
	int first[16];

	(void)state;
	assert_int_equal(most, 10); /* the stem, 8 blocks, and the classifier */
	for (int n = 1; n <= most; n++) {
		double total = 0, largest = 0;

		assert_ok(ct_graph_cut(g, n, first));
		assert_int_equal(first[0], 1);
		assert_int_equal(first[n], ct_graph_n_nodes(g));
		for (int k = 0; k < n; k++) {
			double flops = 0;

			assert_true(first[k] < first[k + 1]);
			for (int id = first[k]; id < first[k + 1]; id++)
				flops += ct_graph_node_flops(g, id);
			largest = fmax(largest, flops);
			total += flops;
			if (k == 0)
				continue;
			const struct ct_node *node = ct_graph_node(g, first[k]);
			assert_true(node->block < 0 || node->block != ct_graph_node(g, first[k] - 1)->block);
		}
		assert_true(total == ct_graph_flops(g));
		assert_true(largest < total / n + total / 7);
	}
	assert_fails(ct_graph_cut(g, most + 1, first), CT_CONFIG, "10 places");
	ct_graph_destroy(g);
}

/* Two micro-batches in one context: the first one's backward pass must not use the second one's values. */
static void test_one_context(void **state)
{
	struct chain c;
	struct data d;
	ct_graph *g = graph_make((struct ct_shape){2, 5, 5}, PLAIN, CLASSES, CT_LOSS_CROSS_ENTROPY, 0);
	ct_program *second;

	(void)state;
	data_fill(&d, g);
	chain_open(&c, "ref", g, 2);
	assert_ok(ct_program_create_in(c.rig[0].net, c.rig[0].graph, ROWS, CT_TRAIN, 0, &second));
	const struct ct_batch b = {.n = ROWS, .x = d.x, .labels = d.labels, .y = c.y[0][0]};
	assert_ok(ct_program_forward(c.program[0][0], &b));
	assert_ok(ct_program_forward(second, &b));
	const struct ct_backward_opts with = {.scale = 1, .dy = c.dx[1]}, without = {.scale = 1};
	assert_fails(ct_program_backward(c.program[0][0], &with), CT_BUG, "another program");
	/* Without the gradient of the output. */
	assert_fails(ct_program_backward(second, &without), CT_BUG, "opts.dy must be set");
	ct_program_destroy(second);
	chain_close(&c);
	ct_free(d.x);
	ct_graph_destroy(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_chains),
					   cmocka_unit_test(test_one_context)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
