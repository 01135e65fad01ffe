/* Element-wise loops on plain tensors: input normalisation, masks, scaling, running statistics. Plain C that the compiler
 * vectorises. `threads` is how many share the work; results do not depend on it. bfloat16 values are passed as their bits
 * and are rounded to the nearest, ties to even. */
#ifndef CT_NN_ONEDNN_KERNELS_ELEMENTWISE_H
#define CT_NN_ONEDNN_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/graph/graph.h"

/* y [n,C,H,W] = (x / 255 - mean) / std of the bytes x [n,H,W,C], with a mean and a standard deviation for each of the at most
 * four channels. */
void ct__onednn_normalise(int threads, const uint8_t *x, int n, struct ct_shape s, const float *mean, const float *std,
			  float *y);
void ct__onednn_normalise_bf16(int threads, const uint8_t *x, int n, struct ct_shape s, const float *mean,
			       const float *std, uint16_t *y);
void ct__onednn_to_bf16(int threads, uint16_t *out, const float *x, size_t n);

/* out = a * b; out may be a or b. */
void ct__onednn_multiply(int threads, float *out, const float *a, const float *b, size_t n);
void ct__onednn_multiply_bf16(int threads, uint16_t *out, const uint16_t *a, const uint16_t *b, size_t n);
/* out = a * scale, on the calling thread: for gradients of logits */
void ct__onednn_scale(float *out, const float *a, float scale, size_t n);
/* out[i][0..n) = in[i][0..n) * factor[i] for each of the rows */
void ct__onednn_scale_rows(int threads, float *out, const float *in, const float *factor, int rows, size_t n);

/* running = (1 - momentum) running + momentum batch, for mean and variance of c channels; the variance is made unbiased for
 * `count` values in each channel. False when the statistics of the batch are not finite. */
bool ct__onednn_running(float *mean, float *variance, const float *batch_mean, const float *batch_variance, int c,
			float momentum, double count);

#endif
