#include "nn/engine_onednn.h"

#include <string.h>

#define BUFFER(i) ((struct onednn_ref){ ONEDNN_BUFFER, (i) })

static const struct ct_node *node_at(const struct onednn_program *p, int id)
{
	return ct_graph_node(p->base.net->graph, id);
}

static void dims_of(const struct onednn_program *p, int id, int dims[4])
{
	struct ct_shape s = node_at(p, id)->shape;

	dims[0] = p->base.n;
	dims[1] = s.c;
	dims[2] = s.h;
	dims[3] = s.w;
}

/* The value of `id` as [N,C,H,W], or as [N,C] when that is what it is or when it has been flattened. */
static enum ct_status view_natural(struct onednn_program *p, int node, int id, const ct_dnnl_desc **desc, int *buffer)
{
	int root = p->values[id].root, dims[4];
	const ct_dnnl_desc *d = p->values[root].desc;

	dims_of(p, id, dims);
	bool same = ct_dnnl_desc_ndims(d) == 4 && !memcmp(ct_dnnl_desc_dims(d), dims, sizeof(dims));
	return ct_onednn_view(p, node, root, !same && dims[2] * dims[3] == 1 ? 2 : 4, dims, desc, buffer);
}

/* Gives the node's result a buffer in the layout of its prim; a ReLU fused into it is the owner then. */
static enum ct_status own_result(struct onednn_program *p, int id, const ct_dnnl_desc *desc)
{
	struct onednn_value *v = &p->values[id];
	int owner = v->fused_relu >= 0 ? v->fused_relu : id;

	v->desc = desc;
	v->root = -1;
	p->values[owner].root = owner;
	p->values[owner].desc = desc;
	return ct_onednn_buffer(p, ct_dnnl_desc_bytes(desc), &p->values[owner].buffer);
}

static int result_buffer(const struct onednn_program *p, int id)
{
	const struct onednn_value *v = &p->values[id];

	return v->fused_relu >= 0 ? p->values[v->fused_relu].buffer : v->buffer;
}

/* Chooses among layouts: those that are there, then the primitive's own. A ReLU that can't be fused is left to itself. */
static enum ct_status choose_layer(struct onednn_program *p, int id, struct ct_dnnl_spec spec, const ct_dnnl_desc *any_src,
				   const ct_dnnl_desc *any_weights, const ct_dnnl_prim **out)
{
	struct ct_dnnl_spec specs[3];

	for (int i = 0; i < 3; i++)
		specs[i] = spec;
	specs[1].src = any_src;
	specs[2].src = any_src;
	specs[2].weights = any_weights;
	if (spec.relu) {
		CT_TRY(ct_dnnl_prim_get(p->dnnl, &spec, out));
		if (!*out) {
			p->values[id].fused_relu = -1;
			spec.relu = 0;
			return choose_layer(p, id, spec, any_src, any_weights, out);
		}
	}
	return ct_onednn_choose(p, id, specs, 3, out);
}

/* Convolution and linear: src and weights in, bias added, result out. */
static enum ct_status emit_layer(struct onednn_program *p, int id, const ct_dnnl_prim *prim, int x, const ct_dnnl_desc *x_desc)
{
	const struct ct_node *node = node_at(p, id);
	struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc **layout = &((struct onednn_net *)p->base.net->impl)->layout[node->weight], *dst;
	struct onednn_ref src, weights;
	struct onednn_task *t;

	if (!*layout)
		CT_TRY(ct_dnnl_prim_desc(p->dnnl, prim, CT_DNNL_WEIGHTS, layout));
	CT_TRY(ct_onednn_fit(p, id, prim, CT_DNNL_SRC, BUFFER(x), x_desc, &src));
	CT_TRY(ct_onednn_fit(p, id, prim, CT_DNNL_WEIGHTS, (struct onednn_ref){ ONEDNN_PARAM, node->weight }, *layout, &weights));
	CT_TRY(ct_dnnl_prim_desc(p->dnnl, prim, CT_DNNL_DST, &dst));
	CT_TRY(own_result(p, id, dst));
	CT_TRY(ct_onednn_call(p, id, prim, &t));
	ct_onednn_arg(p, t, CT_DNNL_SRC, src);
	ct_onednn_arg(p, t, CT_DNNL_WEIGHTS, weights);
	if (node->bias >= 0)
		ct_onednn_arg(p, t, CT_DNNL_BIAS, (struct onednn_ref){ ONEDNN_PARAM, node->bias });
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, result_buffer(p, id));
	v->prim = prim;
	v->src = src.id;
	return ct_dnnl_prim_desc(p->dnnl, prim, CT_DNNL_SRC, &v->src_desc);
}

