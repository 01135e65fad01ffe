/* Chooses how the oneDNN engine computes a net (nn/net_plan.h). */
#ifndef CT_NN_ONEDNN_PLAN_ONEDNN_PLAN_H
#define CT_NN_ONEDNN_PLAN_ONEDNN_PLAN_H

#include "nn/engine_impl.h"
#include "nn/onednn/dnnl/shim.h"

/* The speed of direct convolutions in each type. */
struct ct__conv_rates {
	double fp32, bf16; /* multiplications and additions per second, or 0: not measured */
};

/* Returns the layout for convolutions in a precision. matrix_units: the processor has units that multiply small
 * matrices (AMX), which direct convolutions in NHWC use; only then are the rates needed. */
enum ct_plan_layout ct__onednn_layout_for(enum ct_precision precision, bool matrix_units,
					  const struct ct__conv_rates *rates);
/* Measures the rates in about 10 ms, on one thread: in fp32 in the layout that oneDNN prefers, and in bfloat16 in NHWC.
 */
enum ct_status ct__onednn_probe(ct_dnnl *c, struct ct__conv_rates *out) CT_MUST_CHECK;

/* As in struct ct_engine_ops. */
enum ct_status ct__onednn_best_layout(ct_dnnl *c, enum ct_precision precision, enum ct_plan_layout *out) CT_MUST_CHECK;
enum ct_status ct__onednn_plan(const ct_graph *g, const struct ct_net_opts *opts, enum ct_plan_layout layout,
			       struct ct_net_plan *out) CT_MUST_CHECK;
bool ct__onednn_can_compute(const ct_graph *g, int node, const struct ct_net_opts *opts, enum ct_plan_layout layout,
			    enum ct_conv_pass pass, enum ct_conv_method method);

#endif
