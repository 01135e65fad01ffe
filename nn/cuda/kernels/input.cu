/* The two conversions between the layouts of the caller and of the engine. Here the padding begins to be zero, which
 * all other kernels keep: channels from c on and rows from n_valid on are written as zeros. One element per thread. */
#include "nn/cuda/kernels/normalize.cuh"
#include "nn/cuda/kernels/vector.cuh"

enum { BLOCK = 256 };

/* One element of y per thread. */
template <class T> static __global__ void input(const struct ct__k_input_args a)
{
	const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x, row_size = (size_t)a.h * a.w * a.cp;

	if (i >= a.n * row_size)
		return;
	const size_t row = i / row_size, pixel = i % row_size / a.cp;
	const int c = (int)(i % a.cp);
	float y = 0;

	if (c < a.c && row < (size_t)a.n_valid && a.bytes) {
		const uint8_t u = static_cast<const uint8_t *>(a.x)[(row * a.h * a.w + pixel) * a.c + c];

		y = normalize(u, channel_value(a.mean, c), channel_value(a.std, c));
	} else if (c < a.c && row < (size_t)a.n_valid) {
		y = static_cast<const float *>(a.x)[(row * a.c + c) * a.h * a.w + pixel];
	}
	static_cast<T *>(a.y)[i] = from_float<T>(y);
}

template <class T> static cudaError_t launch_input(const struct ct__k_input_args *a, cudaStream_t s)
{
	return ct__launch(input<T>, blocks_for((size_t)a->n * a->h * a->w * a->cp, BLOCK), BLOCK, 0, s, *a);
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
