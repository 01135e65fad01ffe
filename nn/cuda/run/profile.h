/* Measures the tasks of a program on the device (ct_program_profile): an event before the first task of a pass, and one
 * after each task. */
#ifndef CT_NN_CUDA_RUN_PROFILE_H
#define CT_NN_CUDA_RUN_PROFILE_H

#include "nn/cuda/run/run.h"

/* Call this before the first task of a pass, and after task i. They do nothing if profiling is off. The times of the
 * previous passes are collected when a forward pass begins. */
enum ct_status ct__cuda_profile_begin(struct cuda_program *p, bool backward) CT_MUST_CHECK;
enum ct_status ct__cuda_profile_task(struct cuda_program *p, size_t i) CT_MUST_CHECK;
/* Waits for the measured passes, and adds their times to those of the nodes. */
enum ct_status ct__cuda_profile_collect(ct_program *p) CT_MUST_CHECK;
void ct__cuda_profile_release(struct cuda_program *p);

#endif
