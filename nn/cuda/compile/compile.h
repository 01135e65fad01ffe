/* Compiles a graph into tasks. Level 0 (no fusion): each node of the graph has its own tasks. Level 1: some nodes are
 * computed together (fuse.c), and values are written over others where nothing needs these any more. */
#ifndef CT_NN_CUDA_COMPILE_COMPILE_H
#define CT_NN_CUDA_COMPILE_COMPILE_H

#include "nn/cuda/program/program.h"

/* ct__cuda_compile_tasks appends the tasks of p, and their graphs to the choices of the engine. ct__cuda_compile also
 * chooses plans, assigns memory and binds the tasks to it. The caller has already set p->base, and releases p if a
 * function fails. */
enum ct_status ct__cuda_compile_tasks(struct cuda_program *p) CT_MUST_CHECK;
enum ct_status ct__cuda_compile(struct cuda_program *p) CT_MUST_CHECK;

/* fuse.c: decides where values are stored and which nodes are computed together. */
void ct__cuda_fuse(struct cuda_program *p);

/* Append the tasks of the forward and of the backward pass. */
enum ct_status ct__cuda_compile_forward(struct cuda_program *p) CT_MUST_CHECK;
enum ct_status ct__cuda_compile_backward(struct cuda_program *p) CT_MUST_CHECK;

/* Append the tasks of a group with a layer, or with a norm and no layer (layer.c, cuda_norm.c). */
enum ct_status ct__cuda_forward_layer(struct cuda_program *p, const struct cuda_group *g) CT_MUST_CHECK;
enum ct_status ct__cuda_backward_layer(struct cuda_program *p, const struct cuda_group *g) CT_MUST_CHECK;
enum ct_status ct__cuda_forward_norm(struct cuda_program *p, const struct cuda_group *g) CT_MUST_CHECK;
enum ct_status ct__cuda_backward_norm(struct cuda_program *p, const struct cuda_group *g) CT_MUST_CHECK;
/* Appends the task d = dy where the ReLU `node` passes its input, else 0 (backward.c). */
enum ct_status ct__cuda_relu_backward(struct cuda_program *p, int node, const struct cuda_gradient *dy,
				      int d) CT_MUST_CHECK;

/* stage.c: appends the task that gives the gradient of the input to the caller. */
enum ct_status ct__cuda_backward_input(struct cuda_program *p) CT_MUST_CHECK;
/* Appends a task that copies an array of the caller to a buffer, or a buffer to such an array. */
enum ct_status ct__cuda_copy_task(struct cuda_program *p, int id, enum cuda_kind kind, enum cuda_array array,
				  size_t row_bytes, int buffer) CT_MUST_CHECK;

/* A convolution or linear layer in one direction. */
struct cuda_conv {
	int node;
	enum ct__cudnn_conv direction;
	int x, y; /* buffers */
	/* A buffer, or CUDA_NONE, which stands for the parameter itself (forward and data) or for its gradient
	 * (filter), which must have the type of activations: ct__cuda_refer_weight_grad. */
	int w;
	/* Forward only: y = relu(conv + residual + bias) in one plan. The bias has the type of activations. The bias
	 * CUDA_NONE stands for the parameter, the residual CUDA_NONE for none. */
	bool has_bias, relu;
	int bias, residual;
};
/* conv.c: like ct__cuda_refer_grad for the gradient of a weight, which may be in the memory of 16-bit gradients. */
enum ct_status ct__cuda_refer_weight_grad(struct cuda_program *p, void **field, int param) CT_MUST_CHECK;
/* conv.c: adds the task. Fails with CT_UNSUPPORTED if cuDNN has no plan. */
enum ct_status ct__cuda_add_conv(struct cuda_program *p, const struct cuda_conv *c) CT_MUST_CHECK;
/* Sets *has to whether cuDNN has a precompiled plan. */
enum ct_status ct__cuda_has_plan(struct cuda_program *p, const struct cuda_conv *c, bool *has) CT_MUST_CHECK;

/* value.c: sizes, and the buffers of values and gradients. */
struct cuda_value *ct__cuda_value(const struct cuda_program *p, int node);
/* The number of elements of a value in a batch, including the padding of the channels, and of rows. */
size_t ct__cuda_value_elems(const struct cuda_program *p, const struct cuda_value *v);
size_t ct__cuda_value_rows(const struct cuda_program *p, const struct cuda_value *v);
/* A buffer for the partial sums over the rows of a value. */
enum ct_status ct__cuda_partial_sums(struct cuda_program *p, const struct cuda_value *v, int *buffer) CT_MUST_CHECK;
/* The address of a parameter in the arena, in fp32. */
float *ct__cuda_param(const struct cuda_program *p, int param);
/* Gets a buffer for the value of `node`, which is computed element by element from the value of `in`: the buffer of
 * `in` if nothing else needs its value, or else a new one. */
enum ct_status ct__cuda_own_value(struct cuda_program *p, int node, int in) CT_MUST_CHECK;
enum ct_status ct__cuda_new_value(struct cuda_program *p, int node) CT_MUST_CHECK;
/* No gradient is needed for the input of the graph, unless the net has input_gradient, and for values that depend only
 * on frozen parameters. */
bool ct__cuda_needs_gradient(const struct cuda_program *p, int node);
/* A new buffer for a part of the gradient of `node`, which is large enough for the gradient of every value of this
 * shape. */
enum ct_status ct__cuda_new_gradient(struct cuda_program *p, int node, int *buffer) CT_MUST_CHECK;
/* Gets a buffer for the gradient that the tasks of v compute element by element from v's own gradient: one of v's own
 * buffers if it may be overwritten, or else a new one. */
enum ct_status ct__cuda_own_gradient(struct cuda_program *p, struct cuda_value *v, int *buffer) CT_MUST_CHECK;
/* The tasks of `user` have written a part of the gradient of `node` to `buffer`. It becomes the gradient, or is added
 * to it. shared: the buffer is also the gradient of another value. */
enum ct_status ct__cuda_give_gradient(struct cuda_program *p, int user, int node, int buffer,
				      bool shared) CT_MUST_CHECK;

#endif
