/* Lowers the convolutions that are computed by the kernels of winograd/winograd.h. */
#ifndef CT_NN_ONEDNN_COMPILE_WINOGRAD_H
#define CT_NN_ONEDNN_COMPILE_WINOGRAD_H

#include "nn/onednn/program/program.h"

/* Returns whether the plan of the net lets these kernels compute a pass of the convolution. */
bool ct__onednn_winograd_computes(const struct onednn_program *p, int id, enum ct_conv_pass pass);
/* Chooses the layout of the weights in the arena if these kernels compute a pass of the convolution and no program has
 * chosen a layout. */
enum ct_status ct__onednn_winograd_weights(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_winograd_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_winograd_backward_data(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_winograd_backward_weights(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
