/* Convolutions of 5x5, stride 1, with 1/4.8 of the multiplications: Winograd's minimal filtering F(4x4,5x5).
 *
 *   y[n,k] = bias[k] + sum_c x[n,c] * w[k,c]     forward, then optionally ReLU; [N,C,H,W] -> [N,K,OH,OW]
 *   dx, and dw with db                           backward: data, weights
 *
 * Source: A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016. A tile of 4x4 results is
 * A^T [(G w G^T) . (B^T x B)] A of the 8x8 values that it depends on: the products of 64 points, each a matrix product
 * over channels of all tiles. Backward-data is the same with turned and transposed weights; backward-weights is the
 * adjoint G^T [sum over tiles (B^T x B) . (A dy A^T)] G, transformed back once. The matrices are in
 * conv_winograd_impl.h.
 *
 * Layout: tensors [N,C/16,H,W,16], weights [K/16,C/16,5,5,16c,16k], bias plain; fp32, on 64-byte bounds.
 * Error, as measured against double precision: 3e-6 root mean square, 3e-5 at worst of the result's root mean square,
 * about three times that of direct summation. A NaN or an infinity spreads over the tiles that read it, as NaN. Results
 * do not depend on the number of threads. Nothing is allocated. */
#ifndef CT_NN_CONV_WINOGRAD_H
#define CT_NN_CONV_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

/* The kernel covers 5 elements and the padding at most 4 on each side: OH = H + 2 pad_h - 4, OW = W + 2 pad_w - 4. */
struct ct_winograd_shape {
	int n, c, k, h, w, pad_h, pad_w;
};

enum ct_winograd_pass { CT_WINOGRAD_FORWARD, CT_WINOGRAD_BACKWARD_DATA, CT_WINOGRAD_BACKWARD_WEIGHTS };

/* Whether this processor has the instructions and the shape gains by it: channels in whole blocks and few enough for
 * the transformed weights to stay in the second-level cache, images that fill their tiles. Says the same for every N.
 */
bool ct_winograd_usable(const struct ct_winograd_shape *s);

size_t ct_winograd_scratch_bytes(const struct ct_winograd_shape *s, enum ct_winograd_pass pass, int threads);

struct ct_winograd {
	struct ct_winograd_shape shape;
	int threads; /* of the scratch: at most so many are used */
	void *scratch;
	const float *weights;
	const float *x;
	const float *bias; /* may be NULL */
	float *y;
	bool relu;
	const float *dy;
	float *dx;
	float *dw, *db; /* db may be NULL */
};

void ct_winograd_forward(const struct ct_winograd *op);
void ct_winograd_backward_data(const struct ct_winograd *op);
void ct_winograd_backward_weights(const struct ct_winograd *op);

#endif
