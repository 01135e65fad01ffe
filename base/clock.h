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
/* A clock that a launcher shares with the processes it starts. It can be halted so that no deadline passes while these
 * processes are suspended (Ctrl-Z). Its state is in shared memory (base/process/rank_page.h), which must stay mapped
 * until the process ends. The launcher moves its clock to this memory, and each other process attaches to it before it
 * starts any thread; both never go back. A process that has done neither has a clock of its own. Calls to ct_clock_halt
 * and ct_clock_resume must alternate, and must all be made by the same thread of one process. */
void ct_clock_move(int64_t *state);
void ct_clock_attach(const int64_t *state);
void ct_clock_halt(void);
void ct_clock_resume(void);
/* Returns the total time for which the clock has been halted, which is CLOCK_MONOTONIC minus ct_now_ns. */
int64_t ct_clock_halted_ns(void);
/* Returns the number of seconds that have passed since start_ns, a time on the clock of ct_now_ns. */
static inline double ct_seconds_since(int64_t start_ns)
{
	return (double)(ct_now_ns() - start_ns) * 1e-9;
}
/* Returns the deadline that is span_ns from now, or CT_FOREVER on overflow. */
int64_t ct_deadline_in(int64_t span_ns);
/* Returns the timeout for poll(2) that ends at the deadline: the remaining milliseconds, rounded up; 0 if the deadline
 * has passed; -1 if it is CT_FOREVER. */
int ct_deadline_poll_ms(int64_t deadline_ns);
/* A pause between attempts that doubles each time, up to a maximum. */
struct ct_backoff {
	int64_t next_ns, max_ns; /* set both: the first pause, and the longest */
};
/* Returns the pause for this attempt. */
int64_t ct_backoff_ns(struct ct_backoff *b);
/* Returns the time at which this process started, on the clock of ct_now_ns, for the metric startup_seconds. The time
 * is read from /proc/self/stat and has a resolution of 10 ms. */
int64_t ct_process_start_ns(void);
/* Returns the wall-clock time in seconds since the Unix epoch (1970). Use it in file names and logs, never to measure a
 * duration. */
double ct_wall_seconds(void);

#endif
