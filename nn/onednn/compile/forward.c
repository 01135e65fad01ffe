#include "nn/onednn/compile/forward.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/compile/layer.h"
#include "nn/onednn/compile/ops.h"

static enum ct_status lower_input(struct onednn_program *p)
{
	struct onednn_value *v = &p->values[0];
	const struct ct_net *net = p->base.net;
	const ct_dnnl_desc *desc;
	struct onednn_task *t;
	int dims[4];

	ct__onednn_dims(p, 0, dims);
	CT_TRY(ct__dnnl_plain_of(p->dnnl, ct__onednn_type(p), 4, dims, &desc));
	CT_TRY(ct__onednn_own_result(p, 0, desc));
	p->input = v->layout.buffer;
	/* A full batch of floats is read directly from the caller's memory. */
	if (p->base.mode == CT_TRAIN && net->opts.input == CT_INPUT_F32_NCHW && ct__onednn_type(p) == CT_DNNL_F32)
		p->buffers[v->layout.buffer].bytes = 0;
	CT_TRY(ct__onednn_task(p, ONEDNN_INPUT, 0, &t));
	ct__onednn_arg_buffer(p, t, CT_DNNL_DST, v->layout.buffer);
	return CT_OK;
}

enum ct_status ct__onednn_lower_forward(struct onednn_program *p, int id)
{
	switch (ct__onednn_node(p, id)->op) {
	case CT_OP_INPUT:
		return lower_input(p);
	case CT_OP_LINEAR:
	case CT_OP_CONV2D:
		return ct__onednn_layer_forward(p, id);
	default:
		return ct__onednn_op_forward(p, id);
	}
}
