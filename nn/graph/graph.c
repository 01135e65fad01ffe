/* Queries of a graph, and what is checked once it is complete: one loss head, no unused node, no open block, no name
 * twice. Parameters, checkpoints and initial values are identified by names, so these must be unique.
 *
 * The digest covers everything that changes results, with floats in hexadecimal, so that no bit is lost. A run resumes
 * only from checkpoints with the same digest. An attribute that is added later must therefore leave the digests of
 * graphs that do not use it as they are: zero_gamma, fixed statistics and frozen parameters add something only if they
 * are set. */
#include "nn/graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/sha256.h"
#include "base/mem.h"
#include "nn/graph/graph_impl.h"
#include "nn/graph/op.h"

const char *ct_op_name(enum ct_op op)
{
	return (unsigned)op < CT_N_OPS ? ct_op_info(op)->name : "?";
}

static int compare_names(const void *a, const void *b)
{
	return strcmp((*(const struct ct_node *const *)a)->name, (*(const struct ct_node *const *)b)->name);
}

static enum ct_status check_unique_names(const ct_graph *g)
{
	const struct ct_node **sorted;
	enum ct_status st = CT_OK;

	CT_TRY_ALLOC(sorted = CT_NEW_ARRAY(const struct ct_node *, (size_t)g->n_nodes));
	for (int i = 0; i < g->n_nodes; i++)
		sorted[i] = &g->nodes[i];
	qsort(sorted, (size_t)g->n_nodes, sizeof(*sorted), compare_names);
	for (int i = 1; i < g->n_nodes && st == CT_OK; i++) {
		if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
			st = CT_FAIL(CT_CONFIG, "two layers are named \"%s\"", sorted[i]->name);
	}
	ct_free(sorted);
	return st;
}

enum ct_status ct_graph_status(const ct_graph *g)
{
	return g->error.status == CT_OK ? CT_OK : ct_error_restore(&g->error);
}

enum ct_status ct_graph_finish(ct_graph *g)
{
	CT_TRY(ct_graph_status(g));
	if (g->loss < 0)
		return CT_FAIL(CT_CONFIG, "the model has no loss head");
	if (g->block >= 0)
		return CT_FAIL(CT_CONFIG, "block %d has not ended", g->block);
	for (int id = 0; id < g->n_nodes; id++) {
		bool used = id == g->loss;

		for (int user = id + 1; user < g->n_nodes && !used; user++)
			used = g->nodes[user].in[0] == id || g->nodes[user].in[1] == id;
		if (!used)
			return CT_FAIL(CT_CONFIG, "%s: no other layer uses its output", g->nodes[id].name);
	}
	CT_TRY(check_unique_names(g));
	g->finished = true;
	return CT_OK;
}

int ct_graph_n_nodes(const ct_graph *g)
{
	return g->n_nodes;
}

const struct ct_node *ct_graph_node(const ct_graph *g, int id)
{
	CT_ASSERT(id >= 0 && id < g->n_nodes);
	return &g->nodes[id];
}

int ct_graph_loss(const ct_graph *g)
{
	return g->loss;
}

int ct_graph_n_params(const ct_graph *g)
{
	return g->n_params;
}

const struct ct_param *ct_graph_param(const ct_graph *g, int id)
{
	CT_ASSERT(id >= 0 && id < g->n_params);
	return &g->params[id];
}

int ct_graph_n_buffers(const ct_graph *g)
{
	return g->n_buffers;
}

const struct ct_param *ct_graph_buffer(const ct_graph *g, int id)
{
	CT_ASSERT(id >= 0 && id < g->n_buffers);
	return &g->buffers[id];
}

size_t ct_graph_n_elems(const ct_graph *g)
{
	size_t n = 0;

	for (int i = 0; i < g->n_params; i++)
		n += g->params[i].n;
	return n;
}

double ct_graph_node_flops(const ct_graph *g, int id)
{
	const struct ct_node *node = ct_graph_node(g, id);

	return ct_op_info(node->op)->flops(g, node);
}

double ct_graph_flops(const ct_graph *g)
{
	double sum = 0;

	for (int i = 0; i < g->n_nodes; i++)
		sum += ct_graph_node_flops(g, i);
	return sum;
}

void ct_graph_digest(const ct_graph *g, char hex[65])
{
	struct ct_sha256 h;
	char text[512];

	ct_sha256_init(&h);
	for (int i = 0; i < g->n_nodes; i++) {
		const struct ct_node *n = &g->nodes[i];
		const struct ct_window *w = &n->win;
		int len = snprintf(text, sizeof(text),
				   "%d %s %s in %d %d shape %d %d %d win %d %d %d %d %d %d %d %d groups %d "
				   "floats %a %a %a %a tensors %d %d %d %d%s\n",
				   i, ct_op_name(n->op), n->name, n->in[0], n->in[1], n->shape.c, n->shape.h,
				   n->shape.w, w->r, w->s, w->stride_h, w->stride_w, w->pad_h, w->pad_w, w->dilation_h,
				   w->dilation_w, n->groups, (double)n->eps, (double)n->momentum, (double)n->p,
				   (double)n->label_smoothing, n->weight, n->bias, n->mean, n->var,
				   n->zero_gamma ? " from 0" : "");

		CT_ASSERT(len > 0 && (size_t)len < sizeof(text));
		ct_sha256_update(&h, text, (size_t)len);
		if (n->fixed_stats)
			ct_sha256_update(&h, "fixed statistics\n", 17);
	}
	for (int i = 0; i < g->n_params; i++) {
		if (g->params[i].frozen)
			ct_sha256_update(&h, g->params[i].name, strlen(g->params[i].name) + 1);
	}
	ct_sha256_final_hex(&h, hex);
}
