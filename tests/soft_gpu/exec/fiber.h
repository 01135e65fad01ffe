/* Fibers: functions with separate stacks that are switched explicitly. A scheduler enters a fiber, and the fiber
 * returns to the scheduler. */
#ifndef CT_TESTS_SOFT_GPU_FIBER_H
#define CT_TESTS_SOFT_GPU_FIBER_H

#include <stddef.h>

struct soft__fiber;

/* Creates a fiber that calls `main` when it is entered for the first time; `main` must not return. The fiber exists
 * until the process ends. */
struct soft__fiber *soft__fiber_create(void (*main)(void));
/* Runs the fiber until it calls soft__fiber_leave. */
void soft__fiber_enter(struct soft__fiber *f);
/* Called by the running fiber f: returns to the caller of soft__fiber_enter. This call returns when the fiber is
 * entered again, possibly on another thread. */
void soft__fiber_leave(struct soft__fiber *f);

#endif
