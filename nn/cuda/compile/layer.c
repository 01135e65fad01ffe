/* Convolutions and linear layers with what is computed with them: bias and ReLU, and in evaluation the norm that is
 * folded into the weights. One plan of cuDNN computes as much of it as cuDNN has a plan for: everything, or everything
 * before the residual, or the convolution alone. Kernels do the rest in place. The type of a folded bias depends on who
 * adds it: cuDNN needs the type of activations, the kernel reads fp32. Folded weights are live during the entire
 * program, so that they are still there for the next batch.
 *
 * In the backward pass, the gradient before the ReLU is computed once, with the gradient of the bias, and both
 * convolutions read it. In 16-bit types, the gradient of the weights is converted to fp32 unless it is summed over
 * ranks as it is. */
#include "nn/cuda/compile/compile.h"

/* w' = w * gamma / sqrt(var + eps), b' = beta + (b - mean) * gamma / sqrt(var + eps). The results stay in memory from
 * batch to batch; they are computed again when parameters or running statistics have changed (run/run.c). */
static enum ct_status fold_norm(struct cuda_program *p, const struct cuda_group *g, enum ct_dtype bias_type, int *w,
				int *bias)
{
	const ct_net *net = p->base.net;
	const struct ct_node *layer = cuda_node(p, g->layer), *norm = cuda_node(p, g->norm);
	const struct cuda_value *v = &p->values[g->layer];
	const size_t elems = net->elems[layer->weight];
	struct cuda_task *t;

	CT_TRY(ct__cuda_buffer(p, elems * ct_dtype_bytes(p->type), w));
	CT_TRY(ct__cuda_buffer(p, (size_t)v->cp * ct_dtype_bytes(bias_type), bias));
	CT_TRY(ct__cuda_task(p, g->layer, CUDA_FOLD, &t));
	t->fold = (struct ct__k_fold_args){
		.w = ct__cuda_param(p, layer->weight),
		.bias = layer->bias >= 0 ? ct__cuda_param(p, layer->bias) : NULL,
		.gamma = ct__cuda_param(p, norm->weight),
		.beta = ct__cuda_param(p, norm->bias),
		.mean = ct_arena_at(net->buffers, net->buffer_offset[norm->mean]),
		.var = ct_arena_at(net->buffers, net->buffer_offset[norm->var]),
		.eps = norm->eps,
		.k = v->shape.c,
		.kp = v->cp,
		.row = elems / (size_t)v->cp,
		.type = p->type,
		.bias_type = bias_type,
	};
	CT_TRY(ct__cuda_refer(p, &t->fold.w_out, *w));
	CT_TRY(ct__cuda_refer(p, &t->fold.bias_out, *bias));
	ct_plan_buffer_use(&p->buffers[*w], INT32_MAX - 1);
	ct_plan_buffer_use(&p->buffers[*bias], INT32_MAX - 1);
	ct_plan_buffer_use(&p->buffers[*w], 0);
	ct_plan_buffer_use(&p->buffers[*bias], 0);
	return CT_OK;
}

/* The bias, and the ReLU if no residual comes before it, in place. */
static enum ct_status add_bias(struct cuda_program *p, const struct cuda_group *g, const struct cuda_conv *c, bool relu)
{
	const struct cuda_value *v = &p->values[g->last];
	struct cuda_task *t;

	CT_TRY(ct__cuda_task(p, g->layer, CUDA_BIAS, &t));
	t->bias =
		(struct ct__k_bias_args){.rows = ct__cuda_value_rows(p, v), .cp = v->cp, .relu = relu, .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->bias.x, c->y));
	CT_TRY(ct__cuda_refer(p, &t->bias.y, c->y));
	if (c->bias != CUDA_NONE)
		return ct__cuda_refer(p, &t->bias.bias, c->bias);
	t->bias.bias = ct__cuda_param(p, cuda_node(p, g->layer)->bias);
	return CT_OK;
}

/* What cuDNN does not compute with the convolution, in place. */
static enum ct_status add_epilogue(struct cuda_program *p, const struct cuda_group *g, const struct cuda_conv *c)
{
	const bool add = c->residual != CUDA_NONE;
	struct cuda_task *t;

