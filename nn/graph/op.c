/* One descriptor for each operation, and the functions that they refer to. `build` gets a node with the shape of its
 * first input, checks the attributes, sets the shape and adds tensors in the order of PyTorch's state_dict. Output
 * sizes are rounded down, as in PyTorch with ceil_mode=False. Every window of a pool must contain an element of the
 * image, because engines divide by the number of its elements or store the position of its maximum. For this, the
 * padding is at most half of the kernel. With dilation this is not sufficient, so the windows of a dilated pool are
 * checked one by one. */
#include "nn/graph/op.h"

#include "nn/graph/graph_impl.h"

static const struct ct_shape *input_shape(const ct_graph *g, const struct ct_node *node)
{
	return &g->nodes[node->in[0]].shape;
}

static double n_elems(const struct ct_shape *s)
{
	return (double)s->c * s->h * s->w;
}

static double no_flops(const ct_graph *g, const struct ct_node *node)
{
	(void)g;
	(void)node;
	return 0;
}

static double one_flop_per_element(const ct_graph *g, const struct ct_node *node)
{
	(void)g;
	return n_elems(&node->shape);
}

static double two_flops_per_element(const ct_graph *g, const struct ct_node *node)
{
	(void)g;
	return 2 * n_elems(&node->shape);
}

static double one_flop_per_input(const ct_graph *g, const struct ct_node *node)
{
	return n_elems(input_shape(g, node));
}

static double one_flop_per_tap(const ct_graph *g, const struct ct_node *node)
{
	(void)g;
	return n_elems(&node->shape) * ((double)node->win.r * node->win.s);
}

static double multiply_adds(const ct_graph *g, const struct ct_node *node)
{
	const double out = n_elems(&node->shape);

	return 2 * out * g->params[node->weight].fan_in + (node->bias >= 0 ? out : 0);
}

/* For operations without attributes that keep the shape of their input. */
static enum ct_status build_elementwise(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	(void)g;
	(void)node;
	(void)a;
	return CT_OK;
}

static enum ct_status add_weight_bias(ct_graph *g, struct ct_node *node, int ndim, const int *dims, const int fan[2],
				      bool bias)
{
	CT_TRY(ct__graph_add_tensor(g, CT_PARAM_WEIGHT, "weight", ndim, dims, fan, &node->weight));
	if (bias)
		CT_TRY(ct__graph_add_tensor(g, CT_PARAM_BIAS, "bias", 1, dims, fan, &node->bias));
	return CT_OK;
}

static enum ct_status build_linear(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	const struct ct_shape in = node->shape;
	const int features = in.c * in.h * in.w, k = a->k;

	if (k < 1)
		return CT_FAIL(CT_CONFIG, "%s: %d output features, but at least 1 is needed", node->name, k);
	node->shape = (struct ct_shape){k, 1, 1};
	return add_weight_bias(g, node, 2, (int[]){k, features}, (int[]){features, k}, a->bias);
}

/* Output size of a convolution or pooling kernel along one axis. */
static enum ct_status extent(const struct ct_node *node, bool height, int *out)
{
	const struct ct_window *w = &node->win;
	int64_t in = height ? node->shape.h : node->shape.w, kernel = height ? w->r : w->s;
	int64_t pad = height ? w->pad_h : w->pad_w, stride = height ? w->stride_h : w->stride_w;
	int64_t dilation = height ? w->dilation_h : w->dilation_w, span = (kernel - 1) * dilation + 1;
	bool pool = node->op != CT_OP_CONV2D;

	if (kernel < 1 || kernel > 4096 || stride < 1 || stride > 65536 || dilation < 1 || dilation > 65536 ||
	    pad < 0 || pad > 65536)
		return CT_FAIL(
			CT_CONFIG,
			"%s: kernel %d, stride %d, padding %d, dilation %d: kernel, stride and dilation must be at "
			"least 1, and padding at least 0",
			node->name, (int)kernel, (int)stride, (int)pad, (int)dilation);
	if (pool && pad * 2 > kernel)
		return CT_FAIL(CT_CONFIG, "%s: padding %d is more than half of the kernel %d", node->name, (int)pad,
			       (int)kernel);
	if (span > in + 2 * pad)
		return CT_FAIL(CT_CONFIG, "%s: kernel %dx%d%s is larger than the padded input %dx%d", node->name, w->r,
			       w->s, w->dilation_h * w->dilation_w > 1 ? " (dilated)" : "",
			       node->shape.h + 2 * w->pad_h, node->shape.w + 2 * w->pad_w);
	*out = (int)((in + 2 * pad - span) / stride + 1);
	/* A dilated kernel may cover only padding. */
	for (int64_t o = 0; pool && dilation > 1 && o < *out; o++) {
		int64_t first = o * stride - pad, skip = first < 0 ? (-first + dilation - 1) / dilation : 0;

		if (skip >= kernel || first + skip * dilation >= in)
			return CT_FAIL(CT_CONFIG,
				       "%s: with dilation %d and padding %d, some windows cover padding only",
				       node->name, (int)dilation, (int)pad);
	}
	return CT_OK;
}

