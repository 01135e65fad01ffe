#include "base/cpu/features.h"

bool ct_cpu_has(unsigned features)
{
	unsigned found = 0;

#if defined(__x86_64__)
#define FIND(feature, name) found |= __builtin_cpu_supports(name) ? feature : 0
	FIND(CT_CPU_AVX2, "avx2");
	FIND(CT_CPU_FMA, "fma");
	FIND(CT_CPU_AVX512F, "avx512f");
	FIND(CT_CPU_AVX512BW, "avx512bw");
	FIND(CT_CPU_AVX512VL, "avx512vl");
	FIND(CT_CPU_AVX512DQ, "avx512dq");
	FIND(CT_CPU_AVX512VBMI, "avx512vbmi");
	FIND(CT_CPU_AVX512VNNI, "avx512vnni");
	FIND(CT_CPU_AVX512BF16, "avx512bf16");
#undef FIND
#endif

	return (found & features) == features;
}
