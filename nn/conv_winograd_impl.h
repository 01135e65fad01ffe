/* Inside of conv_winograd*.c: work split, scratch, and the transforms.
 *
 * F(4,5) interpolates at 0, 1, -1, 2, -2, 1/2, -1/2 and infinity: of all sets of three pairs tried, the one with the smallest
 * error, and its matrices are exact in binary but for factors of G. With V_r the 8 x r matrix of powers (a^0 ... a^(r-1)) of
 * the points (infinity: 0 ... 0 1), A = V_4, G = D V_5 and B = V_8^-1 D^-1 (Toom-Cook, transposed), where the diagonal D moves
 * the denominators of B to G:
 *
 *         |  1     0  -21/4    0    21/4    0   -1   0 |         | 1   0    0    0  |               | 1   0    0    0    0   |
 *         |  0     1    1   -17/4  -17/4    1    1   0 |         | 1   1    1    1  |               | 1   1    1    1    1   |
 *         |  0    -1    1    17/4  -17/4   -1    1   0 |         | 1  -1    1   -1  |               | 1  -1    1   -1    1   |
 *   B^T = |  0     2    1   -10     -5      8    4   0 |     A = | 1   2    4    8  |   G = D times | 1   2    4    8    16  |
 *         |  0    -2    1    10     -5     -8    4   0 |         | 1  -2    4   -8  |               | 1  -2    4   -8    16  |
 *         |  0     2    4   -5/2    -5     1/2   1   0 |         | 1  1/2  1/4  1/8 |               | 1  1/2  1/4  1/8  1/16 |
 *         |  0    -2    4    5/2    -5    -1/2   1   0 |         | 1 -1/2  1/4 -1/8 |               | 1 -1/2  1/4 -1/8  1/16 |
 *         |  0    -1    0   21/4     0   -21/4   0   1 |         | 0   0    0    1  |               | 0   0    0    0    1   |
 *
 *   D = diag(1, -2/9, -2/9, 1/360, 1/360, 32/45, 32/45, 1)
 *
 * Rows of a pair +-a share their even and their odd part, which halves the work. Each transform is applied to columns, then to
 * rows; vectors are 16 channels, so that all of them are plain sums of vectors. */
#ifndef CT_NN_CONV_WINOGRAD_IMPL_H
#define CT_NN_CONV_WINOGRAD_IMPL_H

#include <stdint.h>

#include "nn/conv_winograd.h"

#define LANES 16
#define TAPS 5    /* of the kernel, in each direction */
#define RESULTS 4 /* of a tile */
#define POINTS (TAPS + RESULTS - 1)
#define D1 (-2.0f / 9)
#define D2 (1.0f / 360)
#define D3 (32.0f / 45)

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));

/* Images cut into units of about 16 tiles: several small images, or some rows of tiles of one. */
struct ct_winograd_grid {
	int n, tiles_h, tiles_w; /* of an image */
	int images, rows;        /* of a unit */
	int units_per_image, units;
	int tiles; /* of a full unit */
};
struct ct_winograd_grid ct_winograd_grid(const struct ct_winograd_shape *s, enum ct_winograd_pass pass);

/* Images n0..n1-1 and their rows of tiles r0..r1-1 */
struct ct_winograd_unit {
	int n0, n1, r0, r1, tiles;
};
struct ct_winograd_unit ct_winograd_unit(const struct ct_winograd_grid *g, int i);

/* Vectors, per thread and of all. Half-transformed rows of a unit: of the input [images][C/16][4 rows + 4][tiles_w*8+1], of the
 * gradient [images][K/16][4 rows][tiles_w*8+1]; and for one column of points, [8 points][channels/16][tiles]: input, product or
 * gradient; results half transformed back [K/16][tiles][4][8]. `weights`: [64 points][panels of 2 blocks of K][C][2]. */
struct ct_winograd_scratch {
	size_t columns, gradient_columns, input, product, half_results, per_thread;
	size_t weights;
	int groups; /* partial sums of dw over units, in a number that does not depend on threads; each with db */
};
struct ct_winograd_scratch ct_winograd_scratch(const struct ct_winograd_shape *s, enum ct_winograd_pass pass);

/* From row to row of half-transformed tiles; odd, so that rows fall into different sets of the cache */
INLINE size_t row_pitch(const struct ct_winograd_grid *g)
{
	return (size_t)g->tiles_w * POINTS + 1;
}

/* Block `k` of channel c in a matrix of n_blocks of K by n_c: panels of two blocks, so that the products walk in unit steps. */
INLINE vec *panel(vec *u, int n_c, int n_blocks, int c, int k)
{
	const int first = k & ~1, width = n_blocks - first < 2 ? 1 : 2;

	return u + (size_t)n_c * (size_t)first + (size_t)(c * width + k - first);
}

