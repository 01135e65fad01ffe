/* The gradients of all values are set to zero first, and each node adds to the gradients of its inputs, so values with
 * several users need no special treatment. Gradients of parameters are overwritten, since each belongs to one node.
 * Nodes run from last to first, and slices are reported in the order of nn/net.c, which ignores those without
 * gradients. */
#include <string.h>

#include "base/clock.h"
#include "nn/ref/ref_impl.h"

static enum ct_status run_backward(const void *args)
{
	const struct op *op = args;

	ct__ref_op(ct_graph_node(op->p->base.graph, op->id)->op)->backward(op);
	return CT_OK;
}

static enum ct_status run_input_gradient(const void *args)
{
	const struct op *op = args;
	const struct value *x = &op->p->values[0];

	memcpy(op->dx, x->dy, x->elems * (size_t)op->p->base.n * sizeof(float));
	return CT_OK;
}

static enum ct_status run_clear(const void *args)
{
	const struct ref_program *p = ((const struct op *)args)->p;

	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++)
		memset(p->values[id].dy, 0, p->values[id].elems * (size_t)p->base.n * sizeof(float));
	return CT_OK;
}

enum ct_status ct__ref_backward(ct_program *base, const struct ct_backward_opts *opts, ct_arena *grads)
{
	struct op op = {
		.p = (struct ref_program *)base, .scale = opts->scale, .dy = opts->dy, .dx = opts->dx, .grads = grads};
	ct_net *net = base->net;

	CT_TRY(post(&op, run_clear));
	for (op.id = ct_graph_n_nodes(base->graph) - 1; op.id > 0; op.id--) {
		const struct ct_node *node = ct_graph_node(base->graph, op.id);
		int64_t start = base->profile ? ct_now_ns() : 0;
		const struct ref_op *row = ct__ref_op(node->op);

		CT_TRY(row->post_backward ? row->post_backward(&op) : post(&op, run_backward));
		if (base->profile)
			ct__program_add_time(base, op.id, true, start, ct_now_ns());
		if (node->weight >= 0)
			CT_TRY(ct__net_slice_done(net, opts, net->slice_of[node->weight]));
		if (node->bias >= 0)
			CT_TRY(ct__net_slice_done(net, opts, net->slice_of[node->bias]));
	}
	return opts->dx ? post(&op, run_input_gradient) : CT_OK;
}
