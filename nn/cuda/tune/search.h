/* Finds the candidates of several graphs with a pool of threads. Finalizing a plan can take a second if cuDNN compiles
 * it. */
#ifndef CT_NN_CUDA_TUNE_SEARCH_H
#define CT_NN_CUDA_TUNE_SEARCH_H

#include "nn/cuda/tune/choice.h"

typedef struct ct__plan_search ct__plan_search;

/* Starts the threads. The choices are borrowed until ct__plan_search_stop; each graph is used by one thread. */
enum ct_status ct__plan_search_start(struct ct__cudnn_choice *const *choices, size_t n, ct_device *device,
				     ct__plan_search **out) CT_MUST_CHECK;
/* Waits for the candidates of choice i, which the caller releases. Fails as ct__cudnn_plan_find. Call it once for each
 * i, in their order. When it has returned, no thread makes a plan until the next call, so that the caller can measure:
 * making a plan uses the CPU that posts the work, and loads code on the device. Then the threads go on only if the next
 * choice is not known yet. */
enum ct_status ct__plan_search_take(ct__plan_search *s, size_t i, struct ct__cudnn_candidates *out) CT_MUST_CHECK;
/* Lets the threads end, and releases what was not taken. */
void ct__plan_search_stop(ct__plan_search *s);

#endif
