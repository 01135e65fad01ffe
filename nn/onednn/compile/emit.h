/* Building blocks of lowering: primitives, changes of layout, results. */
#ifndef CT_NN_ONEDNN_COMPILE_EMIT_H
#define CT_NN_ONEDNN_COMPILE_EMIT_H

#include "nn/onednn/program/program.h"

/* The primitive for the spec; CT_UNSUPPORTED, with the name of the node, when oneDNN has none. */
enum ct_status ct__onednn_prim(struct onednn_program *p, int node, const struct ct_dnnl_spec *spec,
			       const ct_dnnl_prim **out) CT_MUST_CHECK;
/* The primitive with the best implementation among n specs; of equally good ones the earliest. */
enum ct_status ct__onednn_choose(struct onednn_program *p, int node, const struct ct_dnnl_spec *specs, int n,
				 const ct_dnnl_prim **out) CT_MUST_CHECK;
/* Appends a call of the primitive, with a scratchpad when it needs one. */
enum ct_status ct__onednn_call(struct onednn_program *p, int node, const ct_dnnl_prim *prim,
			       struct onednn_task **out) CT_MUST_CHECK;

/* *out is `from` when the layouts are equal, else a new buffer to which the tensor is reordered. */
enum ct_status ct__onednn_relayout(struct onednn_program *p, int node, struct onednn_ref from,
				   const ct_dnnl_desc *from_desc, const ct_dnnl_desc *to_desc,
				   struct onednn_ref *out) CT_MUST_CHECK;
/* ct__onednn_relayout to the layout that the primitive expects of its argument `arg`. */
enum ct_status ct__onednn_fit(struct onednn_program *p, int node, const ct_dnnl_prim *prim, enum ct_dnnl_arg arg,
			      struct onednn_ref from, const ct_dnnl_desc *from_desc,
			      struct onednn_ref *out) CT_MUST_CHECK;
/* The value of a root with other dimensions: the same bytes where the layout allows that, else a plain copy. */
enum ct_status ct__onednn_view(struct onednn_program *p, int node, int root, int ndims, const int *dims,
			       const ct_dnnl_desc **desc, int *buffer) CT_MUST_CHECK;
/* The value of `id` as [N,C,H,W], or as [N,C] when it is a vector or was flattened. */
enum ct_status ct__onednn_view_natural(struct onednn_program *p, int node, int id, const ct_dnnl_desc **desc,
				       int *buffer) CT_MUST_CHECK;
/* Gives the result of node `id` a buffer in this layout. What is fused into the node owns the result. */
enum ct_status ct__onednn_own_result(struct onednn_program *p, int id, const ct_dnnl_desc *desc) CT_MUST_CHECK;
struct onednn_ref ct__onednn_buffer_or_nothing(int buffer);

/* Stride, padding and dilation of a convolution; for a linear layer only the operation. */
struct ct_dnnl_spec ct__onednn_layer_spec(const struct onednn_program *p, int id);
/* The descriptor with any layout of these elements and of the dimensions of `d`. */
enum ct_status ct__onednn_any_like(struct onednn_program *p, enum ct_dnnl_type type, const ct_dnnl_desc *d,
				   const ct_dnnl_desc **out) CT_MUST_CHECK;

#endif
