/* Emulates the instructions of AMX that ctrain's kernels use, those for bfloat16, on processors that do not have them.
 * Such an instruction raises SIGILL; the handler executes it and
 * continues after it. Each thread has tiles of its own. Like the processor, it adds the products of even and of odd
 * elements separately, and these sums to the tile (Intel 64 and IA-32 Architectures Software Developer's Manual,
 * TDPBF16PS). It does not flush denormal numbers to zero. */
#ifndef CT_TESTS_NN_AMX_H
#define CT_TESTS_NN_AMX_H

#include <stdint.h>

/* Installs the handler for this process. An instruction that it does not know, or that this manual does not allow,
 * ends the process. */
void amx_emulate(void);
/* The number of instructions that were executed, by all threads. */
int64_t amx_executed(void);

#endif
