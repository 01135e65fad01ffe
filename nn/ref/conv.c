/* Convolutions loop over the taps of the kernel. For each tap, the outputs that read inside the image are known in
 * advance, so the inner loops have no conditions, and padding is never read. Each output plane is added up in double in
 * `acc` and rounded once; so is each gradient. Sums have a fixed order. The gradient of the data distributes each
 * output gradient over the inputs that it came from, with the same taps; that of a weight is one sum over all rows and
 * positions. */
#include "nn/ref/ref_impl.h"

#include <string.h>

void ct__ref_linear_forward(int n, int features, int k, const float *x, const float *w, const float *b, float *y)
{
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < k; j++) {
			const float *xi = x + (size_t)i * (size_t)features, *wj = w + (size_t)j * (size_t)features;
			double sum = b ? (double)b[j] : 0;

			for (int f = 0; f < features; f++)
				sum += (double)xi[f] * (double)wj[f];
			y[(size_t)i * (size_t)k + (size_t)j] = (float)sum;
		}
	}
}

/* acc[f] = sum of coef[t * coef_stride] * rows[t * features + f] over `terms` rows t. */
static void weighted_rows(int terms, int features, const float *coef, size_t coef_stride, const float *rows,
			  double *acc)
{
	memset(acc, 0, (size_t)features * sizeof(*acc));
	for (int t = 0; t < terms; t++) {
		double c = (double)coef[(size_t)t * coef_stride];
		const float *row = rows + (size_t)t * (size_t)features;

		for (int f = 0; f < features; f++)
			acc[f] += c * (double)row[f];
	}
}

void ct__ref_linear_backward(int n, int features, int k, const float *x, const float *w, const float *dy, float *dx,
			     float *dw, float *db, double *acc)
{
	for (int i = 0; i < n; i++) {
		weighted_rows(k, features, dy + (size_t)i * (size_t)k, 1, w, acc);
		for (int f = 0; f < features; f++)
			dx[(size_t)i * (size_t)features + (size_t)f] += (float)acc[f];
	}
	for (int j = 0; dw && j < k; j++) {
		weighted_rows(n, features, dy + j, (size_t)k, x, acc);
		for (int f = 0; f < features; f++)
			dw[(size_t)j * (size_t)features + (size_t)f] = (float)acc[f];
	}
	for (int j = 0; db && j < k; j++) {
		double sum = 0;

		for (int i = 0; i < n; i++)
			sum += (double)dy[(size_t)i * (size_t)k + (size_t)j];
		db[j] = (float)sum;
	}
}

/* One kernel tap (r,s): output rows oh0..oh1-1 and columns ow0..ow1-1 read input row oh*stride_h + dh and column
 * ow*stride_w + dw, which are inside the image. For this tap, all other outputs read padding. */
struct tap {
	int dh, dw, oh0, oh1, ow0, ow1;
};

static void inside(int in, int out, int stride, int offset, int *begin, int *end)
{
	*begin = offset < 0 ? (-offset + stride - 1) / stride : 0;
	*end = offset < in ? (in - 1 - offset) / stride + 1 : 0;
	*end = *end < out ? *end : out;
}

static struct tap tap_at(const struct ct_node *node, struct ct_shape in, int r, int s)
{
	const struct ct_window *w = &node->win;
	struct tap t = {.dh = r * w->dilation_h - w->pad_h, .dw = s * w->dilation_w - w->pad_w};

	inside(in.h, node->shape.h, w->stride_h, t.dh, &t.oh0, &t.oh1);
	inside(in.w, node->shape.w, w->stride_w, t.dw, &t.ow0, &t.ow1);
	return t;
}

struct sizes {
	int groups, k_per_group, c_per_group, taps; /* taps = R*S */
	size_t in_plane, out_plane;
};

static struct sizes sizes_of(const struct ct_node *node, struct ct_shape in)
{
	return (struct sizes){.groups = node->groups,
			      .k_per_group = node->shape.c / node->groups,
			      .c_per_group = in.c / node->groups,
			      .taps = node->win.r * node->win.s,
			      .in_plane = (size_t)in.h * (size_t)in.w,
			      .out_plane = (size_t)node->shape.h * (size_t)node->shape.w};
}

