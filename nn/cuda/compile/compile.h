/* The compilation of a graph to tasks. Level 0: each node of the graph has its own tasks. */
#ifndef CT_NN_CUDA_COMPILE_COMPILE_H
#define CT_NN_CUDA_COMPILE_COMPILE_H

#include "nn/cuda/program/program.h"

/* Fills p, whose base is set. On failure, the caller releases it. */
enum ct_status ct__cuda_compile(struct cuda_program *p) CT_MUST_CHECK;

/* The passes. */
enum ct_status ct__cuda_compile_forward(struct cuda_program *p) CT_MUST_CHECK;
enum ct_status ct__cuda_compile_backward(struct cuda_program *p) CT_MUST_CHECK;

/* Adds the task of a convolution or linear layer in one direction. x, w, y: buffers, or CUDA_NONE for the parameter (w in forward and
 * data) and for its gradient (w in filter, when gradients have the type of activations). */
enum ct_status ct__cuda_add_conv(struct cuda_program *p, int node, enum ct__cudnn_conv direction, int x, int w,
				 int y) CT_MUST_CHECK;
/* Elements of the weights of a layer with the padding, and their count per filter. */
size_t ct__cuda_value_elems(const struct cuda_program *p, const struct cuda_value *v);
struct cuda_value *ct__cuda_value(const struct cuda_program *p, int node);

#endif
