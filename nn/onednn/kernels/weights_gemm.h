/* The gradient of the weights of a convolution on bfloat16 images in NHWC, as one product of matrices for each tap:
 *
 *   dw[r,s,c,k] = sum over n, oh, ow of x[n, oh * stride_h + r * dilation_h - pad_h, ..., c] * dy[n,oh,ow,k]
 *
 * The sum over pixels is the inner dimension of the product. x is transposed once, so that the pixels of a channel
 * follow each other, with zeros as padding. dy is copied with the same distance between its rows, also with zeros. A
 * tap then reads x at an offset, and nothing else distinguishes it from the others. With a stride, x is divided into
 * images of the pixels that have the same remainder.
 *
 * Sources: A. Anderson et al., "Low-memory GEMM-based convolution algorithms for deep neural networks", 2017, which
 * computes one product for each tap; E. Georganas et al., "Harnessing deep learning via a single building block", IPDPS
 * 2020, which describes the blocks.
 *
 * Sums are computed in fp32, by matrix units (AMX) or by the bfloat16 instructions of AVX-512. These differ in the last
 * bits. Results do not depend on the number of threads, but on the number of images, which decides how they are
 * grouped. A NaN or an infinity in x or dy may also make weights NaN that it does not affect in exact arithmetic. The
 * work is divided by 32 x 32 channels and by taps: a 1x1 convolution of 64 channels occupies at most 4 threads. */
#ifndef CT_NN_ONEDNN_KERNELS_WEIGHTS_GEMM_H
#define CT_NN_ONEDNN_KERNELS_WEIGHTS_GEMM_H

#include "nn/graph/graph.h"

struct ct_weights_gemm_shape {
	int n, c, k, h, w, oh, ow; /* [N,H,W,C] and [N,OH,OW,K] */
	struct ct_window win;
};

/* Returns whether this processor has the instructions, and the shape is supported: C and K are multiples of 16, strides
 * are at most 4, and dilation does not make the copies several times as large as the images. */
bool ct__weights_gemm_possible(const struct ct_weights_gemm_shape *s);
size_t ct__weights_gemm_scratch_bytes(const struct ct_weights_gemm_shape *s);

struct ct_weights_gemm {
	struct ct_weights_gemm_shape shape; /* which must be possible */
	int threads;
	void *scratch;  /* ct__weights_gemm_scratch_bytes, aligned to 64 bytes */
	const void *x;  /* [N,H,W,C] bfloat16 */
	const void *dy; /* [N,OH,OW,K] bfloat16 */
	float *dw;      /* [R,S,C,K]; overwritten */
};

/* May be called by any thread, with scratch memory of its own. */
void ct__weights_gemm(const struct ct_weights_gemm *op);

#endif
