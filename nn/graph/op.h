/* One descriptor for each operation, with everything about it that does not depend on an engine: the rule for its
 * shape, the number of FLOPs, how `model.layers` names it, and how it is exported. op.c defines the descriptors. What
 * an engine needs is in a table of that engine. */
#ifndef CT_NN_GRAPH_OP_H
#define CT_NN_GRAPH_OP_H

#include "nn/graph/graph.h"

/* The keys of a layer in `model.layers` (nn/models/layers.c). */
enum ct_layer_key {
	CT_ATTR_CHANNELS,
	CT_ATTR_FEATURES,
	CT_ATTR_KERNEL,
	CT_ATTR_STRIDE,
	CT_ATTR_PADDING,
	CT_ATTR_DILATION,
	CT_ATTR_GROUPS,
	CT_ATTR_BIAS,
	CT_ATTR_EPS,
	CT_ATTR_MOMENTUM,
	CT_ATTR_P,
	CT_ATTR_NAME,
	CT_ATTR_FROM,
	CT_N_LAYER_KEYS
};
#define CT_ATTR_BIT(key) (1u << (key))

/* An operation as a layer: `NAME [VALUE] [KEY=VALUE]...`. name and from are always allowed. */
struct ct_op_layer {
	const char *prefix; /* of default names, such as "conv" in conv1; NULL: the operation is not a layer */
	/* CT_ATTR_BIT. The value of the first key that is both required and allowed may be written without "key=". */
	unsigned required, allowed;
	bool stride_of_kernel; /* the default stride is the kernel, not 1 */
};

/* Exported models have values of rank 2, [N,F], and of rank 4, [N,C,H,W]. */
enum ct_rank {
	CT_RANK_ANY, /* an input may have any rank, and so may the result: 2 if an input has rank 2 */
	CT_RANK_2,
	CT_RANK_4
};

/* Where an operation does not change its input, and may be omitted. */
enum ct_identity { CT_IDENTITY_NEVER, CT_IDENTITY_IN_EVALUATION, CT_IDENTITY_OF_VECTORS };

struct ct_op_export {
	enum ct_rank takes, gives;
	enum ct_identity identity;
	/* The operator of ONNX, and the names of its attributes (trainer/tools/export/onnx.c has a table of them), such
	 * as "BatchNormalization epsilon". Its inputs are those of the node, then its parameters, then its buffers.
	 * NULL if the operation is omitted in evaluation. */
	const char *onnx;
	/* The expression of PyTorch. Words in braces stand for operands and attributes
	 * (trainer/tools/export/export_python.c has a table of them), such as "F.relu({x})". NULL if the operation has
	 * a module. */
	const char *python;
	const char *python_module; /* how to create the module, such as "nn.Linear({features}, {k})"; NULL: none */
};

struct ct_op_info {
	const char *name;
	int n_inputs;
	bool is_loss;
	/* Checks the attributes and the shapes of the inputs, sets the members of the node that belong to the operation
	 * and its shape, which before the call is that of the first input, and adds its parameters and buffers. Fails
	 * with CT_CONFIG. NULL: only this directory adds such nodes. */
	enum ct_status (*build)(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a);
	/* For one sample, as ct_graph_flops states. */
	double (*flops)(const ct_graph *g, const struct ct_node *node);
	struct ct_op_layer layer;
	struct ct_op_export exported;
};

const struct ct_op_info *ct_op_info(enum ct_op op);

#endif
