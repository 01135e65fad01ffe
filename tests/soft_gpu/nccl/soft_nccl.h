/* A stand-in libnccl.so.2 for tests: NCCL 2.28 to 2.30 between processes, or threads, of one host, as work of the
 * software GPU (tests/soft_gpu/soft_gpu.h). Read that manual first.
 *
 * What agrees with NCCL (read in the source of version 2.28.9; that of 2.30.7 was read for the use of a communicator in
 * progress, for graphs at its end, and for ranks that share a device):
 * - Operations are work of a stream. An operation begins when the preceding work of its stream is done, waits for the
 *   other ranks without blocking other streams, and can be captured and replayed. Operations of a communicator run in
 *   the order of their calls, whatever their streams.
 * - A communicator whose config has blocking = 0 returns ncclInProgress from its creation until all ranks have joined.
 *   Usually, it also returns ncclInProgress from each operation, which is then not yet in its stream. The program must
 *   call ncclCommGetAsyncError until that reports ncclSuccess before it posts anything else to the stream. Until then,
 *   any other use of the communicator fails with ncclInvalidArgument. Here, the operation is posted by a call of
 *   ncclCommGetAsyncError, the first to the third one, so that a program that does not call it never posts anything.
 * - After ncclCommAbort, operations that wait for other ranks end when their stream has its next turn. Their results
 *   are NaN.
 * - A rank that has ended is not noticed, unless SOFT_NCCL_LOST is "error".
 * - ncclCommFinalize, ncclCommDestroy and ncclCommAbort of a blocking communicator wait forever for graphs that contain
 *   its operations; here, this ends the process with a message. A communicator that does not block stays in progress
 *   after ncclCommFinalize until these graphs have been destroyed.
 * - Two ranks cannot use the same device of the same host (ncclInvalidUsage), unless NCCL_HOSTID differs.
 *
 * Reductions are computed in the order of ranks, with every partial result rounded to the element type, as in NCCL's
 * rings. All ranks get the same bits, and the bits do not depend on the schedule. ncclAvg multiplies each input by
 * 1/ranks, rounded to the element type, before the sum; integers are divided after it. 8-bit floating-point types
 * cannot be reduced. How far other streams proceed while an operation waits depends on SOFT_GPU_SEED and on when the
 * other ranks arrive.
 *
 * The stand-in is stricter than NCCL. A send ends only when its receiver has read everything. Buffers must be in one
 * allocation of device memory. They overlap only in place, and not those of other operations of their group. Windows
 * have the same size in all ranks. Whether an operation is captured, and in which capture, must be the same on all
 * ranks, as NCCL requires but does not check: captures with collectives of a communicator are numbered. A communicator
 * that does not exist or was finalized, and a graph with a destroyed communicator, end the process with a message.
 *
 * Not implemented: ncclCommShrink, ncclCommRevoke, ncclCommInitAll, ncclGroupSimulateEnd, the device interface, and the
 * functions whose names begin with pnccl.
 *
 * A process takes part in an operation only while it runs posted work, that is while it waits for its device or queries
 * it. If it waits for something else that depends on another rank's operation, both wait forever. On a GPU they do not.
 *
 * Environment variables, which are read at the first call:
 *   SOFT_NCCL_MISMATCH   what happens if the ranks differ in operations, types, counts, roots or captures.
 *                        error: a line on standard error, and the asynchronous error ncclInvalidUsage [error]
 *                        hang:  nothing; the operation waits until the communicator is aborted
 *   SOFT_NCCL_LOST       what happens if the process of a rank has ended, or has aborted the communicator.
 *                        hang:  nothing, as in NCCL on one host [hang]
 *                        error: the asynchronous error ncclRemoteError, as in NCCL over a network
 *   SOFT_NCCL_FAULT      a list of faults, separated by commas. A communicator with an asynchronous error does not run
 *                        operations until it is aborted.
 *                        init@RANK        the rank never joins
 *                        init@RANK:0:E    the same, and its asynchronous error is E
 *                        stuck@RANK:N     the rank's N-th operation in a communicator never ends
 *                        wrong@RANK:N:P   the results of the rank's N-th operation in a communicator and of later ones
 *                                         have a wrong byte, P percent of their bytes before the end [0]
 *                        early@RANK       the rank's captured operations in registered windows begin before the
 *                                         preceding work of their graph runs, and read what memory contained
 *                                         before it: as NCCL 2.28.0 to 2.30.6 on GPUs of compute capability 9.0
 *                        error@RANK:N:E   after the rank's N-th operation, its asynchronous error is E
 *                        A group, or one replay of it, is one operation.
 *   SOFT_NCCL_VERSION    what ncclGetVersion returns, such as 22703
 *   NCCL_HOSTID, NCCL_DEBUG, NCCL_DEBUG_FILE   as in NCCL; there are few messages
 * SOFT_GPU_FAULT and soft_gpu_calls identify the functions by their names; an error is a ncclResult_t, and, with @, a
 * cudaError_t. */
#ifndef CT_TESTS_SOFT_GPU_NCCL_SOFT_NCCL_H
#define CT_TESTS_SOFT_GPU_NCCL_SOFT_NCCL_H

/* Returns the number of communicators that exist, including those that graphs and posted work still use. */
int soft_nccl_live(void);
/* Replaces the faults (same format as SOFT_NCCL_FAULT; NULL: no faults). */
void soft_nccl_set_faults(const char *faults);

#endif
