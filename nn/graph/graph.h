/* The model as a static list of logical operations with shapes: no memory, no layout, no execution.
 *
 * A node produces one value; node ids are also value ids and grow in topological order. Shapes are per sample, the
 * batch dimension N is given when an engine compiles the graph. Logical layout of every value is [N,C,H,W] row-major;
 * vectors are C features with H = W = 1. Builders are sticky: after the first error (told by ct_graph_finish) they
 * do nothing and return 0. Parameter names are `<node name>.weight` and so on, as in torchvision's state_dict. */
#ifndef CT_NN_GRAPH_GRAPH_H
#define CT_NN_GRAPH_GRAPH_H

#include <stdint.h>

#include "base/status.h"

enum ct_op {
	CT_OP_INPUT,
	CT_OP_LINEAR,     /* y = x w^T + b; w [K,C], x is flattened logically (C*H*W features) */
	CT_OP_CONV2D,     /* w [K,C/groups,R,S] */
	CT_OP_BATCH_NORM, /* over N,H,W; parameters gamma, beta [C]; buffers running_mean, running_var [C] */
	CT_OP_RELU,
	CT_OP_MAX_POOL, /* padding counts as -inf */
	CT_OP_AVG_POOL, /* padding is not counted (count_include_pad = false) */
	CT_OP_GLOBAL_AVG_POOL,
	CT_OP_ADD,          /* two inputs of one shape */
	CT_OP_FLATTEN,      /* [C,H,W] -> C*H*W */
	CT_OP_DROPOUT,      /* keep with 1-p, scale by 1/(1-p); identity in evaluation */
	CT_OP_DROP_PATH,    /* stochastic depth (Huang et al. 2016), row mode: a row is kept with 1-p and scaled by
			     * 1/(1-p), or all zero; identity in evaluation */
	CT_OP_SOFTMAX_XENT, /* loss head: class labels, label smoothing as torch.nn.CrossEntropyLoss */
	CT_OP_MSE,          /* loss head: float targets [C]; mean over C, as torch.nn.MSELoss */
	CT_N_OPS
};
const char *ct_op_name(enum ct_op op);

struct ct_shape {
	int c, h, w;
};

struct ct_window {
	int r, s; /* kernel height, width */
	int stride_h, stride_w;
	int pad_h, pad_w; /* on both sides */
	int dilation_h, dilation_w;
};
struct ct_window ct_window_square(int kernel, int stride, int padding); /* dilation 1 */

enum ct_param_kind {
	CT_PARAM_WEIGHT,
	CT_PARAM_BIAS,
	CT_PARAM_BN_WEIGHT,
	CT_PARAM_BN_BIAS,
	CT_PARAM_RUNNING_MEAN,
	CT_PARAM_RUNNING_VAR
};

/* A named tensor of the model. Trainable ones have an id in 0..n_params-1; buffers (running statistics) are counted
 * separately. */
struct ct_param {
	char name[96];
	enum ct_param_kind kind;
	int ndim;
	int dims[4]; /* logical layout */
	size_t n;    /* product of dims */
	int fan_in;  /* of a weight or of the weight beside a bias */
	int fan_out;
	int node;
};

struct ct_node {
	enum ct_op op;
	char name[64];
	int in[2];             /* value ids; -1 unused */
	struct ct_shape shape; /* of the output, per sample */
	struct ct_window win;  /* conv, pools */
	int groups;            /* conv */
	float eps, momentum;   /* batch norm; momentum as PyTorch: running = (1-m) running + m batch */
	float p;               /* dropout probability */
	float label_smoothing; /* softmax cross-entropy */
	int weight, bias;      /* parameter ids (batch norm: gamma, beta); -1 none */
	int mean, var;         /* buffer ids of batch norm; -1 none */
	bool zero_gamma;       /* batch norm: starts as 0 (Goyal et al. 2017: the last one of a residual block) */
	int block;             /* residual block this node lies in, counted from 0; -1: none. What recompute forgets */
};

typedef struct ct_graph ct_graph;

enum ct_status ct_graph_create(struct ct_shape input, ct_graph **out) CT_MUST_CHECK; /* node 0 is the input */
void ct_graph_destroy(ct_graph *g);

int ct_graph_linear(ct_graph *g, const char *name, int x, int k, bool bias);
int ct_graph_conv2d(ct_graph *g, const char *name, int x, int k, struct ct_window win, int groups, bool bias);
int ct_graph_batch_norm(ct_graph *g, const char *name, int x, float eps, float momentum);
int ct_graph_relu(ct_graph *g, const char *name, int x);
int ct_graph_max_pool(ct_graph *g, const char *name, int x, struct ct_window win);
int ct_graph_avg_pool(ct_graph *g, const char *name, int x, struct ct_window win);
int ct_graph_global_avg_pool(ct_graph *g, const char *name, int x);
int ct_graph_add(ct_graph *g, const char *name, int a, int b);
int ct_graph_flatten(ct_graph *g, const char *name, int x);
int ct_graph_dropout(ct_graph *g, const char *name, int x, float p);
int ct_graph_drop_path(ct_graph *g, const char *name, int x, float p);
/* The batch norm `node` starts with gamma 0 (ct_net_init). */
void ct_graph_zero_gamma(ct_graph *g, int node);
/* Nodes added between the two belong to one residual block. Blocks do not nest. */
void ct_graph_begin_block(ct_graph *g);
void ct_graph_end_block(ct_graph *g);
int ct_graph_softmax_xent(ct_graph *g, int logits, float label_smoothing);
int ct_graph_mse(ct_graph *g, int prediction);
/* The first error of the builders so far. */
enum ct_status ct_graph_status(const ct_graph *g) CT_MUST_CHECK;
/* Checks the whole: one loss head, every node used, unique names. The first error of the builders is returned here,
 * naming the node ("conv2: kernel 7x7 is larger than the padded input 5x5"). CT_CONFIG. */
enum ct_status ct_graph_finish(ct_graph *g) CT_MUST_CHECK;

int ct_graph_n_nodes(const ct_graph *g);
const struct ct_node *ct_graph_node(const ct_graph *g, int id);
int ct_graph_loss(const ct_graph *g); /* node id of the loss head; its in[0] is the logits / prediction */
int ct_graph_n_params(const ct_graph *g);
const struct ct_param *ct_graph_param(const ct_graph *g, int id);
int ct_graph_n_buffers(const ct_graph *g);
const struct ct_param *ct_graph_buffer(const ct_graph *g, int id);
size_t ct_graph_n_elems(const ct_graph *g); /* of all trainable parameters, logical (no padding) */
/* Forward pass of one sample (training is about three times that). Multiply-adds count as two operations; batch norm
 * two, ReLU, add, dropout and drop path one per element, pooling one per tap; the loss none. */
double ct_graph_flops(const ct_graph *g);
double ct_graph_node_flops(const ct_graph *g, int node);
/* Hex SHA-256 over operations, attributes, shapes and names: equal on all ranks or the run is refused. Blocks do not
 * count: they change no result. */
void ct_graph_digest(const ct_graph *g, char hex[65]);

#endif
