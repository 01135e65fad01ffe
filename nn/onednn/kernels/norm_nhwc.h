/* The tiles into which the kernels on [N,H,W,C] divide a tensor: up to CT_NORM_MAX_TILE pixels each. The tiles of a
 * tensor whose rows have factors do not reach into another row. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_NHWC_H
#define CT_NN_ONEDNN_KERNELS_NORM_NHWC_H

#include "nn/onednn/kernels/norm_kernels.h"

#define CT_NORM_MAX_TILE 256

struct ct_norm_tiles {
	size_t rows, row; /* rows of pixels that no tile leaves, and their length in pixels */
	size_t per_row, size;
};

static inline struct ct_norm_tiles ct__norm_tiles(size_t rows, size_t row)
{
	const size_t per_row = (row + CT_NORM_MAX_TILE - 1) / CT_NORM_MAX_TILE;

	return (struct ct_norm_tiles){
		.rows = rows, .row = row, .per_row = per_row, .size = (row + per_row - 1) / per_row};
}

static inline struct ct_norm_tiles ct__norm_tiles_of(const struct ct_norm *p)
{
	return p->factor ? ct__norm_tiles((size_t)p->n, (size_t)p->plane)
			 : ct__norm_tiles(1, (size_t)p->n * (size_t)p->plane);
}

static inline size_t ct__norm_n_tiles(const struct ct_norm_tiles *t)
{
	return t->rows * t->per_row;
}

#endif
