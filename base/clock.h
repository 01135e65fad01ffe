/* Monotonic time in nanoseconds; deadlines are absolute values of ct_now_ns, CT_FOREVER: no deadline. */
#ifndef CT_BASE_CLOCK_H
#define CT_BASE_CLOCK_H

#include <stdint.h>

#include "base/status.h"

#define CT_FOREVER INT64_MAX
#define CT_MS ((int64_t)1000000)
#define CT_SEC ((int64_t)1000000000)

int64_t ct_now_ns(void);
/* A clock that a program shares with the processes that it starts. It can be halted, so that no deadline passes while
 * they are suspended (Ctrl-Z). share creates the page with its state and returns a descriptor of it (close-on-exec);
 * the other processes pass it to join and close it. Call either at most once in a process, before any thread is
 * started; a process that calls neither has its own clock, which always runs. halt and resume are called alternately by
 * one thread of one process. */
enum ct_status ct_clock_share(int *fd) CT_MUST_CHECK;
enum ct_status ct_clock_join(int fd) CT_MUST_CHECK;
void ct_clock_halt(void);
void ct_clock_resume(void);
/* How long the clock has been halted so far: CLOCK_MONOTONIC minus ct_now_ns. */
int64_t ct_clock_halted_ns(void);
/* now + span, saturating. */
int64_t ct_deadline_in(int64_t span_ns);
/* Milliseconds left until the deadline for poll(2): 0 when past, -1 for CT_FOREVER, rounded up. */
int ct_deadline_poll_ms(int64_t deadline_ns);
/* Start of this process on the ct_now_ns clock (from /proc/self/stat, 10 ms grain), for startup_seconds. */
int64_t ct_process_start_ns(void);
/* Wall clock, seconds since 1970. For file names and logs, never for measuring. */
double ct_wall_seconds(void);

#endif
