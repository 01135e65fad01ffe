/* The software GPU is a CUDA device for tests that computes on the CPU. It replaces libcudart.so.13 and executes the
 * kernels of the unmodified .cu sources, compiled by a C++ compiler. This header is for other stand-in libraries
 * (cudnn/soft_cudnn.h, nccl/soft_nccl.h), for tests, and for exec/device.hpp.
 *
 * It is not an emulator but a test device, whose purpose is to find mistakes:
 * - Work does not run when it is posted. It waits in its stream and runs on the calling thread when the host waits or
 *   queries. The streams take turns in a random order that is determined by SOFT_GPU_SEED. A graph runs its nodes in a
 *   random order that respects the captured dependencies. Nodes of a graph take turns with the work of other streams.
 * - The host cannot access device memory (PROT_NONE) except while device work runs. An access causes SIGSEGV at that
 *   line.
 * - New and freed memory is filled with 0xFF bytes, which are a NaN in every floating-point type. There are guards
 *   around each allocation. With AddressSanitizer, the guards are poisoned; without it, their contents are checked
 *   after each piece of work. The same is true of the shared memory of kernels. Between static shared variables, there
 *   are guards only with gcc's AddressSanitizer.
 * - A warp runs as far ahead of the other warps as barriers allow. Warps, lanes and blocks run in one of three orders.
 * - In a kernel with atomic operations on device memory, other blocks see the stores of a block only after a fence.
 * - Library calls, copies and fills declare what they read and write. It is an error if the ranges of two operations
 *   overlap, at least one of the two writes, and their order is not defined by an event, the order of a stream or a
 *   wait of the host. The error is reported when the second operation is posted; in a graph, when the graph is
 *   instantiated.
 * - Copies and declared ranges must be within one allocation.
 * - Calls can be made to fail, either immediately or when their work runs (SOFT_GPU_FAULT).
 * A mistake of the program under test prints one line "soft gpu: ..." on standard error and ends the process with
 * SIGABRT. Errors for which CUDA returns an error code are reported by the same error code.
 *
 * A passing test proves the following, for the schedules, seeds and shapes that it tried: the order of posted work;
 * captures and their joins; sizes and connections of buffers; indexes; barriers within a block; shuffles; and error
 * handling.
 *
 * A passing test proves nothing about speed, the arithmetic of the real libraries, weak memory ordering, launch limits
 * and rules of capture that are not implemented here, blocks that wait for each other (they hang), or the behaviour of
 * drivers. Races between blocks of a kernel or between two kernels are not checked, because kernels do not declare
 * their ranges; the random order still finds many of them. test_rules.c and test_values.c are also linked to the real
 * runtime. On a machine with a GPU, they show whether the rules implemented here are correct.
 *
 * The software GPU is stricter than CUDA in three ways. All threads of a block must reach each __syncthreads at the
 * same line. Copies of pageable memory cannot be captured. A thread that is capturing must not query or synchronize
 * anything.
 *
 * Environment variables, which are read at the first call:
 *   SOFT_GPU_SEED      seed of all random orders [1]
 *   SOFT_GPU_ORDER     0, 1 or 2: order of warps, lanes and blocks [random for each launch]
 *   CUDA_LAUNCH_BLOCKING  1: work that is posted has run when the call returns, and the call returns its error [0]
 *   SOFT_GPU_DEVICES   number of devices [1]; CUDA_VISIBLE_DEVICES selects some of them
 *   SOFT_GPU_OLD       number of devices, the last ones, that have compute capability 7.5, not 9.0 [0]
 *   SOFT_GPU_MEMORY    bytes of memory of each device [4 GiB]
 *   SOFT_GPU_DRIVER    CUDA version of the driver [13000]; 0: there is no driver
 *   SOFT_GPU_FAULT     a list of FUNCTION:N:ERROR or FUNCTION@N:ERROR, separated by commas. The N-th call of FUNCTION
 *                      (0: every call) returns the error number ERROR. With @, the call succeeds, but the work that it
 *                      posts fails when it runs. From then on, every call that uses the device returns this error.
 *   SOFT_GPU_SKIP      kernels that were captured and whose names contain this string do nothing when the graph runs
 *   SOFT_GPU_LOG       a file to which a line is written for each call, each piece of work that ran and each context
 *                      and, at the end, a line with the numbers of objects that were not released
 *
 * Calls may come from any thread; a mutex serializes them. Posted work runs on the thread that waits, except host
 * functions: one other thread calls all of them, one after the other, while the streams that do not wait for them go
 * on. */
#ifndef CT_TESTS_SOFT_GPU_SOFT_GPU_H
#define CT_TESTS_SOFT_GPU_SOFT_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- For stand-in libraries ------------------------------------------------------------------------- */