static enum ct_status compile_conv(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct ct_window *w = &node->win;
	const struct onednn_net *net = p->base.net->impl;
	const int k = node->shape.c, g = node->groups;
	struct ct_dnnl_spec spec = { .op = CT_DNNL_CONV_FORWARD,
				     .inference = p->base.mode == CT_EVAL,
				     .relu = p->values[id].fused_relu >= 0,
				     .stride = { w->stride_h, w->stride_w },
				     .pad = { w->pad_h, w->pad_w },
				     .dilation = { w->dilation_h, w->dilation_w } };
	const ct_dnnl_desc *any_src, *any_weights;
	const ct_dnnl_prim *prim;
	int dims[4], x;

	dims_of(p, node->in[0], dims);
	CT_TRY(ct_onednn_view(p, id, p->values[node->in[0]].root, 4, dims, &spec.src, &x));
	CT_TRY(ct_dnnl_any(p->dnnl, 4, dims, &any_src));
	const int c = dims[1], grouped[5] = { g, k / g, c / g, w->r, w->s }, dense[4] = { k, c, w->r, w->s };
	CT_TRY(ct_dnnl_any(p->dnnl, g > 1 ? 5 : 4, g > 1 ? grouped : dense, &any_weights));
	spec.weights = net->layout[node->weight] ? net->layout[node->weight] : any_weights;
	if (node->bias >= 0)
		CT_TRY(ct_dnnl_plain(p->dnnl, 1, &k, &spec.bias));
	dims_of(p, id, dims);
	CT_TRY(ct_dnnl_any(p->dnnl, 4, dims, &spec.dst));
	const ct_dnnl_desc *x_desc = spec.src;
	CT_TRY(choose_layer(p, id, spec, any_src, any_weights, &prim));
	return emit_layer(p, id, prim, x, x_desc);
}

/* A linear layer on a convolution's output reads it where it lies: weights [K,C,H,W] in a matching layout, no flattening copy.
 * Plain values are seen as [N,F]. What the net's first program chose holds for all. */
static enum ct_status linear_form(struct onednn_program *p, int id, bool *flat)
{
	const struct ct_node *node = node_at(p, id);
	const struct onednn_net *net = p->base.net->impl;
	const ct_dnnl_desc *d = p->values[p->values[node->in[0]].root].desc;
	const int *x = ct_dnnl_desc_dims(d);
	struct ct_dnnl_spec spec = { .op = CT_DNNL_LINEAR_FORWARD, .src = d };
	const ct_dnnl_prim *prim;

	*flat = ct_dnnl_desc_is_plain(d) || ct_dnnl_desc_ndims(d) == 2;
	if (net->layout[node->weight])
		*flat = ct_dnnl_desc_ndims(net->layout[node->weight]) == 2;
	if (*flat)
		return CT_OK;
	const int w[4] = { node->shape.c, x[1], x[2], x[3] }, y[2] = { x[0], node->shape.c };
	CT_TRY(ct_dnnl_any(p->dnnl, 4, w, &spec.weights));
	CT_TRY(ct_dnnl_any(p->dnnl, 2, y, &spec.dst));
	CT_TRY(ct_dnnl_prim_get(p->dnnl, &spec, &prim));
	*flat = !prim || ct_dnnl_prim_rank(prim) < 1;
	return CT_OK;
}

static enum ct_status compile_linear(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct onednn_net *net = p->base.net->impl;
	const struct ct_shape s = node_at(p, node->in[0])->shape;
	const int root = p->values[node->in[0]].root, k = node->shape.c, n = p->base.n;
	struct ct_dnnl_spec spec = { .op = CT_DNNL_LINEAR_FORWARD,
				     .inference = p->base.mode == CT_EVAL,
				     .relu = p->values[id].fused_relu >= 0 };
	const ct_dnnl_desc *any_src, *any_weights;
	const ct_dnnl_prim *prim;
	bool flat;
	int x;

	CT_TRY(linear_form(p, id, &flat));
	int src[4] = { n, s.c * s.h * s.w, 1, 1 }, weights[4] = { k, src[1], 1, 1 }, dst[2] = { n, k }, ndims = flat ? 2 : 4;
	if (!flat) {
		memcpy(src, ct_dnnl_desc_dims(p->values[root].desc), sizeof(src));
		memcpy(weights + 1, src + 1, 3 * sizeof(*src));
	}
	CT_TRY(ct_onednn_view(p, id, root, ndims, src, &spec.src, &x));
	CT_TRY(ct_dnnl_any(p->dnnl, ndims, src, &any_src));
	CT_TRY(ct_dnnl_any(p->dnnl, ndims, weights, &any_weights));
	spec.weights = net->layout[node->weight] ? net->layout[node->weight] : any_weights;
	if (node->bias >= 0)
		CT_TRY(ct_dnnl_plain(p->dnnl, 1, &k, &spec.bias));
	CT_TRY(ct_dnnl_any(p->dnnl, 2, dst, &spec.dst));
	const ct_dnnl_desc *x_desc = spec.src;
	CT_TRY(choose_layer(p, id, spec, any_src, any_weights, &prim));
	return emit_layer(p, id, prim, x, x_desc);
}

