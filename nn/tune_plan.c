/* Times are those of the nodes of the graph, summed over the tasks of a pass, so that they include norms, reorders and
 * everything else that depends on the layout of a convolution's tensors. The least of a few repetitions counts for each
 * node, because other programs only make it slower. The backward pass of a node has two parts that the times do not
 * separate. Plans in which only the gradient of the input is direct give the difference. Inputs and weights are zero:
 * no kernel's time depends on them. */
#include "nn/tune_plan.h"

#include "base/mem.h"

enum { MAX_REPETITIONS = 3, LEAST_SHARE = 4 /* of the rows: 1/4 */, N_PASSES = 2 /* forward, backward */ };

/* The plans to measure. DATA: as SUGGESTED, but the gradient of the input is computed directly. MIXED: for each
 * convolution the fastest of the methods in the first three. NHWC_GEMM: as NHWC, but CT_CONV_GEMM computes the
 * gradients of the weights where it can. NHWC_MIXED: for each convolution the faster one of the two. */
enum candidate { SUGGESTED, DIRECT, DATA, MIXED, NHWC, NHWC_GEMM, NHWC_MIXED, N_CANDIDATES };

/* What is kept of a measurement. */
struct times {
	struct ct_net_plan plan;
	double *node[N_PASSES]; /* [nodes] seconds */
	double total;           /* 0: not measured */
};

struct tuner {
	ct_engine *engine;
	const ct_graph *graph;
	struct ct_net_opts opts;
	struct ct_plan_tuning *how;
	void *x;
	int32_t *labels;
	float *targets;
	struct times times[N_CANDIDATES];
	int repetitions;
	size_t done, total; /* plans */
};

static enum ct_status make_batch(struct tuner *t, int rows)
{
	const struct ct_shape in = ct_graph_node(t->graph, 0)->shape;
	const struct ct_node *loss = ct_graph_node(t->graph, ct_graph_loss(t->graph));
	const struct ct_shape out = ct_graph_node(t->graph, loss->in[0])->shape;
	const size_t n = (size_t)rows, elems = (size_t)in.c * (size_t)in.h * (size_t)in.w;

	CT_TRY_ALLOC(t->x = ct_calloc_aligned(64, n * elems * sizeof(float)));
	CT_TRY_ALLOC(t->labels = CT_NEW_ARRAY(int32_t, n));
	CT_TRY_ALLOC(t->targets = CT_NEW_ARRAY(float, n *(size_t)out.c *(size_t)out.h *(size_t)out.w));
	return CT_OK;
}

static enum ct_status step(const struct tuner *t, ct_program *p, int rows)
{
	const bool mse = ct_graph_node(t->graph, ct_graph_loss(t->graph))->op == CT_OP_MSE;
	const struct ct_batch batch = {
		.n = rows, .x = t->x, .labels = mse ? NULL : t->labels, .targets = mse ? t->targets : NULL};
	const struct ct_backward_opts back = {.scale = 1.0f / (float)rows};

	CT_TRY(ct_program_forward(p, &batch));
	return ct_program_backward(p, &back);
}

/* Keeps the least time of each node. */
static enum ct_status add_times(const struct tuner *t, ct_program *p, bool first, struct times *out)
{
	double s[N_PASSES];

	for (int id = 0; id < ct_graph_n_nodes(t->graph); id++) {
		CT_TRY(ct_program_times(p, id, &s[0], &s[1]));
		for (int pass = 0; pass < N_PASSES; pass++) {
			if (first || s[pass] < out->node[pass][id])
				out->node[pass][id] = s[pass];
		}
	}
	return CT_OK;
}

static enum ct_status measure_program(const struct tuner *t, ct_program *p, struct times *out)
{
	const size_t nodes = (size_t)ct_graph_n_nodes(t->graph);

	CT_TRY(step(t, p, t->opts.batch)); /* touches the memory */
	for (int i = 0; i < t->repetitions; i++) {
		ct_program_profile(p, true);
		CT_TRY(step(t, p, t->opts.batch));
		CT_TRY(add_times(t, p, i == 0, out));
	}
	out->total = 0;
	for (size_t id = 0; id < nodes; id++)
		out->total += out->node[0][id] + out->node[1][id];
	return CT_OK;
}

static enum ct_status measure_net(struct tuner *t, struct times *out)
{
	struct ct_net_opts opts = t->opts;
	ct_program *p;
	ct_net *net;

