/* This is a separate file, because the kernels are compiled for the instructions that this function checks. */
#include "base/cpu/features.h"
#include "nn/onednn/kernels/norm_kernels.h"

bool ct__norm_usable(void)
{
#if defined(__x86_64__)
	return ct_cpu_has(CT_CPU_AVX512);
#else
	return true; /* plain C that is not compiled for special instructions */
#endif
}
