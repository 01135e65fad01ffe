/* Finds the fastest plan of a net on an engine that has plans, by measuring training steps of the complete net.
 *
 * The plans that the engine suggests for each layout are measured. For the blocked layout, plans in which
 * convolutions are direct are measured, too, and for NHWC, one with CT_CONV_GEMM. From these, the fastest method is
 * chosen for each convolution and pass. The plan whose steps took the shortest time in all is the result.
 *
 * In NHWC, there is nothing to choose for forward passes and for gradients of inputs: Winograd filtering needs blocks
 * of channels, and the engine itself chooses among the implementations of its library. */
#ifndef CT_NN_TUNE_PLAN_H
#define CT_NN_TUNE_PLAN_H

#include "nn/engine.h"

struct ct_plan_tuning {
	double seconds; /* limit of the measurements; if steps are slow, a part of the rows of a batch is measured */
	/* Called before each plan is measured, and at the end with done == total. May be NULL. */
	void (*progress)(void *user, size_t done, size_t total);
	void *user;
	/* Output: seconds of a step of `rows` rows by the plan that the engine suggests, and by *out. */
	double suggested_s, chosen_s;
	int rows;
};

/* opts is that of the net; opts->plan and the callbacks are not used. Allocates the memory of the net for each
 * measurement and releases it. *out is owned by the caller. */
enum ct_status ct_plan_tune(ct_engine *e, const ct_graph *g, const struct ct_net_opts *opts, struct ct_plan_tuning *how,
			    struct ct_net_plan *out) CT_MUST_CHECK;

#endif
