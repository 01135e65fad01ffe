/* Passes gradients from the users of a value to the node that computes it. */
#ifndef CT_NN_ONEDNN_COMPILE_GRADIENT_H
#define CT_NN_ONEDNN_COMPILE_GRADIENT_H

#include "nn/onednn/program/program.h"

/* Takes the gradient with respect to input `in` of `node` from `buffer`, converts it to the layout of the input's root,
 * and adds it to the gradients from other users of the input. shared: `buffer` is also the gradient of another
 * value. */
enum ct_status ct__onednn_give_grad(struct onednn_program *p, int node, int in, int buffer, const ct_dnnl_desc *desc,
				    bool shared) CT_MUST_CHECK;
/* Gets a buffer for a gradient in the layout of `v`: the buffer of v's own gradient, which is then overwritten, or a
 * new buffer if v's gradient is shared with another value. */
enum ct_status ct__onednn_in_place(struct onednn_program *p, struct onednn_value *v, int *out) CT_MUST_CHECK;
/* Gets the memory for the gradient of a parameter of norm `id`: a buffer that no one reads if the norm does not train.
 */
enum ct_status ct__onednn_param_grad(struct onednn_program *p, int id, int param, struct onednn_ref *out) CT_MUST_CHECK;
/* Appends the task that reports the gradient of the parameter as final. Does nothing if `param` is ONEDNN_NONE, or if
 * the node does not train. */
enum ct_status ct__onednn_slice_done(struct onednn_program *p, int id, int param) CT_MUST_CHECK;

#endif
