/* The members of ct_graph, for graph.c (checks, queries, digest), build.c (builders), op.c (rules of the operations)
 * and stage.c (stages). */
#ifndef CT_NN_GRAPH_GRAPH_IMPL_H
#define CT_NN_GRAPH_GRAPH_IMPL_H

#include "nn/graph/graph.h"

#define CT__MAX_VALUE_ELEMS INT32_MAX /* per sample and per parameter, because engines use 32-bit indices */

struct ct_graph {
	struct ct_node *nodes;
	struct ct_param *params, *buffers;
	int n_nodes, cap_nodes, n_params, cap_params, n_buffers, cap_buffers;
	int loss;     /* node id; -1 before the loss head is added */
	int n_blocks; /* number of blocks begun so far */
	int block;    /* residual block of new nodes; -1: none */
	bool finished;
	struct ct_error error; /* the first error of the builders */
};

/* Appends a node without a name and parameters. Its inputs are nodes a and b (-1: none), and its shape is that of a. It
 * is in the current residual block. */
enum ct_status ct__graph_append(ct_graph *g, enum ct_op op, int a, int b, struct ct_node **out) CT_MUST_CHECK;
/* Adds a parameter or a buffer of the last node, "<node>.<suffix>", with dims [ndim]. fan: fan-in and fan-out. */
enum ct_status ct__graph_add_tensor(ct_graph *g, enum ct_param_kind kind, const char *suffix, int ndim, const int *dims,
				    const int fan[2], int *id) CT_MUST_CHECK;

#endif
