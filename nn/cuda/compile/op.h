/* How the engine computes each operation: one row for each, in op.c. */
#ifndef CT_NN_CUDA_COMPILE_OP_H
#define CT_NN_CUDA_COMPILE_OP_H

#include "nn/cuda/program/program.h"

/* Where and how the value of a node is stored. */
enum cuda_place {
	CUDA_OWN_LAYOUT,    /* [N,H,W,Cp] */
	CUDA_INPUT_LAYOUT,  /* as the first input: a flattened image keeps the layout of the image */
	CUDA_INPUT_IN_EVAL, /* the same; in evaluation, the value is that of the input */
	CUDA_INPUT_VALUE    /* the value is that of the input */
};

struct cuda_op {
	unsigned precisions; /* struct ct_engine_ops.computes */
	enum cuda_place place;
	bool takes_flattened; /* the input may be a flattened image in the layout of the image */
	/* Makes or extends the group of the node (fuse.c). NULL: the node is computed alone. */
	void (*join)(struct cuda_program *p, int id);
	/* Append the tasks of a node that is computed alone. NULL: the tasks of its group compute it, or there are
	 * none. */
	enum ct_status (*forward)(struct cuda_program *p, int id);
	enum ct_status (*backward)(struct cuda_program *p, int id);
};
const struct cuda_op *ct__cuda_op(enum ct_op op);

/* The spatial shape that a value has in memory: flattened values and what is computed from them element by element keep
 * that of the image. */
struct ct_shape ct__cuda_stored_shape(const ct_graph *g, int node);

/* For struct ct_engine_ops. */
unsigned ct__cuda_computes(enum ct_op op);
enum ct_status ct__cuda_check_node(const ct_graph *g, int node) CT_MUST_CHECK;

/* fuse.c */
void ct__cuda_join_layer(struct cuda_program *p, int id);
void ct__cuda_join_norm(struct cuda_program *p, int id);
void ct__cuda_join_add(struct cuda_program *p, int id);
void ct__cuda_join_relu(struct cuda_program *p, int id);
/* forward.c */
enum ct_status ct__cuda_forward_input(struct cuda_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__cuda_forward_pool(struct cuda_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__cuda_forward_dropout(struct cuda_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__cuda_forward_loss(struct cuda_program *p, int id) CT_MUST_CHECK;
/* backward.c */
enum ct_status ct__cuda_backward_pool(struct cuda_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__cuda_backward_dropout(struct cuda_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__cuda_backward_loss(struct cuda_program *p, int id) CT_MUST_CHECK;
/* stage.c: a stage that is not the last one ends with an output. */
enum ct_status ct__cuda_forward_output(struct cuda_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__cuda_backward_output(struct cuda_program *p, int id) CT_MUST_CHECK;

#endif
