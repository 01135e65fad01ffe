/* Compiled for AVX-512 and with contracted multiply-adds: called where ct_winograd_usable. */
#define TAPS 3
#include "nn/conv_winograd_correlate.h"
#include "nn/conv_winograd_sums.h"

const struct ct_winograd_kernels ct_winograd_kernels_3x3 = {forward, backward_data, backward_weights};
