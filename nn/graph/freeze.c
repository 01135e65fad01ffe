/* Freezing only marks parameters and norms; engines and optimizers derive the rest from the marks. A node trains if one
 * of its parameters is not frozen. It then has gradients for all of them, and the optimizer skips the frozen ones. A
 * value needs a gradient if its node or one on which it depends trains, which one pass in the order of the nodes finds.
 * The head is the last node with parameters, whatever its name, so "backbone" works for every model. A pattern without
 * a match is an error, because a misspelled one would let everything train. Statistics are fixed only in norms whose
 * parameters are all frozen. */
#include <fnmatch.h>
#include <string.h>

#include "nn/graph/graph_impl.h"

int ct_graph_head(const ct_graph *g)
{
	int head = -1;

	for (int i = 0; i < g->n_params; i++)
		head = g->params[i].node > head ? g->params[i].node : head;
	return head;
}

bool ct_graph_param_matches(const ct_graph *g, int param, const char *pattern)
{
	const struct ct_param *p = ct_graph_param(g, param);

	if (strcmp(pattern, "backbone") == 0)
		return p->node != ct_graph_head(g);
	return fnmatch(pattern, p->name, 0) == 0;
}

bool ct_graph_trains(const ct_graph *g, int id)
{
	const struct ct_node *node = ct_graph_node(g, id);

	return (node->weight >= 0 && !g->params[node->weight].frozen) ||
	       (node->bias >= 0 && !g->params[node->bias].frozen);
}

void ct_graph_gradients(const ct_graph *g, bool input, bool *needs)
{
	for (int id = 0; id < g->n_nodes; id++) {
		const int *in = g->nodes[id].in;

		needs[id] = ct_graph_trains(g, id) || (id == 0 && input) || (in[0] >= 0 && needs[in[0]]) ||
			    (in[1] >= 0 && needs[in[1]]);
	}
}

static enum ct_status freeze_matching(ct_graph *g, const char *pattern)
{
	int n = 0;

	for (int i = 0; i < g->n_params; i++) {
		if (!ct_graph_param_matches(g, i, pattern))
			continue;
		g->params[i].frozen = true;
		n++;
	}
	if (n > 0)
		return CT_OK;
	CT_FAIL(CT_CONFIG, "no parameter of the model matches \"%s\"", pattern);
	return ct_error_hint("the names are %s ... %s; write * for any string, or backbone for all but the head",
			     g->params[0].name, g->params[g->n_params - 1].name);
}

enum ct_status ct_graph_freeze(ct_graph *g, const char *const *patterns, int n, bool fix_stats)
{
	bool any = false;

	CT_ASSERT(g->finished && g->n_params > 0);
	for (int i = 0; i < n; i++)
		CT_TRY(freeze_matching(g, patterns[i]));
	for (int id = 0; id < g->n_nodes; id++) {
		const bool trains = ct_graph_trains(g, id);

		any = any || trains;
		if (fix_stats && g->nodes[id].op == CT_OP_BATCH_NORM && !trains)
			g->nodes[id].fixed_stats = true;
	}
	return any ? CT_OK : CT_FAIL(CT_CONFIG, "all parameters of the model are frozen, so there is nothing to train");
}
