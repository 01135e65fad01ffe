/* Element-wise loops on tensors in plain layout: input normalization, masks, scaling, running statistics. They are
 * plain C, which the compiler vectorizes. `threads` is the number of threads that share the work; results do not depend
 * on it. bfloat16 values are passed as uint16_t bits. Rounding is to nearest, ties to even. */
#ifndef CT_NN_ONEDNN_KERNELS_ELEMENTWISE_H
#define CT_NN_ONEDNN_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nn/graph/graph.h"

/* y [n,C,H,W] = (x / 255 - mean) / std for the bytes x [n,H,W,C]. mean and std have one value per channel. There are at
 * most four channels. */
void ct__onednn_normalise(int threads, const uint8_t *x, int n, struct ct_shape s, const float *mean, const float *std,
			  float *y);
void ct__onednn_normalise_bf16(int threads, const uint8_t *x, int n, struct ct_shape s, const float *mean,
			       const float *std, uint16_t *y);
void ct__onednn_to_bf16(int threads, uint16_t *out, const float *x, size_t n);

/* out = a * b; out may be a or b. */
void ct__onednn_multiply(int threads, float *out, const float *a, const float *b, size_t n);
void ct__onednn_multiply_bf16(int threads, uint16_t *out, const uint16_t *a, const uint16_t *b, size_t n);
/* out = a * scale, on the calling thread. Used for gradients of logits. */
void ct__onednn_scale(float *out, const float *a, float scale, size_t n);
/* out[i][0..n) = in[i][0..n) * factor[i] for each row i. */
void ct__onednn_scale_rows(int threads, float *out, const float *in, const float *factor, int rows, size_t n);

/* Updates the running mean and variance of c channels: running = (1 - momentum) running + momentum batch. The batch
 * variance is first converted to the unbiased estimate for `count` values per channel. Returns false if the statistics
 * of the batch are not finite. */
bool ct__onednn_running(float *mean, float *variance, const float *batch_mean, const float *batch_variance, int c,
			float momentum, double count);

#endif
