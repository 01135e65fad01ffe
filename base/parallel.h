/* The parallel-for of the program: a loop over [0, n) on the compute threads of the process.
 *
 * The threads are those of OpenMP, which oneDNN uses as well, so that no second pool of threads competes with them for
 * the processors. A build without OpenMP, or for the thread sanitizer (which knows nothing of OpenMP's barriers), starts
 * threads of its own for each loop: slower, but with the same ranges and the same results.
 *
 * Determinism. The ranges depend on `threads`, `n` and `grain` alone, never on scheduling or on how many threads the
 * system really provides. Results are also the same for every number of threads if each item is computed from its
 * index alone. For a sum that must not depend on the number of threads, make the items chunks of a fixed size, store one
 * partial sum for each, and add these in order after the loop.
 *
 * Any thread may call; a loop inside a loop runs on the thread that calls it. Nothing here can fail. */
#ifndef CT_BASE_PARALLEL_H
#define CT_BASE_PARALLEL_H

#include <stdint.h>

/* Computes the items begin to end - 1; begin < end. Must not fail and must not wait for another range. */
typedef void (*ct_range_fn)(void *arg, int64_t begin, int64_t end);

/* Cuts [0, n) into min(threads, n / grain), but at least one, ranges of equal size (to within one item), calls run(arg,
 * begin, end) once for each of them, and returns when all are done. `grain` is the smallest number of items that is worth
 * a thread of its own (a range costs some microseconds; 1 for long items). With one range this is a plain call on the
 * calling thread; with n = 0 nothing is called. threads and grain below 1 count as 1.
 *
 * Pass the same `threads` in all loops of a thread, even for short loops: OpenMP ends and starts threads when the number
 * changes. */
void ct_parallel_for(int threads, int64_t n, int64_t grain, ct_range_fn run, void *arg);

/* How many threads libraries on OpenMP (oneDNN) use in the calls that this thread makes from now on. Without effect on
 * ct_parallel_for and in a build without OpenMP. */
void ct_parallel_use_threads(int threads);

#endif
