#include "nn/graph/graph_impl.h"

#include <string.h>

#include "base/mem.h"

#define MAX_NODES 65536
#define MAX_EXTENT (1 << 20)      /* height and width */
#define MAX_VALUE_ELEMS INT32_MAX /* per sample and per parameter, because engines use 32-bit indices */

struct ct_window ct_window_square(int kernel, int stride, int padding)
{
	return (struct ct_window){.r = kernel,
				  .s = kernel,
				  .stride_h = stride,
				  .stride_w = stride,
				  .pad_h = padding,
				  .pad_w = padding,
				  .dilation_h = 1,
				  .dilation_w = 1};
}

/* Stores the first error, after which all builders return 0. */
static int fail(ct_graph *g, enum ct_status st)
{
	if (st < 0 && g->error.status == CT_OK) {
		ct_error_save(&g->error);
		ct_error_clear();
	}
	return 0;
}

static enum ct_status check_name(const char *name)
{
	size_t n = strlen(name);

	if (n == 0 || n >= sizeof(((struct ct_node *)0)->name))
		return CT_FAIL(CT_CONFIG, "layer name \"%.80s\" has %zu characters (1 to %zu are allowed)", name, n,
			       sizeof(((struct ct_node *)0)->name) - 1);
	for (const char *c = name; *c; c++) {
		bool word = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');

		if (!word && *c != '_' && *c != '.' && *c != '-')
			return CT_FAIL(CT_CONFIG,
				       "layer name \"%s\" may contain only letters, digits, '_', '-' and '.'", name);
	}
	return CT_OK;
}

enum ct_status ct_graph_create(struct ct_shape input, ct_graph **out)
{
	if (input.c < 1 || input.h < 1 || input.w < 1 || input.h > MAX_EXTENT || input.w > MAX_EXTENT ||
	    (int64_t)input.h * input.w > MAX_VALUE_ELEMS / input.c)
		return CT_FAIL(CT_CONFIG, "input shape %dx%dx%d is not supported", input.c, input.h, input.w);
	ct_graph *g;
	CT_TRY_ALLOC(g = CT_NEW(ct_graph));
	g->nodes = CT_NEW_ARRAY(struct ct_node, 16);
	if (!g->nodes) {
		ct_free(g);
		return CT_NOMEM;
	}
	g->cap_nodes = 16;
	g->n_nodes = 1;
	g->loss = -1;
	g->block = -1;
	g->nodes[0] = (struct ct_node){.op = CT_OP_INPUT,
				       .name = "input",
				       .in = {-1, -1},
				       .shape = input,
				       .groups = 1,
				       .weight = -1,
				       .bias = -1,
				       .mean = -1,
				       .var = -1,
				       .block = -1};
	*out = g;
	return CT_OK;
}

void ct_graph_destroy(ct_graph *g)
{
	if (!g)
		return;
	ct_free(g->nodes);
	ct_free(g->params);
	ct_free(g->buffers);
	ct_free(g);
}

enum ct_status ct__graph_append(ct_graph *g, enum ct_op op, int a, int b, struct ct_node **out)
{
	CT_TRY_GROW(g->nodes, g->n_nodes, g->cap_nodes);
	struct ct_node *node = &g->nodes[g->n_nodes++];
	*node = (struct ct_node){.op = op,
				 .in = {a, b},
				 .shape = g->nodes[a].shape,
				 .groups = 1,
				 .win = ct_window_square(1, 1, 0),
				 .weight = -1,
				 .bias = -1,
				 .mean = -1,
				 .var = -1,
				 .block = g->block,
				 .origin = g->n_nodes - 1};
	*out = node;
	return CT_OK;
}

static enum ct_status add_node(ct_graph *g, enum ct_op op, const char *name, int a, int b, struct ct_node **out)
{
	CT_TRY(check_name(name));
	if (g->n_nodes >= MAX_NODES)
		return CT_FAIL(CT_CONFIG, "%s: a model may have at most %d nodes", name, MAX_NODES);
	CT_ASSERT(a >= 0 && a < g->n_nodes && b >= -1 && b < g->n_nodes);
	if (g->finished || g->nodes[a].op == CT_OP_SOFTMAX_XENT || g->nodes[a].op == CT_OP_MSE)
		return CT_FAIL(CT_CONFIG, "%s: nothing can follow the loss", name);
	CT_TRY(ct__graph_append(g, op, a, b, out));
	memcpy((*out)->name, name, strlen(name) + 1);
	return CT_OK;
}

