/* Lowers the forward pass of one node of any operation. */
#ifndef CT_NN_ONEDNN_COMPILE_FORWARD_H
#define CT_NN_ONEDNN_COMPILE_FORWARD_H

#include "nn/onednn/program/program.h"

/* Appends the tasks that compute node `id`. Does nothing if another node computes it. */
enum ct_status ct__onednn_lower_forward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
