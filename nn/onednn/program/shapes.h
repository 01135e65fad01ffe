/* Arguments of ctrain's kernels that depend only on the graph and the layouts. Lowering and running both use them. */
#ifndef CT_NN_ONEDNN_PROGRAM_SHAPES_H
#define CT_NN_ONEDNN_PROGRAM_SHAPES_H

#include "nn/onednn/kernels/norm_pool.h"
#include "nn/onednn/kernels/weights_gemm.h"
#include "nn/onednn/program/program.h"
#include "nn/onednn/winograd/winograd.h"

/* Returns the shape of the norm `id` with its max pool. */
struct ct_norm_pool_shape ct__onednn_norm_pool_shape(const struct onednn_program *p, int id);
/* Get the shape of the convolution `id`, for n rows or those of the program. Return false if Winograd filtering does
 * not support this kind of convolution. */
bool ct__onednn_winograd_shape_of(const ct_graph *g, int id, int n, bool bf16, struct ct_winograd_shape *s);
bool ct__onednn_winograd_shape(const struct onednn_program *p, int id, struct ct_winograd_shape *s);
/* Gets the shape of the gradient of the weights of the convolution `id` for n rows. Returns false if
 * kernels/weights_gemm.h cannot compute it. */
bool ct__onednn_weights_gemm_shape(const ct_graph *g, int id, int n, struct ct_weights_gemm_shape *s);

#endif
