/* The instruction sets that the kernels of ctrain are compiled for: which of them this processor has, and which of them
 * this process may use. All functions may be called by any thread. */
#ifndef CT_BASE_CPU_FEATURES_H
#define CT_BASE_CPU_FEATURES_H

#include "base/choice.h"
#include "base/status.h"

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
	CT_CPU_AMX_BF16 = 512,
	/* What gcc may use in files that are compiled for AVX-512. */
	CT_CPU_AVX512 = CT_CPU_AVX512F | CT_CPU_AVX512BW | CT_CPU_AVX512VL | CT_CPU_AVX512DQ,
};

/* Limits for a process, in increasing order. AUTO: no limit. AVX2: AVX2 and FMA. AVX512: also AVX-512, without its
 * bfloat16 instructions. AVX512_BF16: also these. AMX: also AMX. */
#define CT_ISAS(X)                           \
	X(CT_ISA_AUTO, "auto")               \
	X(CT_ISA_AVX2, "avx2")               \
	X(CT_ISA_AVX512, "avx512")           \
	X(CT_ISA_AVX512_BF16, "avx512_bf16") \
	X(CT_ISA_AMX, "amx")
enum ct_isa { CT_ISAS(CT_CHOICE_ID) };

const char *ct_isa_name(enum ct_isa isa);
/* Returns the set with this name, or -1 if there is none. */
int ct_isa_find(const char *name);

/* Returns whether this is an x86-64 processor that has, and whose operating system supports, all of these features, and
 * the limit of the process allows them. */
bool ct_cpu_has(unsigned features);
/* Returns the highest set whose features this processor has and the limit allows. AUTO: not even AVX2. */
enum ct_isa ct_cpu_isa(void);

/* Sets the limit of the process. Call it before a kernel is chosen, because a kernel that was chosen stays in use.
 * Fails with CT_UNSUPPORTED, without a change, if this processor does not have the set. */
enum ct_status ct_cpu_set_limit(enum ct_isa limit) CT_MUST_CHECK;
enum ct_isa ct_cpu_limit(void);

#endif
