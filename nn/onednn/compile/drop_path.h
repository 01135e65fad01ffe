/* Lowering of drop path (stochastic depth): each row is multiplied by a factor that is drawn for it. */
#ifndef CT_NN_ONEDNN_COMPILE_DROP_PATH_H
#define CT_NN_ONEDNN_COMPILE_DROP_PATH_H

#include "nn/onednn/program/program.h"

enum ct_status ct__onednn_drop_path_forward(struct onednn_program *p, int id) CT_MUST_CHECK;
enum ct_status ct__onednn_drop_path_backward(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
