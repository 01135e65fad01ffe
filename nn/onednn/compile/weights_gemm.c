/* The kernel needs images in NHWC. Other operations of a net in NHWC mostly have them; otherwise they are reordered. A
 * plan is made for full batches of one image size, but the kernel computes all others, too. */
#include "nn/onednn/compile/weights_gemm.h"

#include "nn/onednn/compile/emit.h"
#include "nn/onednn/program/shapes.h"

static bool shape_of(const struct onednn_program *p, int id, struct ct_weights_gemm_shape *s)
{
	return ct__onednn_weights_gemm_shape(p->base.graph, id, p->base.n, s);
}

bool ct__onednn_weights_gemm_computes(const struct onednn_program *p, int id)
{
	const struct ct_net_plan *plan = &p->base.net->plan;
	struct ct_weights_gemm_shape s;

	return ct_net_plan_method(plan, ct__onednn_node(p, id)->name, CT_CONV_BACKWARD_WEIGHTS) == CT_CONV_GEMM &&
	       ct__onednn_type(p) == CT_DNNL_BF16 && shape_of(p, id, &s);
}

enum ct_status ct__onednn_weights_gemm_layout(struct onednn_program *p, int id, const ct_dnnl_desc **out)
{
	const struct ct_node *node = ct__onednn_node(p, id);
	const int dims[4] = {node->shape.c, ct__onednn_node(p, node->in[0])->shape.c, node->win.r, node->win.s};

	return ct__dnnl_rsck_weights(p->dnnl, dims, out);
}

static enum ct_status nhwc(struct onednn_program *p, int id, int of, int buffer, const ct_dnnl_desc *desc,
			   struct onednn_ref *out)
{
	const ct_dnnl_desc *want;
	int dims[4];

	ct__onednn_dims(p, of, dims);
	CT_TRY(ct__dnnl_nhwc_of(p->dnnl, CT_DNNL_BF16, dims, &want));
	return ct__onednn_relayout(p, id, ONEDNN_BUF(buffer), desc, want, out);
}

enum ct_status ct__onednn_weights_gemm(struct onednn_program *p, int id, struct onednn_ref dw)
{
	const struct onednn_value *v = &p->values[id];
	struct ct_weights_gemm_shape s;
	struct onednn_ref x, dy;
	struct onednn_task *t;
	int scratch;

	CT_ASSERT(shape_of(p, id, &s));
	CT_TRY(nhwc(p, id, ct__onednn_node(p, id)->in[0], v->kept.src, v->kept.src_desc, &x));
	CT_TRY(nhwc(p, id, id, v->gradient.buffer, v->layout.desc, &dy));
	CT_TRY(ct__onednn_buffer(p, ct__weights_gemm_scratch_bytes(&s), &scratch));
	CT_TRY(ct__onednn_task(p, ONEDNN_WEIGHTS_GEMM, id, &t));
	ct__onednn_arg(p, t, CT_DNNL_DIFF_WEIGHTS, dw);
	ct__onednn_arg(p, t, CT_DNNL_SRC, x);
	ct__onednn_arg(p, t, CT_DNNL_DIFF_DST, dy);
	ct__onednn_arg_buffer(p, t, CT_DNNL_SCRATCHPAD, scratch);
	return CT_OK;
}
