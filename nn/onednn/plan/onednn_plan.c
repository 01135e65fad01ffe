/* The rule follows from what limits a convolution. In fp32, and in bfloat16 with vector instructions, it is arithmetic,
 * of which Winograd filtering does a quarter or less, at the price of blocked layouts and of fp32 arithmetic in both
 * precisions. Matrix units compute direct convolutions in bfloat16 many times as fast as vector units compute in fp32,
 * so that Winograd filtering only costs, and NHWC is the layout in which oneDNN uses them. A processor that has such
 * units may still not be fast in them (in an emulator, or if the system does not allow them), so their rate decides.
 * Winograd filtering is worth at most a factor of 4, and the rates of matrix and vector units differ by 8 to 16, or by
 * 2 where oneDNN uses vector units: noise cannot take the ratio from one side of the threshold to the other. */
#include "nn/onednn/plan/onednn_plan.h"

#include "nn/onednn/program/shapes.h"

/* The least ratio of the rates of direct convolutions in bfloat16 and fp32 for NHWC. */
#define MATRIX_UNITS_PAY 4.0

enum ct_plan_layout ct__onednn_layout_for(enum ct_precision precision, bool matrix_units,
					  const struct ct__conv_rates *rates)
{
	if (precision != CT_PRECISION_BF16 || !matrix_units)
		return CT_LAYOUT_BLOCKED;
	return rates->bf16 >= MATRIX_UNITS_PAY * rates->fp32 ? CT_LAYOUT_NHWC : CT_LAYOUT_BLOCKED;
}

enum ct_status ct__onednn_best_layout(ct_dnnl *c, enum ct_precision precision, enum ct_plan_layout *out)
{
	const bool matrix_units = precision == CT_PRECISION_BF16 && ct__dnnl_has_matrix_units();
	struct ct__conv_rates rates = {0};

	if (matrix_units)
		CT_TRY(ct__onednn_probe(c, &rates));
	*out = ct__onednn_layout_for(precision, matrix_units, &rates);
	return CT_OK;
}

bool ct__onednn_can_compute(const ct_graph *g, int node, const struct ct_net_opts *opts, enum ct_plan_layout layout,
			    enum ct_conv_pass pass, enum ct_conv_method method)
{
	const bool bf16 = opts->precision == CT_PRECISION_BF16;
	struct ct_winograd_shape s;
	struct ct_weights_gemm_shape gemm;

	if (method == CT_CONV_DIRECT)
		return true;
	if (method == CT_CONV_GEMM)
		return layout == CT_LAYOUT_NHWC && bf16 && pass == CT_CONV_BACKWARD_WEIGHTS &&
		       ct__onednn_weights_gemm_shape(g, node, opts->batch, &gemm);
	return layout == CT_LAYOUT_BLOCKED && ct__onednn_winograd_shape_of(g, node, opts->batch, bf16, &s) &&
	       ct__winograd_possible(&s);
}

enum ct_status ct__onednn_plan(const ct_graph *g, const struct ct_net_opts *opts, enum ct_plan_layout layout,
			       struct ct_net_plan *out)
{
	struct ct_winograd_shape s;

	for (int id = 0; id < ct_graph_n_nodes(g); id++) {
		const bool winograd =
			layout == CT_LAYOUT_BLOCKED &&
			ct__onednn_winograd_shape_of(g, id, opts->batch, opts->precision == CT_PRECISION_BF16, &s) &&
			ct__winograd_usable(&s);

		for (int pass = 0; pass < CT_CONV_PASSES && winograd; pass++)
			CT_TRY(ct_net_plan_set(out, ct_graph_node(g, id)->name, (enum ct_conv_pass)pass,
					       CT_CONV_WINOGRAD));
	}
	return CT_OK;
}
