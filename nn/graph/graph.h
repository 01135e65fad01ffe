/* A model as a static list of logical operations with shapes. A graph contains neither tensor data nor memory layouts,
 * and it is not executed itself: engines compile it.
 *
 * A node produces one value; node ids are also value ids and increase in topological order. Shapes are per sample; the
 * batch dimension N is given when an engine compiles the graph. The logical layout of every value is [N,C,H,W],
 * row-major; vectors are C features with H = W = 1. Errors of the builders are sticky: after the first error, all
 * builders do nothing and return 0, and ct_graph_finish returns the error. Parameter names are `<node name>.weight` and
 * so on, as in torchvision's state_dict. */
#ifndef CT_NN_GRAPH_GRAPH_H
#define CT_NN_GRAPH_GRAPH_H

#include <stdint.h>

#include "base/status.h"

/* Every operation: CT_OP_INPUT is called "input". Tables with a row for each operation are made from this list, so that
 * the compiler reports a missing row:
 *
 *   #define ROW(ID, name) [CT_OP_##ID] = &op_##name,
 *   static const struct row *const rows[] = {CT_OPS(ROW)};
 *
 * nn/graph/op.h describes what all engines have in common, and each engine has a table of the same kind.
 *
 *   linear      y = x w^T + b; w [K,F]; x is flattened in the logical layout, so F = C*H*W
 *   conv2d      w [K,C/groups,R,S]
 *   batch_norm  over N,H,W; parameters gamma, beta [C]; buffers running_mean, running_var [C]
 *   max_pool    padding counts as -inf
 *   avg_pool    padding is not counted (count_include_pad = false)
 *   add         two inputs of the same shape
 *   flatten     [C,H,W] -> C*H*W
 *   dropout     keeps an element with probability 1-p and scales it by 1/(1-p); identity in evaluation
 *   drop_path   stochastic depth (Huang et al. 2016), row mode: a row is kept with probability 1-p and scaled by
 *               1/(1-p), or set to zero; identity in evaluation
 *   softmax_cross_entropy
 *               loss head: class labels, label smoothing as in torch.nn.CrossEntropyLoss
 *   mse         loss head: float targets [C]; mean over C, as in torch.nn.MSELoss
 *   output      end of a stage that is not the last one (ct_graph_stage), in place of the loss head */
#define CT_OPS(X)                              \
	X(INPUT, input)                        \
	X(LINEAR, linear)                      \
	X(CONV2D, conv2d)                      \
	X(BATCH_NORM, batch_norm)              \
	X(RELU, relu)                          \
	X(MAX_POOL, max_pool)                  \
	X(AVG_POOL, avg_pool)                  \
	X(GLOBAL_AVG_POOL, global_avg_pool)    \
	X(ADD, add)                            \
	X(FLATTEN, flatten)                    \
	X(DROPOUT, dropout)                    \
	X(DROP_PATH, drop_path)                \
	X(SOFTMAX_XENT, softmax_cross_entropy) \
	X(MSE, mse)                            \
	X(OUTPUT, output)
#define CT_OP_ID(ID, name) CT_OP_##ID,
enum ct_op { CT_OPS(CT_OP_ID) CT_N_OPS };
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

/* A named tensor of the model. Trainable parameters have the ids 0..n_params-1; buffers (running statistics) have a
 * separate numbering from 0. */
struct ct_param {
	char name[96];
	enum ct_param_kind kind;
	int ndim;
	int dims[4]; /* logical layout */
	size_t n;    /* product of dims */
	int fan_in;  /* fan-in of the weight; a bias has the fan-in of its node's weight */
	int fan_out;
	int node;
	bool frozen; /* keeps its value in training (ct_graph_freeze) */
};

struct ct_node {
	enum ct_op op;
	char name[64];
	int in[2];             /* value ids; -1 unused */
	struct ct_shape shape; /* of the output, per sample */
	struct ct_window win;  /* conv, pools */
	int groups;            /* conv */
	float eps, momentum;   /* batch norm; momentum as in PyTorch: running = (1-m) running + m batch */
	float p;               /* dropout probability */
	float label_smoothing; /* softmax cross-entropy */
	int weight, bias;      /* parameter ids (batch norm: gamma, beta); -1 none */
	int mean, var;         /* buffer ids of batch norm; -1 none */
	bool zero_gamma;       /* batch norm: initialize gamma to 0 (Goyal et al. 2017: in the last norm of a residual
				* block) */
	int block;             /* index of the residual block; -1: none. CT_RECOMPUTE_BLOCKS recomputes values block by
				* block */
	int origin;            /* id of the node in the complete model, from which dropout masks are derived */
	bool fixed_stats;      /* batch norm: training, too, uses the running statistics, and does not change them */
};

typedef struct ct_graph ct_graph;

/* The attributes of a new node. An operation ignores those that it does not have. */
struct ct_op_attrs {
	int k; /* output channels or features */
	struct ct_window win;
	int groups;
	bool bias;
	float eps, momentum, p, label_smoothing; /* as in struct ct_node */
};

enum ct_status ct_graph_create(struct ct_shape input, ct_graph **out) CT_MUST_CHECK; /* node 0 is the input */
void ct_graph_destroy(ct_graph *g);

/* Adds a node of any operation but the input and the output of a stage. b is -1 if the operation has one input. The
 * functions below do the same for one operation each. */
int ct_graph_op(ct_graph *g, enum ct_op op, const char *name, int a, int b, const struct ct_op_attrs *attrs);