static enum ct_status norm_statistics(struct onednn_program *p, int id, struct onednn_task *t, int64_t count)
{
	const struct ct_node *node = node_at(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_ref running[2] = { { ONEDNN_RUNNING, node->mean }, { ONEDNN_RUNNING, node->var } };

	if (p->base.mode == CT_EVAL) {
		ct_onednn_arg(p, t, CT_DNNL_MEAN, running[0]);
		ct_onednn_arg(p, t, CT_DNNL_VARIANCE, running[1]);
		return CT_OK;
	}
	ct_onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->mean);
	ct_onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->variance);
	if (v->workspace >= 0)
		ct_onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	CT_TRY(ct_onednn_task(p, ONEDNN_RUNNING_STATS, id, &t));
	ct_onednn_arg(p, t, CT_DNNL_DST, running[0]);
	ct_onednn_arg(p, t, CT_DNNL_DST, running[1]);
	ct_onednn_arg_buffer(p, t, CT_DNNL_MEAN, v->mean);
	ct_onednn_arg_buffer(p, t, CT_DNNL_VARIANCE, v->variance);
	t->n = (size_t)count;
	return CT_OK;
}

static enum ct_status compile_norm(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const size_t channels = (size_t)node->shape.c * sizeof(float);
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = { .op = CT_DNNL_NORM_FORWARD,
				     .inference = p->base.mode == CT_EVAL,
				     .relu = v->fused_relu >= 0,
				     .eps = node->eps };
	struct onednn_task *t;

	CT_TRY(view_natural(p, id, node->in[0], &v->src_desc, &v->src));
	spec.src = spec.dst = v->src_desc;
	CT_TRY(ct_dnnl_prim_get(p->dnnl, &spec, &v->prim));
	if (!v->prim && spec.relu) {
		v->fused_relu = -1;
		spec.relu = 0;
	}
	CT_TRY(ct_onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(own_result(p, id, v->src_desc));
	CT_TRY(ct_onednn_buffer(p, channels, &v->mean));
	CT_TRY(ct_onednn_buffer(p, channels, &v->variance));
	if (ct_dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE))
		CT_TRY(ct_onednn_buffer(p, ct_dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE), &v->workspace));
	CT_TRY(ct_onednn_call(p, id, v->prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, result_buffer(p, id));
	ct_onednn_arg(p, t, CT_DNNL_SCALE, (struct onednn_ref){ ONEDNN_PARAM, node->weight });
	ct_onednn_arg(p, t, CT_DNNL_SHIFT, (struct onednn_ref){ ONEDNN_PARAM, node->bias });
	return norm_statistics(p, id, t, (int64_t)p->base.n * node->shape.h * node->shape.w);
}

