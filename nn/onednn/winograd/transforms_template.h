/* The transforms, for TAPS taps in each direction. kernel_3x3.c and kernel_5x5.c compile this header.
 *
 * F(4,3) interpolates at 0, 1, -1, 2, -2 and infinity, F(4,5) also at 1/2 and -1/2. Of all sets of three pairs that
 * were tried, this one has the smallest error. Except for factors of G, its matrices are exact in binary. Let V_r be
 * the matrix of the powers (a^0 ... a^(r-1)) of the points (infinity: 0 ... 0 1). Then A = V_4, G = D V_TAPS and B =
 * V_POINTS^-1 D^-1 (Toom-Cook, transposed), where the diagonal matrix D moves the denominators of B to G. For 5 taps:
 *
 *         |  1     0  -21/4    0    21/4    0   -1   0 |         | 1   0    0    0  |
 *         |  0     1    1   -17/4  -17/4    1    1   0 |         | 1   1    1    1  |
 *         |  0    -1    1    17/4  -17/4   -1    1   0 |         | 1  -1    1   -1  |
 *   B^T = |  0     2    1   -10     -5      8    4   0 |     A = | 1   2    4    8  |
 *         |  0    -2    1    10     -5     -8    4   0 |         | 1  -2    4   -8  |
 *         |  0     2    4   -5/2    -5     1/2   1   0 |         | 1  1/2  1/4  1/8 |
 *         |  0    -2    4    5/2    -5    -1/2   1   0 |         | 1 -1/2  1/4 -1/8 |
 *         |  0    -1    0   21/4     0   -21/4   0   1 |         | 0   0    0    1  |
 *
 *   D = diag(1, -2/9, -2/9, 1/360, 1/360, 32/45, 32/45, 1), and for 3 taps:
 *
 *         | 4   0  -5   0   1   0 |         | 1   0   0   0 |
 *         | 0  -4  -4   1   1   0 |         | 1   1   1   1 |
 *   B^T = | 0   4  -4  -1   1   0 |     A = | 1  -1   1  -1 |     D = diag(1/4, -1/6, -1/6, 1/24, 1/24, 1)
 *         | 0  -2  -1   2   1   0 |         | 1   2   4   8 |
 *         | 0   2  -1  -2   1   0 |         | 1  -2   4  -8 |
 *         | 0   4   0  -5   0   1 |         | 0   0   0   1 |
 *
 * The two rows of a pair +-a share their even and odd parts, which halves the work. Each transform is applied first to
 * columns and then to rows. A vector has a block of channels, so all transforms are plain sums of vectors. */
#ifndef CT_NN_ONEDNN_WINOGRAD_TRANSFORMS_TEMPLATE_H
#define CT_NN_ONEDNN_WINOGRAD_TRANSFORMS_TEMPLATE_H

#include <string.h>

#include "nn/onednn/kernels/lanes.h"
#include "nn/onednn/winograd/winograd_impl.h"

#ifndef TAPS /* for tools that compile this header alone */
#define TAPS 3
#endif
#define POINTS (TAPS + RESULTS - 1)

/* Returns the distance between rows of half-transformed tiles. It is odd, so that rows are in different cache sets. */
CT_INLINE size_t row_pitch(const struct ct__winograd_grid *g)
{
	return (size_t)g->tiles_w * POINTS + 1;
}

/* Returns block `k` of channel c in a matrix of n_blocks blocks of K by n_c channels. The matrix is stored in panels of
 * two blocks, so that products access it sequentially. */
CT_INLINE ct_vec *panel(ct_vec *u, int n_c, int n_blocks, int c, int k)
{
	const int first = k & ~1, width = n_blocks - first < 2 ? 1 : 2;

	return u + (size_t)n_c * (size_t)first + (size_t)(c * width + k - first);
}

#if TAPS == 5

#define D1 (-2.0f / 9)
#define D2 (1.0f / 360)
#define D3 (32.0f / 45)

