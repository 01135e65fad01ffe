#include "tests/soft_gpu/kernels.h"

#include "nn/cuda/kernels/launch.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

static __device__ inline float to_float(float x)
{
	return x;
}
static __device__ inline float to_float(__half x)
{
	return __half2float(x);
}
static __device__ inline float to_float(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}
static __device__ inline void store(float *p, float x)
{
	*p = x;
}
static __device__ inline void store(__half *p, float x)
{
	*p = __float2half_rn(x);
}
static __device__ inline void store(__nv_bfloat16 *p, float x)
{
	*p = __float2bfloat16_rn(x);
}

template <class T> static __global__ void __launch_bounds__(128) saxpy(const struct saxpy_args a)
{
	T *y = static_cast<T *>(a.y);
	const T *x = static_cast<const T *>(a.x);

	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += gridDim.x * blockDim.x)
		store(&y[i], fmaf(a.a, to_float(x[i]), to_float(y[i])));
}

extern "C" cudaError_t kernel_saxpy(const struct saxpy_args *a, enum kernel_type type, cudaStream_t s)
{
	const unsigned blocks = a->n / 512 + 1;

	if (type == TYPE_F16)
		return ct__launch(saxpy<__half>, blocks, 128, 0, s, *a);
	if (type == TYPE_BF16)
		return ct__launch(saxpy<__nv_bfloat16>, blocks, 128, 0, s, *a);
	return ct__launch(saxpy<float>, blocks, 128, 0, s, *a);
}

struct maximum {
	static __device__ float of(float a, float b)
	{
		return fmaxf(a, b);
	}
};
struct sum {
	static __device__ float of(float a, float b)
	{
		return a + b;
	}
};

/* The result goes to all threads. part: shared memory, one value for each warp. */
template <class Op> static __device__ float reduce_block(float v, float *part, bool last_barrier)
{
	for (int d = 16; d > 0; d /= 2)
		v = Op::of(v, __shfl_down_sync(0xFFFFFFFFu, v, d));
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = v;
	__syncthreads();
	v = part[0];
	for (unsigned i = 1; i < blockDim.x / 32; i++)
		v = Op::of(v, part[i]);
	if (last_barrier)
		__syncthreads(); /* part is used again */
	return v;
}

static __global__ void __launch_bounds__(128) softmax(const struct row_args a)
{
	__shared__ float part[4];
	const float *x = a.x + static_cast<size_t>(blockIdx.x) * a.n;
	float *y = a.y + static_cast<size_t>(blockIdx.x) * a.n;
	float m = -INFINITY, total = 0.0f;

	for (int i = threadIdx.x; i < a.n; i += blockDim.x)
		m = fmaxf(m, x[i]);
	m = reduce_block<maximum>(m, part, !a.without_barrier);
	for (int i = threadIdx.x; i < a.n; i += blockDim.x)
		total += expf(x[i] - m);
	total = reduce_block<sum>(total, part, !a.without_barrier);
	for (int i = threadIdx.x; i < a.n; i += blockDim.x)
		y[i] = expf(x[i] - m) / total;
}

extern "C" cudaError_t kernel_softmax(const struct row_args *a, int rows, cudaStream_t s)
{
	return ct__launch(softmax, rows, 128, 0, s, *a);
}

static __global__ void histogram(const struct histogram_args a)
{
	CT_DYNAMIC_SHARED(unsigned, count);

	for (int i = threadIdx.x; i < a.n_bins; i += blockDim.x)
		count[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += gridDim.x * blockDim.x)
		atomicAdd(&count[a.x[i]], 1u);
	__syncthreads();
	for (int i = threadIdx.x; i < a.n_bins; i += blockDim.x)
		atomicAdd(&a.bins[i], count[i]);
}

extern "C" cudaError_t kernel_histogram(const struct histogram_args *a, int blocks, size_t shared_bytes, cudaStream_t s)
{
	if (shared_bytes > 48u << 10) {
		cudaError_t e = cudaFuncSetAttribute(reinterpret_cast<const void *>(histogram),
						     cudaFuncAttributeMaxDynamicSharedMemorySize,
						     static_cast<int>(shared_bytes));

		if (e != cudaSuccess)
			return e;
	}
	return ct__launch(histogram, blocks, 96, shared_bytes, s, *a);
}

