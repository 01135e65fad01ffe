/* The table of operations, and which of them can read a flattened image. A flattened value keeps the layout NHWC of the
 * image, in which its elements have another order than in the logical layout. Element-wise operations give the same
 * results, and so do linear layers, whose columns are permuted (layout.c). Others would read wrong elements and are
 * refused before a net is created. A max pool stores its taps as bytes, which limits its windows. */
#include "nn/cuda/compile/op.h"

enum { MAX_WINDOW = 256 }; /* of a maximum pool, which stores the index in the window in one byte */

static const struct cuda_op op_input = {CT_IN_ALL, CUDA_OWN_LAYOUT, false, NULL, ct__cuda_forward_input, NULL};
static const struct cuda_op op_linear = {CT_IN_ALL, CUDA_OWN_LAYOUT, true, ct__cuda_join_layer, NULL, NULL};
static const struct cuda_op op_conv2d = {CT_IN_ALL, CUDA_OWN_LAYOUT, false, ct__cuda_join_layer, NULL, NULL};
static const struct cuda_op op_batch_norm = {CT_IN_ALL, CUDA_OWN_LAYOUT, false, ct__cuda_join_norm, NULL, NULL};
static const struct cuda_op op_relu = {CT_IN_ALL, CUDA_INPUT_LAYOUT, true, ct__cuda_join_relu, NULL, NULL};
static const struct cuda_op op_max_pool = {CT_IN_ALL, CUDA_OWN_LAYOUT,       false,
					   NULL,      ct__cuda_forward_pool, ct__cuda_backward_pool};
static const struct cuda_op op_avg_pool = {CT_IN_ALL, CUDA_OWN_LAYOUT,       false,
					   NULL,      ct__cuda_forward_pool, ct__cuda_backward_pool};
static const struct cuda_op op_global_avg_pool = {CT_IN_ALL, CUDA_OWN_LAYOUT,       false,
						  NULL,      ct__cuda_forward_pool, ct__cuda_backward_pool};
static const struct cuda_op op_add = {CT_IN_ALL, CUDA_INPUT_LAYOUT, true, ct__cuda_join_add, NULL, NULL};
/* The users of a flattened value write the gradient of its input. */
static const struct cuda_op op_flatten = {CT_IN_ALL, CUDA_INPUT_VALUE, true, NULL, NULL, NULL};
static const struct cuda_op op_dropout = {CT_IN_ALL, CUDA_INPUT_IN_EVAL,       true,
					  NULL,      ct__cuda_forward_dropout, ct__cuda_backward_dropout};
static const struct cuda_op op_drop_path = {CT_IN_ALL, CUDA_INPUT_IN_EVAL,       true,
					    NULL,      ct__cuda_forward_dropout, ct__cuda_backward_dropout};
static const struct cuda_op op_softmax_cross_entropy = {CT_IN_ALL, CUDA_OWN_LAYOUT,       false,
							NULL,      ct__cuda_forward_loss, ct__cuda_backward_loss};
static const struct cuda_op op_mse = {CT_IN_ALL, CUDA_OWN_LAYOUT,       false,
				      NULL,      ct__cuda_forward_loss, ct__cuda_backward_loss};
/* The caller gets NCHW, in which flattening changes nothing. */
static const struct cuda_op op_output = {CT_IN_ALL, CUDA_OWN_LAYOUT,         true,
					 NULL,      ct__cuda_forward_output, ct__cuda_backward_output};

const struct cuda_op *ct__cuda_op(enum ct_op op)
{
#define ROW(ID, name) [CT_OP_##ID] = &op_##name,
	static const struct cuda_op *const rows[] = {CT_OPS(ROW)};

	return rows[op];
}

unsigned ct__cuda_computes(enum ct_op op)
{
	return ct__cuda_op(op)->precisions;
}

struct ct_shape ct__cuda_stored_shape(const ct_graph *g, int id)
{
	const struct ct_node *node = ct_graph_node(g, id);

	for (; ct__cuda_op(node->op)->place != CUDA_OWN_LAYOUT; node = ct_graph_node(g, id))
		id = node->in[0];
	return node->shape;
}

static bool same_shape(struct ct_shape a, struct ct_shape b)
{
	return a.c == b.c && a.h == b.h && a.w == b.w;
}

enum ct_status ct__cuda_check_node(const ct_graph *g, int id)
{
	const struct ct_node *node = ct_graph_node(g, id);
	const int *in = node->in;

	if (in[0] < 0)
		return CT_OK;
	const struct ct_shape stored = ct__cuda_stored_shape(g, in[0]);
	if ((!ct__cuda_op(node->op)->takes_flattened && !same_shape(stored, ct_graph_node(g, in[0])->shape)) ||
	    (in[1] >= 0 && !same_shape(stored, ct__cuda_stored_shape(g, in[1]))))
		return CT_FAIL(CT_UNSUPPORTED, "%s: the cuda engine does not support %s on a flattened image",
			       node->name, ct_op_name(node->op));
	if (node->op == CT_OP_MAX_POOL && node->win.r * node->win.s > MAX_WINDOW)
		return CT_FAIL(CT_UNSUPPORTED, "%s: the cuda engine pools over windows of at most %d elements",
			       node->name, MAX_WINDOW);
	return CT_OK;
}