/* v = B^T d */
CT_INLINE void input_transform(const ct_vec d[POINTS], ct_vec v[POINTS])
{
	ct_vec even = d[2] + d[6] - 4.25f * d[4], odd = d[1] + d[5] - 4.25f * d[3];

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
CT_INLINE void result_transform(const ct_vec m[POINTS], ct_vec y[RESULTS])
{
	ct_vec s1 = m[1] + m[2], d1 = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4], s3 = m[5] + m[6],
	       d3 = m[5] - m[6];

	y[0] = (m[0] + s1) + (s2 + s3);
	y[1] = d1 + 2.0f * d2 + 0.5f * d3;
	y[2] = s1 + 4.0f * s2 + 0.25f * s3;
	y[3] = (d1 + m[7]) + 8.0f * d2 + 0.125f * d3;
}

/* v = A q */
CT_INLINE void gradient_transform(const ct_vec q[RESULTS], ct_vec v[POINTS])
{
	ct_vec even = q[0] + q[2], odd = q[1] + q[3];

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
CT_INLINE void weights_transform(const ct_vec g[TAPS], ct_vec u[POINTS])
{
	ct_vec even = g[0] + g[2] + g[4], odd = g[1] + g[3];

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
CT_INLINE void weights_adjoint(const ct_vec u[POINTS], ct_vec g[TAPS])
{
	ct_vec s1 = D1 * (u[1] + u[2]), d1 = D1 * (u[1] - u[2]), s2 = D2 * (u[3] + u[4]), d2 = D2 * (u[3] - u[4]);
	ct_vec s3 = D3 * (u[5] + u[6]), d3 = D3 * (u[5] - u[6]);

	g[0] = (u[0] + s1) + (s2 + s3);
	g[1] = d1 + 2.0f * d2 + 0.5f * d3;
	g[2] = s1 + 4.0f * s2 + 0.25f * s3;
	g[3] = d1 + 8.0f * d2 + 0.125f * d3;
	g[4] = (u[7] + s1) + 16.0f * s2 + 0.0625f * s3;
}

#else

#define D0 0.25f
#define D1 (-1.0f / 6)
#define D2 (1.0f / 24)

/* v = B^T d */
CT_INLINE void input_transform(const ct_vec d[POINTS], ct_vec v[POINTS])
{
	ct_vec even = d[4] - 4.0f * d[2], odd = d[3] - 4.0f * d[1];

	v[0] = 4.0f * d[0] - 5.0f * d[2] + d[4];
	v[1] = even + odd;
	v[2] = even - odd;
	even = d[4] - d[2];
	odd = 2.0f * (d[3] - d[1]);
	v[3] = even + odd;
	v[4] = even - odd;
	v[5] = 4.0f * d[1] - 5.0f * d[3] + d[5];
}

/* y = A^T m */
CT_INLINE void result_transform(const ct_vec m[POINTS], ct_vec y[RESULTS])
{
	ct_vec s1 = m[1] + m[2], d1 = m[1] - m[2], s2 = m[3] + m[4], d2 = m[3] - m[4];

	y[0] = (m[0] + s1) + s2;
	y[1] = d1 + 2.0f * d2;
	y[2] = s1 + 4.0f * s2;
	y[3] = (d1 + m[5]) + 8.0f * d2;
}

/* v = A q */
CT_INLINE void gradient_transform(const ct_vec q[RESULTS], ct_vec v[POINTS])
{
	ct_vec even = q[0] + q[2], odd = q[1] + q[3];

	v[0] = q[0];
	v[1] = even + odd;
	v[2] = even - odd;
	even = q[0] + 4.0f * q[2];
	odd = 2.0f * (q[1] + 4.0f * q[3]);
	v[3] = even + odd;
	v[4] = even - odd;
	v[5] = q[3];
}

/* u = G g */
CT_INLINE void weights_transform(const ct_vec g[TAPS], ct_vec u[POINTS])
{
	ct_vec even = D1 * (g[0] + g[2]), odd = D1 * g[1];

	u[0] = D0 * g[0];
	u[1] = even + odd;
	u[2] = even - odd;
	even = D2 * (g[0] + 4.0f * g[2]);
	odd = (2.0f * D2) * g[1];
	u[3] = even + odd;
	u[4] = even - odd;
	u[5] = g[2];
}

/* g = G^T u */
CT_INLINE void weights_adjoint(const ct_vec u[POINTS], ct_vec g[TAPS])
{
	ct_vec s1 = D1 * (u[1] + u[2]), d1 = D1 * (u[1] - u[2]), s2 = D2 * (u[3] + u[4]), d2 = D2 * (u[3] - u[4]);

	g[0] = (D0 * u[0] + s1) + s2;
	g[1] = d1 + 2.0f * d2;
	g[2] = (u[5] + s1) + 4.0f * s2;
}

#endif

CT_INLINE void input_row(const void *x, size_t row, const bool bf16, int w, int pad, int tiles, ct_vec *to)
{
	for (int t = 0; t < tiles; t++, to += POINTS) {
		const int left = t * RESULTS - pad;
		ct_vec d[POINTS], v[POINTS];

		if (left >= 0 && left + POINTS <= w) {
			for (int j = 0; j < POINTS; j++)
				d[j] = ct_vec_load(x, row + (size_t)(left + j), bf16);
		} else {
			for (int j = 0; j < POINTS; j++)
				d[j] = left + j >= 0 && left + j < w ? ct_vec_load(x, row + (size_t)(left + j), bf16)
								     : (ct_vec){0};
		}
		input_transform(d, v);
		for (int j = 0; j < POINTS; j++)
			to[j] = v[j];
	}
}

/* Transforms the rows of a unit's tiles along W. */
static void input_columns(const struct image *im, const struct ct__winograd_grid *g, struct ct__winograd_unit u,
			  ct_vec *columns)
{
	const size_t pitch = row_pitch(g);

	for (int i = u.n0 * im->blocks; i < u.n1 * im->blocks; i++) {
		for (int r = u.r0 * RESULTS; r < u.r1 * RESULTS + POINTS - RESULTS; r++, columns += pitch) {
			const int h = r - im->pad_h;

			if (h < 0 || h >= im->h)
				memset(columns, 0, pitch * sizeof(ct_vec));
			else if (im->bf16)
				input_row(im->at, ((size_t)i * (size_t)im->h + (size_t)h) * (size_t)im->w, true, im->w,
					  im->pad_w, g->tiles_w, columns);
			else
				input_row(im->at, ((size_t)i * (size_t)im->h + (size_t)h) * (size_t)im->w, false, im->w,
					  im->pad_w, g->tiles_w, columns);
		}
	}
}

/* Transforms column `j` of the points along H. The result is [POINTS][blocks][tiles of the unit]. */
static void input_points(const ct_vec *columns, int blocks, const struct ct__winograd_grid *g,
			 struct ct__winograd_unit u, int j, ct_vec *v)
{
	const size_t pitch = row_pitch(g), step = (size_t)blocks * (size_t)u.tiles;
	const int rows = u.r1 - u.r0;

	for (int i = 0; i < (u.n1 - u.n0) * blocks; i++) {
		const ct_vec *from = columns + (size_t)i * (size_t)(rows * RESULTS + POINTS - RESULTS) * pitch + j;
		ct_vec *to = v + i % blocks * u.tiles + i / blocks * rows * g->tiles_w;

		for (int r = 0; r < rows; r++, from += RESULTS * pitch) {
			for (int t = 0; t < g->tiles_w; t++, to++) {
				ct_vec d[POINTS], o[POINTS];

				for (int p = 0; p < POINTS; p++)
					d[p] = from[(size_t)p * pitch + (size_t)t * POINTS];
				input_transform(d, o);
				for (int p = 0; p < POINTS; p++)
					to[(size_t)p * step] = o[p];
			}
		}
	}
}

#endif