static enum ct_status compile_pool(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	struct ct_window w = node->win;
	struct onednn_value *v = &p->values[id];
	const ct_dnnl_desc *dst;
	struct onednn_task *t;
	int dims[4];

	dims_of(p, node->in[0], dims);
	if (node->op == CT_OP_GLOBAL_AVG_POOL)
		w = (struct ct_window){ dims[2], dims[3], 1, 1, 0, 0, 1, 1 };
	struct ct_dnnl_spec spec = { .op = CT_DNNL_POOL_FORWARD,
				     .inference = p->base.mode == CT_EVAL,
				     .average = node->op != CT_OP_MAX_POOL,
				     .kernel = { w.r, w.s },
				     .stride = { w.stride_h, w.stride_w },
				     .pad = { w.pad_h, w.pad_w },
				     .dilation = { w.dilation_h, w.dilation_w } };
	CT_TRY(ct_onednn_view(p, id, p->values[node->in[0]].root, 4, dims, &v->src_desc, &v->src));
	spec.src = v->src_desc;
	dims_of(p, id, dims);
	CT_TRY(ct_dnnl_any(p->dnnl, 4, dims, &spec.dst));
	CT_TRY(ct_onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(ct_dnnl_prim_desc(p->dnnl, v->prim, CT_DNNL_DST, &dst));
	CT_TRY(own_result(p, id, dst));
	if (ct_dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE))
		CT_TRY(ct_onednn_buffer(p, ct_dnnl_prim_bytes(v->prim, CT_DNNL_WORKSPACE), &v->workspace));
	CT_TRY(ct_onednn_call(p, id, v->prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, v->src);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	if (v->workspace >= 0)
		ct_onednn_arg_buffer(p, t, CT_DNNL_WORKSPACE, v->workspace);
	return CT_OK;
}

static enum ct_status compile_relu(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_value *x = &p->values[p->values[node->in[0]].root];
	const struct ct_dnnl_spec spec = { .op = CT_DNNL_RELU_FORWARD, .src = x->desc, .dst = x->desc };
	struct onednn_task *t;

	CT_TRY(ct_onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(own_result(p, id, x->desc));
	CT_TRY(ct_onednn_call(p, id, v->prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, x->buffer);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	return CT_OK;
}

static enum ct_status compile_add(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	struct onednn_value *v = &p->values[id];
	struct ct_dnnl_spec spec = { .op = CT_DNNL_ADD, .relu = v->fused_relu >= 0 };
	const ct_dnnl_desc *a_desc, *b_desc;
	struct onednn_ref b;
	struct onednn_task *t;
	int a_buffer, b_buffer;

	CT_TRY(view_natural(p, id, node->in[0], &a_desc, &a_buffer));
	CT_TRY(ct_onednn_view(p, id, p->values[node->in[1]].root, ct_dnnl_desc_ndims(a_desc), ct_dnnl_desc_dims(a_desc), &b_desc,
			      &b_buffer));
	CT_TRY(ct_onednn_relayout(p, id, BUFFER(b_buffer), b_desc, a_desc, &b));
	spec.src = spec.other = spec.dst = a_desc;
	CT_TRY(ct_onednn_prim(p, id, &spec, &v->prim));
	CT_TRY(own_result(p, id, a_desc));
	CT_TRY(ct_onednn_call(p, id, v->prim, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, a_buffer);
	ct_onednn_arg(p, t, CT_DNNL_OTHER, b);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, result_buffer(p, id));
	return CT_OK;
}

static enum ct_status compile_dropout(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	struct onednn_value *v = &p->values[id];
	const struct onednn_value *x = &p->values[p->values[node->in[0]].root];
	const ct_dnnl_desc *plain;
	struct onednn_task *t;
	struct onednn_ref mask;
	int drawn;

	if (p->base.mode == CT_EVAL) {
		v->root = p->values[node->in[0]].root;
		return CT_OK;
	}
	CT_TRY(ct_dnnl_plain(p->dnnl, ct_dnnl_desc_ndims(x->desc), ct_dnnl_desc_dims(x->desc), &plain));
	CT_TRY(ct_onednn_buffer(p, ct_dnnl_desc_bytes(plain), &drawn));
	CT_TRY(ct_onednn_task(p, ONEDNN_DROPOUT_MASK, id, &t));
	t->n = (size_t)node->shape.c * (size_t)node->shape.h * (size_t)node->shape.w;
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, drawn);
	CT_TRY(ct_onednn_relayout(p, id, BUFFER(drawn), plain, x->desc, &mask));
	v->mask = mask.id;
	CT_TRY(own_result(p, id, x->desc));
	CT_TRY(ct_onednn_task(p, ONEDNN_MULTIPLY, id, &t));
	t->n = ct_dnnl_desc_bytes(x->desc) / sizeof(float);
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	ct_onednn_arg_buffer(p, t, CT_DNNL_SRC, x->buffer);
	ct_onednn_arg_buffer(p, t, CT_DNNL_OTHER, v->mask);
	return CT_OK;
}

static enum ct_status compile_input(struct onednn_program *p)
{
	struct onednn_value *v = &p->values[0];
	const struct ct_net *net = p->base.net;
	const ct_dnnl_desc *desc;
	struct onednn_task *t;
	int dims[4];

	dims_of(p, 0, dims);
	CT_TRY(ct_dnnl_plain(p->dnnl, 4, dims, &desc));
	CT_TRY(own_result(p, 0, desc));
	p->input = v->buffer;
	/* A full float batch is read where the caller has it. */
	if (p->base.mode == CT_TRAIN && net->opts.input == CT_INPUT_F32_NCHW)
		p->buffers[v->buffer].bytes = 0;
	CT_TRY(ct_onednn_task(p, ONEDNN_INPUT, 0, &t));
	ct_onednn_arg_buffer(p, t, CT_DNNL_DST, v->buffer);
	return CT_OK;
}

static enum ct_status compile_loss(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);
	const struct ct_shape s = node_at(p, node->in[0])->shape;
	const int root = p->values[node->in[0]].root, dims[2] = { p->base.n, s.c * s.h * s.w };
	const ct_dnnl_desc *desc, *plain;
	struct onednn_ref logits;
	struct onednn_task *t;
	int buffer;

	CT_TRY(ct_dnnl_plain(p->dnnl, 2, dims, &plain));
	CT_TRY(ct_onednn_view(p, id, root, 2, dims, &desc, &buffer));
	CT_TRY(ct_onednn_relayout(p, id, BUFFER(buffer), desc, plain, &logits));
	CT_TRY(ct_onednn_buffer(p, ct_dnnl_desc_bytes(plain), &p->dlogits));
	CT_TRY(ct_onednn_task(p, ONEDNN_LOSS, id, &t));
	ct_onednn_arg(p, t, CT_DNNL_SRC, logits);
	if (p->base.mode == CT_TRAIN)
		ct_onednn_arg_buffer(p, t, CT_DNNL_DST, p->dlogits);
	t->n = (size_t)dims[1];
	p->buffers[p->values[root].buffer].last = INT32_MAX - 1; /* can always be read */
	return CT_OK;
}

static enum ct_status compile_node(struct onednn_program *p, int id)
{
	const struct ct_node *node = node_at(p, id);

	switch (node->op) {
	case CT_OP_INPUT:
		return compile_input(p);
	case CT_OP_LINEAR:
		return compile_linear(p, id);
	case CT_OP_CONV2D:
		return compile_conv(p, id);
	case CT_OP_BATCH_NORM:
		return compile_norm(p, id);
	case CT_OP_RELU:
		return p->values[node->in[0]].fused_relu == id ? CT_OK : compile_relu(p, id);
	case CT_OP_MAX_POOL:
	case CT_OP_AVG_POOL:
	case CT_OP_GLOBAL_AVG_POOL:
		return compile_pool(p, id);
	case CT_OP_ADD:
		return compile_add(p, id);
	case CT_OP_FLATTEN:
		p->values[id].root = p->values[node->in[0]].root;
		return CT_OK;
	case CT_OP_DROPOUT:
		return compile_dropout(p, id);
	case CT_OP_SOFTMAX_XENT:
	case CT_OP_MSE:
		return compile_loss(p, id);
	case CT_N_OPS:
		break;
	}
	return CT_FAIL(CT_BUG, "operation %d in a graph", (int)node->op);
}

/* A ReLU that alone uses a layer, norm or sum is computed with it. */
static void plan_fusion(struct onednn_program *p)
{
	const ct_graph *g = p->base.net->graph;
	int n = ct_graph_n_nodes(g);

	for (int id = 0; id < n; id++) {
		const struct ct_node *node = ct_graph_node(g, id);
		struct onednn_value *v = &p->values[id];
		int users = 0, user = -1;
		*v = (struct onednn_value){ .root = -1, .fused_relu = -1, .buffer = -1, .grad = -1, .src = -1, .workspace = -1,
					    .mean = -1, .variance = -1, .mask = -1 };
		v->needs_grad = node->weight >= 0 || (node->in[0] >= 0 && p->values[node->in[0]].needs_grad) ||
				(node->in[1] >= 0 && p->values[node->in[1]].needs_grad);
		for (int i = id + 1; i < n; i++) {
			const struct ct_node *other = ct_graph_node(g, i);
			if (other->in[0] == id || other->in[1] == id) {
				users++;
				user = i;
			}
		}
		bool can = node->op == CT_OP_CONV2D || node->op == CT_OP_LINEAR || node->op == CT_OP_BATCH_NORM || node->op == CT_OP_ADD;
		if (can && users == 1 && ct_graph_node(g, user)->op == CT_OP_RELU)
			v->fused_relu = user;
	}
}

enum ct_status ct_onednn_compile_forward(struct onednn_program *p)
{
	plan_fusion(p);
	for (int id = 0; id < ct_graph_n_nodes(p->base.net->graph); id++)
		CT_TRY(compile_node(p, id));
	p->n_forward = p->n_tasks;
	return CT_OK;
}