struct soft_range {
	const void *address;
	size_t bytes;
	bool written; /* false: the range is only read */
};

struct soft_work {
	const char *name; /* for messages; copied */
	/* Runs the work, with device memory open. If it returns cudaErrorNotReady, for example because another rank is
	 * late, it is called again after other work has had a turn; meanwhile, other threads can make calls. Any other
	 * error that it returns becomes the device's error. It must not call CUDA. */
	cudaError_t (*run)(void *args);
	/* May be NULL. In a graph, the work may start when the nodes before it have started, but not ended, as kernels
	 * do that are launched with programmatic stream serialization. This is then called, with device memory open. */
	void (*start)(void *args);
	const void *args; /* copied [args_bytes]; NULL if args_bytes is 0 */
	size_t args_bytes;
	/* May be NULL. Called once when the work will not run again, even if it could not be posted. */
	void (*release)(void *args);
	const struct soft_range *ranges; /* copied; all memory that the work reads and writes */
	int n_ranges;
	cudaError_t fault; /* from soft_gpu_take_fault; 0 if the work is posted in the call that creates it */
};

/* Posts the work to the stream, or adds a node to the stream's capture. */
cudaError_t soft_gpu_post(cudaStream_t stream, const struct soft_work *work);
/* Must be the first statement of each function of a stand-in library. Counts and logs the call. Returns the error that
 * SOFT_GPU_FAULT requests, as an error number of the library, or 0. */
int soft_gpu_call(const char *function);
/* For work that a later call will post: returns the error with which SOFT_GPU_FAULT requests the work of this call to
 * fail, or 0. */
cudaError_t soft_gpu_take_fault(void);
/* Returns the id of the capture of the stream, or 0 if the stream is not capturing. */
unsigned soft_gpu_capture(cudaStream_t stream);
/* Runs a random amount of posted work of the current device, as a query does. Returns the error of the device. */
cudaError_t soft_gpu_progress(void);
/* As cudaMalloc, with an alignment of 256 bytes or a larger power of two. */
cudaError_t soft_gpu_alloc(void **out, size_t bytes, size_t alignment);
/* Returns a uniformly distributed random number in [0, n), which is determined by SOFT_GPU_SEED. */
unsigned soft_gpu_draw(unsigned n);
/* Returns how many blocks of kernels have been launched since the process started. */
uint64_t soft_gpu_blocks(void);
/* Reports a mistake of the program under test: prints the message and ends the process. */
void soft_gpu_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Returns whether [p, p + bytes) is within one allocation of device memory. */
bool soft_gpu_is_device(const void *p, size_t bytes);

/* ---- For tests -------------------------------------------------------------------------------------- */

void soft_gpu_set_seed(uint64_t seed);
/* Replaces the faults (same format as SOFT_GPU_FAULT; NULL: no faults) and resets all call counts to 0. */
void soft_gpu_set_faults(const char *faults);
/* Returns the number of calls of the function since the process started or soft_gpu_set_faults was last called. */
int soft_gpu_calls(const char *function);
/* Returns the number of objects that exist: allocations, pinned blocks, streams, events, graphs and executable
 * graphs. */
int soft_gpu_live(void);

/* ---- For kernels: exec/device.hpp ------------------------------------------------------------------- */

struct soft_kernel {
	const char *name, *file; /* arguments of ct__launch as written in the source; source file */
	int line;
	void (*function)(void);                                 /* the kernel */
	void (*call)(void (*function)(void), const void *args); /* calls the kernel with its argument struct */
	char *shared, *shared_end;                              /* static shared memory of the object file */
};
cudaError_t soft_gpu_launch(const struct soft_kernel *kernel, dim3 grid, dim3 block, size_t shared_bytes,
			    cudaStream_t stream, const void *args, size_t args_bytes);

/* The GPU thread that is currently running. */
struct soft_thread {
	uint3 thread, block;
	dim3 block_dim, grid_dim;
	unsigned lane; /* index of the thread in its warp */
	void *dynamic_shared;
};
extern struct soft_thread soft_thread;

/* Each of these returns when all threads of the block, or all lanes of the mask, have reached the same line.
 * soft_block_count returns the number of threads whose value is true. */
void soft_block_sync(const char *file, int line);
int soft_block_count(bool value, const char *file, int line);
uint64_t soft_warp_shuffle(unsigned mask, uint64_t value, int source_lane, const char *file, int line);
unsigned soft_warp_ballot(unsigned mask, bool value, const char *file, int line);
/* __threadfence */
void soft_gpu_fence(void);
/* Each atomic operation ends with this call. */
void soft_gpu_atomic(const void *address, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
