/* Lowers the convolutions that are computed by the kernels of winograd/winograd.h. */
#ifndef CT_NN_ONEDNN_COMPILE_WINOGRAD_H
#define CT_NN_ONEDNN_COMPILE_WINOGRAD_H

#include "nn/onednn/program/program.h"

/* Returns whether both passes of the convolution are computed by Winograd filtering. This depends on its shape, on the
 * processor and on the layout of the weights. */
bool ct__onednn_winograd_fits(const struct onednn_program *p, int id);
enum ct_status ct__onednn_winograd_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_winograd_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
