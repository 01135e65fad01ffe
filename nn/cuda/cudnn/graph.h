/* Operation graphs of cuDNN's backend API (cuDNN 9, "graph API").
 *
 * A graph is built from tensors and operations, finished, and then planned (plan.h). Tensors are NHWC in memory and are
 * described as [N,C,H,W], filters as [K,C/groups,R,S] with the memory layout KRSC. A virtual tensor is an intermediate
 * value that is never stored. Convolutions and pointwise operations compute in fp32 for every element type.
 *
 * Builders record the first error and do nothing after it; ct__cudnn_graph_finish returns this error. A graph has a
 * string form, which contains everything that a plan depends on, except the device and the library. The string is the
 * key of the plan cache and identifies the graph in messages. */
#ifndef CT_NN_CUDA_CUDNN_GRAPH_H
#define CT_NN_CUDA_CUDNN_GRAPH_H

#include <cudnn_graph.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "nn/graph/graph.h"

enum { CT__CUDNN_MAX_OPS = 8, CT__CUDNN_MAX_TENSORS = 24, CT__CUDNN_TEXT_MAX = 1024 };

typedef struct ct__cudnn_graph ct__cudnn_graph;

enum ct__cudnn_conv {
	CT__CUDNN_FORWARD, /* y = conv(x, w) */
	CT__CUDNN_DATA,    /* dx from dy and w */
	CT__CUDNN_FILTER,  /* dw from x and dy */
};

enum ct__cudnn_pointwise {
	CT__CUDNN_ADD,  /* y = x + b */
	CT__CUDNN_RELU, /* y = max(x, 0) */
};

/* Creates an empty graph, which the caller owns. */
enum ct_status ct__cudnn_graph_create(ct__cudnn_graph **out) CT_MUST_CHECK;
void ct__cudnn_graph_destroy(ct__cudnn_graph *g);

/* Adds a tensor of size [n,c,h,w] and returns its id, which is also its id in the variant pack: 1, 2, ... in the order
 * of the calls. `name` appears in the string form. */
int ct__cudnn_tensor(ct__cudnn_graph *g, const char *name, const int64_t dims[4], enum ct_dtype t, bool is_virtual);
/* Adds a vector of c elements, [1,c,1,1], which is broadcast over N, H and W. Returns its id. */
int ct__cudnn_channels(ct__cudnn_graph *g, const char *name, int64_t c, enum ct_dtype t);

/* x, w and y are the tensors of the forward pass, or their gradients if the direction reads or computes gradients. The
 * number of groups follows from the dimensions. */
void ct__cudnn_add_conv(ct__cudnn_graph *g, enum ct__cudnn_conv direction, int x, int w, int y,
			const struct ct_window *win);
/* b is 0 for operations with one input. */
void ct__cudnn_add_pointwise(ct__cudnn_graph *g, enum ct__cudnn_pointwise op, int x, int b, int y);

/* Ends the construction. Fails with CT_UNSUPPORTED if cuDNN rejects the graph; the message contains the string form and
 * the reason. */
enum ct_status ct__cudnn_graph_finish(ct__cudnn_graph *g) CT_MUST_CHECK;
/* The string form, for example "forward x=f16[64,64,56,56] w=f16[64,64,3,3] y=f16[64,64,56,56] stride=1,1 pad=1,1
 * dilation=1,1". */
const char *ct__cudnn_graph_text(const ct__cudnn_graph *g);
int ct__cudnn_graph_n_tensors(const ct__cudnn_graph *g);
bool ct__cudnn_graph_is_virtual(const ct__cudnn_graph *g, int tensor);
enum ct_dtype ct__cudnn_graph_dtype(const ct__cudnn_graph *g, int tensor);
size_t ct__cudnn_graph_bytes(const ct__cudnn_graph *g, int tensor); /* size of a tensor in memory */
/* The convolution of the graph and what follows it. */
struct ct__cudnn_conv_info {
	const ct__cudnn_graph *graph;
	enum ct__cudnn_conv direction;
	int x, w, y; /* tensors in memory: y is the result of the last operation */
	int64_t x_dims[4], w_dims[4], y_dims[4];
	struct ct_window win;
	int addends[2], n_addends;
	bool per_channel[2];
	bool relu;
	enum ct_dtype type; /* of x */
};
void ct__cudnn_graph_conv(const ct__cudnn_graph *g, struct ct__cudnn_conv_info *out);
/* The finished operation graph. Owned by g. */
cudnnBackendDescriptor_t ct__cudnn_graph_descriptor(const ct__cudnn_graph *g);

#endif
