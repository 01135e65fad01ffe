/* The input of a batch from images in device memory: crop, flip, erasing, mixup and CutMix as in data/transform, then
 * normalization. One pixel with all its channels, which are one vector, per thread. Images are mixed as integers, with
 * the same rounding as on the host, so that pixels do not depend on where they are computed. The thread of the first
 * pixel of a row also writes its labels. Rows after the valid ones become zero. */
#include "nn/cuda/kernels/normalize.cuh"
#include "nn/cuda/kernels/place.cuh"

static inline __device__ bool inside(int x, int y, int left, int top, int right, int bottom)
{
	return x >= left && x < right && y >= top && y < bottom;
}

/* The channels of a pixel; channels from c on are not set. */
static inline __device__ void view_pixel(const struct ct__k_gather_args &a, const struct ct_image_view &v, int x, int y,
					 uint8_t (&out)[4])
{
	const bool erased = inside(x, y, v.left, v.top, v.right, v.bottom);
	const int sx = (v.flip ? a.w - 1 - x : x) + v.dx, sy = y + v.dy;
	const bool in_sample = inside(sx, sy, 0, 0, a.w, a.h);
	const uint8_t *p = a.samples + (in_sample ? (((size_t)v.sample * a.h + sy) * a.w + sx) * a.c : 0);

	for (int k = 0; k < 4; k++) {
		if (k < a.c)
			out[k] = erased ? a.fill[k] : in_sample ? p[k] : 0;
	}
}

static inline __device__ void row_pixel(const struct ct__k_gather_args &a, const struct ct_image_row &r, int x, int y,
					uint8_t (&out)[4])
{
	const bool cut = inside(x, y, r.left, r.top, r.right, r.bottom);
	const int weight = cut ? 256 - r.weight : r.weight;
	uint8_t other[4];

	if (weight > 0)
		view_pixel(a, r.own, x, y, out);
	if (weight == 256)
		return;
	view_pixel(a, r.other, x, y, other);
	for (int k = 0; k < 4; k++) {
		if (k < a.c)
			out[k] = weight == 0 ? other[k]
					     : (uint8_t)((out[k] * weight + other[k] * (256 - weight) + 128) >> 8);
	}
}

static inline __device__ void store_labels(const struct ct__k_gather_args &a, const struct ct_image_row &r, int row)
{
	if (a.labels)
		a.labels[row] = r.label;
	if (a.labels_b)
		a.labels_b[row] = r.label_b;
	if (a.mix)
		a.mix[row] = r.mix;
}

template <class T> static __global__ void gather(const struct ct__k_gather_args a)
{
	const struct place p = place_of_thread(a.n, a.h, a.w);

	if (!p.valid)
		return;
	ct_vector<T> y = {};
	uint8_t pixel[4];

	if (p.n < a.n_valid) {
		const struct ct_image_row &r = a.rows[p.n];

		if (p.h == 0 && p.i == 0)
			store_labels(a, r, p.n);
		row_pixel(a, r, (int)p.i, p.h, pixel);
		for (int k = 0; k < 4; k++) {
			if (k < a.c)
				y.v[k] = from_float<T>(normalize(pixel[k], a.mean[k], a.std[k]));
		}
	}
	store_vector<T>(a.y, ((size_t)p.n * a.h + p.h) * a.w + p.i, y);
}

template <class T> static cudaError_t launch_gather(const struct ct__k_gather_args *a, cudaStream_t s)
{
	if (a->c > 4 || a->cp != ct_vector<T>::size)
		return cudaErrorInvalidValue;
	return ct__launch(gather<T>, place_grid(a->n, a->h, a->w), place_block(a->w), 0, s, *a);
}

extern "C" cudaError_t ct__k_gather(const struct ct__k_gather_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_gather, a, s)
}
