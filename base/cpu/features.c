#include "base/cpu/features.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* What a process with a limit may use. A processor has a set if it has its `needed` features. */
#define AVX2 (CT_CPU_AVX2 | CT_CPU_FMA)
#define OPTIONAL (CT_CPU_AVX512VBMI | CT_CPU_AVX512VNNI)
static const struct {
	unsigned needed, allowed;
} sets[] = {
	[CT_ISA_AUTO] = {0, ~0u},
	[CT_ISA_AVX2] = {AVX2, AVX2},
	[CT_ISA_AVX512] = {AVX2 | CT_CPU_AVX512, AVX2 | CT_CPU_AVX512 | OPTIONAL},
	[CT_ISA_AVX512_BF16] = {AVX2 | CT_CPU_AVX512 | CT_CPU_AVX512BF16,
				AVX2 | CT_CPU_AVX512 | CT_CPU_AVX512BF16 | OPTIONAL},
	[CT_ISA_AMX] = {AVX2 | CT_CPU_AVX512 | CT_CPU_AVX512BF16 | CT_CPU_AMX_BF16, ~0u},
};

static atomic_int limit; /* enum ct_isa */

#if defined(__x86_64__)
/* Returns whether the system saves the registers of AMX (bits 17 and 18 of XCR0). Only on processors with AVX-512,
 * which have this instruction. */
static bool system_saves_tiles(void)
{
	unsigned low, high;

	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (low & 0x60000) == 0x60000;
}
#endif

/* Returns those of the features that this processor has. */
static unsigned found(unsigned features)
{
	unsigned has = 0;

#if defined(__x86_64__)
	unsigned eax, ebx, ecx, edx;

#define FIND(feature, name) has |= __builtin_cpu_supports(name) ? feature : 0
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
	/* __builtin_cpu_supports of clang 14 does not know AMX. CPUID is slow in virtual machines. */
	if (features & CT_CPU_AMX_BF16 && __builtin_cpu_supports("avx512f") &&
	    __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && edx & 1u << 22 && system_saves_tiles())
		has |= CT_CPU_AMX_BF16;
#endif
	return has & features;
}

static const char *const names[] = {CT_ISAS(CT_CHOICE_NAME) NULL};

const char *ct_isa_name(enum ct_isa isa)
{
	return ct_choice_name(names, isa);
}

int ct_isa_find(const char *name)
{
	return ct_choice_find(names, name);
}

bool ct_cpu_has(unsigned features)
{
	return (found(features) & sets[ct_cpu_limit()].allowed) == features;
}

/* Returns the highest set that these features contain. */
static enum ct_isa highest(unsigned features)
{
	enum ct_isa isa = CT_ISA_AMX;

	while ((features & sets[isa].needed) != sets[isa].needed)
		isa--;
	return isa;
}

enum ct_isa ct_cpu_isa(void)
{
	return highest(found(sets[ct_cpu_limit()].allowed));
}

enum ct_status ct_cpu_set_limit(enum ct_isa isa)
{
	const enum ct_isa best = highest(found(~0u));

	if (isa > best)
		return CT_FAIL(CT_UNSUPPORTED, "this processor does not have the instructions of %s; it has %s",
			       ct_isa_name(isa), best == CT_ISA_AUTO ? "not even avx2" : ct_isa_name(best));
	atomic_store(&limit, (int)isa);
	return CT_OK;
}

enum ct_isa ct_cpu_limit(void)
{
	return (enum ct_isa)atomic_load(&limit);
}