/* v = B^T d */
INLINE void input_transform(const vec d[POINTS], vec v[POINTS])
{
	vec even = d[2] + d[6] - 4.25f * d[4], odd = d[1] + d[5] - 4.25f * d[3];
	v[0] = d[0] - d[6] + 5.25f * (d[4] - d[2]);
	v[1] = even + odd;
	v[2] = even - odd;
	even = d[2] - 5.0f * d[4] + 4.0f * d[6];
	odd = d[1] - 5.0f * d[3] + 4.0f * d[5];
	v[3] = even + 2.0f * odd;
	v[4] = even - 2.0f * odd;
	even = 4.0f * d[2] - 5.0f * d[4] + d[6];
	odd = 4.0f * d[1] - 5.0f * d[3] + d[5];
	v[5] = even + 0.5f * odd;
	v[6] = even - 0.5f * odd;
	v[7] = d[7] - d[1] + 5.25f * (d[3] - d[5]);
}

/* y = A^T m */
INLINE void result_transform(const vec m[POINTS], vec y[RESULTS])
{
	vec s1 = m[1] + m[2], d1 = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4], s3 = m[5] + m[6], d3 = m[5] - m[6];
	y[0] = (m[0] + s1) + (s2 + s3);
	y[1] = d1 + 2.0f * d2 + 0.5f * d3;
	y[2] = s1 + 4.0f * s2 + 0.25f * s3;
	y[3] = (d1 + m[7]) + 8.0f * d2 + 0.125f * d3;
}

/* v = A q */
INLINE void gradient_transform(const vec q[RESULTS], vec v[POINTS])
{
	vec even = q[0] + q[2], odd = q[1] + q[3];
	v[0] = q[0];
	v[1] = even + odd;
	v[2] = even - odd;
	even = q[0] + 4.0f * q[2];
	odd = q[1] + 4.0f * q[3];
	v[3] = even + 2.0f * odd;
	v[4] = even - 2.0f * odd;
	even = q[0] + 0.25f * q[2];
	odd = q[1] + 0.25f * q[3];
	v[5] = even + 0.5f * odd;
	v[6] = even - 0.5f * odd;
	v[7] = q[3];
}

/* u = G g */
INLINE void weights_transform(const vec g[TAPS], vec u[POINTS])
{
	vec even = g[0] + g[2] + g[4], odd = g[1] + g[3];
	u[0] = g[0];
	u[1] = D1 * (even + odd);
	u[2] = D1 * (even - odd);
	even = g[0] + 4.0f * g[2] + 16.0f * g[4];
	odd = g[1] + 4.0f * g[3];
	u[3] = D2 * (even + 2.0f * odd);
	u[4] = D2 * (even - 2.0f * odd);
	even = g[0] + 0.25f * g[2] + 0.0625f * g[4];
	odd = g[1] + 0.25f * g[3];
	u[5] = D3 * (even + 0.5f * odd);
	u[6] = D3 * (even - 0.5f * odd);
	u[7] = g[4];
}

/* g = G^T u */
INLINE void weights_adjoint(const vec u[POINTS], vec g[TAPS])
{
	vec s1 = D1 * (u[1] + u[2]), d1 = D1 * (u[1] - u[2]), s2 = D2 * (u[3] + u[4]), d2 = D2 * (u[3] - u[4]);
	vec s3 = D3 * (u[5] + u[6]), d3 = D3 * (u[5] - u[6]);
	g[0] = (u[0] + s1) + (s2 + s3);
	g[1] = d1 + 2.0f * d2 + 0.5f * d3;
	g[2] = s1 + 4.0f * s2 + 0.25f * s3;
	g[3] = d1 + 8.0f * d2 + 0.125f * d3;
	g[4] = (u[7] + s1) + 16.0f * s2 + 0.0625f * s3;
}

/* Channels in blocks; `pad` zeros above and left of it, as many as needed below and right. */
struct image {
	const float *at;
	int blocks, h, w, pad_h, pad_w;
};

/* Rows of a unit's tiles with the transform done along W. */
void ct_winograd_input_columns(const struct image *im, const struct ct_winograd_grid *g, struct ct_winograd_unit u,
			       vec *columns);
/* Column of points `j`: the transform along H, [8][blocks][tiles of the unit] */
void ct_winograd_input_points(const vec *columns, int blocks, const struct ct_winograd_grid *g,
			      struct ct_winograd_unit u, int j, vec *v);

#endif