static enum ct_status apply_window(struct ct_node *node, struct ct_window win, int channels)
{
	int h, w;

	node->win = win;
	CT_TRY(extent(node, true, &h));
	CT_TRY(extent(node, false, &w));
	if ((int64_t)h * w > CT__MAX_VALUE_ELEMS / channels)
		return CT_FAIL(CT_CONFIG, "%s: output %dx%dx%d is too large", node->name, channels, h, w);
	node->shape = (struct ct_shape){channels, h, w};
	return CT_OK;
}

static enum ct_status build_conv2d(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	const struct ct_window *win = &a->win;
	const int c = node->shape.c, k = a->k, groups = a->groups;

	if (k < 1)
		return CT_FAIL(CT_CONFIG, "%s: %d output channels, but at least 1 is needed", node->name, k);
	if (groups < 1 || c % groups || k % groups)
		return CT_FAIL(CT_CONFIG, "%s: %d groups do not divide %d input and %d output channels", node->name,
			       groups, c, k);
	CT_TRY(apply_window(node, *win, k));
	node->groups = groups;
	const int64_t fan_in = (int64_t)c / groups * win->r * win->s, fan_out = (int64_t)k * win->r * win->s;
	if (fan_in > CT__MAX_VALUE_ELEMS || fan_out > CT__MAX_VALUE_ELEMS)
		return CT_FAIL(CT_CONFIG, "%s: the weight is too large", node->name);
	return add_weight_bias(g, node, 4, (int[]){k, c / groups, win->r, win->s}, (int[]){(int)fan_in, (int)fan_out},
			       a->bias);
}

static enum ct_status build_batch_norm(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	static const int fan[2] = {1, 1};
	const int dims[1] = {node->shape.c};

	if (!(a->eps > 0 && a->eps < 1) || !(a->momentum >= 0 && a->momentum <= 1))
		return CT_FAIL(CT_CONFIG, "%s: eps %g must be in (0, 1) and momentum %g in [0, 1]", node->name,
			       (double)a->eps, (double)a->momentum);
	node->eps = a->eps;
	node->momentum = a->momentum;
	CT_TRY(ct__graph_add_tensor(g, CT_PARAM_BN_WEIGHT, "weight", 1, dims, fan, &node->weight));
	CT_TRY(ct__graph_add_tensor(g, CT_PARAM_BN_BIAS, "bias", 1, dims, fan, &node->bias));
	CT_TRY(ct__graph_add_tensor(g, CT_PARAM_RUNNING_MEAN, "running_mean", 1, dims, fan, &node->mean));
	return ct__graph_add_tensor(g, CT_PARAM_RUNNING_VAR, "running_var", 1, dims, fan, &node->var);
}

static enum ct_status build_max_pool(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	(void)g;
	return apply_window(node, a->win, node->shape.c);
}

static enum ct_status build_avg_pool(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	(void)g;
	if (a->win.dilation_h != 1 || a->win.dilation_w != 1)
		return CT_FAIL(CT_CONFIG, "%s: average pooling does not support dilation", node->name);
	return apply_window(node, a->win, node->shape.c);
}

static enum ct_status build_global_avg_pool(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	(void)g;
	(void)a;
	node->shape = (struct ct_shape){node->shape.c, 1, 1};
	return CT_OK;
}

static enum ct_status build_add(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *attrs)
{
	const struct ct_node *a = &g->nodes[node->in[0]], *b = &g->nodes[node->in[1]];
	const struct ct_shape s = a->shape, t = b->shape;

