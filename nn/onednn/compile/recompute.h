/* What the backward pass computes again instead of keeping it (enum ct_recompute). */
#ifndef CT_NN_ONEDNN_COMPILE_RECOMPUTE_H
#define CT_NN_ONEDNN_COMPILE_RECOMPUTE_H

#include "nn/onednn/program/program.h"

/* Call before the backward pass of node `id` is lowered: appends the forward tasks whose results it needs once more. */
enum ct_status ct__onednn_recompute(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
