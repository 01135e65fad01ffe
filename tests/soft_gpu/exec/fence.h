/* What a block's stores look like to the other blocks of its grid (soft_gpu_fence and soft_gpu_atomic). Call these
 * after each block, and after the last one. */
#ifndef CT_TESTS_SOFT_GPU_EXEC_FENCE_H
#define CT_TESTS_SOFT_GPU_EXEC_FENCE_H

void soft__fence_end_block(void);
void soft__fence_end_grid(void);

#endif