	opts.plan = &out->plan;
	CT_TRY(ct_net_create(t->engine, t->graph, &opts, &net));
	enum ct_status st = ct_program_create(net, opts.batch, CT_TRAIN, &p);
	if (st == CT_OK) {
		st = measure_program(t, p, out);
		ct_program_destroy(p);
	}
	ct_net_destroy(net);
	return st;
}

static enum ct_status measure(struct tuner *t, enum candidate c)
{
	struct times *out = &t->times[c];

	if (t->how->progress)
		t->how->progress(t->how->user, t->done, t->total);
	t->done++;
	for (int pass = 0; pass < N_PASSES; pass++) {
		ct_free(out->node[pass]);
		CT_TRY_ALLOC(out->node[pass] = CT_NEW_ARRAY(double, (size_t)ct_graph_n_nodes(t->graph)));
	}
	const enum ct_status st = measure_net(t, out);
	if ((st != CT_UNSUPPORTED && st != CT_NOMEM) || c == SUGGESTED)
		return st;
	ct_error_clear(); /* the library lacks an implementation, or there is too little memory: this plan is out */
	out->total = 0;
	return CT_OK;
}

/* Measures the suggested plan with few rows first, to find out how many rows, and how many repetitions with all of
 * them, there is time for. Fewer rows would give the convolutions too little work for their methods to be compared. */
static enum ct_status choose_size(struct tuner *t)
{
	const int rows = t->opts.batch, few = rows / LEAST_SHARE > 2 ? rows / LEAST_SHARE : rows < 2 ? rows : 2;

	t->repetitions = 1;
	t->opts.batch = few;
	CT_TRY(measure(t, SUGGESTED));
	/* Each repetition of each plan is a step, and so is the first one, which touches the memory. */
	const double steps = t->how->seconds / ((double)t->total * t->times[SUGGESTED].total * rows / few);
	if (steps >= 3)
		t->repetitions = steps > MAX_REPETITIONS + 1 ? MAX_REPETITIONS : (int)steps - 1;
	const int fit = steps >= 2 ? rows : (int)(steps / 2 * rows);
	t->opts.batch = fit > few ? fit : few;
	t->how->rows = t->opts.batch;
	t->done--;
	return measure(t, SUGGESTED);
}

/* Makes a pass of all convolutions of the plan direct. */
static enum ct_status make_direct(const struct ct_net_plan *from, enum ct_conv_pass pass, struct ct_net_plan *to)
{
	for (int i = 0; i < from->n_convs; i++)
		CT_TRY(ct_net_plan_set(to, from->convs[i].name, pass, CT_CONV_DIRECT));
	return CT_OK;
}

static int node_named(const ct_graph *g, const char *name)
{
	int id = 0;

	while (strcmp(ct_graph_node(g, id)->name, name) != 0)
		id++;
	return id;
}

/* Chooses the methods of a convolution of the suggested plan. */
static enum ct_status mix(struct tuner *t, const struct ct_plan_conv *conv, struct ct_net_plan *out)
{
	const int id = node_named(t->graph, conv->name);
	const double forward[2] = {t->times[SUGGESTED].node[0][id], t->times[DIRECT].node[0][id]};
	const double none = t->times[SUGGESTED].node[1][id], data = t->times[DATA].node[1][id],
		     both = t->times[DIRECT].node[1][id], weights = none + both - data;

	if (forward[1] < forward[0])
		CT_TRY(ct_net_plan_set(out, conv->name, CT_CONV_FORWARD, CT_CONV_DIRECT));
	const double least = none < data ? (none < weights ? none : weights) : (data < weights ? data : weights);
	if (both < least || (data == least && data < none))
		CT_TRY(ct_net_plan_set(out, conv->name, CT_CONV_BACKWARD_DATA, CT_CONV_DIRECT));
	if (both < least || (weights == least && weights < none))
		CT_TRY(ct_net_plan_set(out, conv->name, CT_CONV_BACKWARD_WEIGHTS, CT_CONV_DIRECT));
	return CT_OK;
}

static enum ct_status measure_methods(struct tuner *t)
{
	const struct ct_net_plan *suggested = &t->times[SUGGESTED].plan;

	for (int pass = 0; pass < CT_CONV_PASSES; pass++)
		CT_TRY(make_direct(suggested, (enum ct_conv_pass)pass, &t->times[DIRECT].plan));
	CT_TRY(make_direct(suggested, CT_CONV_BACKWARD_DATA, &t->times[DATA].plan));
	CT_TRY(measure(t, DIRECT));
	CT_TRY(measure(t, DATA));
	if (t->times[DIRECT].total <= 0 || t->times[DATA].total <= 0)
		return CT_OK;
	for (int i = 0; i < suggested->n_convs; i++)
		CT_TRY(mix(t, &suggested->convs[i], &t->times[MIXED].plan));
	return measure(t, MIXED);
}

