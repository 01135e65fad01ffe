/* Monotonic time in nanoseconds. A deadline is an absolute time on the clock of ct_now_ns; CT_FOREVER means no
 * deadline. */
#ifndef CT_BASE_CLOCK_H
#define CT_BASE_CLOCK_H

#include <stdint.h>

#include "base/status.h"

#define CT_FOREVER INT64_MAX
#define CT_MS ((int64_t)1000000)
#define CT_SEC ((int64_t)1000000000)

int64_t ct_now_ns(void);
/* A clock that a program shares with the processes it starts. It can be halted so that no deadline passes while these
 * processes are suspended (Ctrl-Z). ct_clock_share creates shared memory for the clock's state and returns a file
 * descriptor for it (close-on-exec). Another process passes its copy of the descriptor to ct_clock_join and then closes
 * it. Call only one of these two functions, at most once per process, before any thread is started. A process that
 * calls neither has its own clock, which cannot be halted. ct_clock_halt and ct_clock_resume must be called
 * alternately, by one thread of one process. */
enum ct_status ct_clock_share(int *fd) CT_MUST_CHECK;
enum ct_status ct_clock_join(int fd) CT_MUST_CHECK;
void ct_clock_halt(void);
void ct_clock_resume(void);
/* Total time for which the clock has been halted: CLOCK_MONOTONIC minus ct_now_ns. */
int64_t ct_clock_halted_ns(void);
/* Seconds since start_ns on the clock of ct_now_ns. */
static inline double ct_seconds_since(int64_t start_ns)
{
	return (double)(ct_now_ns() - start_ns) * 1e-9;
}
/* Returns now + span_ns, or CT_FOREVER on overflow. */
int64_t ct_deadline_in(int64_t span_ns);
/* Milliseconds until the deadline, rounded up, for poll(2): 0 if the deadline has passed, -1 for CT_FOREVER. */
int ct_deadline_poll_ms(int64_t deadline_ns);
/* When this process started, on the clock of ct_now_ns, for startup_seconds. The time is read from /proc/self/stat and
 * has a resolution of 10 ms. */
int64_t ct_process_start_ns(void);
/* Wall-clock time in seconds since 1970. Use it in file names and logs, never to measure a duration. */
double ct_wall_seconds(void);

#endif
