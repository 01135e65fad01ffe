#include "tests/nn/stage_chain.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

/* Returns a copy of the elements of an arena, which the caller frees. */
static float *copy_arena(ct_net *net, ct_arena *a)
{
	float *copy = CT_NEW_ARRAY(float, ct_arena_elems(a) + 1);
	struct ct_mirror m;

	assert_non_null(copy);
	assert_ok(ct_mirror_open(a, CT_MIRROR_READ, ct_engine_stream(ct_net_engine(net)), &m));
	memcpy(copy, m.data, ct_arena_elems(a) * sizeof(float));
	assert_ok(ct_mirror_close(&m));
	return copy;
}

static void *host(ct_device *d, size_t bytes)
{
	void *p;

	assert_ok(ct_device_host_alloc(d, bytes, &p));
	return p;
}

static struct ct_net_opts stage_opts(const struct chain_engine *e, int k, int n)
{
	return (struct ct_net_opts){.batch = CHAIN_ROWS,
				    .input = CT_INPUT_F32_NCHW,
				    .seed = 7,
				    .train = true,
				    .contexts = n > 1 ? CHAIN_CONTEXTS : 1,
				    .input_gradient = k > 0,
				    .precision = e->precision};
}

/* vary_norms depends on the number of the parameter, which is another one in a stage. */
static void copy_params(ct_net *from, ct_net *to)
{
	float *all = copy_arena(from, ct_net_params(from));
	struct ct_mirror m;

	assert_ok(ct_mirror_open(ct_net_params(to), CT_MIRROR_WRITE, ct_engine_stream(ct_net_engine(to)), &m));
	for (int i = 0; i < ct_graph_n_params(ct_net_graph(to)); i++) {
		const int at = param_named(ct_net_graph(from), ct_graph_param(ct_net_graph(to), i)->name);
		float *x = export_param(from, all, at);

		assert_ok(ct_net_import(to, &m, i, x));
		ct_free(x);
	}
	assert_ok(ct_mirror_close(&m));
	ct_free(all);
}

static void open_rig(struct rig *r, const struct chain_engine *e, ct_graph *g, const struct ct_net_opts *opts)
{
	*r = (struct rig){.graph = g};
	e->open(e->name, &r->device, &r->engine);
	assert_ok(ct_net_create(r->engine, g, opts, &r->net));
	assert_ok(ct_net_init(r->net, CT_INIT_PYTORCH, 1));
	if (ct_program_create(r->net, opts->batch, CT_TRAIN, &r->program) < 0)
		fail_msg("%s: %s", e->name, ct_error_message());
}

static float *host_rows(ct_device *d, const ct_graph *g, int node)
{
	return host(d, CHAIN_ROWS * shape_elems(ct_graph_node(g, node)->shape) * sizeof(float));
}

void chain_open(struct chain *c, const struct chain_engine *e, const ct_graph *whole, int n)
{
	*c = (struct chain){.n = n};
	assert_ok(ct_graph_cut(whole, n, c->first));
	for (int k = 0; k < n; k++) {
		const struct ct_net_opts opts = stage_opts(e, k, n);
		ct_graph *g;

		assert_ok(ct_graph_stage(whole, c->first[k], c->first[k + 1], &g));
		open_rig(&c->rig[k], e, g, &opts);
		c->args[k] = host(c->rig[k].device, sizeof(*c->args[k]));
		*c->args[k] = (struct ct_step_args){.step = 11};
		assert_ok(ct_net_post_step_args(c->rig[k].net, c->args[k]));
		c->program[k][0] = c->rig[k].program;
		for (int i = 1; i < opts.contexts; i++)
			assert_ok(ct_program_create_in(c->rig[k].net, g, CHAIN_ROWS, CT_TRAIN, i, &c->program[k][i]));
		for (int i = 0; i < CHAIN_CONTEXTS; i++)
			c->y[k][i] = host_rows(c->rig[k].device, g, ct_graph_loss(g));
		c->dx[k] = host_rows(c->rig[k].device, g, 0);
	}
}

