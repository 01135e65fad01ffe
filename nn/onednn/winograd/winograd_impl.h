/* How the work is split and what scratch memory it needs, the same for kernels of 3x3 and 5x5. The arithmetic is written once,
 * for TAPS = 3 or 5, in transforms_template.h, correlate_template.h and sums_template.h; kernel_3x3.c and kernel_5x5.c compile
 * it. */
#ifndef CT_NN_ONEDNN_WINOGRAD_WINOGRAD_IMPL_H
#define CT_NN_ONEDNN_WINOGRAD_WINOGRAD_IMPL_H

#include <stdint.h>

#include "nn/onednn/kernels/block.h"
#include "nn/onednn/winograd/winograd.h"

#define RESULTS 4 /* of a tile, in each direction */

/* The work is divided into units of some dozen tiles each: several small images, or some rows of tiles of one image. */
struct ct__winograd_grid {
	int n, tiles_h, tiles_w; /* of an image */
	int images, rows;        /* of a unit */
	int units_per_image, units;
	int tiles; /* of a full unit */
};
struct ct__winograd_grid ct__winograd_grid(const struct ct_winograd_shape *s, enum ct_winograd_pass pass);

/* The images n0 to n1 - 1 and their rows of tiles r0 to r1 - 1 */
struct ct__winograd_unit {
	int n0, n1, r0, r1, tiles;
};
struct ct__winograd_unit ct__winograd_unit(const struct ct__winograd_grid *g, int i);

/* Vectors, per thread and of all. Half-transformed rows of a unit: of the input
 * [images][C/16][4 rows + TAPS - 1][tiles_w * POINTS + 1], of the gradient
 * [images][K/16][4 rows][tiles_w * POINTS + 1]; and for one column of points, [POINTS][channels/16][tiles]: input, product
 * or gradient; results half transformed back [K/16][tiles][4][POINTS]. `weights`: [POINTS * POINTS][panels of 2 blocks of K][C][2]. */
struct ct__winograd_scratch {
	size_t columns, gradient_columns, input, product, half_results, per_thread;
	size_t weights;
	int groups; /* The number of partial sums of dw and db over units. It does not depend on the number of threads. */
};
struct ct__winograd_scratch ct__winograd_scratch(const struct ct_winograd_shape *s, enum ct_winograd_pass pass);

/* The number of ranges into which the blocks of output channels are divided where there are fewer units than threads. Each range
 * goes through all units. */
int ct__winograd_parts(int out_blocks, int units, int threads);
/* The blocks begin to end - 1 of part `i`: whole panels. */
struct ct_winograd_range {
	int begin, end;
};
struct ct_winograd_range ct__winograd_part(int parts, int i, int out_blocks);

/* A tensor in blocks of channels, with `pad` zeros above and to the left, and as many as needed below and to the right. Of its
 * `blocks`, those in `range` are read. */
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
extern const struct ct_winograd_kernels ct__winograd_kernels_3x3, ct__winograd_kernels_5x5;

#endif
