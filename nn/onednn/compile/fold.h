/* For evaluation, folds a batch norm into the convolution before it:
 *
 *   w' = w * gamma / sqrt(variance + eps)     b' = beta + (b - mean) * gamma / sqrt(variance + eps)
 *
 * The resulting convolution also adds the residual and applies the ReLU. The folded weights are reused from batch to
 * batch. */
#ifndef CT_NN_ONEDNN_COMPILE_FOLD_H
#define CT_NN_ONEDNN_COMPILE_FOLD_H

#include "nn/onednn/program/program.h"

/* Finds the norms and sums that convolutions may absorb, based on the graph alone. Sets value.fold. */
void ct__onednn_plan_folding(struct onednn_program *p);
/* Chooses a primitive with a bias and, if possible, with the sum and the ReLU. If there is no such primitive, *best is
 * set to NULL, and the norm is not folded. */
enum ct_status ct__onednn_choose_folded(struct onednn_program *p, int conv, const struct ct_dnnl_spec *wanted,
					const ct_dnnl_desc *any_src, const ct_dnnl_desc *any_weights,
					const ct_dnnl_prim **best) CT_MUST_CHECK;
/* Makes the norm, the sum and the ReLU part of the convolution. The last of them owns the result. */
void ct__onednn_absorb(struct onednn_program *p, int conv);
/* Assigns a buffer to the result: the buffer of the residual if the sum is computed in place, else a new one. */
enum ct_status ct__onednn_own_folded(struct onednn_program *p, int conv, const ct_dnnl_desc *desc) CT_MUST_CHECK;
/* Appends the tasks that compute the folded weights, in the layout `want`, and the folded bias. */
enum ct_status ct__onednn_fold(struct onednn_program *p, int conv, const ct_dnnl_desc *arena, const ct_dnnl_desc *want,
			       struct onednn_ref *weights, struct onednn_ref *bias) CT_MUST_CHECK;

#endif