static enum ct_status add_tensor(ct_graph *g, enum ct_param_kind kind, const char *suffix, int ndim, const int *dims,
				 const int fan[2], int *id)
{
	bool buffer = kind == CT_PARAM_RUNNING_MEAN || kind == CT_PARAM_RUNNING_VAR;
	struct ct_param **list = buffer ? &g->buffers : &g->params;
	int *n = buffer ? &g->n_buffers : &g->n_params, *cap = buffer ? &g->cap_buffers : &g->cap_params;
	const struct ct_node *node = &g->nodes[g->n_nodes - 1];
	struct ct_param p = {.kind = kind,
			     .ndim = ndim,
			     .dims = {1, 1, 1, 1},
			     .n = 1,
			     .fan_in = fan[0],
			     .fan_out = fan[1],
			     .node = g->n_nodes - 1};
	struct ct_str text = {0};

	for (int i = 0; i < ndim; i++) {
		p.dims[i] = dims[i];
		if (p.n > (size_t)MAX_VALUE_ELEMS / (size_t)dims[i])
			return CT_FAIL(CT_CONFIG, "%s.%s has more than %d elements", node->name, suffix,
				       MAX_VALUE_ELEMS);
		p.n *= (size_t)dims[i];
	}
	ct_str_addf(&text, "%s.%s", node->name, suffix);
	enum ct_status st = ct_str_status(&text);
	if (st == CT_OK) {
		CT_ASSERT(text.len < sizeof(p.name)); /* node names are shorter than 64 */
		memcpy(p.name, text.s, text.len + 1);
	}
	ct_str_release(&text);
	CT_TRY(st);
	CT_TRY_GROW(*list, *n, *cap);
	(*list)[*n] = p;
	*id = (*n)++;
	return CT_OK;
}

static enum ct_status add_weight_bias(ct_graph *g, struct ct_node *node, int ndim, const int *dims, const int fan[2],
				      bool bias)
{
	CT_TRY(add_tensor(g, CT_PARAM_WEIGHT, "weight", ndim, dims, fan, &node->weight));
	if (bias)
		CT_TRY(add_tensor(g, CT_PARAM_BIAS, "bias", 1, dims, fan, &node->bias));
	return CT_OK;
}

static enum ct_status linear(ct_graph *g, const char *name, int x, int k, bool bias)
{
	struct ct_node *node;

	CT_TRY(add_node(g, CT_OP_LINEAR, name, x, -1, &node));
	if (k < 1)
		return CT_FAIL(CT_CONFIG, "%s: %d output features, but at least 1 is needed", name, k);
	struct ct_shape in = node->shape;
	int features = in.c * in.h * in.w;
	node->shape = (struct ct_shape){k, 1, 1};
	return add_weight_bias(g, node, 2, (int[]){k, features}, (int[]){features, k}, bias);
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
	if ((int64_t)h * w > MAX_VALUE_ELEMS / channels)
		return CT_FAIL(CT_CONFIG, "%s: output %dx%dx%d is too large", node->name, channels, h, w);
	node->shape = (struct ct_shape){channels, h, w};
	return CT_OK;
}

static enum ct_status conv2d(ct_graph *g, const char *name, int x, int k, struct ct_window win, int groups, bool bias)
{
	struct ct_node *node;

	CT_TRY(add_node(g, CT_OP_CONV2D, name, x, -1, &node));
	int c = node->shape.c;
	if (k < 1)
		return CT_FAIL(CT_CONFIG, "%s: %d output channels, but at least 1 is needed", name, k);
	if (groups < 1 || c % groups || k % groups)
		return CT_FAIL(CT_CONFIG, "%s: %d groups do not divide %d input and %d output channels", name, groups,
			       c, k);
	CT_TRY(apply_window(node, win, k));
	node->groups = groups;
	int64_t fan_in = (int64_t)c / groups * win.r * win.s, fan_out = (int64_t)k * win.r * win.s;
	if (fan_in > MAX_VALUE_ELEMS || fan_out > MAX_VALUE_ELEMS)
		return CT_FAIL(CT_CONFIG, "%s: the weight is too large", name);
	return add_weight_bias(g, node, 4, (int[]){k, c / groups, win.r, win.s}, (int[]){(int)fan_in, (int)fan_out},
			       bias);
}

