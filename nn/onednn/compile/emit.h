/* Helpers for lowering: primitives, layout conversions and results. */
#ifndef CT_NN_ONEDNN_COMPILE_EMIT_H
#define CT_NN_ONEDNN_COMPILE_EMIT_H

#include "nn/onednn/program/program.h"

/* Gets the primitive for the spec. Fails with CT_UNSUPPORTED if oneDNN has none; the message names the node. */
enum ct_status ct__onednn_prim(struct onednn_program *p, int node, const struct ct_dnnl_spec *spec,
			       const ct_dnnl_prim **out) CT_MUST_CHECK;
/* Gets the primitive with the best implementation among n specs. If several are equally good, the first one is
 * chosen. */
enum ct_status ct__onednn_choose(struct onednn_program *p, int node, const struct ct_dnnl_spec *specs, int n,
				 const ct_dnnl_prim **out) CT_MUST_CHECK;
/* Appends a call of the primitive, with a scratchpad if it needs one. */
enum ct_status ct__onednn_call(struct onednn_program *p, int node, const ct_dnnl_prim *prim,
			       struct onednn_task **out) CT_MUST_CHECK;

/* Converts a tensor to another layout. *out is `from` if the layouts are equal, else a new buffer that receives the
 * reordered tensor. */
enum ct_status ct__onednn_relayout(struct onednn_program *p, int node, struct onednn_ref from,
				   const ct_dnnl_desc *from_desc, const ct_dnnl_desc *to_desc,
				   struct onednn_ref *out) CT_MUST_CHECK;
/* Converts a tensor to the layout that the primitive expects for its argument `arg`, like ct__onednn_relayout. */
enum ct_status ct__onednn_fit(struct onednn_program *p, int node, const ct_dnnl_prim *prim, enum ct_dnnl_arg arg,
			      struct onednn_ref from, const ct_dnnl_desc *from_desc,
			      struct onednn_ref *out) CT_MUST_CHECK;
/* Gets the value of a root node (struct onednn_layout) with other dimensions: the same memory if the layout allows it,
 * else a copy in plain layout. */
enum ct_status ct__onednn_view(struct onednn_program *p, int node, int root, int ndims, const int *dims,
			       const ct_dnnl_desc **desc, int *buffer) CT_MUST_CHECK;
/* Gets the value of `id` as [N,C,H,W], or as [N,C] if it is a vector or was flattened. */
enum ct_status ct__onednn_view_natural(struct onednn_program *p, int node, int id, const ct_dnnl_desc **desc,
				       int *buffer) CT_MUST_CHECK;
/* Allocates a buffer in this layout for the result of node `id`. If other nodes are fused into it, the last of them
 * owns the result. */
enum ct_status ct__onednn_own_result(struct onednn_program *p, int id, const ct_dnnl_desc *desc) CT_MUST_CHECK;
struct onednn_ref ct__onednn_buffer_or_nothing(int buffer);

/* Returns a spec with the stride, padding and dilation of a convolution; for a linear layer, only the operation is
 * set. */
struct ct_dnnl_spec ct__onednn_layer_spec(const struct onednn_program *p, int id);
/* Gets the desc in which the plan lets convolutions store an image: NHWC, or `any` if it is blocked. */
enum ct_status ct__onednn_image_layout(struct onednn_program *p, const int dims[4],
				       const ct_dnnl_desc **out) CT_MUST_CHECK;
/* Gets a descriptor with the dimensions of `d`, the element type `type` and an undefined layout (`any`). */
enum ct_status ct__onednn_any_like(struct onednn_program *p, enum ct_dnnl_type type, const ct_dnnl_desc *d,
				   const ct_dnnl_desc **out) CT_MUST_CHECK;

#endif
