/* The complete forward pass is lowered first; n_forward separates it from the backward pass in the list of tasks.
 * Values that a node's backward pass needs and that were not kept are computed again right before it, so that they are
 * live only for a short time. */
#include "nn/onednn/compile/compile.h"

#include "nn/onednn/compile/fold.h"
#include "nn/onednn/compile/fuse.h"
#include "nn/onednn/compile/ops.h"
#include "nn/onednn/compile/recompute.h"

enum ct_status ct__onednn_compile_forward(struct onednn_program *p)
{
	ct__onednn_fuse(p);
	ct__onednn_plan_folding(p);
	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++)
		CT_TRY(ct__onednn_op_forward(p, id));
	p->n_forward = p->n_tasks;
	return CT_OK;
}

enum ct_status ct__onednn_compile_backward(struct onednn_program *p)
{
	for (int id = ct_graph_n_nodes(p->base.graph) - 1; id > 0; id--) {
		if (p->values[id].gradient.needed)
			CT_TRY(ct__onednn_recompute(p, id));
		CT_TRY(ct__onednn_op_backward(p, id));
	}
	return p->base.net->opts.input_gradient ? ct__onednn_input_gradient(p) : CT_OK;
}
