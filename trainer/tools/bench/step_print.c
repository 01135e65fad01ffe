/* Times and FLOPs of the nodes are divided by the number of profiled steps. FLOPs are those of the batch of one rank,
 * and only of nodes that are counted; others have no rate. The table of kinds adds up nodes with the same operation,
 * and omits kinds whose time is 0, because they are computed together with others. */
#include "trainer/tools/bench/step_print.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "trainer/plan/ready.h"
#include "trainer/tools/cli/print.h"
#include "trainer/tools/cli/text_table.h"

enum { TOP = 10 };

/* The times and FLOPs of a node, or of all nodes with the same operation, in a step of one rank. */
struct layer {
	const char *name;
	enum ct_op op;
	double forward_ms, backward_ms;
	double forward_flop, backward_flop; /* 0: not counted */
};

/* Gets the layers in the order of the graph, except for the input. *out [*n] is owned by the caller. */
static enum ct_status read_layers(const struct ct_session *s, const struct ct_step_bench *b, struct layer **out, int *n)
{
	const double steps = (double)b->profiled, rows = s->plan.per_rank;
	double *backward = NULL, f = 0, w = 0;
	struct layer *l;

	*n = ct_graph_n_nodes(s->model.graph) - 1;
	CT_TRY(ct_plan_backward_flops(s->model.graph, &backward));
	*out = l = CT_NEW_ARRAY(struct layer, (size_t)*n);
	enum ct_status st = l ? CT_OK : CT_NOMEM;
	for (int i = 0; i < *n && st == CT_OK; i++) {
		const struct ct_node *node = ct_graph_node(s->model.graph, i + 1);

		st = ct_program_times(s->model.full, i + 1, &f, &w);
		l[i] = (struct layer){.name = node->name,
				      .op = node->op,
				      .forward_ms = f * 1e3 / steps,
				      .backward_ms = w * 1e3 / steps};
		if (backward[i + 1] > 0) {
			l[i].forward_flop = ct_graph_node_flops(s->model.graph, i + 1) * rows;
			l[i].backward_flop = backward[i + 1] * rows;
		}
	}
	ct_free(backward);
	return st;
}

static ct_json *layer_json(const struct layer *l)
{
	ct_json *o = ct_json_object();

	ct_json_set_str(o, "name", l->name);
	ct_json_set_str(o, "op", ct_op_name(l->op));
	ct_json_set_f64(o, "forward_ms", l->forward_ms);
	ct_json_set_f64(o, "backward_ms", l->backward_ms);
	if (l->backward_flop > 0) {
		ct_json_set_f64(o, "flops", l->forward_flop);
		ct_json_set_f64(o, "backward_flops", l->backward_flop);
		/* If the time is 0, the rate is not finite and is written as null. */
		ct_json_set_f64(o, "forward_gflops_per_sec", l->forward_flop / l->forward_ms * 1e-6);
		ct_json_set_f64(o, "backward_gflops_per_sec", l->backward_flop / l->backward_ms * 1e-6);
	}
	return o;
}

static double step_flop(const struct ct_session *s)
{
	return 3 * ct_graph_flops(s->model.graph) * s->plan.per_rank;
}

enum ct_status ct_step_print_json(struct ct_session *s, const struct ct_step_bench *b)
{
	struct layer *l = NULL;
	int n;
	enum ct_status st = read_layers(s, b, &l, &n);
	ct_json *j = ct_json_object(), *nodes = ct_json_array();
	struct ct_device_info device;

	if (st == CT_OK)
		st = ct_device_info(s->device, &device);
	ct_json_set_str(j, "bench", "step");
	ct_json_set_str(j, "device", st == CT_OK ? device.name : "");
	ct_json_set_str(j, "model", ct_config_choice(s->cfg, "model.name"));
	ct_json_set_str(j, "engine", ct_engine_version(s->engine));
	ct_json_set_i64(j, "world_size", s->world.id.world);
	ct_json_set_i64(j, "batch", s->plan.per_rank);
	ct_json_set_i64(j, "steps", b->steps);
	ct_json_set_f64(j, "step_ms_median", b->step_ms);
	ct_json_set_f64(j, "step_ms_min", b->step_min_ms);
	ct_json_set_f64(j, "images_per_sec", s->plan.per_rank * s->world.id.world / b->step_ms * 1e3);
	ct_json_set_f64(j, "gflops_per_sec", step_flop(s) / b->step_ms * 1e-6);
	ct_json_set_f64(j, "data_ms", b->data_ms);
	ct_json_set_f64(j, "forward_ms", b->forward_ms);
	ct_json_set_f64(j, "backward_ms", b->backward_ms);
	ct_json_set_f64(j, "exposed_comm_ms", b->exposed_ms);
	ct_json_set_f64(j, "optim_ms", b->optim_ms);
	ct_json_set_i64(j, "allocations", (int64_t)b->allocations);
	ct_json_set_i64(j, "loader_allocations", (int64_t)b->loader_allocations);
	for (int i = 0; i < n && st == CT_OK; i++)
		ct_json_push(nodes, layer_json(&l[i]));
	ct_json_set(j, "nodes", nodes);
	ct_free(l);
	if (st == CT_OK)
		return ct_print_json(j, false);
	ct_json_destroy(j);
	return st;
}

/* ---- the table */

