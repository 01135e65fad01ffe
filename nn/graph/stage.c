/* Splits a graph into the stages of a pipeline. The model is first divided into parts as small as possible. A part
 * begins at a layer with weights where only the preceding value crosses, so each stage has parameters and receives one
 * value. To balance stages, bisection looks for the smallest limit of FLOPs per stage. A limit can be kept if filling
 * the stages one after the other, each as far as it allows, puts all parts into them. A failed attempt overwrites the
 * cuts, so the best limit is filled once more at the end.
 *
 * A stage is a copy in which ids are shifted, because the value that it receives is its input. `origin` is not shifted:
 * dropout masks must not depend on the number of stages. Tensors keep their order and names. */
#include <stdio.h>

#include "base/mem.h"
#include "nn/graph/graph_impl.h"

/* Returns whether node id - 1 is the only node before `id` whose value is used by `id` or by later nodes. */
static bool is_only_value(const ct_graph *g, int id)
{
	for (int user = id; user < g->n_nodes; user++) {
		for (int i = 0; i < 2; i++) {
			const int in = g->nodes[user].in[i];

			if (in >= 0 && in < id - 1)
				return false;
		}
	}
	return true;
}

/* Returns whether a stage may begin with node `id`. */
static bool may_begin(const ct_graph *g, int id)
{
	const struct ct_node *node = &g->nodes[id];

	if (node->op != CT_OP_CONV2D && node->op != CT_OP_LINEAR)
		return false;
	/* Every stage has parameters. */
	return node->weight > 0 && (node->block < 0 || g->nodes[id - 1].block != node->block) && is_only_value(g, id);
}

/* A part that is not divided further. */
struct part {
	int first;
	double flops;
};

static enum ct_status list_parts(const ct_graph *g, struct part **out, int *n_out)
{
	struct part *parts;
	int n = 0;

	CT_TRY_ALLOC(parts = CT_NEW_ARRAY(struct part, (size_t)g->n_nodes));
	for (int id = 1; id < g->n_nodes; id++) {
		if (id == 1 || may_begin(g, id))
			parts[n++].first = id;
		parts[n - 1].flops += ct_graph_node_flops(g, id);
	}
	*out = parts;
	*n_out = n;
	return CT_OK;
}

/* Fills the stages one after the other up to `most` FLOPs, but leaves at least one part for each later stage. Returns
 * whether no stage has more. */
static bool fill(const struct part *parts, int n, double most, int n_stages, int *first)
{
	double sum = 0;
	int k = 0;

	first[0] = parts[0].first;
	for (int i = 0; i < n; i++) {
		const bool new_stage = i > 0 && (sum + parts[i].flops > most || n - i == n_stages - 1 - k);

		if (new_stage && ++k == n_stages)
			return false;
		if (new_stage)
			first[k] = parts[i].first;
		sum = new_stage ? parts[i].flops : sum + parts[i].flops;
		if (sum > most)
			return false;
	}
	return true;
}

static void balance(const ct_graph *g, const struct part *parts, int n, int n_stages, int *first)
{
	double low = 0, high = ct_graph_flops(g) + 1;

	for (int i = 0; i < 64; i++) { /* bisection */
		const double middle = (low + high) / 2;

		if (fill(parts, n, middle, n_stages, first))
			high = middle;
		else
			low = middle;
	}
	CT_ASSERT(fill(parts, n, high, n_stages, first));
	first[n_stages] = g->n_nodes;
}

enum ct_status ct_graph_cut(const ct_graph *g, int n_stages, int *first)
{
	struct part *parts;
	int n;

	CT_TRY(list_parts(g, &parts, &n));
	const bool fits = n_stages >= 1 && n_stages <= n;
	if (fits)
		balance(g, parts, n, n_stages, first);
	ct_free(parts);
	return fits ? CT_OK
		    : CT_FAIL(CT_CONFIG,
			      "the model cannot be split into %d stages: there are only %d places for stages", n_stages,
			      n);
}

static enum ct_status copy_tensor(const struct ct_param *from, int node, struct ct_param **list, int *n, int *cap,
				  int *id)
{
	CT_TRY_GROW(*list, *n, *cap);
	(*list)[*n] = *from;
	(*list)[*n].node = node;
	*id = (*n)++;
	return CT_OK;
}

static enum ct_status copy_param(ct_graph *g, const ct_graph *from, int *id)
{
	return *id < 0 ? CT_OK
		       : copy_tensor(&from->params[*id], g->n_nodes - 1, &g->params, &g->n_params, &g->cap_params, id);
}

static enum ct_status copy_buffer(ct_graph *g, const ct_graph *from, int *id)
{
	return *id < 0 ? CT_OK
		       : copy_tensor(&from->buffers[*id], g->n_nodes - 1, &g->buffers, &g->n_buffers, &g->cap_buffers,
				     id);
}

static enum ct_status copy_node(ct_graph *g, const ct_graph *from, int id, int first)
{
	CT_TRY_GROW(g->nodes, g->n_nodes, g->cap_nodes);
	struct ct_node *node = &g->nodes[g->n_nodes++];
	*node = from->nodes[id];
	for (int i = 0; i < 2; i++) {
		CT_ASSERT(node->in[i] < 0 || node->in[i] >= first - 1);
		node->in[i] = node->in[i] < 0 ? -1 : node->in[i] - (first - 1);
	}
	CT_TRY(copy_param(g, from, &node->weight));
	CT_TRY(copy_param(g, from, &node->bias));
	CT_TRY(copy_buffer(g, from, &node->mean));
	return copy_buffer(g, from, &node->var);
}

static enum ct_status add_output(ct_graph *g)
{
	const int last = g->n_nodes - 1;
	struct ct_node *node;

	CT_TRY(ct__graph_append(g, CT_OP_OUTPUT, last, -1, &node));
	node->block = -1;
	node->origin = g->nodes[last].origin + 1;
	snprintf(node->name, sizeof(node->name), "(output)"); /* no layer can have this name */
	g->loss = g->n_nodes - 1;
	return CT_OK;
}

static enum ct_status build(ct_graph *g, const ct_graph *from, int first, int end)
{
	g->n_blocks = from->n_blocks;
	for (int id = first; id < end; id++)
		CT_TRY(copy_node(g, from, id, first));
	if (end < from->n_nodes)
		CT_TRY(add_output(g));
	else
		g->loss = from->loss - (first - 1);
	return ct_graph_finish(g);
}

enum ct_status ct_graph_stage(const ct_graph *g, int first, int end, ct_graph **out)
{
	CT_ASSERT(g->finished && first >= 1 && first < end && end <= g->n_nodes);
	CT_TRY(ct_graph_create(g->nodes[first - 1].shape, out));
	enum ct_status st = build(*out, g, first, end);
	if (st < 0) {
		ct_graph_destroy(*out);
		*out = NULL;
	}
	return st;
}