void ct__ref_conv_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			  const float *b, float *y, double *acc)
{
	const struct sizes z = sizes_of(node, in);
	const int sh = node->win.stride_h, sw = node->win.stride_w;

	for (int i = 0; i < n; i++) {
		for (int k = 0; k < node->shape.c; k++) {
			for (size_t o = 0; o < z.out_plane; o++)
				acc[o] = b ? (double)b[k] : 0;
			for (int cg = 0; cg < z.c_per_group; cg++) {
				int c = k / z.k_per_group * z.c_per_group + cg;
				const float *plane = x + ((size_t)i * (size_t)in.c + (size_t)c) * z.in_plane;

				for (int rs = 0; rs < z.taps; rs++) {
					struct tap t = tap_at(node, in, rs / node->win.s, rs % node->win.s);
					double weight = (double)
						w[((size_t)k * (size_t)z.c_per_group + (size_t)cg) * (size_t)z.taps +
						  (size_t)rs];

					for (int oh = t.oh0; oh < t.oh1; oh++) {
						const float *row = plane + (ptrdiff_t)(oh * sh + t.dh) * in.w;
						double *out = acc + (size_t)oh * (size_t)node->shape.w;

						for (int ow = t.ow0; ow < t.ow1; ow++)
							out[ow] += weight * (double)row[ow * sw + t.dw];
					}
				}
			}
			float *out = y + ((size_t)i * (size_t)node->shape.c + (size_t)k) * z.out_plane;
			for (size_t o = 0; o < z.out_plane; o++)
				out[o] = (float)acc[o];
		}
	}
}

static void conv_backward_data(const struct ct_node *node, struct ct_shape in, int n, const float *w, const float *dy,
			       float *dx, double *acc)
{
	const struct sizes z = sizes_of(node, in);
	const int sh = node->win.stride_h, sw = node->win.stride_w;

	for (int i = 0; i < n; i++) {
		for (int c = 0; c < in.c; c++) {
			int g = c / z.c_per_group, cg = c % z.c_per_group;

			memset(acc, 0, z.in_plane * sizeof(*acc));
			for (int k = g * z.k_per_group; k < (g + 1) * z.k_per_group; k++) {
				const float *plane = dy + ((size_t)i * (size_t)node->shape.c + (size_t)k) * z.out_plane;

				for (int rs = 0; rs < z.taps; rs++) {
					struct tap t = tap_at(node, in, rs / node->win.s, rs % node->win.s);
					double weight = (double)
						w[((size_t)k * (size_t)z.c_per_group + (size_t)cg) * (size_t)z.taps +
						  (size_t)rs];

					for (int oh = t.oh0; oh < t.oh1; oh++) {
						const float *row = plane + (size_t)oh * (size_t)node->shape.w;
						double *out = acc + (ptrdiff_t)(oh * sh + t.dh) * in.w;

						for (int ow = t.ow0; ow < t.ow1; ow++)
							out[ow * sw + t.dw] += weight * (double)row[ow];
					}
				}
			}
			float *out = dx + ((size_t)i * (size_t)in.c + (size_t)c) * z.in_plane;
			for (size_t o = 0; o < z.in_plane; o++)
				out[o] += (float)acc[o];
		}
	}
}

/* Computes the gradient of one weight, which is a sum over all rows and over all output positions of channel k that
 * read input channel c at this tap. */
static double weight_gradient(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *dy,
			      int k, int c, int rs)
{
	const struct sizes z = sizes_of(node, in);
	const struct tap t = tap_at(node, in, rs / node->win.s, rs % node->win.s);
	double sum = 0;

	for (int i = 0; i < n; i++) {
		const float *plane = x + ((size_t)i * (size_t)in.c + (size_t)c) * z.in_plane;
		const float *grad = dy + ((size_t)i * (size_t)node->shape.c + (size_t)k) * z.out_plane;

		for (int oh = t.oh0; oh < t.oh1; oh++) {
			const float *row = plane + (ptrdiff_t)(oh * node->win.stride_h + t.dh) * in.w;
			const float *out = grad + (size_t)oh * (size_t)node->shape.w;

			for (int ow = t.ow0; ow < t.ow1; ow++)
				sum += (double)out[ow] * (double)row[ow * node->win.stride_w + t.dw];
		}
	}
	return sum;
}

void ct__ref_conv_backward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			   const float *dy, float *dx, float *dw, float *db, double *acc)
{
	const struct sizes z = sizes_of(node, in);
	size_t at = 0;

	conv_backward_data(node, in, n, w, dy, dx, acc);
	for (int k = 0; dw && k < node->shape.c; k++) {
		for (int cg = 0; cg < z.c_per_group; cg++) {
			int c = k / z.k_per_group * z.c_per_group + cg;

			for (int rs = 0; rs < z.taps; rs++)
				dw[at++] = (float)weight_gradient(node, in, n, x, dy, k, c, rs);
		}
	}
	for (int k = 0; db && k < node->shape.c; k++) {
		double sum = 0;

		for (int i = 0; i < n; i++) {
			const float *plane = dy + ((size_t)i * (size_t)node->shape.c + (size_t)k) * z.out_plane;

			for (size_t o = 0; o < z.out_plane; o++)
				sum += (double)plane[o];
		}
		db[k] = (float)sum;
	}
}
