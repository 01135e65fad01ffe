#include "nn/onednn/program/shapes.h"

struct ct_norm_pool_shape ct__onednn_norm_pool_shape(const struct onednn_program *p, int id)
{
	const struct ct_node *node = ct__onednn_node(p, id), *pool = ct__onednn_node(p, p->values[id].fusion.pool);

	return (struct ct_norm_pool_shape){.n = p->base.n,
					   .channels = node->shape.c,
					   .nhwc = p->values[id].kept.nhwc,
					   .in = node->shape,
					   .out = pool->shape,
					   .win = pool->win,
					   .eps = node->eps,
					   .bf16 = ct__dnnl_desc_type(p->values[id].kept.src_desc) == CT_DNNL_BF16};
}

bool ct__onednn_winograd_shape_of(const ct_graph *g, int id, int n, bool bf16, struct ct_winograd_shape *s)
{
	const struct ct_node *node = ct_graph_node(g, id);
	const struct ct_window *w = &node->win;

	if (node->op != CT_OP_CONV2D || node->groups != 1 || w->r != w->s || w->stride_h != 1 || w->stride_w != 1 ||
	    w->dilation_h != 1 || w->dilation_w != 1)
		return false;
	const struct ct_shape in = ct_graph_node(g, node->in[0])->shape;
	*s = (struct ct_winograd_shape){.n = n,
					.c = in.c,
					.k = node->shape.c,
					.h = in.h,
					.w = in.w,
					.pad_h = w->pad_h,
					.pad_w = w->pad_w,
					.taps = w->r,
					.bf16 = bf16};
	return true;
}

bool ct__onednn_winograd_shape(const struct onednn_program *p, int id, struct ct_winograd_shape *s)
{
	return ct__onednn_winograd_shape_of(p->base.graph, id, p->base.n, ct__onednn_type(p) == CT_DNNL_BF16, s);
}

bool ct__onednn_weights_gemm_shape(const ct_graph *g, int id, int n, struct ct_weights_gemm_shape *s)
{
	const struct ct_node *node = ct_graph_node(g, id);

	if (node->op != CT_OP_CONV2D || node->groups != 1 || node->bias >= 0)
		return false;
	const struct ct_shape in = ct_graph_node(g, node->in[0])->shape;
	*s = (struct ct_weights_gemm_shape){.n = n,
					    .c = in.c,
					    .k = node->shape.c,
					    .h = in.h,
					    .w = in.w,
					    .oh = node->shape.h,
					    .ow = node->shape.w,
					    .win = node->win};
	return ct__weights_gemm_possible(s);
}
