/* Compiles a graph into tasks. Level 0 (no fusion): each node of the graph has its own tasks. */
#ifndef CT_NN_CUDA_COMPILE_COMPILE_H
#define CT_NN_CUDA_COMPILE_COMPILE_H

#include "nn/cuda/program/program.h"

/* Fills in p. The caller has already set p->base, and releases p if this function fails. */
enum ct_status ct__cuda_compile(struct cuda_program *p) CT_MUST_CHECK;

/* The first part of ct__cuda_compile: sets p->type and appends all tasks. It allocates no device memory and chooses no plans. */
enum ct_status ct__cuda_compile_tasks(struct cuda_program *p) CT_MUST_CHECK;
/* Append the tasks of the forward and of the backward pass. */
enum ct_status ct__cuda_compile_forward(struct cuda_program *p) CT_MUST_CHECK;
enum ct_status ct__cuda_compile_backward(struct cuda_program *p) CT_MUST_CHECK;

/* Adds the task of a convolution or linear layer in one direction. x, w and y are buffers. w may be CUDA_NONE, which stands for the
 * parameter itself (forward and data) or for its gradient (filter, if gradients have the type of activations). */
enum ct_status ct__cuda_add_conv(struct cuda_program *p, int node, enum ct__cudnn_conv direction, int x, int w,
				 int y) CT_MUST_CHECK;
/* Returns the number of elements of a value in a batch, including the padding of the channels. */
size_t ct__cuda_value_elems(const struct cuda_program *p, const struct cuda_value *v);
struct cuda_value *ct__cuda_value(const struct cuda_program *p, int node);

#endif
