/* Shapes and names come from configs, so builders check them all: sizes are limited such that engines can use 32-bit
 * indices, and products are computed so that they cannot overflow. The first error is stored in the graph. After it,
 * builders return 0, which is a valid node, so models need no checks between layers. A node whose parameters could not
 * be built stays in the list; this is harmless, because a graph with an error is never finished.
 *
 * The rules of each operation are in op.c. A rule gets a node that has just been appended; parameters always belong to
 * the last node. A pointer to a node is valid only until the next node is added. */
#include "nn/graph/graph_impl.h"

#include <string.h>

#include "base/mem.h"
#include "nn/graph/op.h"

#define MAX_NODES 65536
#define MAX_EXTENT (1 << 20) /* height and width */

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
	    (int64_t)input.h * input.w > CT__MAX_VALUE_ELEMS / input.c)
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
	if (g->finished || ct_op_info(g->nodes[a].op)->is_loss)
		return CT_FAIL(CT_CONFIG, "%s: nothing can follow the loss", name);
	CT_TRY(ct__graph_append(g, op, a, b, out));
	memcpy((*out)->name, name, strlen(name) + 1);
	return CT_OK;
}

enum ct_status ct__graph_add_tensor(ct_graph *g, enum ct_param_kind kind, const char *suffix, int ndim, const int *dims,
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
		if (p.n > (size_t)CT__MAX_VALUE_ELEMS / (size_t)dims[i])
			return CT_FAIL(CT_CONFIG, "%s.%s has more than %d elements", node->name, suffix,
				       CT__MAX_VALUE_ELEMS);
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

static enum ct_status add_op(ct_graph *g, enum ct_op op, const char *name, int a, int b,
			     const struct ct_op_attrs *attrs)
{
	const struct ct_op_info *info = ct_op_info(op);
	struct ct_node *node;

	CT_ASSERT(info->build);
	if (info->is_loss && g->loss >= 0)
		return CT_FAIL(CT_CONFIG, "a model must have one loss head, but this one has two");
	CT_TRY(add_node(g, op, name, a, b, &node));
	CT_TRY(info->build(g, node, attrs));
	if (info->is_loss)
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

int ct_graph_op(ct_graph *g, enum ct_op op, const char *name, int a, int b, const struct ct_op_attrs *attrs)
{
	BUILD(g, add_op(g, op, name, a, b, attrs));
}

static int unary(ct_graph *g, enum ct_op op, const char *name, int x, struct ct_op_attrs attrs)
{
	return ct_graph_op(g, op, name, x, -1, &attrs);
}

int ct_graph_linear(ct_graph *g, const char *name, int x, int k, bool bias)
{
	return unary(g, CT_OP_LINEAR, name, x, (struct ct_op_attrs){.k = k, .bias = bias});
}

int ct_graph_conv2d(ct_graph *g, const char *name, int x, int k, struct ct_window win, int groups, bool bias)
{
	return unary(g, CT_OP_CONV2D, name, x,
		     (struct ct_op_attrs){.k = k, .win = win, .groups = groups, .bias = bias});
}

int ct_graph_batch_norm(ct_graph *g, const char *name, int x, float eps, float momentum)
{
	return unary(g, CT_OP_BATCH_NORM, name, x, (struct ct_op_attrs){.eps = eps, .momentum = momentum});
}

int ct_graph_relu(ct_graph *g, const char *name, int x)
{
	return unary(g, CT_OP_RELU, name, x, (struct ct_op_attrs){0});
}

int ct_graph_max_pool(ct_graph *g, const char *name, int x, struct ct_window win)
{
	return unary(g, CT_OP_MAX_POOL, name, x, (struct ct_op_attrs){.win = win});
}

int ct_graph_global_avg_pool(ct_graph *g, const char *name, int x)
{
	return unary(g, CT_OP_GLOBAL_AVG_POOL, name, x, (struct ct_op_attrs){0});
}

int ct_graph_add(ct_graph *g, const char *name, int a, int b)
{
	return ct_graph_op(g, CT_OP_ADD, name, a, b, &(struct ct_op_attrs){0});
}

int ct_graph_flatten(ct_graph *g, const char *name, int x)
{
	return unary(g, CT_OP_FLATTEN, name, x, (struct ct_op_attrs){0});
}

int ct_graph_dropout(ct_graph *g, const char *name, int x, float p)
{
	return unary(g, CT_OP_DROPOUT, name, x, (struct ct_op_attrs){.p = p});
}

int ct_graph_drop_path(ct_graph *g, const char *name, int x, float p)
{
	return unary(g, CT_OP_DROP_PATH, name, x, (struct ct_op_attrs){.p = p});
}

int ct_graph_softmax_xent(ct_graph *g, int logits, float label_smoothing)
{
	return unary(g, CT_OP_SOFTMAX_XENT, "loss", logits, (struct ct_op_attrs){.label_smoothing = label_smoothing});
}

int ct_graph_mse(ct_graph *g, int prediction)
{
	return unary(g, CT_OP_MSE, "loss", prediction, (struct ct_op_attrs){0});
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