/* The block that ends last adds what the others have stored. */
static __global__ void last_block(const struct last_block_args a)
{
	if (threadIdx.x > 0)
		return;
	a.partial[blockIdx.x] = (int)blockIdx.x + 1;
	if (a.fence)
		__threadfence();
	if (atomicAdd(a.count, 1u) + 1 < gridDim.x)
		return;
	*a.sum = 0;
	for (unsigned i = 0; i < gridDim.x; i++)
		*a.sum += a.partial[i];
}

extern "C" cudaError_t kernel_last_block(const struct last_block_args *a, int blocks, cudaStream_t s)
{
	return ct__launch(last_block, blocks, 32, 0, s, *a);
}

static __global__ void transpose(const struct transpose_args a)
{
	__shared__ float tile[16][17];
	const int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 16 + threadIdx.x;
	const int out_r = blockIdx.x * 16 + threadIdx.y, out_c = blockIdx.y * 16 + threadIdx.x;

	if (r < a.rows && c < a.columns)
		tile[threadIdx.y][threadIdx.x] = a.x[r * a.columns + c];
	__syncthreads();
	if (out_r < a.columns && out_c < a.rows)
		a.y[out_r * a.rows + out_c] = tile[threadIdx.x][threadIdx.y];
}

extern "C" cudaError_t kernel_transpose(const struct transpose_args *a, cudaStream_t s)
{
	const dim3 grid((a->columns + 15) / 16, (a->rows + 15) / 16), block(16, 16);

	return ct__launch(transpose, grid, block, 0, s, *a);
}

static __global__ void warp(const struct warp_args a)
{
	const int lane = threadIdx.x;
	int *out = a.out + lane;

	out[0 * 32] = __shfl_sync(0xFFFFFFFFu, lane, 5);
	out[1 * 32] = __shfl_sync(0xFFFFFFFFu, lane, lane + 1, 8);
	out[2 * 32] = __shfl_xor_sync(0xFFFFFFFFu, lane, 3);
	out[3 * 32] = __shfl_down_sync(0xFFFFFFFFu, lane, 4, 16);
	out[4 * 32] = __shfl_up_sync(0xFFFFFFFFu, lane, 2);
	out[5 * 32] = static_cast<int>(__ballot_sync(0xFFFFFFFFu, lane % 3 == 0));
	out[6 * 32] = lane < 16 ? __any_sync(0x0000FFFFu, lane == 20) : !__all_sync(0xFFFF0000u, lane != 20);
	__syncwarp();
	out[7 * 32] = __syncthreads_count(lane > 10) + 100 * __syncthreads_or(lane == 40) +
		      1000 * __syncthreads_and(lane < 32);
}

extern "C" cudaError_t kernel_warp(const struct warp_args *a, cudaStream_t s)
{
	return ct__launch(warp, 1, 32, 0, s, *a);
}

