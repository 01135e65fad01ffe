/* Programs and kernels of the reference engine: plain [N,C,H,W] loops, sums in double. They are written to be obviously
 * correct. The other engines are tested against this engine, and this engine is tested against finite differences.
 *
 * Backward kernels add to dx, because a value may have several users, and overwrite dw and db. */
#ifndef CT_NN_REF_REF_IMPL_H
#define CT_NN_REF_REF_IMPL_H

#include "nn/engine_impl.h"

struct value {
	size_t elems;    /* number of elements of one sample */
	float *y, *dy;   /* [N,C,H,W]; dy in training programs only */
	float *mask;     /* dropout: one factor per element; drop path: one per row */
	double *stat;    /* batch norm */
	int32_t *argmax; /* max pool */
};

struct ref_program {
	ct_program base;
	struct value *values; /* [n_nodes] */
	float *dlogits;
	double *acc; /* scratch memory of the kernels */
};

/* Arguments of one posted operation of a pass. */
struct op {
	struct ref_program *p;
	int id; /* of the node */
	float scale;
	const float *dy; /* of the output of a stage */
	float *dx;       /* of its input; NULL: not requested */
	ct_arena *grads;
	struct ct_batch batch;
	struct ct_metrics *metrics;
};

static inline float *param_at(const ct_net *net, const ct_arena *arena, int param)
{
	return param < 0 ? NULL : ct_arena_at(arena, net->slices[net->slice_of[param]].offset);
}

/* Returns NULL for a parameter without gradient: frozen, in a node that has only frozen ones. */
static inline float *gradient_at(const ct_net *net, const ct_arena *grads, int param)
{
	return param < 0 || net->slice_of[param] >= net->n_trained ? NULL : param_at(net, grads, param);
}

static inline enum ct_status post(const struct op *op, ct_stream_fn fn)
{
	return ct_stream_run(op->p->base.net->engine->stream, fn, op, sizeof(*op));
}

/* Multiplies each row of x by its factor. Writes the result to y, or adds it to y if `add` is set. */
static inline void scale_rows(float *y, const float *x, const float *factor, int rows, size_t elems, bool add)
{
	for (int i = 0; i < rows; i++) {
		for (size_t j = (size_t)i * elems; j < (size_t)(i + 1) * elems; j++)
			y[j] = (add ? y[j] : 0.0f) + x[j] * factor[i];
	}
}

/* How the engine computes an operation. All functions add to the gradients of the inputs. */
struct ref_op {
	unsigned precisions; /* struct ct_engine_ops.computes */
	/* Run in the stream. NULL: there is nothing to do. */
	void (*forward)(const struct op *op);
	void (*backward)(const struct op *op);
	/* For operations that wait for other ranks: these functions post the pass instead. */
	enum ct_status (*post_forward)(const struct op *op);
	enum ct_status (*post_backward)(const struct op *op);
};
const struct ref_op *ct__ref_op(enum ct_op op); /* op.c: one row for each operation */

/* The tensors of a node. */
struct node_view {
	const struct ct_node *node;
	const struct value *v, *a; /* its value and that of its first input */
	struct ct_shape in;        /* the shape of a */
	int n;                     /* rows */
	size_t elems, in_elems;    /* of v and a in these rows */
	const float *w, *bias;     /* NULL: none */
};

static inline struct node_view view(const struct op *op, int rows)
{
	const struct ref_program *p = op->p;
	const struct ct_node *node = ct_graph_node(p->base.graph, op->id);
	const struct value *v = &p->values[op->id], *a = &p->values[node->in[0]];
	const ct_net *net = p->base.net;

	return (struct node_view){.node = node,
				  .v = v,
				  .a = a,
				  .in = ct_graph_node(p->base.graph, node->in[0])->shape,
				  .n = rows,
				  .elems = v->elems * (size_t)rows,
				  .in_elems = a->elems * (size_t)rows,
				  .w = param_at(net, net->params, node->weight),
				  .bias = param_at(net, net->params, node->bias)};
}

/* A pool over the complete image. */
static inline struct ct_node global_pool(const struct node_view *t)
{
	struct ct_node whole = *t->node;

	whole.win = (struct ct_window){t->in.h, t->in.w, 1, 1, 0, 0, 1, 1};
	return whole;
}

/* op.c, op_backward.c: batch norm. */
enum ct_status ct__ref_norm_forward(const struct op *op) CT_MUST_CHECK;
enum ct_status ct__ref_norm_backward(const struct op *op) CT_MUST_CHECK;
/* op_backward.c: the other operations. */
void ct__ref_linear_grad(const struct op *op);
void ct__ref_conv2d_grad(const struct op *op);
void ct__ref_relu_grad(const struct op *op);
void ct__ref_max_pool_grad(const struct op *op);
void ct__ref_avg_pool_grad(const struct op *op);
void ct__ref_global_avg_pool_grad(const struct op *op);
void ct__ref_add_grad(const struct op *op);
void ct__ref_copy_grad(const struct op *op);
void ct__ref_dropout_grad(const struct op *op);
void ct__ref_drop_path_grad(const struct op *op);
void ct__ref_loss_grad(const struct op *op);
void ct__ref_output_grad(const struct op *op);

enum ct_status ct__ref_backward(ct_program *base, const struct ct_backward_opts *opts, ct_arena *grads);

/* x [n,F], w [K,F], b [K] or NULL, y [n,K]. acc: scratch memory [F]. */
void ct__ref_linear_forward(int n, int features, int k, const float *x, const float *w, const float *b, float *y);
void ct__ref_linear_backward(int n, int features, int k, const float *x, const float *w, const float *dy, float *dx,
			     float *dw, float *db, double *acc); /* dw and db may be NULL */

/* x [n,C,H,W], w [K,C/groups,R,S], y [n,K,OH,OW]. acc: scratch memory for max(H*W, OH*OW) elements. */
void ct__ref_conv_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			  const float *b, float *y, double *acc);
void ct__ref_conv_backward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			   const float *dy, float *dx, float *dw, float *db, double *acc);

/* argmax [n,C,OH,OW]: index of the first maximum within the input plane; a NaN counts as the maximum. */
void ct__ref_max_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y,
			      int32_t *argmax);
void ct__ref_max_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy,
			       const int32_t *argmax, float *dx);
void ct__ref_avg_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y);
void ct__ref_avg_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy, float *dx);

#endif
