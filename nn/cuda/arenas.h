#ifndef CT_NN_CUDA_ARENAS_H
#define CT_NN_CUDA_ARENAS_H

#include "nn/engine_impl.h"

extern const struct ct_arena_ops ct__arena_ops_cuda;

#endif
