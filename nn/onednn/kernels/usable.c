/* This is a separate file, because the kernels are compiled for the instructions that this function checks. */
#include "base/cpu/features.h"
#include "nn/onednn/kernels/norm_kernels.h"

bool ct__norm_usable(bool bf16)
{
#if defined(__x86_64__)
	return ct_cpu_has(CT_CPU_AVX512 | (bf16 ? CT_CPU_AVX512BF16 : 0));
#else
	(void)bf16;
	return true; /* plain C that is not compiled for special instructions */
#endif
}
