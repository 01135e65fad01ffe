/* A stand-in libcudnn.so.9 for tests: the part of cuDNN's backend API that ctrain uses, executed on the CPU as work of the software GPU
 * (tests/soft_gpu/soft_gpu.h).
 *
 * It describes: tensors of up to four dimensions in fp32, fp16 and bf16 with any strides; convolutions forward, data and filter with two
 * spatial dimensions, groups, dilation and any padding; pointwise operations; statistics (sums and square sums). Anything else ends the
 * process with the message that it is not implemented.
 *
 * Status: where cuDNN 9.19 returns an error for a wrong use, so does this, with the same number (misuse_*.c have the list, and a test
 * compares both libraries). Where cuDNN crashes or accepts nonsense, the process ends with a message: descriptors that do not exist, tensors
 * without type, values of unknown types, results in descriptors of another type.
 * It is stricter than cuDNN here: variant packs must name exactly the tensors of the plan that are not virtual, outputs and workspace must
 * not overlap other memory of the plan (pointwise graphs may work in place), the stream must belong to the handle's device.
 *
 * Engines: without a real library, a fixed list that gives filters and autotuning a choice. They differ in their notes, in the workspace,
 * which they fill with NaN, and in arithmetic: inputs of fp32 convolutions are rounded to tf32 with the note TENSOR_CORE and to fp16 with
 * DOWN_CONVERT_INPUTS, partial sums are rounded to fp16 with REDUCED_PRECISION_REDUCTION, the order of sums changes in each execution
 * with NONDETERMINISTIC. Otherwise sums are in fp32 and in a fixed order. Stored values are rounded to the type of their tensor.
 * The list computes the graphs for which cuDNN has precompiled engines (graphs.c); other fused graphs, and those without a convolution,
 * have only an engine that is compiled at run time. Plans of those are refused for a device given as JSON, as cuDNN does without a driver.
 *
 * Consulting the real library, which needs neither GPU nor driver (cuDNN 9.8 or later):
 *   SOFT_CUDNN_REAL     path of libcudnn.so.9: each descriptor is made there too. What it refuses is refused, with its status and reason;
 *                       configurations, notes and workspace sizes are those that it answers.
 *   SOFT_CUDNN_DEVICE   the device, as JSON or as the path of a file with JSON; stands for each device that is given by its number
 *
 * SOFT_GPU_FAULT and soft_gpu_calls know the functions by their names; the error is a cudnnStatus_t. */
#ifndef CT_TESTS_SOFT_GPU_CUDNN_SOFT_CUDNN_H
#define CT_TESTS_SOFT_GPU_CUDNN_SOFT_CUDNN_H

/* Handles and descriptors that were created and not destroyed. */
int soft_cudnn_live(void);

#endif
