/* Kernels whose threads keep their channels: the rows of a [rows, cp] tensor are divided among threads, and each thread
 * has one vector of channels. A block has COLUMN_THREADS threads, threadIdx.x along the channels and threadIdx.y along
 * the rows. A warp reads 512 contiguous bytes, or several complete rows if they are shorter. The grid has about
 * COLUMN_GRID blocks, 8 for each of the 132 multiprocessors of an H200, if there are enough rows.
 *
 * Column sums have two values per element, in a fixed order: each thread adds the rows of its block's range, the
 * threads of a column are added in a tree, and add_partial adds the blocks. */
#ifndef CT_NN_CUDA_KERNELS_COLUMNS_CUH
#define CT_NN_CUDA_KERNELS_COLUMNS_CUH

#include "nn/cuda/kernels/vector.cuh"

#ifndef CT_COLUMN_GRID
#define CT_COLUMN_GRID (132 * 8)
#endif
/* COLUMN_RUN: rows that a thread adds in the type ct_sum before it adds the sum to a double. */
enum { COLUMN_THREADS = 256, COLUMN_GRID = CT_COLUMN_GRID, COLUMN_RUN = 8 };
/* Threads of add_partial along the channels and along the blocks. */
enum { PARTIAL_X = 8, PARTIAL_Y = 32 };

/* Products of 16-bit values are exact in fp32, and sums of COLUMN_RUN of them have an error far below that of the
 * values. Conversions to double would be the bottleneck. */
template <class T> struct ct_sum {
	typedef float type;
};
template <> struct ct_sum<float> {
	typedef double type;
};

static inline dim3 column_block(int vectors)
{
	unsigned x = 1;

	while (x < 32 && x < (unsigned)vectors)
		x *= 2;
	return dim3(x, COLUMN_THREADS / x);
}

/* The number of blocks along the rows, if a thread of each block has at least `run` rows. */
static inline int column_blocks(size_t rows, int vectors, int run)
{
	const dim3 block = column_block(vectors);
	const unsigned along = ((unsigned)vectors + block.x - 1) / block.x,
		       most = along < COLUMN_GRID ? COLUMN_GRID / along : 1;
	const size_t n = (rows + block.y * run - 1) / (block.y * run);

	return n < 1 ? 1 : n > most ? (int)most : (int)n;
}

static inline dim3 column_grid(size_t rows, int vectors, int run)
{
	const unsigned x = column_block(vectors).x;

	return dim3(((unsigned)vectors + x - 1) / x, (unsigned)column_blocks(rows, vectors, run));
}

/* Adds the first COLUMN_RUN rows of a thread, or all n if FULL is false. i is the index of a vector in the first one,
 * and i + step of that in the next one. All rows of a batch are loaded before the first one is added, so that the loads
 * are in flight together. Instead of a row that does not exist, the last one that exists is loaded: a branch would
 * separate the loads. */
template <class T, bool FULL, class Batch, class Add>
static inline __device__ void column_run(const typename Batch::args &args, size_t i, unsigned step, int n,
					 double (*shared)[COLUMN_THREADS], const Add &add)
{
	static_assert(COLUMN_RUN % Batch::size == 0, "a run has complete batches");
	constexpr int V = ct_vector<T>::size;
	const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;

	typename ct_sum<T>::type a[V] = {}, b[V] = {};

#pragma unroll 1
	for (int k = 0; k < (FULL ? (int)COLUMN_RUN : n); k += Batch::size) {
		size_t at[Batch::size];

#pragma unroll
		for (int m = 0; m < Batch::size; m++) {
			at[m] = i;
			i += FULL || k + m + 1 < n ? step : 0;
		}
		Batch batch(args, at);
#pragma unroll
		for (int m = 0; m < Batch::size; m++) {
			if (FULL || k + m < n)
				add(batch, m, at[m], a, b);
		}
	}
	for (int j = 0; j < V; j++) { /* in shared memory, which saves registers */
		shared[j][thread] += (double)a[j];
		shared[V + j][thread] += (double)b[j];
	}
}

/* A Batch is constructed from the arguments of the kernel and the indices of Batch::size vectors, which it loads.
 * add(batch, m, index, first, second) adds the two values of each element of vector m to first and second. The sums of
 * this block are stored in partial[blockIdx.y][0 and 1][cp]. `vector` is the vector of channels of the thread. */
template <class T, class Batch, class Add>
static inline __device__ void column_sums(const typename Batch::args &args, int vector, double *partial,
					  double (*shared)[COLUMN_THREADS], const Add &add)
{
	constexpr int V = ct_vector<T>::size;
	const int vectors = args.cp / V;
	const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x, step = blockDim.y * vectors;
	const size_t first = args.rows * blockIdx.y / gridDim.y + threadIdx.y,
		     end = args.rows * (blockIdx.y + 1) / gridDim.y;
	const bool real = vector < vectors;
	size_t i = first * vectors + vector;
	int n = 0;

	for (int j = 0; j < 2 * V; j++)
		shared[j][thread] = 0;
	if (real && first < end) /* blockDim.y is a power of two */
		n = (int)((end - first + blockDim.y - 1) >> (31 - __clz((int)blockDim.y)));
#pragma unroll 1
	for (; n >= COLUMN_RUN; n -= COLUMN_RUN, i += (size_t)COLUMN_RUN * step)
		column_run<T, true, Batch>(args, i, step, n, shared, add);
	if (n > 0)
		column_run<T, false, Batch>(args, i, step, n, shared, add);
	for (unsigned apart = COLUMN_THREADS / 2; apart >= blockDim.x; apart /= 2) {
		__syncthreads();
		if (thread < apart) {
			for (int j = 0; j < 2 * V; j++)
				shared[j][thread] += shared[j][thread + apart];
		}
	}
	if (thread >= blockDim.x || !real)
		return;
	for (int j = 0; j < 2 * V; j++)
		partial[((size_t)blockIdx.y * 2 + j / V) * args.cp + vector * V + j % V] = shared[j][thread];
}

/* Adds the partial sums of `blocks` blocks for PARTIAL_X channels per block. Returns true in the threads that have the
 * sums of `channel`. */
static inline __device__ bool add_partial(const double *partial, int blocks, int cp, int channel,
					  double (*shared)[PARTIAL_Y][PARTIAL_X], double *first, double *second)
{
	const unsigned x = threadIdx.x, y = threadIdx.y;
	double sum[2] = {};

	for (int i = (int)y; channel < cp && i < blocks; i += PARTIAL_Y) {
		sum[0] += partial[(size_t)i * 2 * cp + channel];
		sum[1] += partial[((size_t)i * 2 + 1) * cp + channel];
	}
	shared[0][y][x] = sum[0];
	shared[1][y][x] = sum[1];
	for (unsigned step = PARTIAL_Y / 2; step > 0; step /= 2) {
		__syncthreads();
		if (y < step) {
			shared[0][y][x] += shared[0][y + step][x];
			shared[1][y][x] += shared[1][y + step][x];
		}
	}
	/* Each thread reads its own element. Row 0 has the sums, but its threads may still be writing them. */
	*first = shared[0][y][x];
	*second = shared[1][y][x];
	return y == 0 && channel < cp;
}

#endif