	if (c->has_bias)
		CT_TRY(add_bias(p, g, c, c->relu && !add));
	if (!add && (c->has_bias || !c->relu))
		return CT_OK;
	CT_TRY(ct__cuda_task(p, g->layer, CUDA_MAP, &t));
	t->map = (struct ct__k_map_args){.op = !add      ? CT__K_RELU
					       : c->relu ? CT__K_ADD_RELU
							 : CT__K_ADD,
					 .n = ct__cuda_value_elems(p, &p->values[g->last]),
					 .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->map.a, c->y));
	if (add)
		CT_TRY(ct__cuda_refer(p, &t->map.b, c->residual));
	return ct__cuda_refer(p, &t->map.y, c->y);
}

static bool is_fused(const struct cuda_conv *c)
{
	return c->has_bias || c->residual != CUDA_NONE || c->relu;
}

/* Divides c into what one plan of cuDNN computes and what other kernels must do after it. */
static enum ct_status divide(struct cuda_program *p, const struct cuda_conv *c, struct cuda_conv *first,
			     struct cuda_conv *rest)
{
	bool has = !is_fused(c);

	*first = *rest = *c;
	rest->has_bias = rest->relu = false;
	rest->residual = CUDA_NONE;
	if (!has && cuda_level(p) > 0)
		CT_TRY(ct__cuda_has_plan(p, first, &has));
	if (has)
		return CT_OK;
	if (c->residual != CUDA_NONE) { /* without the sum and what follows it */
		first->residual = CUDA_NONE;
		first->relu = false;
		rest->residual = c->residual;
		rest->relu = c->relu;
		has = !is_fused(first);
		if (!has)
			CT_TRY(ct__cuda_has_plan(p, first, &has));
		if (has)
			return CT_OK;
	}
	first->has_bias = first->relu = false;
	rest->has_bias = c->has_bias;
	rest->relu = c->relu;
	return CT_OK;
}

enum ct_status ct__cuda_forward_layer(struct cuda_program *p, const struct cuda_group *g)
{
	const struct ct_node *layer = cuda_node(p, g->layer);
	const bool folded = g->norm != CUDA_NONE;
	struct cuda_conv c = {.node = g->layer,
			      .direction = CT__CUDNN_FORWARD,
			      .x = ct__cuda_value(p, layer->in[0])->buffer,
			      .w = CUDA_NONE,
			      .has_bias = folded || layer->bias >= 0,
			      .relu = g->relu != CUDA_NONE,
			      .bias = CUDA_NONE,
			      .residual = g->add != CUDA_NONE ? p->values[g->residual].buffer : CUDA_NONE};
	struct cuda_conv first, rest;

	CT_TRY(ct__cuda_new_value(p, g->last));
	c.y = p->values[g->last].buffer;
	CT_TRY(divide(p, &c, &first, &rest));
	if (folded)
		CT_TRY(fold_norm(p, g, first.has_bias ? p->type : CT_F32, &c.w, &c.bias));
	first.w = c.w;
	first.bias = rest.bias = c.bias;
	CT_TRY(ct__cuda_add_conv(p, &first));
	return add_epilogue(p, g, &rest);
}

/* w: as in struct cuda_conv. */
static enum ct_status clear_outside_groups(struct cuda_program *p, int id, int w)
{
	const struct ct_node *node = cuda_node(p, id);
	struct cuda_task *t;

	if (!cuda_is_dense(p->base.graph, id, p->type))
		return CT_OK;
	const struct cuda_value *in = ct__cuda_value(p, node->in[0]), *v = &p->values[id];
	CT_TRY(ct__cuda_task(p, id, CUDA_GROUPS, &t));
	t->groups = (struct ct__k_groups_args){.k = v->shape.c / node->groups,
					       .c = in->shape.c / node->groups,
					       .plane = node->win.r * node->win.s,
					       .kp = v->cp,
					       .cp = in->cp,
					       .type = p->type};
	return w == CUDA_NONE ? ct__cuda_refer_weight_grad(p, &t->groups.w, node->weight)
			      : ct__cuda_refer(p, &t->groups.w, w);
}

