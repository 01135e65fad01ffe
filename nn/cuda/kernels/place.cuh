/* Kernels that compute one vector of channels per thread at the positions of [n, h, width], where the width is that of
 * an image in vectors. Divisions by sizes that are known only at run time take about 20 instructions with 32 bits, and
 * about 100 with 64. Here 32 bits suffice, although the index of a vector in the tensor may need more: threadIdx.y and
 * blockIdx.x are along the n * h rows, threadIdx.x and blockIdx.y along the width. Launches of more than 2^31 - 1 rows,
 * or of a width of more than 65535 * 256 vectors, fail. */
#ifndef CT_NN_CUDA_KERNELS_PLACE_CUH
#define CT_NN_CUDA_KERNELS_PLACE_CUH

#include "nn/cuda/kernels/vector.cuh"

enum { PLACE_THREADS = 256 };

struct place {
	int n, h;
	unsigned i; /* along the width */
	bool valid;
};

static inline __device__ struct place place_of_thread(int n, int h, unsigned width)
{
	const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;
	struct place p;

	p.i = blockIdx.y * blockDim.x + threadIdx.x;
	p.valid = row < (unsigned)n * h && p.i < width;
	p.n = (int)(row / h);
	p.h = (int)(row - (unsigned)p.n * h);
	return p;
}

static inline dim3 place_block(size_t width)
{
	unsigned x = 1;

	while (x < PLACE_THREADS && x < width)
		x *= 2;
	return dim3(x, PLACE_THREADS / x);
}

/* An empty grid, which cannot be launched, if there are too many rows or vectors. */
static inline dim3 place_grid(int n, int h, size_t width)
{
	const dim3 block = place_block(width);
	const size_t rows = (size_t)n * h;

	if (rows > 0x7fffffff || width > (size_t)65535 * PLACE_THREADS)
		return dim3(0);
	return dim3(blocks_for(rows, block.y), blocks_for(width, block.x));
}

#endif
