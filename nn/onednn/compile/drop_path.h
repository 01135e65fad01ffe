/* Lowers drop path (stochastic depth), which multiplies each row by a random factor. */
#ifndef CT_NN_ONEDNN_COMPILE_DROP_PATH_H
#define CT_NN_ONEDNN_COMPILE_DROP_PATH_H

#include "nn/onednn/program/program.h"

enum ct_status ct__onednn_drop_path_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_drop_path_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
