/* Monotonic time in nanoseconds; deadlines are absolute values of ct_now_ns, CT_FOREVER waits without end. */
#ifndef CT_BASE_CLOCK_H
#define CT_BASE_CLOCK_H

#include <stdint.h>

#define CT_FOREVER INT64_MAX
#define CT_MS ((int64_t)1000000)
#define CT_SEC ((int64_t)1000000000)

int64_t ct_now_ns(void);
/* now + span, saturating. */
int64_t ct_deadline_in(int64_t span_ns);
/* Milliseconds left until the deadline for poll(2): 0 when past, -1 for CT_FOREVER, rounded up. */
int ct_deadline_poll_ms(int64_t deadline_ns);
/* Start of this process on the ct_now_ns clock (from /proc/self/stat, 10 ms grain), for startup_seconds. */
int64_t ct_process_start_ns(void);
/* Wall clock, seconds since 1970. For file names and logs, never for measuring. */
double ct_wall_seconds(void);

#endif
