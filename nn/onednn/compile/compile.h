/* Compiles a graph into the tasks of a program. */
#ifndef CT_NN_ONEDNN_COMPILE_COMPILE_H
#define CT_NN_ONEDNN_COMPILE_COMPILE_H

#include "nn/onednn/program/program.h"

/* Fuses nodes and appends the tasks of the forward pass. Chooses a layout for parameters that have none yet. */
enum ct_status ct__onednn_compile_forward(struct onednn_program *p) CT_MUST_CHECK;
/* Appends the tasks of the backward pass, node by node, from the last to the first. */
enum ct_status ct__onednn_compile_backward(struct onednn_program *p) CT_MUST_CHECK;

#endif
