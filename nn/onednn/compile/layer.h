/* Lowers convolutions and linear layers. */
#ifndef CT_NN_ONEDNN_COMPILE_LAYER_H
#define CT_NN_ONEDNN_COMPILE_LAYER_H

#include "nn/onednn/program/program.h"

enum ct_status ct__onednn_layer_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_layer_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
