/* This is a separate file, because the kernels are compiled for the instructions that this function checks. */
#include "nn/onednn/kernels/norm_kernels.h"

bool ct__norm_usable(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
	return true;
#endif
}
