/* Compiled for AVX-512 and with contracted multiply-adds. Called only if ct__winograd_usable returns true. */
#define TAPS 5
#include "nn/onednn/winograd/correlate_template.h"
#include "nn/onednn/winograd/sums_template.h"

const struct ct_winograd_kernels ct__winograd_kernels_5x5 = {forward, backward_data, backward_weights};
