/* CUDA C++ for a C++ compiler: with this header, which nn/cuda/kernels/launch.cuh includes, a .cu file runs on the software GPU
 * unchanged. Built-in functions are in builtins.hpp; add there what is missing.
 *
 * __shared__ variables are static: one copy for all threads of a block, filled with 0xFF before each block. They must be declared in a
 * kernel, or a function, that is static or in an unnamed namespace. Threads of a block run one at a time and see each other's
 * stores at once; exec/fence.c has what other blocks see. Arithmetic is
 * that of the C++ compiler and the C library: it differs from a GPU's in the last bits (__expf and the like are not faster and less
 * exact here). */
#ifndef CT_TESTS_SOFT_GPU_DEVICE_HPP
#define CT_TESTS_SOFT_GPU_DEVICE_HPP

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/soft_gpu/soft_gpu.h"

#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static __attribute__((section("soft_shared")))
#define __constant__ static const
#define __grid_constant__
#define __launch_bounds__(...)

#define threadIdx (soft_thread.thread)
#define blockIdx (soft_thread.block)
#define blockDim (soft_thread.block_dim)
#define gridDim (soft_thread.grid_dim)
constexpr int warpSize = 32;

/* The section of this object file or shared object; not defined when no kernel has static shared memory. */
extern "C" __attribute__((weak, visibility("hidden"))) char __start_soft_shared[], __stop_soft_shared[];

/* ---- Launches --------------------------------------------------------------------------------------- */

template <class Args> void soft_call_kernel(void (*function)(void), const void *args)
{
	reinterpret_cast<void (*)(Args)>(function)(*static_cast<const Args *>(args));
}

template <class Args>
cudaError_t soft_launch_kernel(const char *name, const char *file, int line, void (*kernel)(Args), dim3 grid,
			       dim3 block, size_t shared_bytes, cudaStream_t stream, const Args &args)
{
	static_assert(std::is_trivially_copyable<Args>::value, "a kernel takes one plain struct");
	static_assert(alignof(Args) <= 16 && sizeof(Args) <= 4096, "the arguments of a kernel fit 4 KiB");
	const soft_kernel k = {name,
			       file,
			       line,
			       reinterpret_cast<void (*)(void)>(kernel),
			       soft_call_kernel<Args>,
			       __start_soft_shared,
			       __stop_soft_shared};

	return soft_gpu_launch(&k, grid, block, shared_bytes, stream, &args, sizeof(args));
}
#define ct__launch(...) soft_launch_kernel(#__VA_ARGS__, __FILE__, __LINE__, __VA_ARGS__)
#define CT_DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(soft_thread.dynamic_shared)

/* ---- Barriers, shuffles, votes ---------------------------------------------------------------------- */

#define __syncthreads() soft_block_sync(__FILE__, __LINE__)
#define __syncthreads_count(p) soft_block_count((p) != 0, __FILE__, __LINE__)
#define __syncthreads_or(p) (soft_block_count((p) != 0, __FILE__, __LINE__) != 0)
#define __syncthreads_and(p) (soft_block_count((p) == 0, __FILE__, __LINE__) == 0)

inline unsigned soft_full_mask(unsigned mask = 0xFFFFFFFFu)
{
	return mask;
}
#define __syncwarp(...) ((void)soft_warp_ballot(soft_full_mask(__VA_ARGS__), false, __FILE__, __LINE__))
#define __ballot_sync(mask, p) soft_warp_ballot(mask, (p) != 0, __FILE__, __LINE__)
#define __any_sync(mask, p) (soft_warp_ballot(mask, (p) != 0, __FILE__, __LINE__) != 0)
#define __all_sync(mask, p) (soft_warp_ballot(mask, (p) == 0, __FILE__, __LINE__) == 0)

template <class T> T soft_shuffle(unsigned mask, T value, int source, const char *file, int line)
{
	static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a shuffle moves at most 8 bytes");
	uint64_t bits = 0;

	memcpy(&bits, &value, sizeof(T));
	bits = soft_warp_shuffle(mask, bits, source, file, line);
	memcpy(&value, &bits, sizeof(T));
	return value;
}

/* The lane that a shuffle in groups of `width` lanes reads. Out of its group a lane reads itself. */
inline int soft_lane_at(int lane, int width = 32)
{
	const int me = static_cast<int>(soft_thread.lane);

	return me / width * width + lane % width;
}
inline int soft_lane_xor(int x, int width = 32)
{
	const int me = static_cast<int>(soft_thread.lane), other = me ^ x;

	return other / width > me / width ? me : other;
}
inline int soft_lane_down(int delta, int width = 32)
{
	const int me = static_cast<int>(soft_thread.lane);

	return me % width + delta < width ? me + delta : me;
}
inline int soft_lane_up(int delta, int width = 32)
{
	const int me = static_cast<int>(soft_thread.lane);

	return me % width >= delta ? me - delta : me;
}
#define __shfl_sync(mask, v, ...) soft_shuffle(mask, v, soft_lane_at(__VA_ARGS__), __FILE__, __LINE__)
#define __shfl_xor_sync(mask, v, ...) soft_shuffle(mask, v, soft_lane_xor(__VA_ARGS__), __FILE__, __LINE__)
#define __shfl_down_sync(mask, v, ...) soft_shuffle(mask, v, soft_lane_down(__VA_ARGS__), __FILE__, __LINE__)
#define __shfl_up_sync(mask, v, ...) soft_shuffle(mask, v, soft_lane_up(__VA_ARGS__), __FILE__, __LINE__)

#define __threadfence() soft_gpu_fence()
#define __threadfence_block() ((void)0)
#define __threadfence_system() soft_gpu_fence()

/* Reductions of integers over the lanes of a mask. */
template <class T> T soft_warp_reduce(unsigned mask, T value, char op, const char *file, int line)
{
	T result = value;
	bool first = true;

	for (int lane = 0; lane < 32; lane++) {
		if (!(mask >> lane & 1))
			continue;
		const T x = soft_shuffle(mask, value, lane, file, line);

		result = first       ? x
			 : op == '+' ? result + x
			 : op == '<' ? (x < result ? x : result)
			 : op == '>' ? (x > result ? x : result)
			 : op == '&' ? (result & x)
			 : op == '|' ? (result | x)
				     : (result ^ x);
		first = false;
	}
	return result;
}
#define __reduce_add_sync(mask, v) soft_warp_reduce(mask, v, '+', __FILE__, __LINE__)
#define __reduce_min_sync(mask, v) soft_warp_reduce(mask, v, '<', __FILE__, __LINE__)
#define __reduce_max_sync(mask, v) soft_warp_reduce(mask, v, '>', __FILE__, __LINE__)
#define __reduce_and_sync(mask, v) soft_warp_reduce(mask, v, '&', __FILE__, __LINE__)
#define __reduce_or_sync(mask, v) soft_warp_reduce(mask, v, '|', __FILE__, __LINE__)
#define __reduce_xor_sync(mask, v) soft_warp_reduce(mask, v, '^', __FILE__, __LINE__)

#include "tests/soft_gpu/exec/builtins.hpp"

#endif
