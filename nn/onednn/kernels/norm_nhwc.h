/* The tiles into which the kernels on [N,H,W,C] divide a tensor: at most CT_NORM_MAX_TILE pixels each, and fewer if
 * there are many channels, so that there are enough tiles for many threads. The tiles of a tensor whose rows have
 * factors do not reach into another row. */
#ifndef CT_NN_ONEDNN_KERNELS_NORM_NHWC_H
#define CT_NN_ONEDNN_KERNELS_NORM_NHWC_H

#include "nn/onednn/kernels/norm_kernels.h"

#define CT_NORM_MAX_TILE 256
#define CT_NORM_MIN_TILE 64
#define CT_NORM_TILE_ELEMS 65536

struct ct_norm_tiles {
	size_t rows, row; /* rows of pixels that no tile leaves, and their length in pixels */
	size_t per_row, size;
};

static inline struct ct_norm_tiles ct__norm_tiles(size_t rows, size_t row, int channels)
{
	const size_t fit = CT_NORM_TILE_ELEMS / (size_t)channels;
	const size_t most = fit > CT_NORM_MAX_TILE ? CT_NORM_MAX_TILE : fit < CT_NORM_MIN_TILE ? CT_NORM_MIN_TILE : fit;
	const size_t per_row = (row + most - 1) / most;

	return (struct ct_norm_tiles){
		.rows = rows, .row = row, .per_row = per_row, .size = (row + per_row - 1) / per_row};
}

static inline struct ct_norm_tiles ct__norm_tiles_of(const struct ct_norm *p)
{
	return p->factor ? ct__norm_tiles((size_t)p->n, (size_t)p->plane, p->channels)
			 : ct__norm_tiles(1, (size_t)p->n * (size_t)p->plane, p->channels);
}

static inline size_t ct__norm_n_tiles(const struct ct_norm_tiles *t)
{
	return t->rows * t->per_row;
}

#endif
