/* The division of the work, and the kernels for one instruction set. */
#ifndef CT_NN_ONEDNN_KERNELS_WEIGHTS_GEMM_IMPL_H
#define CT_NN_ONEDNN_KERNELS_WEIGHTS_GEMM_IMPL_H

#include <stdint.h>

#include "nn/onednn/kernels/weights_gemm.h"

/* Pixels that a step of a product sums, and channels of a block: the sizes of AMX's tiles. */
enum { GEMM_PIXELS = 32, GEMM_CHANNELS = 16 };

/* The pixels of one remainder form an image of rows x cols, padding included. dy has images of the same size. A run is
 * a few images, one after the other, whose pixels are summed together, in `steps` steps of GEMM_PIXELS. Their number is
 * the one for which the least of the last step is padding. A chunk is as many runs as fit into a cache.
 *
 *   x    [runs][C][x_pitch]: for each remainder x_len pixels
 *   dy   [runs][K/16][steps][16 pairs of pixels][16][2] */
struct ct__weights_gemm_grid {
	int rows, cols;
	int images, runs, chunk; /* images of a run, runs, runs of a chunk */
	unsigned used_h, used_w; /* a bit for each remainder that a tap reads */
	size_t steps;
	size_t x_len, x_pitch; /* multiples of GEMM_PIXELS */
	size_t x_run, dy_run;  /* elements of a run */
};

/* One product: adds A * B to C, or sets C to it. A has `rows` blocks of GEMM_CHANNELS rows of pixels, at any address;
 * B has `cols` blocks of GEMM_CHANNELS columns. There are at most 2 of each. */
struct ct__gemm_block {
	const uint16_t *a, *b;
	size_t a_row, a_run, b_block, b_run; /* distances in elements */
	size_t steps;
	int runs, rows, cols;
	float *c;
	size_t c_row;
	bool add;
};

typedef void (*ct__gemm_block_fn)(const struct ct__gemm_block *b);
void ct__gemm_block_amx(const struct ct__gemm_block *b);
void ct__gemm_block_avx512(const struct ct__gemm_block *b);

struct ct__weights_gemm_grid ct__weights_gemm_grid(const struct ct_weights_gemm_shape *s);

/* Copy GEMM_PIXELS pixels of all channels. at[i] is a pixel, or NULL: zeros. x: to[c * pitch + i]. dy: to[block *
 * pitch], a step of a block. */
void ct__weights_gemm_pack_x(const uint16_t *const *at, int channels, size_t pitch, uint16_t *to);
void ct__weights_gemm_pack_dy(const uint16_t *const *at, int channels, size_t pitch, uint16_t *to);

/* Asks the system for the registers of AMX, once, and returns whether the process may use them. */
bool ct__weights_gemm_uses_amx(void);

/* As ct__weights_gemm, with this kernel. */
void ct__weights_gemm_with(const struct ct_weights_gemm *op, ct__gemm_block_fn block);

#endif
