/* The two conversions between the layouts of the caller and of the engine. Here the padding begins to be zero, which
 * all other kernels keep: channels from c on and rows from n_valid on are written as zeros. */
#include "nn/cuda/kernels/normalize.cuh"
#include "nn/cuda/kernels/place.cuh"

enum { BLOCK = 256 };

/* One vector of channels of y per thread. Neighbors have the same channels of neighboring pixels, so that both layouts
 * of x are read in order. */
template <class T> static __global__ void input(const struct ct__k_input_args a)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = a.cp / V;
	const struct place p = place_of_thread(a.n, a.h, (unsigned)a.w * vectors);
	const int vector = (int)(p.i / a.w), w = (int)(p.i - (unsigned)vector * a.w);

	ct_vector<T> y = {};

	if (!p.valid)
		return;
	if (p.n < a.n_valid && !a.bytes) {
		const size_t plane = (size_t)a.h * a.w;
		const float *x = static_cast<const float *>(a.x) + ((size_t)p.n * a.c + vector * V) * plane +
				 (size_t)p.h * a.w + w;

		for (int j = 0; j < V; j++) {
			if (vector * V + j < a.c)
				y.v[j] = from_float<T>(x[j * plane]);
		}
	} else if (p.n < a.n_valid && vector == 0) { /* there are at most 4 channels */
		const uint8_t *x = static_cast<const uint8_t *>(a.x) + (((size_t)p.n * a.h + p.h) * a.w + w) * a.c;
		uint8_t pixel[4];

		for (int k = 0; k < 4; k++) /* without branches between the loads */
			pixel[k] = x[k < a.c ? k : 0];
		for (int k = 0; k < 4; k++) {
			if (k < a.c)
				y.v[k] = from_float<T>(normalize(pixel[k], a.mean[k], a.std[k]));
		}
	}
	store_vector<T>(a.y, (((size_t)p.n * a.h + p.h) * a.w + w) * vectors + vector, y);
}

template <class T> static cudaError_t launch_input(const struct ct__k_input_args *a, cudaStream_t s)
{
	const size_t width = (size_t)a->w * (a->cp / ct_vector<T>::size);

	return ct__launch(input<T>, place_grid(a->n, a->h, width), place_block(width), 0, s, *a);
}

extern "C" cudaError_t ct__k_input(const struct ct__k_input_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_input, a, s)
}

/* One element of y per thread. */
template <class T> static __global__ void output(const struct ct__k_output_args a)
{
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x, plane = (size_t)a.h * a.w;

	if (i >= a.n * a.c * plane)
		return;
	const size_t row = i / (a.c * plane), c = i / plane % a.c, pixel = i % plane;

	a.y[i] = to_float(static_cast<const T *>(a.x)[(row * plane + pixel) * a.cp + c]);
}

template <class T> static cudaError_t launch_output(const struct ct__k_output_args *a, cudaStream_t s)
{
	return ct__launch(output<T>, blocks_for((size_t)a->n * a->c * a->h * a->w, BLOCK), BLOCK, 0, s, *a);
}

extern "C" cudaError_t ct__k_output(const struct ct__k_output_args *a, cudaStream_t s)
{
	CT_FOR_TYPE(a->type, launch_output, a, s)
}
