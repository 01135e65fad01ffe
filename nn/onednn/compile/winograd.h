/* Lowering of the convolutions that winograd/winograd.h computes. */
#ifndef CT_NN_ONEDNN_COMPILE_WINOGRAD_H
#define CT_NN_ONEDNN_COMPILE_WINOGRAD_H

#include "nn/onednn/program/program.h"

/* Whether both passes of the convolution are computed that way. This follows from its shape, from the processor and from the
 * layout that the weights have. */
bool ct__onednn_winograd_fits(const struct onednn_program *p, int id);
enum ct_status ct__onednn_winograd_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_winograd_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
