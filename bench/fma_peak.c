/* This file is compiled with -O3 and contraction of a * b + c in every build type. */
#include "bench/fma_peak.h"

#include <stdint.h>

#include "base/clock.h"
#include "base/cpu/features.h"
#include "base/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Chains of dependent multiply-adds: more than latency times pipes of any processor so far, fewer than its registers.
 * The values come to rest near 0.5, far from denormals. */
#define FMA_LOOP(name, attribute, lanes, chains)                                            \
	attribute static float name(int64_t n)                                              \
	{                                                                                   \
		typedef float vec __attribute__((vector_size(4 * (lanes))));                \
		vec sum[chains], a = (vec){0} + 0.5f, b = (vec){0} + 0.25f, all = (vec){0}; \
                                                                                            \
		for (int k = 0; k < (chains); k++)                                          \
			sum[k] = (vec){0} + (float)k;                                       \
		for (int64_t i = 0; i < n; i++) {                                           \
			for (int k = 0; k < (chains); k++)                                  \
				sum[k] = sum[k] * a + b;                                    \
		}                                                                           \
		for (int k = 0; k < (chains); k++)                                          \
			all += sum[k];                                                      \
		return all[0];                                                              \
	}

#if defined(__x86_64__)
FMA_LOOP(fp32_avx512, __attribute__((noinline, target("avx512f"))), 16, 16)
FMA_LOOP(fp32_avx2, __attribute__((noinline, target("avx2,fma"))), 8, 12)

__attribute__((noinline, target("avx512f,avx512bf16"))) static float bf16_avx512(int64_t n)
{
	const __m512bh tiny = (__m512bh)_mm512_set1_epi16(0x3580); /* 2^-20 */
	__m512 sum[16], all = _mm512_setzero_ps();

	for (int k = 0; k < 16; k++)
		sum[k] = _mm512_set1_ps((float)k);
	for (int64_t i = 0; i < n; i++) {
		for (int k = 0; k < 16; k++)
			sum[k] = _mm512_dpbf16_ps(sum[k], tiny, tiny);
	}
	for (int k = 0; k < 16; k++)
		all = _mm512_add_ps(all, sum[k]);
	return _mm512_cvtss_f32(all);
}
#else
FMA_LOOP(fp32_vector, __attribute__((noinline)), 4, 16)
#endif

struct loop {
	float (*run)(int64_t n);
	double flop; /* of an iteration */
	const char *instruction;
};

static struct loop loop_of(bool bf16)
{
#if defined(__x86_64__)
	if (bf16)
		return ct_cpu_has(CT_CPU_AVX512BF16) ? (struct loop){bf16_avx512, 16 * 32 * 2, "vdpbf16ps zmm"}
						     : (struct loop){0};
	if (ct_cpu_has(CT_CPU_AVX512F))
		return (struct loop){fp32_avx512, 16 * 16 * 2, "vfmadd zmm"};
	return ct_cpu_has(CT_CPU_FMA) ? (struct loop){fp32_avx2, 12 * 8 * 2, "vfmadd ymm"} : (struct loop){0};
#else
	return bf16 ? (struct loop){0} : (struct loop){fp32_vector, 16 * 4 * 2, "128-bit vectors"};
#endif
}

struct work {
	struct loop loop;
	int64_t n;
	volatile float sink; /* so that the loop has a purpose */
};

static void run_range(void *arg, int64_t begin, int64_t end)
{
	struct work *w = arg;

	for (int i = (int)begin; i < (int)end; i++)
		w->sink = w->loop.run(w->n);
}

static int64_t slice_ns(struct work *w, int threads)
{
	const int64_t start = ct_now_ns();

	ct_parallel_for(threads, threads, 1, run_range, w);
	return ct_now_ns() - start;
}

double fma_peak(int threads, bool bf16)
{
	struct work w = {.loop = loop_of(bf16), .n = 1 << 12};
	int64_t least = INT64_MAX;

	if (!w.loop.run)
		return 0;
	/* Slices long beside the start of the threads and short beside the scheduler's: measured on one thread, since
	 * other programs may keep all of them from ever running at once for so short a time. */
	for (int64_t ns = 0; ns < CT_MS / 2; w.n *= 2) {
		const int64_t start = ct_now_ns();

		run_range(&w, 0, 1);
		ns = ct_now_ns() - start;
	}
	for (int i = 0; i < 60; i++) {
		const int64_t ns = slice_ns(&w, threads);

		least = ns < least ? ns : least;
	}
	return w.loop.flop * (double)w.n * threads / ((double)least * 1e-9);
}

const char *fma_peak_instruction(bool bf16)
{
	const struct loop l = loop_of(bf16);

	return l.run ? l.instruction : "";
}