	(void)attrs;
	if (s.c != t.c || s.h != t.h || s.w != t.w)
		return CT_FAIL(CT_CONFIG,
			       "%s: cannot add %s of shape %dx%dx%d and %s of shape %dx%dx%d: the shapes must be equal",
			       node->name, a->name, s.c, s.h, s.w, b->name, t.c, t.h, t.w);
	return CT_OK;
}

static enum ct_status build_flatten(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	const struct ct_shape s = node->shape;

	(void)g;
	(void)a;
	node->shape = (struct ct_shape){s.c * s.h * s.w, 1, 1};
	return CT_OK;
}

static enum ct_status build_dropout(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	(void)g;
	if (!(a->p >= 0 && a->p < 1))
		return CT_FAIL(CT_CONFIG, "%s: %s probability %g must be in [0, 1)", node->name, ct_op_name(node->op),
			       (double)a->p);
	node->p = a->p;
	return CT_OK;
}

static enum ct_status build_mse(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	const struct ct_shape s = node->shape;

	(void)a;
	if (s.h != 1 || s.w != 1)
		return CT_FAIL(CT_CONFIG,
			       "the loss needs a vector, but the output of %s is %dx%dx%d: flatten or pool it first",
			       g->nodes[node->in[0]].name, s.c, s.h, s.w);
	node->shape = (struct ct_shape){1, 1, 1};
	return CT_OK;
}

static enum ct_status build_softmax_xent(ct_graph *g, struct ct_node *node, const struct ct_op_attrs *a)
{
	const int classes = node->shape.c;

	CT_TRY(build_mse(g, node, a));
	if (classes < 2)
		return CT_FAIL(CT_CONFIG, "cross-entropy needs at least 2 classes, but %s has %d outputs",
			       g->nodes[node->in[0]].name, classes);
	if (!(a->label_smoothing >= 0 && a->label_smoothing < 1))
		return CT_FAIL(CT_CONFIG, "label smoothing %g must be in [0, 1)", (double)a->label_smoothing);
	node->label_smoothing = a->label_smoothing;
	return CT_OK;
}

#define BIT CT_ATTR_BIT
#define WINDOW (BIT(CT_ATTR_KERNEL) | BIT(CT_ATTR_STRIDE) | BIT(CT_ATTR_PADDING))

static const struct ct_op_info op_input = {
	.name = "input",
	.flops = no_flops,
};

static const struct ct_op_info op_linear = {
	.name = "linear",
	.n_inputs = 1,
	.build = build_linear,
	.flops = multiply_adds,
	.layer = {.prefix = "fc",
		  .required = BIT(CT_ATTR_FEATURES),
		  .allowed = BIT(CT_ATTR_FEATURES) | BIT(CT_ATTR_BIAS)},
	.exported = {.takes = CT_RANK_2,
		     .gives = CT_RANK_2,
		     .onnx = "Gemm transB",
		     .python_module = "nn.Linear({features}, {k}, bias={bias})"},
};

static const struct ct_op_info op_conv2d = {
	.name = "conv2d",
	.n_inputs = 1,
	.build = build_conv2d,
	.flops = multiply_adds,
	.layer = {.prefix = "conv",
		  .required = BIT(CT_ATTR_CHANNELS) | BIT(CT_ATTR_KERNEL),
		  .allowed = WINDOW | BIT(CT_ATTR_CHANNELS) | BIT(CT_ATTR_DILATION) | BIT(CT_ATTR_GROUPS) |
			     BIT(CT_ATTR_BIAS)},
	.exported = {.takes = CT_RANK_4,
		     .gives = CT_RANK_4,
		     .onnx = "Conv kernel_shape strides pads dilations group",
		     .python_module = "nn.Conv2d({c}, {k}, {kernel}, stride={stride}, padding={padding}, "
				      "dilation={dilation}, groups={groups}, bias={bias})"},
};

static const struct ct_op_info op_batch_norm = {
	.name = "batch_norm",
	.n_inputs = 1,
	.build = build_batch_norm,
	.flops = two_flops_per_element,
	.layer = {.prefix = "bn", .allowed = BIT(CT_ATTR_EPS) | BIT(CT_ATTR_MOMENTUM)},
	.exported = {.onnx = "BatchNormalization epsilon",
		     .python_module = "nn.BatchNorm{axes}d({k}, eps={eps}, momentum={momentum})"},
};

static const struct ct_op_info op_relu = {
	.name = "relu",
	.n_inputs = 1,
	.build = build_elementwise,
	.flops = one_flop_per_element,
	.layer = {.prefix = "relu"},
	.exported = {.onnx = "Relu", .python = "F.relu({x})"},
};

