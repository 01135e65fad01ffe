/* The division of the work and the scratch memory, for both 3x3 and 5x5 kernels. The arithmetic is written once, for
 * TAPS = 3 or 5, in transforms_template.h, correlate_template.h and sums_template.h. kernel_3x3.c and kernel_5x5.c
 * compile it. */
#ifndef CT_NN_ONEDNN_WINOGRAD_WINOGRAD_IMPL_H
#define CT_NN_ONEDNN_WINOGRAD_WINOGRAD_IMPL_H

#include <stdint.h>

#include "nn/onednn/kernels/select.h"
#include "nn/onednn/winograd/winograd.h"

#define RESULTS 4 /* results per tile in each direction */

/* The work is divided into units of a few dozen tiles each: several small images, or some rows of tiles of one
 * image. */
struct ct__winograd_grid {
	int n, tiles_h, tiles_w; /* of an image */
	int images, rows;        /* of a unit */
	int units_per_image, units;
	int tiles; /* of a full unit */
};
struct ct__winograd_grid ct__winograd_grid(const struct ct_winograd_shape *s, enum ct_conv_pass pass);

/* The rows of tiles r0 to r1 - 1 of the images n0 to n1 - 1. */
struct ct__winograd_unit {
	int n0, n1, r0, r1, tiles;
};
struct ct__winograd_unit ct__winograd_unit(const struct ct__winograd_grid *g, int i);

/* Sizes of the scratch memory in vectors of b lanes. Each thread stores the half-transformed rows of a unit: `columns`
 * of the input, [images][C/b][4 rows + TAPS - 1][tiles_w * POINTS + 1], and `gradient_columns`, [images][K/b][4
 * rows][tiles_w * POINTS + 1]. For one column of points, it stores `input` and `product` (or the gradient),
 * [POINTS][channels/b][tiles]. `half_results` are results that are transformed back along one axis,
 * [K/b][tiles][4][POINTS]. All threads share `weights`: [POINTS * POINTS][panels of 2 blocks of K][C][2]. */
struct ct__winograd_scratch {
	size_t columns, gradient_columns, input, product, half_results, per_thread;
	size_t weights;
	int groups; /* Number of partial sums of dw and db over units. Does not depend on the number of threads. */
};
struct ct__winograd_scratch ct__winograd_scratch(const struct ct_winograd_shape *s, enum ct_conv_pass pass);

/* Returns the number of ranges into which the blocks of output channels are divided if there are fewer units than
 * threads. Each range is computed for all units. */
int ct__winograd_parts(int out_blocks, int units, int threads);
/* The blocks begin to end - 1, which form part `i` and are complete panels. */
struct ct_winograd_range {
	int begin, end;
};
struct ct_winograd_range ct__winograd_part(int parts, int i, int out_blocks);

/* A tensor in blocks of channels, with pad_h zeros above, pad_w zeros to the left, and as many as needed below and to
 * the right. Only the blocks in `range` are read. */
struct image {
	const void *at;
	bool bf16;
	int blocks, h, w, pad_h, pad_w;
	struct ct_winograd_range range;
};

struct ct_winograd_kernels {
	void (*forward)(const struct ct_winograd *op);
	void (*backward_data)(const struct ct_winograd *op);
	void (*backward_weights)(const struct ct_winograd *op);
};
extern const struct ct_winograd_kernels ct__winograd_kernels_3x3_8, ct__winograd_kernels_3x3_16,
	ct__winograd_kernels_5x5_8, ct__winograd_kernels_5x5_16;

#endif
