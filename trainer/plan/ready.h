/* When the gradients of a net become final during the backward pass. */
#ifndef CT_TRAINER_PLAN_READY_H
#define CT_TRAINER_PLAN_READY_H

#include "nn/engine.h"

/* Stores in *out [n_nodes], which the caller owns, the floating-point operations of each node in the backward pass of
 * one sample; 0 for nodes without matrix products. The gradient of the input takes as many operations as the gradient
 * of the weights. It is computed only if a node before this one has parameters. Free *out even on failure. */
enum ct_status ct_plan_backward_flops(const ct_graph *g, double **out) CT_MUST_CHECK;
/* Computes the fraction of the backward pass after which each slice [n_slices] of the gradients is final. costs
 * [n_nodes] are those of the backward pass, for example from ct_plan_backward_flops or measured ones. */
void ct_plan_ready(const ct_net *net, const double *costs, double *ready);
/* Does the same for ct_plan_backward_flops. The caller owns *out [n_slices]. */
enum ct_status ct_plan_ready_by_flops(const ct_net *net, double **out) CT_MUST_CHECK;

#endif