static double total_ms(const struct layer *l)
{
	return l->forward_ms + l->backward_ms;
}

static int by_time(const void *a, const void *b)
{
	const double x = total_ms(a), y = total_ms(b);

	return (x < y) - (x > y);
}

static void add_row(struct ct_text_table *t, const struct layer *l, double all_ms)
{
	const double flop = l->forward_flop + l->backward_flop, ms = total_ms(l);

	ct_text_table_add(t, NULL, "%s", l->name);
	ct_text_table_add(t, NULL, "%.3f", l->forward_ms);
	ct_text_table_add(t, NULL, "%.3f", l->backward_ms);
	ct_text_table_add(t, NULL, "%.1f %%", all_ms > 0 ? 100 * ms / all_ms : 0);
	ct_text_table_add(t, NULL, flop > 0 && ms > 0 ? "%.0f" : "", flop / ms * 1e-6);
}

/* Adds up the layers with the same operation. Returns the number of kinds. */
static int sum_kinds(const struct layer *l, int n, struct layer *kinds)
{
	int n_kinds = 0, k;

	for (int i = 0; i < n; i++) {
		for (k = 0; k < n_kinds && kinds[k].op != l[i].op; k++)
			;
		if (k == n_kinds)
			kinds[n_kinds++] = (struct layer){.name = ct_op_name(l[i].op), .op = l[i].op};
		kinds[k].forward_ms += l[i].forward_ms;
		kinds[k].backward_ms += l[i].backward_ms;
		kinds[k].forward_flop += l[i].forward_flop;
		kinds[k].backward_flop += l[i].backward_flop;
	}
	return n_kinds;
}

static enum ct_status add_table(const char *title, const struct layer *l, int n, int shown, double all_ms,
				struct ct_str *out)
{
	struct ct_text_table t = {.n_columns = 5, .right = 0x1e};
	static const char *const head[] = {"forward ms", "backward ms", "share", "GFLOP/s"};
	struct layer rest = {0};
	char name[32];

	ct_text_table_add(&t, NULL, "%s", title);
	for (size_t i = 0; i < CT_ARRAY_LEN(head); i++)
		ct_text_table_add(&t, NULL, "%s", head[i]);
	for (int i = 0; i < n && i < shown; i++)
		add_row(&t, &l[i], all_ms);
	for (int i = shown; i < n; i++) {
		rest.forward_ms += l[i].forward_ms;
		rest.backward_ms += l[i].backward_ms;
	}
	snprintf(name, sizeof(name), "%d others", n - shown);
	rest.name = name;
	if (n > shown)
		add_row(&t, &rest, all_ms);
	ct_str_add(out, "\n");
	const enum ct_status st = ct_text_table_format(&t, 0, false, out);
	ct_text_table_release(&t);
	return st;
}

static void add_head(const struct ct_session *s, const struct ct_step_bench *b, struct ct_str *out)
{
	const int world = s->world.id.world;

	ct_str_addf(out, "%s on %s, batch %u per rank, %d rank%s\n", ct_config_choice(s->cfg, "model.name"),
		    ct_engine_version(s->engine), s->plan.per_rank, world, ct_plural(world));
	ct_str_addf(out, "step %.3f ms (median of %lld, minimum %.3f), %.0f images/s, %.0f GFLOP/s per rank\n",
		    b->step_ms, (long long)b->steps, b->step_min_ms, s->plan.per_rank * world / b->step_ms * 1e3,
		    step_flop(s) / b->step_ms * 1e-6);
	ct_str_addf(out, "  data %.3f ms, forward %.3f, backward %.3f, ", b->data_ms, b->forward_ms, b->backward_ms);
	if (world > 1)
		ct_str_addf(out, "wait for communication %.3f, ", b->exposed_ms);
	ct_str_addf(out, "update %.3f\n", b->optim_ms);
}

enum ct_status ct_step_print_table(struct ct_session *s, const struct ct_step_bench *b, const char *trace)
{
	struct ct_str out = {0};
	struct layer *l = NULL, *kinds = NULL;
	double all_ms = 0;
	int n, n_kinds;
	enum ct_status st = read_layers(s, b, &l, &n);

	if (st == CT_OK && !(kinds = CT_NEW_ARRAY(struct layer, (size_t)n)))
		st = CT_NOMEM;
	if (st < 0)
		goto done;
	for (int i = 0; i < n; i++)
		all_ms += total_ms(&l[i]);
	n_kinds = sum_kinds(l, n, kinds);
	qsort(l, (size_t)n, sizeof(*l), by_time);
	qsort(kinds, (size_t)n_kinds, sizeof(*kinds), by_time);
	while (n_kinds > 1 && total_ms(&kinds[n_kinds - 1]) <= 0) /* computed together with others */
		n_kinds--;
	add_head(s, b, &out);
	st = add_table("layer", l, n, TOP, all_ms, &out);
	if (st == CT_OK)
		st = add_table("kind", kinds, n_kinds, n_kinds, all_ms, &out);
	if (trace)
		ct_str_addf(&out, "\n%s: the first %d profiled steps, for ui.perfetto.dev or chrome://tracing\n", trace,
			    CT__TRACE_STEPS);
done:
	ct_free(kinds);
	ct_free(l);
	if (st == CT_OK)
		return ct_print_text(&out);
	ct_str_release(&out);
	return st;
}
