/* Compiled for AVX-512 and with contracted multiply-adds: called where ct_winograd_usable. */
#define TAPS 5
#include "nn/conv_winograd_correlate.h"
#include "nn/conv_winograd_sums.h"

const struct ct_winograd_kernels ct_winograd_kernels_5x5 = {forward, backward_data, backward_weights};