int ct_graph_linear(ct_graph *g, const char *name, int x, int k, bool bias);
int ct_graph_conv2d(ct_graph *g, const char *name, int x, int k, struct ct_window win, int groups, bool bias);
int ct_graph_batch_norm(ct_graph *g, const char *name, int x, float eps, float momentum);
int ct_graph_relu(ct_graph *g, const char *name, int x);
int ct_graph_max_pool(ct_graph *g, const char *name, int x, struct ct_window win);
int ct_graph_global_avg_pool(ct_graph *g, const char *name, int x);
int ct_graph_add(ct_graph *g, const char *name, int a, int b);
int ct_graph_flatten(ct_graph *g, const char *name, int x);
int ct_graph_dropout(ct_graph *g, const char *name, int x, float p);
int ct_graph_drop_path(ct_graph *g, const char *name, int x, float p);
/* Makes ct_net_init set gamma of the batch norm `node` to 0. */
void ct_graph_zero_gamma(ct_graph *g, int node);
/* Nodes added between these two calls belong to one residual block. Blocks cannot be nested. */
void ct_graph_begin_block(ct_graph *g);
void ct_graph_end_block(ct_graph *g);
int ct_graph_softmax_xent(ct_graph *g, int logits, float label_smoothing);
int ct_graph_mse(ct_graph *g, int prediction);
/* Freezes the parameters whose names match one of the n patterns, in which * stands for any string, ? for any character
 * and [ab] for one of these characters (fnmatch). The pattern "backbone" stands for all parameters except those of the
 * head. Optimizers do not change frozen parameters, and backward passes do not compute gradients that only frozen
 * parameters need. If fix_stats is set, a batch norm whose parameters are all frozen gets fixed_stats. g is finished.
 * Fails with CT_CONFIG if a pattern matches no parameter, or if all parameters are frozen. */
enum ct_status ct_graph_freeze(ct_graph *g, const char *const *patterns, int n, bool fix_stats) CT_MUST_CHECK;
/* Returns whether the name of a parameter matches the pattern of ct_graph_freeze. */
bool ct_graph_param_matches(const ct_graph *g, int param, const char *pattern);
/* Sets needs [n_nodes] to whether a backward pass computes the gradient of the value of each node: whether this node,
 * or one on which it depends, trains. input: the gradient of the input is needed, too. */
void ct_graph_gradients(const ct_graph *g, bool input, bool *needs);
/* Returns whether the node has a parameter that is not frozen. */
bool ct_graph_trains(const ct_graph *g, int node);
/* Returns the last node that has parameters, which is usually the classifier, or -1. */
int ct_graph_head(const ct_graph *g);
/* Returns the first error of the builders so far. */
enum ct_status ct_graph_status(const ct_graph *g) CT_MUST_CHECK;
/* Checks the complete graph: it must have one loss head, every node must be used, and names must be unique. Returns the
 * first error of the builders, which names the node ("conv2: kernel 7x7 is larger than the padded input 5x5"), or
 * CT_CONFIG if a check fails. */
enum ct_status ct_graph_finish(ct_graph *g) CT_MUST_CHECK;

int ct_graph_n_nodes(const ct_graph *g);
const struct ct_node *ct_graph_node(const ct_graph *g, int id);
/* Node id of the loss head, or of CT_OP_OUTPUT; its in[0] is the logits, the prediction or the output. */
int ct_graph_loss(const ct_graph *g);
int ct_graph_n_params(const ct_graph *g);
const struct ct_param *ct_graph_param(const ct_graph *g, int id);
int ct_graph_n_buffers(const ct_graph *g);
const struct ct_param *ct_graph_buffer(const ct_graph *g, int id);
size_t ct_graph_n_elems(const ct_graph *g); /* number of elements of all trainable parameters, without padding */
/* Returns the number of operations in the forward pass of one sample (training takes about three times as many). A
 * multiply-add counts as two operations. Batch norm counts as two per element; ReLU, add, dropout and drop path count
 * as one. Pooling counts as one per kernel element, and the loss is not counted. */
double ct_graph_flops(const ct_graph *g);
double ct_graph_node_flops(const ct_graph *g, int node);

/* Pipeline stages: parts of a model that run on different ranks. A stage consists of consecutive nodes. It receives the
 * value of the node before it and passes on that of its last node, so no other value may be used on both sides of a
 * cut. A cut is before a convolution or a linear layer, and never inside a residual block.
 *
 * Chooses the cuts so that the stage with the most FLOPs has as few as possible. Stage k consists of the nodes
 * [first[k], first[k+1]) of g. Fails with CT_CONFIG if g has too few places for cuts. */
enum ct_status ct_graph_cut(const ct_graph *g, int n_stages, int *first) CT_MUST_CHECK;
/* Makes the graph of the nodes [first, end) of g, which the caller owns. Its input is the value of node first - 1. If
 * `end` is not the end of g, it ends with CT_OP_OUTPUT. Parameters and buffers have the same names and the same order
 * as in g. */
enum ct_status ct_graph_stage(const ct_graph *g, int first, int end, ct_graph **out) CT_MUST_CHECK;

/* Computes the hex SHA-256 of operations, attributes, shapes and names. A run cannot start unless all ranks have the
 * same digest. Residual blocks are not included, because they do not change results. */
void ct_graph_digest(const ct_graph *g, char hex[65]);

#endif
