/* Each output visits the taps of its window in order and skips those in the padding. nn/graph/op.c makes sure that at
 * least one is left. The first of several equal maxima is chosen, and NaN counts as the maximum, as in PyTorch. The
 * position of the maximum is stored, because the backward pass must choose the same element. An average is divided by
 * the number of elements inside the image. */
#include "nn/ref/ref_impl.h"

#include <math.h>

/* The sizes of the planes of x and y. All channels of all rows are processed in the same way. */
struct planes {
	int n, in_h, in_w, out_h, out_w;
};

static struct planes planes_of(const struct ct_node *node, struct ct_shape in, int n)
{
	return (struct planes){n * in.c, in.h, in.w, node->shape.h, node->shape.w};
}

/* Returns the index in the input plane for tap (r,s) of output position (oh,ow), or -1 if it is in the padding. */
static int source(const struct ct_node *node, const struct planes *p, int oh, int ow, int r, int s)
{
	const struct ct_window *w = &node->win;
	int ih = oh * w->stride_h - w->pad_h + r * w->dilation_h, iw = ow * w->stride_w - w->pad_w + s * w->dilation_w;

	return ih < 0 || ih >= p->in_h || iw < 0 || iw >= p->in_w ? -1 : ih * p->in_w + iw;
}

void ct__ref_max_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y,
			      int32_t *argmax)
{
	const struct planes p = planes_of(node, in, n);
	size_t o = 0;

	for (int plane = 0; plane < p.n; plane++, x += p.in_h * p.in_w) {
		for (int pos = 0; pos < p.out_h * p.out_w; pos++, o++) {
			int best = -1;

			for (int t = 0; t < node->win.r * node->win.s; t++) {
				int i = source(node, &p, pos / p.out_w, pos % p.out_w, t / node->win.s,
					       t % node->win.s);

				if (i >= 0 && (best < 0 || x[i] > x[best] || (isnan(x[i]) && !isnan(x[best]))))
					best = i;
			}
			argmax[o] = best;
			y[o] = x[best];
		}
	}
}

void ct__ref_max_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy,
			       const int32_t *argmax, float *dx)
{
	const struct planes p = planes_of(node, in, n);
	size_t o = 0;

	for (int plane = 0; plane < p.n; plane++, dx += p.in_h * p.in_w) {
		for (int pos = 0; pos < p.out_h * p.out_w; pos++, o++)
			dx[argmax[o]] += dy[o];
	}
}

void ct__ref_avg_pool_forward(const struct ct_node *node, struct ct_shape in, int n, const float *x, float *y)
{
	const struct planes p = planes_of(node, in, n);
	size_t o = 0;

	for (int plane = 0; plane < p.n; plane++, x += p.in_h * p.in_w) {
		for (int pos = 0; pos < p.out_h * p.out_w; pos++, o++) {
			double sum = 0;
			int count = 0;

			for (int t = 0; t < node->win.r * node->win.s; t++) {
				int i = source(node, &p, pos / p.out_w, pos % p.out_w, t / node->win.s,
					       t % node->win.s);

				if (i >= 0) {
					sum += (double)x[i];
					count++;
				}
			}
			y[o] = (float)(sum / count);
		}
	}
}

void ct__ref_avg_pool_backward(const struct ct_node *node, struct ct_shape in, int n, const float *dy, float *dx)
{
	const struct planes p = planes_of(node, in, n);
	size_t o = 0;

	for (int plane = 0; plane < p.n; plane++, dx += p.in_h * p.in_w) {
		for (int pos = 0; pos < p.out_h * p.out_w; pos++, o++) {
			int taps = node->win.r * node->win.s, count = 0;

			for (int t = 0; t < taps; t++)
				count += source(node, &p, pos / p.out_w, pos % p.out_w, t / node->win.s,
						t % node->win.s) >= 0;
			for (int t = 0; t < taps; t++) {
				int i = source(node, &p, pos / p.out_w, pos % p.out_w, t / node->win.s,
					       t % node->win.s);

				if (i >= 0)
					dx[i] += dy[o] / (float)count;
			}
		}
	}
}
