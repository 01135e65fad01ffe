#ifndef CT_NN_CUDA_ARENAS_H
#define CT_NN_CUDA_ARENAS_H

#include "nn/cuda/program/program.h"

extern const struct ct_arena_ops ct__arena_ops_cuda;
/* Frees the memory that optimizer updates have allocated for the net. */
void ct__cuda_updates_release(ct_net *net);

#endif