static enum ct_status batch_norm(ct_graph *g, const char *name, int x, float eps, float momentum)
{
	struct ct_node *node;
	static const int fan[2] = {1, 1};

	CT_TRY(add_node(g, CT_OP_BATCH_NORM, name, x, -1, &node));
	if (!(eps > 0 && eps < 1) || !(momentum >= 0 && momentum <= 1))
		return CT_FAIL(CT_CONFIG, "%s: eps %g must be in (0, 1) and momentum %g in [0, 1]", name, (double)eps,
			       (double)momentum);
	node->eps = eps;
	node->momentum = momentum;
	int dims[1] = {node->shape.c};
	CT_TRY(add_tensor(g, CT_PARAM_BN_WEIGHT, "weight", 1, dims, fan, &node->weight));
	CT_TRY(add_tensor(g, CT_PARAM_BN_BIAS, "bias", 1, dims, fan, &node->bias));
	CT_TRY(add_tensor(g, CT_PARAM_RUNNING_MEAN, "running_mean", 1, dims, fan, &node->mean));
	return add_tensor(g, CT_PARAM_RUNNING_VAR, "running_var", 1, dims, fan, &node->var);
}

static enum ct_status pool(ct_graph *g, enum ct_op op, const char *name, int x, struct ct_window win)
{
	struct ct_node *node;

	CT_TRY(add_node(g, op, name, x, -1, &node));
	if (op == CT_OP_AVG_POOL && (win.dilation_h != 1 || win.dilation_w != 1))
		return CT_FAIL(CT_CONFIG, "%s: average pooling does not support dilation", name);
	return apply_window(node, win, node->shape.c);
}

static enum ct_status add(ct_graph *g, const char *name, int a, int b)
{
	struct ct_shape s = g->nodes[a].shape, t = g->nodes[b].shape;
	struct ct_node *node;

	CT_TRY(add_node(g, CT_OP_ADD, name, a, b, &node));
	if (s.c != t.c || s.h != t.h || s.w != t.w)
		return CT_FAIL(CT_CONFIG,
			       "%s: cannot add %s of shape %dx%dx%d and %s of shape %dx%dx%d: the shapes must be equal",
			       name, g->nodes[a].name, s.c, s.h, s.w, g->nodes[b].name, t.c, t.h, t.w);
	return CT_OK;
}

static enum ct_status reshape(ct_graph *g, enum ct_op op, const char *name, int x, bool flat)
{
	struct ct_node *node;

	CT_TRY(add_node(g, op, name, x, -1, &node));
	struct ct_shape s = node->shape;
	node->shape = (struct ct_shape){flat ? s.c * s.h * s.w : s.c, 1, 1};
	return CT_OK;
}

static enum ct_status dropout(ct_graph *g, enum ct_op op, const char *name, int x, float p)
{
	struct ct_node *node;

	CT_TRY(add_node(g, op, name, x, -1, &node));
	if (!(p >= 0 && p < 1))
		return CT_FAIL(CT_CONFIG, "%s: %s probability %g must be in [0, 1)", name, ct_op_name(op), (double)p);
	node->p = p;
	return CT_OK;
}

static enum ct_status zero_gamma(ct_graph *g, int id)
{
	CT_ASSERT(id >= 0 && id < g->n_nodes);
	if (g->nodes[id].op != CT_OP_BATCH_NORM)
		return CT_FAIL(CT_CONFIG, "%s: a %s has no gamma that could be initialized to 0", g->nodes[id].name,
			       ct_op_name(g->nodes[id].op));
	g->nodes[id].zero_gamma = true;
	return CT_OK;
}

static enum ct_status begin_block(ct_graph *g)
{
	if (g->block >= 0)
		return CT_FAIL(CT_CONFIG, "block %d has not ended: blocks cannot be nested", g->block);
	g->block = g->n_blocks++;
	return CT_OK;
}

static enum ct_status end_block(ct_graph *g)
{
	if (g->block < 0)
		return CT_FAIL(CT_CONFIG, "a block was ended that has not begun");
	g->block = -1;
	return CT_OK;
}

