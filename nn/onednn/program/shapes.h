/* Arguments of our own kernels that follow from the graph and the layouts: the same for lowering and for running. */
#ifndef CT_NN_ONEDNN_PROGRAM_SHAPES_H
#define CT_NN_ONEDNN_PROGRAM_SHAPES_H

#include "nn/onednn/kernels/norm_pool.h"
#include "nn/onednn/program/program.h"
#include "nn/onednn/winograd/winograd.h"

/* Of the norm `id` with its max pool. */
struct ct_norm_pool_shape ct__onednn_norm_pool_shape(const struct onednn_program *p, int id);
/* Of the convolution `id`; false when it is not one that Winograd's filtering computes. */
bool ct__onednn_winograd_shape(const struct onednn_program *p, int id, struct ct_winograd_shape *s);

#endif
