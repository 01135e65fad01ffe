/* Column sums over the rows of a [rows, cp] tensor, with two values per element, in double and in a fixed order.
 *
 * Each block adds a range of rows for a group of channels: each thread adds every COLUMN_Y-th row of its vector of channels, and then the
 * sums of all threads of a column are added in order. The caller adds the partial sums of the blocks in order. */
#ifndef CT_NN_CUDA_KERNELS_COLUMNS_CUH
#define CT_NN_CUDA_KERNELS_COLUMNS_CUH

#include "nn/cuda/kernels/vector.cuh"

enum { COLUMN_X = 16, COLUMN_Y = 16, COLUMN_ROWS = 512, COLUMN_MAX_BLOCKS = 1024 };

static inline __host__ __device__ int column_blocks(size_t rows)
{
	const size_t n = (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;

	return n < 1 ? 1 : n > COLUMN_MAX_BLOCKS ? COLUMN_MAX_BLOCKS : (int)n;
}

static inline dim3 column_grid(size_t rows, int cp, int vector)
{
	return dim3((unsigned)((cp / vector + COLUMN_X - 1) / COLUMN_X), (unsigned)column_blocks(rows));
}

/* part(index of a vector in the tensor, first channel of the vector, first, second) adds the two values of each element of the vector to
 * first and second. The sums of this block are stored in partial[blockIdx.y][0 and 1][cp]. */
template <class T, class Part>
static inline __device__ void column_sums(size_t rows, int cp, double *partial,
					  double (*shared)[COLUMN_X][2 * ct_vector<T>::size], const Part &part)
{
	constexpr int V = ct_vector<T>::size;
	const int x = (int)(threadIdx.x % COLUMN_X), y = (int)(threadIdx.x / COLUMN_X),
		  vector = (int)blockIdx.x * COLUMN_X + x;
	const size_t blocks = gridDim.y, begin = rows * blockIdx.y / blocks, end = rows * (blockIdx.y + 1) / blocks;
	double first[V] = {}, second[V] = {};

	if (vector < cp / V) {
		for (size_t row = begin + y; row < end; row += COLUMN_Y)
			part(row * (cp / V) + vector, vector * V, first, second);
	}
	for (int j = 0; j < V; j++) {
		shared[y][x][j] = first[j];
		shared[y][x][V + j] = second[j];
	}
	__syncthreads();
	for (int k = (int)threadIdx.x; k < COLUMN_X * 2 * V; k += COLUMN_X * COLUMN_Y) {
		const int column = k / (2 * V), j = k % (2 * V),
			  channel = ((int)blockIdx.x * COLUMN_X + column) * V + j % V;
		double sum = 0;

		for (int i = 0; i < COLUMN_Y; i++)
			sum += shared[i][column][j];
		if (channel < cp)
			partial[((size_t)blockIdx.y * 2 + j / V) * cp + channel] = sum;
	}
}

/* Returns the sum of partial[0..blocks)[which][channel]. */
static inline __device__ double add_partial(const double *partial, int blocks, int which, int cp, int channel)
{
	double sum = 0;

	for (int i = 0; i < blocks; i++)
		sum += partial[((size_t)i * 2 + which) * cp + channel];
	return sum;
}

#endif
