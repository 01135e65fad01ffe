/* CUDA C++ for a C++ compiler: with this header, which nn/cuda/kernels/launch.cuh includes, a .cu file runs on the software GPU
 * unchanged. It has what kernels of ctrain use; add what is missing here.
 *
 * __shared__ variables are static: one copy for all threads of a block, filled with 0xFF before each block. They must be declared in a
 * kernel, or a function, that is static or in an unnamed namespace. Threads run one at a time, so atomics and fences need nothing. */
#ifndef CT_TESTS_SOFT_GPU_DEVICE_HPP
#define CT_TESTS_SOFT_GPU_DEVICE_HPP

#include <cmath>
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

#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __threadfence_system() ((void)0)

/* ---- Atomics ---------------------------------------------------------------------------------------- */

template <class T> struct soft_same {
	typedef T type;
};
template <class T> T atomicAdd(T *p, typename soft_same<T>::type v)
{
	T old = *p;

	*p = old + v;
	return old;
}
template <class T> T atomicMax(T *p, typename soft_same<T>::type v)
{
	T old = *p;

	*p = old > v ? old : v;
	return old;
}
template <class T> T atomicMin(T *p, typename soft_same<T>::type v)
{
	T old = *p;

	*p = old < v ? old : v;
	return old;
}
template <class T> T atomicOr(T *p, typename soft_same<T>::type v)
{
	T old = *p;

	*p = old | v;
	return old;
}
template <class T> T atomicAnd(T *p, typename soft_same<T>::type v)
{
	T old = *p;

	*p = old & v;
	return old;
}
template <class T> T atomicExch(T *p, typename soft_same<T>::type v)
{
	T old = *p;

	*p = v;
	return old;
}
template <class T> T atomicCAS(T *p, typename soft_same<T>::type expected, typename soft_same<T>::type v)
{
	T old = *p;

	if (old == expected)
		*p = v;
	return old;
}

/* ---- Built-in functions ----------------------------------------------------------------------------- */

template <class T> T __ldg(const T *p)
{
	return *p;
}
template <class T> T __ldcs(const T *p)
{
	return *p;
}
template <class T> void __stcs(T *p, typename soft_same<T>::type v)
{
	*p = v;
}
template <class T> T min(T a, typename soft_same<T>::type b)
{
	return b < a ? b : a;
}
template <class T> T max(T a, typename soft_same<T>::type b)
{
	return a < b ? b : a;
}
inline float rsqrtf(float x)
{
	return 1.0f / sqrtf(x);
}
inline float __saturatef(float x)
{
	return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
	return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline int __popc(unsigned x)
{
	return __builtin_popcount(x);
}
inline int __ffs(int x)
{
	return __builtin_ffs(x);
}
inline int __clz(int x)
{
	return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
template <class To, class From> To soft_bits(From v)
{
	static_assert(sizeof(To) == sizeof(From), "");
	To to;

	memcpy(&to, &v, sizeof(to));
	return to;
}
inline int __float_as_int(float x)
{
	return soft_bits<int>(x);
}
inline unsigned __float_as_uint(float x)
{
	return soft_bits<unsigned>(x);
}
inline float __int_as_float(int x)
{
	return soft_bits<float>(x);
}
inline float __uint_as_float(unsigned x)
{
	return soft_bits<float>(x);
}
inline int __float2int_rn(float x)
{
	return static_cast<int>(nearbyintf(x));
}
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __fdividef(a, b) ((a) / (b))
#define __fmaf_rn(a, b, c) fmaf(a, b, c)
#define __fadd_rn(a, b) ((a) + (b))
#define __fmul_rn(a, b) ((a) * (b))
#define __fsqrt_rn(x) sqrtf(x)

#endif