/* Values that the compiler does not know. */
static __global__ void builtins(const struct builtins_args a)
{
	const int lane = threadIdx.x, n = 0x12345678 + static_cast<int>(blockIdx.x), zero = blockIdx.x;
	const unsigned u = static_cast<unsigned>(n);
	const long long l = static_cast<long long>(n) << 28;
	const float f = 2.5f + static_cast<float>(blockIdx.x);
	int *p = a.out;

	if (lane == 0) {
		*p++ = __clz(n);
		*p++ = __clz(zero);
		*p++ = __clzll(l);
		*p++ = __ffs(n);
		*p++ = __ffs(zero);
		*p++ = __ffsll(l);
		*p++ = __popc(u);
		*p++ = __popcll(static_cast<unsigned long long>(l));
		*p++ = static_cast<int>(__brev(u));
		*p++ = static_cast<int>(__byte_perm(u, ~u, 0x7315));
		*p++ = static_cast<int>(__funnelshift_l(u, ~u, 4));
		*p++ = static_cast<int>(__funnelshift_r(u, ~u, 4));
		*p++ = static_cast<int>(__umulhi(u, u));
		*p++ = static_cast<int>(
			__umul64hi(static_cast<unsigned long long>(l), static_cast<unsigned long long>(l)));
		*p++ = __mul24(n, 3 - n);
		*p++ = static_cast<int>(__umul24(u, u));
		*p++ = __float2int_rn(f);
		*p++ = __float2int_rn(-f - 1);
		*p++ = __float2int_rn(f * 1e20f);
		*p++ = static_cast<int>(__float2uint_rn(f + 1));
		*p++ = static_cast<int>(__float2uint_rn(-f));
		*p++ = __float_as_int(f);
		*p++ = static_cast<int>(__uint_as_float(0x40A00000u + blockIdx.x));
		*p++ = min(zero, -1) + 10 * max(zero, 3);
		*p++ = static_cast<int>(__saturatef(f) + 10 * __saturatef(-f));
		*p++ = static_cast<int>(__fdividef(f, 0.5f) + fmaf(f, 2.0f, 1.0f) + rsqrtf(f * 0.1f));
		*p++ = isfinite(f) + 2 * isnan(f) + 4 * isinf(f * 1e38f * 1e38f);
		/* Atomics: the old value, then the new one. */
		*p = 5;
		p[1] = atomicAdd(p, 2);
		p[2] = atomicSub(p, 1);
		p[3] = atomicMax(p, 9);
		p[4] = atomicMin(p, 4);
		p[5] = atomicXor(p, 3);
		p[6] = atomicOr(p, 8);
		p[7] = atomicAnd(p, 13);
		p[8] = atomicExch(p, 6);
		p[9] = atomicCAS(p, 5, 1);
		p[10] = atomicCAS(p, 6, 2);
		p[11] = static_cast<int>(atomicInc(reinterpret_cast<unsigned *>(p), 2u));
		p[12] = static_cast<int>(atomicDec(reinterpret_cast<unsigned *>(p), 7u));
		p += 13;
	}
	const int add = static_cast<int>(__reduce_add_sync(0xFFFFFFFFu, static_cast<unsigned>(lane)));
	const int low = lane < 8 ? __reduce_max_sync(0x000000FFu, lane) : __reduce_min_sync(0xFFFFFF00u, lane);
	const int bits = static_cast<int>(__reduce_xor_sync(0xFFFFFFFFu, 1u << lane % 31));

	if (lane == 0) {
		*p++ = add;
		*p++ = low;
		*p++ = bits;
	}
	if (lane == 9)
		a.out[N_BUILTINS - 1] = low;
}

extern "C" cudaError_t kernel_builtins(const struct builtins_args *a, cudaStream_t s)
{
	return ct__launch(builtins, 1, 32, 0, s, *a);
}

static __global__ void misuse(const struct misuse_args a)
{
	CT_DYNAMIC_SHARED(int, dynamic);
	__shared__ int fixed_array[64];
	int *volatile hidden = fixed_array; /* so that the compiler does not know its size */
	int *const fixed = hidden;
	const int i = threadIdx.x;
	int v = i;

	if (a.what == MISUSE_UNSET) {
		a.out[i] = fixed[i] & dynamic[i];
		return;
	}
	fixed[i] = dynamic[i] = i;
	if (a.what == MISUSE_NO_BARRIER && i >= 32)
		v = fixed[i - 32] + 32;
	if (a.what == MISUSE_EARLY_END && i >= 32)
		return;
	if (a.what == MISUSE_DIVERGENT_BARRIER && i >= 32)
		__syncthreads();
	else
		__syncthreads();
	if (a.what == MISUSE_ABSENT_LANE && i % 32 < 16)
		v = __shfl_down_sync(0xFFFFFFFFu, v, 1);
	if (a.what == MISUSE_OTHER_MASK)
		v = __shfl_sync(0x0000FFFFu, v, 0);
	if (a.what == MISUSE_SHARED_OVERFLOW && i == 0)
		dynamic[a.index] = 1;
	if (a.what == MISUSE_STATIC_OVERFLOW && i == 0)
		fixed[a.index] = 1;
	__syncthreads();
	a.out[i] = v + fixed[63 - i] + dynamic[63 - i];
}

extern "C" cudaError_t kernel_misuse(const struct misuse_args *a, cudaStream_t s)
{
	return ct__launch(misuse, 1, 64, 64 * sizeof(int), s, *a);
}
