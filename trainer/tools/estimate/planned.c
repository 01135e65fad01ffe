/* The memory of a run is not computed by formulas: the net and its programs are compiled as for training, for the
 * largest images of all epochs, and then not run. If this host has too little memory, activations and workspace are
 * extrapolated from two smaller batches, since they grow linearly with the batch; the smaller ones are tried in
 * decreasing size. With a pipeline, one stage at a time is compiled. Objects are created in the order of their
 * dependencies, and ct_planned_release is called even if only some of them exist. */
#include "trainer/tools/estimate/planned.h"

#include <math.h>

#include "base/mem.h"
#include "trainer/plan/devices.h"
#include "trainer/plan/net_plans.h"
#include "trainer/plan/ready.h"
#include "trainer/run/pipeline/pipeline.h"
#include "trainer/run/session/session_data.h"

/* Returns the largest input size of all epochs, which determines the memory. */
static struct ct_shape largest_input(const struct ct_run_plan *r)
{
	struct ct_shape most = r->input;

	for (int i = 0; i < r->n_sizes; i++) {
		if (r->sizes[i].h * r->sizes[i].w > most.h * most.w) {
			most.h = r->sizes[i].h;
			most.w = r->sizes[i].w;
		}
	}
	return most;
}

static void release_net(struct planned *p)
{
	ct_program_destroy(p->eval);
	for (size_t i = 0; i < CT_ARRAY_LEN(p->more); i++) {
		ct_program_destroy(p->more[i]);
		p->more[i] = NULL;
	}
	ct_program_destroy(p->program);
	ct_net_destroy(p->net);
	p->eval = p->program = NULL;
	p->net = NULL;
}

/* Compiles the net and its programs for these batch sizes. Replaces those of an earlier call. */
static enum ct_status compile(struct planned *p, uint32_t rows, uint32_t eval_rows)
{
	const bool whole = !p->part;
	const ct_graph *g = whole ? p->size_graph : p->size_part;

	release_net(p);
	CT_TRY(ct_net_create(p->engine, whole ? p->graph : p->part, &p->plan.net, &p->net));
	CT_TRY(ct_program_create_for(p->net, g, (int)rows, CT_TRAIN, &p->program));
	for (int i = 1; i < p->plan.net.contexts; i++)
		CT_TRY(ct_program_create_in(p->net, g, (int)rows, CT_TRAIN, i, &p->more[i]));
	if (p->val_info)
		CT_TRY(ct_program_create_for(p->net, whole ? p->val_graph : p->val_part, (int)eval_rows, CT_EVAL,
					     &p->eval));
	ct_net_memory(p->net, &p->memory);
	return CT_OK;
}

/* Extrapolates linearly from a and b, for batches of n and 2 n, to a batch of `factor` * n. */
static size_t extend(size_t a, size_t b, double factor)
{
	double v = (double)a + ((double)b - (double)a) * (factor - 1);

	return v<(double)a ? a : v>(double)(SIZE_MAX / 4) ? SIZE_MAX / 4 : (size_t)v;
}

/* Activations and workspace grow linearly with the batch size. If a batch does not fit into the memory of this host,
 * they are extrapolated from batches of n and 2 n samples, where n applies to the larger of the training and evaluation
 * batches. */
static enum ct_status estimate_memory(struct planned *p, uint32_t n)
{
	const uint32_t rows = p->plan.micro_rows, eval_rows = p->val_info ? p->plan.eval_rows : 1;
	const uint32_t most = rows > eval_rows ? rows : eval_rows, cut = most > n ? most / n : 1;
	const uint32_t r = rows > cut ? rows / cut : 1, e = eval_rows > cut ? eval_rows / cut : 1;
	const double factor = fmax((double)rows / r, (double)eval_rows / e);
	struct ct_net_memory one;

	CT_TRY(compile(p, r, e));
	one = p->memory;
	CT_TRY(compile(p, 2 * r, 2 * e));
	p->memory.activations = extend(one.activations, p->memory.activations, factor);
	p->memory.activations_unplanned = extend(one.activations_unplanned, p->memory.activations_unplanned, factor);
	p->memory.workspace = extend(one.workspace, p->memory.workspace, factor);
	p->estimated = true;
	return CT_OK;
}

static enum ct_status find_memory(struct planned *p)
{
	enum ct_status st = compile(p, p->plan.micro_rows, p->plan.eval_rows);

	for (uint32_t n = 64; st == CT_NOMEM && n > 0; n /= 4) {
		ct_error_clear();
		st = estimate_memory(p, n);
	}
	return st;
}

