/* Compiled once for each instruction set (kernels/select.h), with contracted multiply-adds. Called only if
 * ct__winograd_possible returns true. */
#define TAPS 5
#include "nn/onednn/winograd/correlate_template.h"
#include "nn/onednn/winograd/sums_template.h"

const struct ct_winograd_kernels CT_WITH_LANES(ct__winograd_kernels_5x5) = {forward, backward_data, backward_weights};
