/* Plans the memory of a program: places all buffers in an arena so that buffers that are live at the same time do not
 * overlap. */
#ifndef CT_NN_ONEDNN_PROGRAM_MEMORY_H
#define CT_NN_ONEDNN_PROGRAM_MEMORY_H

#include "nn/onednn/program/program.h"

/* Sets `offset` and `lost` of every buffer, and p->memory. */
enum ct_status ct__onednn_plan_memory(struct onednn_program *p) CT_MUST_CHECK;

#endif
