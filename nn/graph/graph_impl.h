/* The members of ct_graph, for graph.c (checks, queries, digest) and build.c (builders). */
#ifndef CT_NN_GRAPH_GRAPH_IMPL_H
#define CT_NN_GRAPH_GRAPH_IMPL_H

#include "nn/graph/graph.h"

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

#endif
