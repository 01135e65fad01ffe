/* Parallel for: runs a loop over [0, n) on the compute threads of the process.
 *
 * The compute threads are those of OpenMP. oneDNN uses them as well, so no second thread pool competes for the
 * processors. A build without OpenMP, or with the thread sanitizer (which does not support OpenMP's barriers), starts
 * its own threads for each loop. This is slower, but the ranges and the results are the same.
 *
 * Determinism: the ranges depend only on `threads`, `n` and `grain`, never on scheduling or on how many threads the
 * system actually provides. If each item is computed only from its index, the results are the same for every number of
 * threads. To compute a sum that does not depend on the number of threads, let each item be a chunk of a fixed size,
 * store one partial sum per chunk, and add the partial sums in order after the loop.
 *
 * These functions may be called from any thread and cannot fail. A nested loop runs on the thread that calls it. */
#ifndef CT_BASE_PARALLEL_H
#define CT_BASE_PARALLEL_H

#include <stdint.h>

#include "base/thread.h"

/* Computes items begin to end - 1, where begin < end. Must not fail and must not wait for another range. */
typedef void (*ct_range_fn)(void *arg, int64_t begin, int64_t end);

/* Divides [0, n) into ranges whose sizes differ by at most one item, calls run(arg, begin, end) once for each range,
 * and returns when all calls have returned. The number of ranges is min(threads, n / grain), but at least 1. `grain` is
 * the smallest number of items that justifies a separate thread; starting a range costs a few microseconds, so use 1 if
 * each item takes much longer than that. A single range is run directly on the calling thread. If n is 0, run is not
 * called. Values of threads and grain below 1 are treated as 1.
 *
 * Pass the same `threads` to all loops that a thread runs, even to short ones: OpenMP ends or starts threads whenever
 * the number changes. */
void ct_parallel_for(int threads, int64_t n, int64_t grain, ct_range_fn run, void *arg);

/* Sets the number of threads that libraries based on OpenMP (oneDNN) use when the calling thread calls them. Has no
 * effect on ct_parallel_for, nor in a build without OpenMP. */
void ct_parallel_use_threads(int threads);

/* Binds each of the compute threads that run the calling thread's loops with this value of `threads` to the CPUs
 * cpus[i]. The calling thread, which is thread 0, is not bound, because threads that it starts later inherit its CPUs.
 * OpenMP ends threads and starts new ones if a library uses fewer threads for a while; the new ones are not bound. Has
 * no effect in a build without OpenMP. */
void ct_parallel_pin(int threads, const struct ct_cpu_set *cpus);

#endif
