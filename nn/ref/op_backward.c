/* The backward passes of the operations. They compute all rows, since training batches are full. What they need is what
 * the forward pass has stored: the input of a ReLU and of a norm, masks, positions of maxima. A norm has two halves
 * with an all-reduce between them, as in op.c; its parameter gradients come from the first half and cover this rank
 * only. */
#include "nn/host/host.h"
#include "nn/ref/ref_impl.h"

static struct node_view back(const struct op *op)
{
	return view(op, op->p->base.n);
}

static float *dw(const struct op *op)
{
	return gradient_at(op->p->base.net, op->grads, ct_graph_node(op->p->base.graph, op->id)->weight);
}

static float *db(const struct op *op)
{
	return gradient_at(op->p->base.net, op->grads, ct_graph_node(op->p->base.graph, op->id)->bias);
}

void ct__ref_linear_grad(const struct op *op)
{
	const struct node_view t = back(op);

	ct__ref_linear_backward(t.n, (int)t.a->elems, t.node->shape.c, t.a->y, t.w, t.v->dy, t.a->dy, dw(op), db(op),
				op->p->acc);
}

void ct__ref_conv2d_grad(const struct op *op)
{
	const struct node_view t = back(op);

	ct__ref_conv_backward(t.node, t.in, t.n, t.a->y, t.w, t.v->dy, t.a->dy, dw(op), db(op), op->p->acc);
}

void ct__ref_relu_grad(const struct op *op)
{
	const struct node_view t = back(op);

	for (size_t i = 0; i < t.elems; i++)
		t.a->dy[i] += t.a->y[i] <= 0 ? 0.0f : t.v->dy[i];
}

void ct__ref_max_pool_grad(const struct op *op)
{
	const struct node_view t = back(op);

	ct__ref_max_pool_backward(t.node, t.in, t.n, t.v->dy, t.v->argmax, t.a->dy);
}

void ct__ref_avg_pool_grad(const struct op *op)
{
	const struct node_view t = back(op);

	ct__ref_avg_pool_backward(t.node, t.in, t.n, t.v->dy, t.a->dy);
}

void ct__ref_global_avg_pool_grad(const struct op *op)
{
	const struct node_view t = back(op);
	const struct ct_node whole = global_pool(&t);

	ct__ref_avg_pool_backward(&whole, t.in, t.n, t.v->dy, t.a->dy);
}

void ct__ref_add_grad(const struct op *op)
{
	const struct node_view t = back(op);
	float *b = op->p->values[t.node->in[1]].dy;

	for (size_t i = 0; i < t.elems; i++) {
		t.a->dy[i] += t.v->dy[i];
		b[i] += t.v->dy[i];
	}
}

void ct__ref_copy_grad(const struct op *op)
{
	const struct node_view t = back(op);

	for (size_t i = 0; i < t.elems; i++)
		t.a->dy[i] += t.v->dy[i];
}

void ct__ref_dropout_grad(const struct op *op)
{
	const struct node_view t = back(op);

	for (size_t i = 0; i < t.elems; i++)
		t.a->dy[i] += t.v->dy[i] * t.v->mask[i];
}

void ct__ref_drop_path_grad(const struct op *op)
{
	const struct node_view t = back(op);

	scale_rows(t.a->dy, t.v->dy, t.v->mask, t.n, t.v->elems, true);
}

void ct__ref_loss_grad(const struct op *op)
{
	const struct node_view t = back(op);

	for (size_t i = 0; i < t.in_elems; i++)
		t.a->dy[i] += op->scale * op->p->dlogits[i];
}

void ct__ref_output_grad(const struct op *op)
{
	const struct node_view t = back(op);

	for (size_t i = 0; i < t.in_elems; i++)
		t.a->dy[i] += op->dy[i];
}

static enum ct_status run_norm_sums(const void *args)
{
	const struct op *op = args;
	const ct_net *net = op->p->base.net;
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);
	const struct value *v = &op->p->values[op->id];

	ct_batch_norm_backward_sums(node, op->p->base.n, op->p->values[node->in[0]].y, v->dy, v->stat,
				    gradient_at(net, op->grads, node->weight), gradient_at(net, op->grads, node->bias));
	return CT_OK;
}

static enum ct_status run_norm_data(const void *args)
{
	const struct op *op = args;
	const ct_net *net = op->p->base.net;
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);
	const struct value *v = &op->p->values[op->id], *a = &op->p->values[node->in[0]];

	ct_batch_norm_backward_data(node, op->p->base.n, a->y, param_at(net, net->params, node->weight), v->dy, v->stat,
				    a->dy);
	return CT_OK;
}

enum ct_status ct__ref_norm_backward(const struct op *op)
{
	const struct ct_node *node = ct_graph_node(op->p->base.graph, op->id);

	CT_TRY(post(op, run_norm_sums));
	if (!node->fixed_stats)
		CT_TRY(ct_norm_sync(op->p->base.net, node, ct_batch_norm_sums(node, op->p->values[op->id].stat),
				    2 * (size_t)node->shape.c));
	return post(op, run_norm_data);
}