void chain_close(struct chain *c)
{
	for (int k = 0; k < c->n; k++) {
		for (int i = 1; i < CHAIN_CONTEXTS; i++)
			ct_program_destroy(c->program[k][i]);
		for (int i = 0; i < CHAIN_CONTEXTS; i++)
			ct_device_host_free(c->rig[k].device, c->y[k][i]);
		ct_device_host_free(c->rig[k].device, c->dx[k]);
		ct_device_host_free(c->rig[k].device, c->args[k]);
		rig_close(&c->rig[k]);
	}
}

/* What a stage has computed is read by another one. */
static void wait_for(const struct chain *c, int stage)
{
	assert_ok(ct_stream_sync(ct_engine_stream(c->rig[stage].engine), CT_FOREVER));
}

static void chain_forward(struct chain *c, const struct chain_data *d, int micro)
{
	for (int k = 0; k < c->n; k++) {
		const int i = c->n > 1 ? micro % CHAIN_CONTEXTS : 0;
		const struct ct_batch b = {.n = CHAIN_ROWS,
					   .x = k > 0 ? c->y[k - 1][i] : d->x + (size_t)micro * CHAIN_ROWS * d->elems,
					   .labels = d->labels + micro * CHAIN_ROWS,
					   .first = (uint64_t)micro * CHAIN_ROWS,
					   .y = k + 1 < c->n ? c->y[k][i] : NULL};

		assert_ok(ct_program_forward(c->program[k][i], &b));
		wait_for(c, k);
	}
}

static void chain_backward(struct chain *c, int micro)
{
	for (int k = c->n - 1; k >= 0; k--) {
		const struct ct_backward_opts back = {.scale = 1.0f / (CHAIN_MICROS * CHAIN_ROWS),
						      .accumulate = micro > 0,
						      .dy = k + 1 < c->n ? c->dx[k + 1] : NULL,
						      .dx = k > 0 ? c->dx[k] : NULL};

		assert_ok(ct_program_backward(c->program[k][c->n > 1 ? micro % CHAIN_CONTEXTS : 0], &back));
		wait_for(c, k);
	}
}

/* Runs all micro-batches, two of them at a time if there are several stages. */
static double chain_step(struct chain *c, const struct chain_data *d)
{
	struct ct_metrics m;

	for (int i = 0; i < CHAIN_MICROS; i++) {
		chain_forward(c, d, i);
		if (c->n == 1)
			chain_backward(c, i);
		else if (i > 0)
			chain_backward(c, i - 1);
	}
	if (c->n > 1)
		chain_backward(c, CHAIN_MICROS - 1);
	assert_ok(ct_net_take_metrics(c->rig[c->n - 1].net, &m));
	assert_int_equal(m.count, CHAIN_MICROS * CHAIN_ROWS);
	return m.loss;
}

void chain_data_fill(struct chain_data *d, ct_device *device, const ct_graph *g)
{
	d->elems = shape_elems(ct_graph_node(g, 0)->shape);
	d->x = host(device, CHAIN_MICROS * CHAIN_ROWS * d->elems * sizeof(float));
	d->labels = host(device, CHAIN_MICROS * CHAIN_ROWS * sizeof(*d->labels));
	fill_floats(3, d->x, CHAIN_MICROS * CHAIN_ROWS * d->elems);
	fill_labels(4, d->labels, CHAIN_MICROS * CHAIN_ROWS, CHAIN_CLASSES);
}

void chain_data_release(struct chain_data *d, ct_device *device)
{
	ct_device_host_free(device, d->x);
	ct_device_host_free(device, d->labels);
}

static void assert_near(const struct chain_engine *e, const char *name, const float *a, const float *b, size_t n)
{
	double most = 1e-3, worst = 0;

	for (size_t i = 0; i < n; i++) {
		most = fmax(most, fabs((double)a[i]));
		worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
	}
	if (!(worst <= e->gradients * most))
		fail_msg("%s: %s differs by %g, its largest element is %g", e->name, name, worst, most);
}

