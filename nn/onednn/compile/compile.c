#include "nn/onednn/compile/compile.h"

#include "nn/onednn/compile/fold.h"
#include "nn/onednn/compile/forward.h"
#include "nn/onednn/compile/fuse.h"
#include "nn/onednn/compile/layer.h"
#include "nn/onednn/compile/ops.h"
#include "nn/onednn/compile/recompute.h"

enum ct_status ct__onednn_compile_forward(struct onednn_program *p)
{
	ct__onednn_fuse(p);
	ct__onednn_plan_folding(p);
	for (int id = 0; id < ct_graph_n_nodes(p->base.graph); id++)
		CT_TRY(ct__onednn_lower_forward(p, id));
	p->n_forward = p->n_tasks;
	return CT_OK;
}

static enum ct_status lower_backward(struct onednn_program *p, int id)
{
	const enum ct_op op = ct__onednn_node(p, id)->op;

	if (!p->values[id].gradient.needed)
		return CT_OK;
	return op == CT_OP_LINEAR || op == CT_OP_CONV2D ? ct__onednn_layer_backward(p, id)
							: ct__onednn_op_backward(p, id);
}

enum ct_status ct__onednn_compile_backward(struct onednn_program *p)
{
	for (int id = ct_graph_n_nodes(p->base.graph) - 1; id > 0; id--) {
		if (p->values[id].gradient.needed)
			CT_TRY(ct__onednn_recompute(p, id));
		CT_TRY(lower_backward(p, id));
	}
	return p->base.net->opts.input_gradient ? ct__onednn_input_gradient(p) : CT_OK;
}