static void release_parts(struct planned *p)
{
	release_net(p);
	ct_free(p->ready);
	ct_free(p->buckets);
	ct_graph_destroy(p->part);
	ct_graph_destroy(p->size_part);
	ct_graph_destroy(p->val_part);
	p->ready = NULL;
	p->buckets = NULL;
	p->part = p->size_part = p->val_part = NULL;
}

enum ct_status ct_planned_compile_stage(const struct ct_config *c, struct planned *p, int k)
{
	const int first = p->first[k], end = p->first[k + 1];

	release_parts(p);
	if (p->stages.n > 1) {
		CT_TRY(ct_graph_stage(p->graph, first, end, &p->part));
		CT_TRY(ct_graph_stage(p->size_graph, first, end, &p->size_part));
		if (p->val_info)
			CT_TRY(ct_graph_stage(p->val_graph, first, end, &p->val_part));
		p->stages.stage = k;
		ct_pipeline_net_opts(&p->stages, p->plan.accumulate, &p->plan.net);
	}
	CT_TRY(find_memory(p));
	CT_TRY(ct_plan_buckets(c, p->net, ct_plan_bucket_bytes(c), &p->buckets, &p->n_buckets));
	return ct_plan_ready_by_flops(p->net, &p->ready);
}

/* Opens the data, or takes what the option --assume says about them. */
static enum ct_status find_data(const struct ct_config *c, const struct ct_assumed *assumed, struct planned *p)
{
	struct ct_data_opening data;

	if (assumed->train > 0) {
		CT_TRY(ct_assume_info(assumed, c, true, &p->assumed[0]));
		p->train_info = &p->assumed[0];
		if (assumed->val == 0 || !ct_plan_has_val(c))
			return CT_OK;
		CT_TRY(ct_assume_info(assumed, c, false, &p->assumed[1]));
		p->val_info = &p->assumed[1];
		return CT_OK;
	}
	CT_TRY(ct_data_opening_start(&data, c, false, false));
	CT_TRY(ct_data_opening_finish(&data, &p->train, &p->val));
	p->train_info = ct_dataset_info(p->train);
	p->val_info = p->val ? ct_dataset_info(p->val) : NULL;
	return CT_OK;
}

static enum ct_status find_net_plan(const struct ct_config *c, struct planned *p)
{
	if (!ct_engine_has_plans(p->engine))
		return CT_OK;
	p->plan.net.plan = &p->net_plan;
	return c->train.plan[0] ? ct_plan_read_net(c, p->engine, p->graph, &p->plan.net, &p->net_plan)
				: ct_engine_plan(p->engine, p->graph, &p->plan.net, &p->net_plan);
}

enum ct_status ct_planned_make(const struct ct_config *c, const struct ct_assumed *assumed, struct planned *p)
{
	CT_TRY(ct_plan_ranks(c, &p->ranks));
	CT_TRY(ct_plan_stages(c, p->ranks.world, p->ranks.first, &p->stages));
	CT_TRY(find_data(c, assumed, p));
	const struct ct_dataset_info *ti = p->train_info;
	CT_TRY(ct_run_plan_make(c, (uint32_t)p->stages.n_replicas, ti, p->val_info, &p->plan));
	p->plan.net.autotune = CT_AUTOTUNE_OFF;
	CT_TRY(ct_plan_graph(c, ti, p->plan.input, &p->graph));
	CT_TRY(ct_plan_check_sizes(c, ti, &p->plan, p->graph));
	CT_TRY(ct_plan_device_open(c, 0, &p->device));
	ct_run_plan_reduce(c, p->device, &p->plan);
	CT_TRY(ct_engine_open(c->train.engine, p->device, ct_plan_threads(c, p->ranks.local), &p->engine));
	CT_TRY(ct_plan_check_precision(c, p->engine));
	CT_TRY(find_net_plan(c, p));
	CT_TRY(ct_plan_graph(c, ti, largest_input(&p->plan), &p->size_graph));
	if (p->val_info)
		CT_TRY(ct_plan_graph(c, ti, p->plan.val_input, &p->val_graph));
	if (p->stages.n > 1)
		CT_TRY(ct_graph_cut(p->graph, p->stages.n, p->first));
	return ct_planned_compile_stage(c, p, 0);
}

void ct_planned_release(struct planned *p)
{
	release_parts(p);
	ct_net_plan_release(&p->net_plan);
	ct_engine_close(p->engine);
	ct_device_close(p->device);
	ct_graph_destroy(p->val_graph);
	ct_graph_destroy(p->size_graph);
	ct_graph_destroy(p->graph);
	ct_dataset_close(p->val);
	ct_dataset_close(p->train);
}