/* The gradient of the weights. If it has a 16-bit type, but is not stored in this type, it is converted. */
static enum ct_status weight_gradient(struct cuda_program *p, const struct cuda_conv *filter)
{
	const int param = cuda_node(p, filter->node)->weight;
	const size_t n = p->base.net->elems[param];
	struct cuda_conv c = *filter;
	struct cuda_task *t;

	if (p->type == CT_F32 || p->base.net->half) {
		CT_TRY(ct__cuda_add_conv(p, &c));
		return clear_outside_groups(p, c.node, CUDA_NONE);
	}
	CT_TRY(ct__cuda_buffer(p, n * ct_dtype_bytes(p->type), &c.w));
	CT_TRY(ct__cuda_add_conv(p, &c));
	CT_TRY(clear_outside_groups(p, c.node, c.w));
	CT_TRY(ct__cuda_task(p, c.node, CUDA_CONVERT, &t));
	t->convert = (struct ct__k_convert_args){.scale = 1.0f, .n = n, .from = p->type, .to = CT_F32};
	CT_TRY(ct__cuda_refer(p, &t->convert.x, c.w));
	return ct__cuda_refer_grad(p, &t->convert.y, param);
}

/* The gradient before the ReLU, and that of the bias, if it is trained. Both come from one pass if the layer has a
 * bias; per element of y, this reads dy and y and writes d, and the convolutions after it read only d. */
static enum ct_status epilogue_gradient(struct cuda_program *p, const struct cuda_group *g, int *d)
{
	struct cuda_value *v = &p->values[g->last];
	const struct cuda_gradient dy = v->gradient;
	const int bias = ct_graph_trains(p->base.graph, g->layer) ? cuda_node(p, g->layer)->bias : CUDA_NONE;
	struct cuda_task *t;
	int partial;

	*d = dy.buffer;
	if (g->relu != CUDA_NONE)
		CT_TRY(ct__cuda_own_gradient(p, v, d));
	if (bias < 0)
		return g->relu == CUDA_NONE ? CT_OK : ct__cuda_relu_backward(p, g->last, &dy, *d);
	CT_TRY(ct__cuda_partial_sums(p, v, &partial));
	CT_TRY(ct__cuda_task(p, g->layer, CUDA_BIAS_BACKWARD, &t));
	t->bias_backward =
		(struct ct__k_bias_backward_args){.rows = ct__cuda_value_rows(p, v), .cp = v->cp, .type = p->type};
	CT_TRY(ct__cuda_refer(p, &t->bias_backward.dy, dy.buffer));
	CT_TRY(ct__cuda_refer(p, &t->bias_backward.partial, partial));
	if (dy.second != CUDA_NONE)
		CT_TRY(ct__cuda_refer(p, &t->bias_backward.dy2, dy.second));
	if (g->relu != CUDA_NONE) {
		CT_TRY(ct__cuda_refer(p, &t->bias_backward.y, v->buffer));
		CT_TRY(ct__cuda_refer(p, &t->bias_backward.d, *d));
	}
	return ct__cuda_refer_grad(p, &t->bias_backward.db, bias);
}

enum ct_status ct__cuda_backward_layer(struct cuda_program *p, const struct cuda_group *g)
{
	const int in = cuda_node(p, g->layer)->in[0];
	struct cuda_conv c = {.node = g->layer,
			      .direction = CT__CUDNN_FILTER,
			      .x = ct__cuda_value(p, in)->buffer,
			      .w = CUDA_NONE,
			      .bias = CUDA_NONE,
			      .residual = CUDA_NONE};

	CT_TRY(epilogue_gradient(p, g, &c.y));
	if (ct_graph_trains(p->base.graph, g->layer))
		CT_TRY(weight_gradient(p, &c));
	if (!ct__cuda_needs_gradient(p, in))
		return CT_OK;
	c.direction = CT__CUDNN_DATA;
	CT_TRY(ct__cuda_new_gradient(p, in, &c.x));
	CT_TRY(ct__cuda_add_conv(p, &c));
	return ct__cuda_give_gradient(p, g->layer, in, c.x, false);
}