/* Adds CT_CONV_GEMM to a plan in NHWC. */
static enum ct_status use_gemm(const struct tuner *t, struct ct_net_plan *out)
{
	for (int id = 0; id < ct_graph_n_nodes(t->graph); id++) {
		if (ct_graph_trains(t->graph, id) &&
		    ct_engine_can_compute(t->engine, t->graph, id, &t->opts, CT_LAYOUT_NHWC, CT_CONV_BACKWARD_WEIGHTS,
					  CT_CONV_GEMM))
			CT_TRY(ct_net_plan_set(out, ct_graph_node(t->graph, id)->name, CT_CONV_BACKWARD_WEIGHTS,
					       CT_CONV_GEMM));
	}
	return CT_OK;
}

static enum ct_status measure_gemm(struct tuner *t)
{
	const struct times *nhwc = &t->times[NHWC], *gemm = &t->times[NHWC_GEMM];

	CT_TRY(measure(t, NHWC_GEMM));
	if (nhwc->total <= 0 || gemm->total <= 0)
		return CT_OK;
	for (int i = 0; i < gemm->plan.n_convs; i++) {
		const int id = node_named(t->graph, gemm->plan.convs[i].name);

		if (gemm->node[1][id] < nhwc->node[1][id])
			CT_TRY(ct_net_plan_set(&t->times[NHWC_MIXED].plan, gemm->plan.convs[i].name,
					       CT_CONV_BACKWARD_WEIGHTS, CT_CONV_GEMM));
	}
	return measure(t, NHWC_MIXED);
}

/* Makes the plans that do not depend on measurements. */
static enum ct_status make_plans(struct tuner *t)
{
	CT_TRY(ct_engine_plan_in(t->engine, CT_LAYOUT_BLOCKED, t->graph, &t->opts, &t->times[SUGGESTED].plan));
	CT_TRY(ct_engine_plan_in(t->engine, CT_LAYOUT_NHWC, t->graph, &t->opts, &t->times[NHWC].plan));
	for (int i = DIRECT; i < N_CANDIDATES; i++) {
		if (i != NHWC)
			CT_TRY(ct_net_plan_copy(&t->times[i < NHWC ? SUGGESTED : NHWC].plan, &t->times[i].plan));
	}
	CT_TRY(use_gemm(t, &t->times[NHWC_GEMM].plan));
	t->total = 2 + (t->times[SUGGESTED].plan.n_convs > 0 ? 3 : 0) + (t->times[NHWC_GEMM].plan.n_convs > 0 ? 2 : 0);
	return CT_OK;
}

static enum ct_status tune(struct tuner *t, struct ct_net_plan *out)
{
	enum candidate best = SUGGESTED;

	t->how->rows = t->opts.batch;
	CT_TRY(make_batch(t, t->opts.batch));
	CT_TRY(make_plans(t));
	CT_TRY(choose_size(t));
	if (t->times[SUGGESTED].plan.n_convs > 0)
		CT_TRY(measure_methods(t));
	CT_TRY(measure(t, NHWC));
	if (t->times[NHWC_GEMM].plan.n_convs > 0)
		CT_TRY(measure_gemm(t));
	if (t->how->progress)
		t->how->progress(t->how->user, t->total, t->total);
	for (int i = 0; i < N_CANDIDATES; i++) {
		if (t->times[i].total > 0 && t->times[i].total < t->times[best].total)
			best = (enum candidate)i;
	}
	t->how->suggested_s = t->times[SUGGESTED].total;
	t->how->chosen_s = t->times[best].total;
	return ct_net_plan_copy(&t->times[best].plan, out);
}

enum ct_status ct_plan_tune(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts, struct ct_plan_tuning *how,
			    struct ct_net_plan *out)
{
	struct tuner t = {.engine = e, .graph = g, .opts = *opts, .how = how};

	t.opts.tuning = NULL;
	t.opts.sync = NULL;
	t.opts.train = true;
	const enum ct_status st = tune(&t, out);
	for (int i = 0; i < N_CANDIDATES; i++) {
		ct_net_plan_release(&t.times[i].plan);
		for (int pass = 0; pass < N_PASSES; pass++)
			ct_free(t.times[i].node[pass]);
	}
	ct_free(t.targets);
	ct_free(t.labels);
	ct_free_aligned(t.x);
	return st;
}
