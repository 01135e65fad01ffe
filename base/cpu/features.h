/* The instruction sets that the kernels of ctrain are compiled for, and whether this processor has them. */
#ifndef CT_BASE_CPU_FEATURES_H
#define CT_BASE_CPU_FEATURES_H

#include <stdbool.h>

enum {
	CT_CPU_AVX2 = 1,
	CT_CPU_FMA = 2,
	CT_CPU_AVX512F = 4,
	CT_CPU_AVX512BW = 8,
	CT_CPU_AVX512VL = 16,
	CT_CPU_AVX512DQ = 32,
	CT_CPU_AVX512VBMI = 64,
	CT_CPU_AVX512VNNI = 128,
	CT_CPU_AVX512BF16 = 256,
	/* What gcc may use in files that are compiled for AVX-512. */
	CT_CPU_AVX512 = CT_CPU_AVX512F | CT_CPU_AVX512BW | CT_CPU_AVX512VL | CT_CPU_AVX512DQ,
};

/* Returns whether this is an x86-64 processor that has, and whose operating system supports, all of these features. */
bool ct_cpu_has(unsigned features);

#endif