static const struct ct_op_info op_max_pool = {
	.name = "max_pool",
	.n_inputs = 1,
	.build = build_max_pool,
	.flops = one_flop_per_tap,
	.layer = {.prefix = "pool",
		  .required = BIT(CT_ATTR_KERNEL),
		  .allowed = WINDOW | BIT(CT_ATTR_DILATION),
		  .stride_of_kernel = true},
	.exported = {.takes = CT_RANK_4,
		     .gives = CT_RANK_4,
		     .onnx = "MaxPool kernel_shape strides pads dilations",
		     .python = "F.max_pool2d({x}, {kernel}, {stride}, {padding}, {dilation})"},
};

static const struct ct_op_info op_avg_pool = {
	.name = "avg_pool",
	.n_inputs = 1,
	.build = build_avg_pool,
	.flops = one_flop_per_tap,
	.layer = {.prefix = "pool", .required = BIT(CT_ATTR_KERNEL), .allowed = WINDOW, .stride_of_kernel = true},
	.exported = {.takes = CT_RANK_4,
		     .gives = CT_RANK_4,
		     .onnx = "AveragePool kernel_shape strides pads count_include_pad",
		     .python = "F.avg_pool2d({x}, {kernel}, {stride}, {padding}, count_include_pad=False)"},
};

static const struct ct_op_info op_global_avg_pool = {
	.name = "global_avg_pool",
	.n_inputs = 1,
	.build = build_global_avg_pool,
	.flops = one_flop_per_input,
	.layer = {.prefix = "pool"},
	.exported = {.takes = CT_RANK_4,
		     .gives = CT_RANK_4,
		     .onnx = "GlobalAveragePool",
		     .python = "F.adaptive_avg_pool2d({x}, 1)"},
};

static const struct ct_op_info op_add = {
	.name = "add",
	.n_inputs = 2,
	.build = build_add,
	.flops = one_flop_per_element,
	.layer = {.prefix = "add", .required = BIT(CT_ATTR_FROM)},
	.exported = {.onnx = "Add", .python = "{x} + {y}"},
};

static const struct ct_op_info op_flatten = {
	.name = "flatten",
	.n_inputs = 1,
	.build = build_flatten,
	.flops = no_flops,
	.layer = {.prefix = "flatten"},
	.exported = {.takes = CT_RANK_4,
		     .gives = CT_RANK_2,
		     .identity = CT_IDENTITY_OF_VECTORS,
		     .onnx = "Flatten",
		     .python = "torch.flatten({any}, 1)"},
};

static const struct ct_op_info op_dropout = {
	.name = "dropout",
	.n_inputs = 1,
	.build = build_dropout,
	.flops = one_flop_per_element,
	.layer = {.prefix = "drop", .required = BIT(CT_ATTR_P), .allowed = BIT(CT_ATTR_P)},
	.exported = {.identity = CT_IDENTITY_IN_EVALUATION, .python = "F.dropout({x}, {p}, self.training)"},
};

static const struct ct_op_info op_drop_path = {
	.name = "drop_path",
	.n_inputs = 1,
	.build = build_dropout,
	.flops = one_flop_per_element,
	.layer = {.prefix = "path", .required = BIT(CT_ATTR_P), .allowed = BIT(CT_ATTR_P)},
	.exported = {.identity = CT_IDENTITY_IN_EVALUATION, .python = "drop_path({x}, {p}, self.training)"},
};

static const struct ct_op_info op_softmax_cross_entropy = {
	.name = "softmax_cross_entropy",
	.n_inputs = 1,
	.is_loss = true,
	.build = build_softmax_xent,
	.flops = no_flops,
};

static const struct ct_op_info op_mse = {
	.name = "mse",
	.n_inputs = 1,
	.is_loss = true,
	.build = build_mse,
	.flops = no_flops,
};

static const struct ct_op_info op_output = {
	.name = "output",
	.n_inputs = 1,
	.flops = no_flops,
};

const struct ct_op_info *ct_op_info(enum ct_op op)
{
#define ROW(ID, name) [CT_OP_##ID] = &op_##name,
	static const struct ct_op_info *const infos[] = {CT_OPS(ROW)};

	CT_ASSERT((unsigned)op < CT_N_OPS);
	return infos[op];
}
