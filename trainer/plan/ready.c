/* The backward pass runs from the last node to the first, so the gradient of a parameter is final when the costs of its
 * node and of all later ones have been spent. The fraction of the total cost stands for the fraction of the time. Only
 * convolutions and linear layers are counted: they take most of the time, and each of the two gradients costs about as
 * much as the forward pass. The last slice need not reach 1 exactly where the pass ends, because nodes before it may
 * cost something, too. */
#include "trainer/plan/ready.h"

#include "base/mem.h"

enum ct_status ct_plan_backward_flops(const ct_graph *g, double **out)
{
	const int n = ct_graph_n_nodes(g);
	bool *needs_grad = CT_NEW_ARRAY(bool, (size_t)n);

	*out = CT_NEW_ARRAY(double, (size_t)n);
	if (needs_grad)
		ct_graph_gradients(g, false, needs_grad);
	for (int i = 1; needs_grad && *out && i < n; i++) {
		const struct ct_node *node = ct_graph_node(g, i);

		if (node->op == CT_OP_CONV2D || node->op == CT_OP_LINEAR)
			(*out)[i] = (ct_graph_trains(g, i) + needs_grad[node->in[0]]) * ct_graph_node_flops(g, i);
	}
	const enum ct_status st = needs_grad && *out ? CT_OK : CT_NOMEM;
	ct_free(needs_grad);
	return st;
}

void ct_plan_ready(const ct_net *net, const double *costs, double *ready)
{
	const ct_graph *g = ct_net_graph(net);
	const int n_slices = ct_net_n_trained(net);
	double total = 0;

	for (int i = ct_graph_n_nodes(g) - 1; i >= 0; i--) {
		total += costs[i];
		for (int k = 0; k < n_slices; k++) {
			if (ct_graph_param(g, ct_net_slice(net, k)->param)->node == i)
				ready[k] = total;
		}
	}
	for (int k = 0; k < n_slices; k++)
		ready[k] = total > 0 ? ready[k] / total : 1;
}

enum ct_status ct_plan_ready_by_flops(const ct_net *net, double **out)
{
	double *costs = NULL;
	enum ct_status st = ct_plan_backward_flops(ct_net_graph(net), &costs);

	*out = NULL;
	if (st == CT_OK && !(*out = CT_NEW_ARRAY(double, (size_t)ct_net_n_trained(net))))
		st = CT_NOMEM;
	if (st == CT_OK)
		ct_plan_ready(net, costs, *out);
	ct_free(costs);
	return st;
}
