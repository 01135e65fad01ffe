/* Fibers: stacks that are switched explicitly. A scheduler enters fibers, and a fiber returns to the scheduler. */
#ifndef CT_TESTS_SOFT_GPU_FIBER_H
#define CT_TESTS_SOFT_GPU_FIBER_H

#include <stddef.h>

struct soft__fiber;

/* The fiber calls main when it is entered for the first time; main must not return. The fiber lives as long as the process. */
struct soft__fiber *soft__fiber_create(void (*main)(void));
/* Runs the fiber until it leaves. */
void soft__fiber_enter(struct soft__fiber *f);
/* Goes back to where f, which runs, was entered. Returns when it is entered again, possibly on another thread. */
void soft__fiber_leave(struct soft__fiber *f);

#endif
