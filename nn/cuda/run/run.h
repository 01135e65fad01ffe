#ifndef CT_NN_CUDA_RUN_RUN_H
#define CT_NN_CUDA_RUN_RUN_H

#include "nn/cuda/program/program.h"

/* Post the forward and the backward pass (struct ct_engine_ops). */
enum ct_status ct__cuda_forward(ct_program *base, const struct ct_batch *b, struct ct_metrics *m);
enum ct_status ct__cuda_backward(ct_program *base, const struct ct_backward_opts *opts, ct_arena *grads);
/* Returns CT_OK, or fails with CT_DEVICE; the message names the error and the failed operation (`what`). */
enum ct_status ct__cuda_launched(cudaError_t e, const char *what) CT_MUST_CHECK;

static inline cudaStream_t cuda_stream(const ct_net *net)
{
	return net->engine->stream->handle;
}

#endif
