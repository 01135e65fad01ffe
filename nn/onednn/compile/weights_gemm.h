/* Convolutions whose gradient of the weights kernels/weights_gemm.h computes, because the plan says so. */
#ifndef CT_NN_ONEDNN_COMPILE_WEIGHTS_GEMM_H
#define CT_NN_ONEDNN_COMPILE_WEIGHTS_GEMM_H

#include "nn/onednn/program/program.h"

bool ct__onednn_weights_gemm_computes(const struct onednn_program *p, int id);
/* Gets the layout in which the gradient is computed. */
enum ct_status ct__onednn_weights_gemm_layout(struct onednn_program *p, int id, const ct_dnnl_desc **out) CT_MUST_CHECK;
/* Appends the computation to *dw, in this layout. */
enum ct_status ct__onednn_weights_gemm(struct onednn_program *p, int id, struct onednn_ref dw) CT_MUST_CHECK;

#endif
