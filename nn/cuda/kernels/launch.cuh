/* How kernels are written and started. Every .cu file includes this header after its own, so that the same source is compiled by nvcc for
 * GPUs, and by a C++ compiler for the software GPU of the tests (tests/soft_gpu).
 *
 * - A kernel takes ONE plain struct by value (at most 4 KiB) and nothing else:
 *     static __global__ void scale(const struct scale_args a) { ... }
 * - It is started by ct__launch, never by <<< >>>:
 *     cudaError_t e = ct__launch(scale, grid, block, shared_bytes, stream, args);
 *   grid and block are dim3 or numbers. The error is that of the launch; errors of the kernel itself come later.
 * - Dynamic shared memory is CT_DYNAMIC_SHARED(float, name): `float *name`, 16-byte aligned, shared_bytes of ct__launch. Above 48 KiB call
 *   cudaFuncSetAttribute first.
 * - __shared__ variables are declared in the kernel, which is static. Helpers get pointers to them.
 * - All threads of a block reach each __syncthreads. Warps are never assumed to be in step: shuffles and votes have masks.
 * - Blocks do not wait for each other.
 * - Values of 16-bit types are loaded, stored and converted; arithmetic is in float.
 * - No texture, no inline PTX, no thrust or cub, no C++ library. */
#ifndef CT_NN_CUDA_KERNELS_LAUNCH_CUH
#define CT_NN_CUDA_KERNELS_LAUNCH_CUH

#ifdef __CUDACC__
#include <cuda_runtime.h>

template <class Args>
static inline cudaError_t ct__launch(void (*kernel)(Args), dim3 grid, dim3 block, size_t shared_bytes,
				    cudaStream_t stream, const Args &args)
{
	static_assert(alignof(Args) <= 16 && sizeof(Args) <= 4096, "the arguments of a kernel fit 4 KiB");
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
