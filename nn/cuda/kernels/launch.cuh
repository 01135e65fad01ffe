/* Rules for writing and launching kernels. Every .cu file includes this header after its own header. The same source is
 * compiled by nvcc for GPUs, and by a C++ compiler for the software GPU of the tests (tests/soft_gpu).
 *
 * - A kernel takes exactly one argument, a plain struct by value (at most 4 KiB):
 *     static __global__ void scale(const struct scale_args a) { ... }
 * - Kernels are launched by ct__launch, never by <<< >>>:
 *     cudaError_t e = ct__launch(scale, grid, block, shared_bytes, stream, args);
 *   grid and block are of type dim3 or integers. The call returns the error of the launch. Errors that occur while the
 *   kernel runs are reported later.
 * - CT_DYNAMIC_SHARED(float, name) defines `float *name`, the dynamic shared memory. It is 16-byte aligned, and
 *   its size is the shared_bytes argument of ct__launch. For more than 48 KiB, call cudaFuncSetAttribute first.
 * - Kernels are static. Declare __shared__ variables in the kernel itself, and pass pointers to them to helpers.
 * - All threads of a block must reach each __syncthreads. Do not assume that the threads of a warp run in lockstep:
 *   pass masks to shuffles and votes.
 * - Blocks must not wait for each other.
 * - Values of 16-bit types are only loaded, stored and converted. Compute in float.
 * - Do not use textures, inline PTX, thrust, cub or C++ libraries. */
#ifndef CT_NN_CUDA_KERNELS_LAUNCH_CUH
#define CT_NN_CUDA_KERNELS_LAUNCH_CUH

#ifdef __CUDACC__
#include <cuda_runtime.h>

template <class Args>
static inline cudaError_t ct__launch(void (*kernel)(Args), dim3 grid, dim3 block, size_t shared_bytes,
				     cudaStream_t stream, const Args &args)
{
	static_assert(alignof(Args) <= 16 && sizeof(Args) <= 4096, "the arguments of a kernel must fit into 4 KiB");
	void *pointers[] = {const_cast<Args *>(&args)};

	return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, pointers, shared_bytes, stream);
}

#define CT_DYNAMIC_SHARED(type, name)                                      \
	extern __shared__ __align__(16) unsigned char ct_dynamic_shared[]; \
	type *const name = reinterpret_cast<type *>(ct_dynamic_shared)
#else
#include CT_DEVICE_HEADER /* "tests/soft_gpu/exec/device.hpp" */
#endif

#endif
