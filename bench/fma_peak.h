/* Measures the peak rate of multiply-adds of the CPU cores, with loops of independent multiply-adds on registers. */
#ifndef CT_BENCH_FMA_PEAK_H
#define CT_BENCH_FMA_PEAK_H

#include <stdbool.h>

/* Returns the best rate, in FLOP/s, of 60 measurements of about one millisecond each. Call
 * ct_parallel_use_threads(threads) first. A multiply-add counts as two operations. Operands are fp32 or, with `bf16`,
 * pairs of bfloat16 values that are summed in fp32. Returns 0 if this processor has no such instruction or there is no
 * loop for it. Matrix units that do not use vector registers (AMX, SME) are not measured. */
double fma_peak(int threads, bool bf16);
/* Returns the name of the instruction that fma_peak uses, or "" if fma_peak returns 0. */
const char *fma_peak_instruction(bool bf16);

#endif
