#ifndef CT_NN_CUDA_RUN_RUN_H
#define CT_NN_CUDA_RUN_RUN_H

#include "nn/cuda/program/program.h"

/* Post the forward and the backward pass (struct ct_engine_ops). */
enum ct_status ct__cuda_forward(ct_program *base, const struct ct_batch *b, struct ct_metrics *m);
enum ct_status ct__cuda_backward(ct_program *base, const struct ct_backward_opts *opts, ct_arena *grads);

/* weights.c: The weights in the type of activations (struct cuda_net) are a copy of the parameter arena. Updates and
 * swaps write both, so that recorded steps stay valid. ct__cuda_alloc_weights allocates the copy, unless activations
 * are fp32. ct__cuda_refresh_weights posts a conversion if the host has written the parameters since (import, resume).
 */
enum ct_status ct__cuda_alloc_weights(ct_net *net) CT_MUST_CHECK;
enum ct_status ct__cuda_refresh_weights(ct_net *net) CT_MUST_CHECK;

static inline cudaStream_t cuda_stream(const ct_net *net)
{
	return net->engine->stream->handle;
}

#endif
