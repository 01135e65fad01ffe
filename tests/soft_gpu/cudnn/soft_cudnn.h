/* A stand-in libcudnn.so.9 for tests. It implements the part of cuDNN's backend API that ctrain uses and executes it on
 * the CPU, as work of the software GPU (tests/soft_gpu/soft_gpu.h).
 *
 * It supports tensors of up to four dimensions in fp32, fp16 and bf16 with any strides; forward, data and filter
 * convolutions with two spatial dimensions, groups, dilation and any padding; pointwise operations; and statistics
 * (sums and square sums). Anything else ends the process with the message that it is not implemented.
 *
 * Status: where cuDNN 9.19 returns an error for an incorrect use, the stand-in returns an error with the same number
 * (misuse_*.c have the list, and a test compares the two libraries). Where cuDNN crashes or accepts invalid input, the
 * stand-in ends the process with a message. This applies to descriptors that do not exist, tensors without a type,
 * values of unknown types, and results in descriptors of another type.
 *
 * The stand-in is stricter than cuDNN in three ways. A variant pack must name exactly those tensors of the plan that
 * are not virtual. Outputs and the workspace must not overlap other memory of the plan (pointwise graphs may work in
 * place). The stream must belong to the handle's device.
 *
 * Engines: without a real library, the stand-in has a fixed list of engines, from which filters and autotuning can
 * choose. The engines differ in their notes, in the size of the workspace, which they fill with NaN, and in their
 * arithmetic. The inputs of fp32 convolutions are rounded to tf32 with the note TENSOR_CORE and to fp16 with
 * DOWN_CONVERT_INPUTS, partial sums are rounded to fp16 with REDUCED_PRECISION_REDUCTION, and the order of sums changes
 * in each execution with NONDETERMINISTIC. One engine has a knob, which changes its workspace. Otherwise, sums are
 * computed in fp32 and in a fixed order. Stored values are rounded to the type of their tensor. The engines in the list
 * compute the graphs for which cuDNN has precompiled engines (graphs.c). Other fused graphs, and graphs without a
 * convolution, have only an engine that is compiled at run time. Plans with such an engine are rejected if the device
 * is given as JSON, as in cuDNN without a driver.
 *
 * Consulting the real library, which needs neither a GPU nor a driver (cuDNN 9.8 or later):
 *   SOFT_CUDNN_REAL     path of libcudnn.so.9. Each descriptor is also made in that library. What it rejects is
 *                       rejected, with the same status and reason; configurations, notes and workspace sizes are those
 *                       that it returns.
 *   SOFT_CUDNN_DEVICE   the device, as JSON or as the path of a file that contains JSON; it replaces each device that
 *                       is given by its number
 *
 * SOFT_CUDNN_WRONG is the number of an engine whose results are wrong (soft_cudnn_set_broken).
 *
 * SOFT_GPU_FAULT and soft_gpu_calls identify the functions by their names; the error is a cudnnStatus_t. */
#ifndef CT_TESTS_SOFT_GPU_CUDNN_SOFT_CUDNN_H
#define CT_TESTS_SOFT_GPU_CUDNN_SOFT_CUDNN_H

#include <stdint.h>

/* Returns the number of handles and descriptors that were created and have not been destroyed. */
int soft_cudnn_live(void);
/* Returns the number of descriptors of a cudnnBackendDescriptorType_t that were finalized since the process started. */
int soft_cudnn_finalized(int type);
enum soft_cudnn_stage {
	SOFT_CUDNN_FINALIZE,
	SOFT_CUDNN_EXECUTE,
	SOFT_CUDNN_EXECUTE_WITHOUT_HANDLE, /* plans that were made for the properties of a device */
	SOFT_CUDNN_WRONG                   /* executions leave out the last product of each sum */
};
/* Finalizing or executing a plan with this engine then takes 30 ms longer. -1: none. */
void soft_cudnn_set_slow(int64_t engine, enum soft_cudnn_stage stage);
/* Returns how many executions were posted, since the process started, while another thread was finalizing a plan. */
int soft_cudnn_overlaps(void);
/* Plans with this engine then cannot be finalized, or cannot be executed: CUDNN_STATUS_INTERNAL_ERROR. Or they compute
 * wrong results. -1: none. */
void soft_cudnn_set_broken(int64_t engine, enum soft_cudnn_stage stage);

#endif
