/* Recomputes values in the backward pass instead of keeping them (enum ct_recompute). */
#ifndef CT_NN_ONEDNN_COMPILE_RECOMPUTE_H
#define CT_NN_ONEDNN_COMPILE_RECOMPUTE_H

#include "nn/onednn/program/program.h"

/* Appends a second copy of the forward tasks whose results the backward pass of node `id` needs. Call this before
 * lowering that backward pass. */
enum ct_status ct__onednn_recompute(struct onednn_program *p, int id) CT_MUST_CHECK;

#endif
