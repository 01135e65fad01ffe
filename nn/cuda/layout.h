/* The layout of parameters. Weights are [Kp,R,S,Cp] for convolutions and [Kp,H,W,Cp] for linear layers, with the
 * channels padded as in activations; vectors are [Cp]. The padding is zero.
 *
 * A convolution with groups has [Kp,R,S,C/groups] if the channels of its input and its output need no padding.
 * Otherwise it is computed as a convolution without groups, whose weights are zero outside of the groups
 * (cuda_is_dense). */
#ifndef CT_NN_CUDA_LAYOUT_H
#define CT_NN_CUDA_LAYOUT_H

#include "nn/cuda/program/program.h"

/* Functions for struct ct_engine_ops. */
enum ct_status ct__cuda_count_elems(ct_net *net);
enum ct_status ct__cuda_pack(const ct_net *net, int param, const float *logical, float *slice);
enum ct_status ct__cuda_unpack(const ct_net *net, int param, const float *slice, float *logical);

#endif
