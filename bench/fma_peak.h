/* What the cores' multipliers can do: loops of independent multiply-adds on registers. */
#ifndef CT_BENCH_FMA_PEAK_H
#define CT_BENCH_FMA_PEAK_H

#include <stdbool.h>

/* Best FLOP/s of 60 slices of a millisecond on so many of ct__dnnl_use_threads' threads (all of them: set it to `threads` before), a
 * multiply-add counted as two: fp32, or bfloat16 pairs summed in fp32. 0 where this processor has no such instruction or no
 * loop is written for it. Matrix units that are not vector registers (AMX, SME) are not counted. */
double fma_peak(int threads, bool bf16);
/* The instruction it used; "" where the rate is 0. */
const char *fma_peak_instruction(bool bf16);

#endif
