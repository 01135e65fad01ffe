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

/* The outputs begin..end-1 of one dimension read inside the image at one offset of the kernel: output o reads input
 * o*stride + offset. All other outputs read padding there. */
struct span {
	int offset, begin, end;
};

static struct span span_of(int in, int out, int stride, int offset)
{
	struct span s = {offset, offset < 0 ? -offset : 0, offset < in ? in - offset : 0};

	if (stride > 1) {
		s.begin = (s.begin + stride - 1) / stride;
		s.end = (s.end + stride - 1) / stride;
	}
	s.end = s.end < out ? s.end : out;
	return s;
}

/* One kernel tap (r,s). */
static struct span rows_of(const struct ct_node *node, struct ct_shape in, int r)
{
	return span_of(in.h, node->shape.h, node->win.stride_h, r * node->win.dilation_h - node->win.pad_h);
}

static struct span columns_of(const struct ct_node *node, struct ct_shape in, int s)
{
	return span_of(in.w, node->shape.w, node->win.stride_w, s * node->win.dilation_w - node->win.pad_w);
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

/* Adds the elements of a row, times the weight, to those of another. */
static void add_row(double *to, int to_step, const float *from, int from_step, int n, double weight)
{
	if (to_step == 1 && from_step == 1) {
		for (int i = 0; i < n; i++)
			to[i] += weight * (double)from[i];
		return;
	}
	for (int i = 0; i < n; i++)
		to[i * to_step] += weight * (double)from[i * from_step];
}

/* With the weights w [R,S] of one input and one output channel: adds an input plane to its output plane, or the
 * gradient of an output plane to that of its input plane. */
static void add_plane(const struct ct_node *node, struct ct_shape in, bool gradient, const float *from, const float *w,
		      double *to)
{
	const int sh = node->win.stride_h, sw = node->win.stride_w;

	for (int r = 0; r < node->win.r; r++) {
		const struct span rows = rows_of(node, in, r);

		for (int s = 0; s < node->win.s; s++) {
			const struct span columns = columns_of(node, in, s);
			const double weight = (double)w[r * node->win.s + s];
			const int width = columns.end - columns.begin;

			for (int oh = rows.begin; oh < rows.end; oh++) {
				const ptrdiff_t x =
					(ptrdiff_t)(oh * sh + rows.offset) * in.w + columns.begin * sw + columns.offset;
				const ptrdiff_t y = (ptrdiff_t)oh * node->shape.w + columns.begin;

				if (gradient)
					add_row(to + x, sw, from + y, 1, width, weight);
				else
					add_row(to + y, 1, from + x, sw, width, weight);
			}
		}
	}
}

void ct__ref_conv_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			  const float *b, float *y, double *acc)
{
	const struct sizes z = sizes_of(node, in);

	for (int i = 0; i < n; i++) {
		for (int k = 0; k < node->shape.c; k++) {
			int first = k / z.k_per_group * z.c_per_group;
			const float *planes = x + ((size_t)i * (size_t)in.c + (size_t)first) * z.in_plane;
			const float *weights = w + (size_t)k * (size_t)z.c_per_group * (size_t)z.taps;
			float *out = y + ((size_t)i * (size_t)node->shape.c + (size_t)k) * z.out_plane;

			for (size_t o = 0; o < z.out_plane; o++)
				acc[o] = b ? (double)b[k] : 0;
			for (int c = 0; c < z.c_per_group; c++)
				add_plane(node, in, false, planes + (size_t)c * z.in_plane,
					  weights + (size_t)c * (size_t)z.taps, acc);
			for (size_t o = 0; o < z.out_plane; o++)
				out[o] = (float)acc[o];
		}
	}
}

static void conv_backward_data(const struct ct_node *node, struct ct_shape in, int n, const float *w, const float *dy,
			       float *dx, double *acc)
{
	const struct sizes z = sizes_of(node, in);

	for (int i = 0; i < n; i++) {
		for (int c = 0; c < in.c; c++) {
			int group = c / z.c_per_group;
			float *out = dx + ((size_t)i * (size_t)in.c + (size_t)c) * z.in_plane;

			memset(acc, 0, z.in_plane * sizeof(*acc));
			for (int k = group * z.k_per_group; k < (group + 1) * z.k_per_group; k++) {
				const size_t filter = (size_t)k * (size_t)z.c_per_group + (size_t)(c % z.c_per_group);

				add_plane(node, in, true,
					  dy + ((size_t)i * (size_t)node->shape.c + (size_t)k) * z.out_plane,
					  w + filter * (size_t)z.taps, acc);
			}
			for (size_t o = 0; o < z.in_plane; o++)
				out[o] += (float)acc[o];
		}
	}
}

enum { TOGETHER = 4 };

/* Computes the gradients of one weight of the output channels k..k+TOGETHER-1, which read the same input channel c, at
 * the tap (r,s). Each is a sum over all rows and over all output positions that read inside the image, in this order:
 * one alone would wait for each addition. Channels from k_end on are computed as channel k_end-1. */
static void weight_gradients(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *dy,
			     int k, int k_end, int c, int r, int s, double sums[TOGETHER])
{
	const struct sizes z = sizes_of(node, in);
	const struct span rows = rows_of(node, in, r), columns = columns_of(node, in, s);

	for (int j = 0; j < TOGETHER; j++)
		sums[j] = 0;
	for (int i = 0; i < n; i++) {
		const float *plane = x + ((size_t)i * (size_t)in.c + (size_t)c) * z.in_plane;
		const float *grads[TOGETHER];

		for (int j = 0; j < TOGETHER; j++) {
			int channel = k + j < k_end ? k + j : k_end - 1;

			grads[j] = dy + ((size_t)i * (size_t)node->shape.c + (size_t)channel) * z.out_plane;
		}
		for (int oh = rows.begin; oh < rows.end; oh++) {
			const float *row = plane + (ptrdiff_t)(oh * node->win.stride_h + rows.offset) * in.w;

			for (int ow = columns.begin; ow < columns.end; ow++) {
				double value = (double)row[ow * node->win.stride_w + columns.offset];

				for (int j = 0; j < TOGETHER; j++)
					sums[j] += (double)grads[j][oh * node->shape.w + ow] * value;
			}
		}
	}
}

static void conv_backward_weights(const struct ct_node *node, struct ct_shape in, int n, const float *x,
				  const float *dy, float *dw)
{
	const struct sizes z = sizes_of(node, in);
	double sums[TOGETHER];

	for (int k = 0, k_end; k < node->shape.c; k = k_end < k + TOGETHER ? k_end : k + TOGETHER) {
		k_end = (k / z.k_per_group + 1) * z.k_per_group;
		for (int at = 0; at < z.c_per_group * z.taps; at++) {
			int c = k / z.k_per_group * z.c_per_group + at / z.taps, rs = at % z.taps;

			weight_gradients(node, in, n, x, dy, k, k_end, c, rs / node->win.s, rs % node->win.s, sums);
			for (int j = 0; j < TOGETHER && k + j < k_end; j++)
				dw[(size_t)(k + j) * (size_t)z.c_per_group * (size_t)z.taps + (size_t)at] =
					(float)sums[j];
		}
	}
}

void ct__ref_conv_backward(const struct ct_node *node, struct ct_shape in, int n, const float *x, const float *w,
			   const float *dy, float *dx, float *dw, float *db, double *acc)
{
	const struct sizes z = sizes_of(node, in);

	conv_backward_data(node, in, n, w, dy, dx, acc);
	if (dw)
		conv_backward_weights(node, in, n, x, dy, dw);
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
