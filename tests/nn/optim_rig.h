/* The small network that the tests of optimizers update, and options for large batches. */
#ifndef CT_TESTS_NN_OPTIM_RIG_H
#define CT_TESTS_NN_OPTIM_RIG_H

#include "nn/optim/optim.h"
#include "tests/nn/nn_check.h"

static const struct ct_optim_opts lars = {
	.kind = CT_LARS, .momentum = 0.9, .weight_decay = 0.1, .decay_norm_bias = true, .trust = 0.01};
static const struct ct_optim_opts lamb = {
	.kind = CT_LAMB, .weight_decay = 0.1, .decay_norm_bias = true, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6};

static inline void open_rig(struct rig *r)
{
	struct ct_net_opts opts = {.batch = 2, .input = CT_INPUT_F32_NCHW, .train = true};

	rig_open(r, "ref",
		 graph_make((struct ct_shape){9, 1, 1}, "linear 7;batch_norm;relu;linear 3", 3, CT_LOSS_CROSS_ENTROPY,
			    0),
		 &opts);
}

#endif