/* Every tensor of the stages, in order, must be that of the complete net. */
static void compare_gradients(const struct chain_engine *e, struct chain *whole, struct chain *parts)
{
	ct_net *net = whole->rig[0].net;
	const ct_graph *g = whole->rig[0].graph;
	float *grads = copy_arena(net, ct_net_grads(net)), *stats = copy_arena(net, ct_net_buffers(net));
	const float *stat = stats;
	int param = 0, buffer = 0;

	for (int k = 0; k < parts->n; k++) {
		ct_net *part_net = parts->rig[k].net;
		const ct_graph *part = ct_net_graph(part_net);
		float *part_grads = copy_arena(part_net, ct_net_grads(part_net));
		float *part_stats = copy_arena(part_net, ct_net_buffers(part_net));
		const float *part_stat = part_stats;

		for (int i = 0; i < ct_graph_n_params(part); i++, param++) {
			const struct ct_param *p = ct_graph_param(part, i);
			float *a = export_param(net, grads, param), *b = export_param(part_net, part_grads, i);

			assert_string_equal(p->name, ct_graph_param(g, param)->name);
			assert_near(e, p->name, a, b, p->n);
			ct_free(a);
			ct_free(b);
		}
		for (int i = 0; i < ct_graph_n_buffers(part); i++, buffer++) {
			const struct ct_param *p = ct_graph_buffer(part, i);

			assert_string_equal(p->name, ct_graph_buffer(g, buffer)->name);
			assert_near(e, p->name, stat, part_stat, p->n);
			stat += p->n;
			part_stat += p->n;
		}
		ct_free(part_grads);
		ct_free(part_stats);
	}
	assert_int_equal(param, ct_graph_n_params(g));
	assert_int_equal(buffer, ct_graph_n_buffers(g));
	ct_free(grads);
	ct_free(stats);
}

/* Evaluates fewer rows than the programs have. */
static double evaluate(struct chain *c, const struct chain_data *d)
{
	const float *x = d->x;
	struct ct_metrics m;

	for (int k = 0; k < c->n; k++) {
		const ct_graph *g = c->rig[k].graph;
		const struct ct_batch b = {
			.n = CHAIN_ROWS - 1, .x = x, .labels = d->labels, .y = k + 1 < c->n ? c->y[k][0] : NULL};
		ct_program *p;

		assert_ok(ct_program_create_for(c->rig[k].net, g, CHAIN_ROWS, CT_EVAL, &p));
		assert_ok(ct_program_forward(p, &b));
		wait_for(c, k);
		ct_program_destroy(p);
		x = c->y[k][0];
	}
	assert_ok(ct_net_take_metrics(c->rig[c->n - 1].net, &m));
	assert_int_equal(m.count, CHAIN_ROWS - 1);
	return m.loss;
}

void check_chain(const struct chain_engine *e, const char *layers, struct ct_shape input, int n)
{
	ct_graph *g = graph_make(input, layers, CHAIN_CLASSES, CT_LOSS_CROSS_ENTROPY, 0);
	struct chain whole, parts;
	struct chain_data d;

	chain_open(&whole, e, g, 1);
	chain_open(&parts, e, g, n);
	chain_data_fill(&d, whole.rig[0].device, g);
	vary_norms(whole.rig[0].net);
	for (int k = 0; k < n; k++)
		copy_params(whole.rig[0].net, parts.rig[k].net);
	const double a = chain_step(&whole, &d), b = chain_step(&parts, &d);
	if (!(fabs(a - b) <= e->loss * fabs(a)))
		fail_msg("%s, %d stages: the loss is %.9g instead of %.9g", e->name, n, b, a);
	compare_gradients(e, &whole, &parts);
	assert_true(fabs(evaluate(&whole, &d) - evaluate(&parts, &d)) < e->evaluation);
	chain_data_release(&d, whole.rig[0].device);
	chain_close(&parts);
	chain_close(&whole);
	ct_graph_destroy(g);
}