static enum ct_status loss(ct_graph *g, enum ct_op op, int x, float label_smoothing)
{
	struct ct_node *node;

	if (g->loss >= 0)
		return CT_FAIL(CT_CONFIG, "a model must have one loss head, but this one has two");
	CT_TRY(add_node(g, op, "loss", x, -1, &node));
	struct ct_shape s = node->shape;
	if (s.h != 1 || s.w != 1)
		return CT_FAIL(CT_CONFIG,
			       "the loss needs a vector, but the output of %s is %dx%dx%d: flatten or pool it first",
			       g->nodes[x].name, s.c, s.h, s.w);
	if (op == CT_OP_SOFTMAX_XENT && s.c < 2)
		return CT_FAIL(CT_CONFIG, "cross-entropy needs at least 2 classes, but %s has %d outputs",
			       g->nodes[x].name, s.c);
	if (!(label_smoothing >= 0 && label_smoothing < 1))
		return CT_FAIL(CT_CONFIG, "label smoothing %g must be in [0, 1)", (double)label_smoothing);
	node->label_smoothing = label_smoothing;
	node->shape = (struct ct_shape){1, 1, 1};
	g->loss = g->n_nodes - 1;
	return CT_OK;
}

/* Errors are sticky: returns 0 after the first one, otherwise the id of the node that was just created. */
#define BUILD(g, call)                                              \
	do {                                                        \
		if ((g)->error.status != CT_OK)                     \
			return 0;                                   \
		enum ct_status st_ = (call);                        \
		return st_ < 0 ? fail((g), st_) : (g)->n_nodes - 1; \
	} while (0)

int ct_graph_linear(ct_graph *g, const char *name, int x, int k, bool bias)
{
	BUILD(g, linear(g, name, x, k, bias));
}

int ct_graph_conv2d(ct_graph *g, const char *name, int x, int k, struct ct_window win, int groups, bool bias)
{
	BUILD(g, conv2d(g, name, x, k, win, groups, bias));
}

int ct_graph_batch_norm(ct_graph *g, const char *name, int x, float eps, float momentum)
{
	BUILD(g, batch_norm(g, name, x, eps, momentum));
}

int ct_graph_relu(ct_graph *g, const char *name, int x)
{
	struct ct_node *node;

	BUILD(g, add_node(g, CT_OP_RELU, name, x, -1, &node));
}

int ct_graph_max_pool(ct_graph *g, const char *name, int x, struct ct_window win)
{
	BUILD(g, pool(g, CT_OP_MAX_POOL, name, x, win));
}

int ct_graph_avg_pool(ct_graph *g, const char *name, int x, struct ct_window win)
{
	BUILD(g, pool(g, CT_OP_AVG_POOL, name, x, win));
}

int ct_graph_global_avg_pool(ct_graph *g, const char *name, int x)
{
	BUILD(g, reshape(g, CT_OP_GLOBAL_AVG_POOL, name, x, false));
}

int ct_graph_add(ct_graph *g, const char *name, int a, int b)
{
	BUILD(g, add(g, name, a, b));
}

int ct_graph_flatten(ct_graph *g, const char *name, int x)
{
	BUILD(g, reshape(g, CT_OP_FLATTEN, name, x, true));
}

int ct_graph_dropout(ct_graph *g, const char *name, int x, float p)
{
	BUILD(g, dropout(g, CT_OP_DROPOUT, name, x, p));
}

int ct_graph_drop_path(ct_graph *g, const char *name, int x, float p)
{
	BUILD(g, dropout(g, CT_OP_DROP_PATH, name, x, p));
}

void ct_graph_zero_gamma(ct_graph *g, int node)
{
	if (g->error.status == CT_OK)
		fail(g, zero_gamma(g, node));
}

void ct_graph_begin_block(ct_graph *g)
{
	if (g->error.status == CT_OK)
		fail(g, begin_block(g));
}

void ct_graph_end_block(ct_graph *g)
{
	if (g->error.status == CT_OK)
		fail(g, end_block(g));
}

int ct_graph_softmax_xent(ct_graph *g, int logits, float label_smoothing)
{
	BUILD(g, loss(g, CT_OP_SOFTMAX_XENT, logits, label_smoothing));
}

int ct_graph_mse(ct_graph *g, int prediction)
{
	BUILD(g, loss(g, CT_OP_MSE, prediction, 0));
}
