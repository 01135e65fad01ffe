/* The software GPU: a CUDA device for tests, on the CPU. It stands in for libcudart.so.13 and executes the unmodified .cu sources,
 * compiled by a C++ compiler. This header is for the other stand-in libraries (cuDNN, NCCL), for tests, and for exec/device.hpp.
 *
 * It is a test device, not an emulator. It looks for mistakes:
 * - Nothing runs when it is posted. Work waits in its stream and runs, on the calling thread, when the host waits or queries. The
 *   streams take turns in an order drawn from SOFT_GPU_SEED, and a graph runs its nodes in a drawn order that keeps the captured
 *   dependencies. Nodes of a graph take turns with the work of other streams.
 * - Device memory is closed to the host (PROT_NONE) except while device work runs: the host that touches it gets SIGSEGV at that line.
 * - New and freed memory is filled with 0xFF bytes, a NaN in every floating-point type. Guards around each allocation are poisoned under
 *   AddressSanitizer; without it they are compared after each piece of work. The same holds for shared memory of kernels (between
 *   static shared variables only with gcc's AddressSanitizer).
 * - A warp runs as far ahead of the other warps as barriers allow, in one of three orders of warps, lanes and blocks.
 * - Library calls, copies and fills declare what they read and write. Two that overlap, of which one writes, and that no event, stream
 *   order or wait of the host orders, are an error when the second is posted, and in a graph when it is instantiated.
 * - Copies and declared ranges must be within one allocation.
 * - Calls can be made to fail, at the call or when their work runs (SOFT_GPU_FAULT).
 * A mistake of the program under test is one line "soft gpu: ..." on standard error and SIGABRT. What CUDA reports by an error code is
 * that error code.
 *
 * What a passing test proves, for the schedules, seeds and shapes that it tried: the order of posted work, captures and their joins,
 * sizes and wiring of buffers, indexes, barriers within a block, shuffles, and the handling of errors.
 * What it cannot prove: speed; the arithmetic of the real libraries; races between blocks of a kernel, between two kernels (their ranges
 * are not declared; the drawn order still finds many), and weak memory order; launch limits and rules of capture that are not
 * coded here; blocks that wait for each other (they hang); behaviour of drivers. test_rules.c and test_values.c are also linked to the real
 * runtime: where there is a GPU, they show whether the rules coded here are right.
 * It is stricter than CUDA here: all threads of a block must reach each __syncthreads, at the same line; copies of pageable memory cannot
 * be captured; a thread that captures must not query or synchronize anything.
 *
 * Environment, read at the first call:
 *   SOFT_GPU_SEED      seed of all drawn orders [1]
 *   SOFT_GPU_ORDER     0, 1 or 2: order of warps, lanes and blocks [drawn for each launch]
 *   SOFT_GPU_DEVICES   number of devices [1]; CUDA_VISIBLE_DEVICES selects among them
 *   SOFT_GPU_MEMORY    bytes of memory of a device [4 GiB]
 *   SOFT_GPU_DRIVER    CUDA version of the driver [13000]; 0: no driver
 *   SOFT_GPU_FAULT     FUNCTION:N:ERROR or FUNCTION@N:ERROR, separated by commas: the N-th call of FUNCTION (0: each) returns the
 *                      number ERROR; with @ the call succeeds, and what it posted fails when it runs: from then on every call of the
 *                      device returns this error
 *   SOFT_GPU_LOG       file: a line for each call and for each piece of work that ran, and at the end what was not released
 *
 * Calls come from any thread; one mutex orders them. Posted work runs on the thread that waits. */
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
	bool written; /* else read */
};

struct soft_work {
	const char *name; /* for messages; copied */
	/* Runs with device memory open. cudaErrorNotReady: call it again after other work had a turn, for example because another rank
	 * is late; no other thread is locked out meanwhile. Any other error is the device's error from then on. It must not call CUDA. */
	cudaError_t (*run)(void *args);
	const void *args; /* copied [args_bytes]; NULL when args_bytes is 0 */
	size_t args_bytes;
	void (*release)(
		void *args); /* NULL, or called once when the work will not run again, also when it cannot be posted */
	const struct soft_range *ranges; /* copied; all that the work reads and writes */
	int n_ranges;
};

/* Posts to the stream, or adds a node to its capture. */
cudaError_t soft_gpu_post(cudaStream_t stream, const struct soft_work *work);
/* First statement of each function of a stand-in library: counts and logs the call. Returns the error that SOFT_GPU_FAULT demands, in
 * the library's own numbers, or 0. */
int soft_gpu_call(const char *function);
/* Ends the process with the message: the program under test made a mistake. */
void soft_gpu_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Whether [p, p + bytes) is within one allocation of device memory. */
bool soft_gpu_is_device(const void *p, size_t bytes);

/* ---- For tests -------------------------------------------------------------------------------------- */

void soft_gpu_set_seed(uint64_t seed);
/* Replaces the faults (NULL: none) and sets all counts of calls to 0. */
void soft_gpu_set_faults(const char *faults);
/* Calls of the function since the start or the last soft_gpu_set_faults. */
int soft_gpu_calls(const char *function);
/* What was created and not destroyed: allocations, pinned blocks, streams, events, graphs and executable graphs. */
int soft_gpu_live(void);

/* ---- For kernels: exec/device.hpp ------------------------------------------------------------------- */

struct soft_kernel {
	const char *name, *file; /* arguments of ct__launch as written */
	int line;
	void (*function)(void);                                 /* the kernel */
	void (*call)(void (*function)(void), const void *args); /* calls it with its argument struct */
	char *shared, *shared_end;                              /* static shared memory of the object file */
};
cudaError_t soft_gpu_launch(const struct soft_kernel *kernel, dim3 grid, dim3 block, size_t shared_bytes,
			    cudaStream_t stream, const void *args, size_t args_bytes);

/* The thread that runs. */
struct soft_thread {
	uint3 thread, block;
	dim3 block_dim, grid_dim;
	unsigned lane; /* in its warp */
	void *dynamic_shared;
};
extern struct soft_thread soft_thread;

/* Each returns when all threads of the block, or all lanes of the mask, have come to the same line. The count is that of true values. */
void soft_block_sync(const char *file, int line);
int soft_block_count(bool value, const char *file, int line);
uint64_t soft_warp_shuffle(unsigned mask, uint64_t value, int source_lane, const char *file, int line);
unsigned soft_warp_ballot(unsigned mask, bool value, const char *file, int line);

#ifdef __cplusplus
}
#endif

#endif
