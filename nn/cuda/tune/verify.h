/* Checks what plans compute, at the start of a run (train.self_check). A plan with a defect gives wrong gradients that
 * are the same in each step and on each rank, so that only the losses show it. */
#ifndef CT_NN_CUDA_TUNE_VERIFY_H
#define CT_NN_CUDA_TUNE_VERIFY_H

#include "nn/cuda/tune/choice.h"

/* Executes the plan of each choice from *n_verified on once, on operands whose sums are exact, and compares a few
 * elements of the result with direct sums. Sets *n_verified to the number of choices. Fails with CT_DEVICE if an
 * element is wrong; the message names the layer and the plan, and the hint what to do. Memory for the operands is
 * allocated for this call; if there is too little, a message in the log says that there was no check. */
enum ct_status ct__plans_verify(ct__cudnn_choices *c, const struct ct__timing *where, size_t *n_verified) CT_MUST_CHECK;

#endif
