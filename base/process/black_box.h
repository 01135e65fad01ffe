/* The black box: memory in which a process stores what it is doing, for the report after a failure. The launcher
 * creates it, so it outlives the process: even a process that was killed by SIGKILL leaves its phase, the activities of
 * its loader threads, and its flight records (dist/comm/comm.h). Storing costs a few writes to memory.
 *
 * A process has at most one black box. Without one (in unit tests and benchmarks), the functions that store do
 * nothing. */
#ifndef CT_BASE_PROCESS_BLACK_BOX_H
#define CT_BASE_PROCESS_BLACK_BOX_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/process/rank_page.h"

enum { CT_BOX_THREADS = 64, CT_BOX_AREAS = 4, CT_BOX_AREA_BYTES = 72 << 10, CT_BOX_PHASE = 48 };

struct ct_box_thread {
	_Atomic int64_t tid; /* 0: unused */
	_Atomic int64_t doing, number,
		since_ns; /* number: of the epoch or sample; since_ns: on the clock of ct_now_ns */
};

struct ct_box_area {
	_Atomic int64_t used; /* 0: never; 1: in use; 2: was in use, and still has its contents */
	_Alignas(64) unsigned char data[CT_BOX_AREA_BYTES];
};

struct ct_black_box {
	_Atomic int64_t pid;      /* of the process that has joined; 0: none */
	_Atomic int64_t n_phases; /* the current phase is phase[n_phases % 2] */
	char phase[2][CT_BOX_PHASE];
	struct ct_box_thread threads[CT_BOX_THREADS];
	struct ct_box_area areas[CT_BOX_AREAS];
};

/* For launchers: creates a black box. Other processes can join it through the path /proc/PID/fd/FD. */
enum ct_status ct_black_box_create(int *fd, struct ct_black_box **out) CT_MUST_CHECK;
void ct_black_box_destroy(int fd, struct ct_black_box *b); /* -1 and NULL are allowed */
/* Makes the box at this path that of the process. If path is NULL, or the box cannot be opened, private memory takes
 * its place. Call it before threads are started. */
void ct_black_box_join(const char *path);
/* Returns the box of this process, or NULL. */
const struct ct_black_box *ct_black_box_own(void);

/* Call it when the run has failed: from now on, the functions below do nothing, so that the box shows what the threads
 * were doing at the failure. May be called from any thread. */
void ct_black_box_freeze(void);

/* Stores the phase, such as "training, step 120". Only one thread may call it. */
void ct_box_phase(const char *fmt, ...) CT_PRINTF(1, 2);
const char *ct_box_phase_of(const struct ct_black_box *b);

/* Adds the calling thread to the box, until ct_box_thread_leave. */
void ct_box_thread_enter(void);
void ct_box_thread_leave(void);
/* Stores what the calling thread does. Does nothing if the thread has not been added. */
void ct_box_doing(enum ct_doing doing, int64_t number);
/* Changes the number only, without reading the clock. */
void ct_box_number(int64_t number);

/* Returns zeroed memory in the box, or NULL if there is none left, or if bytes is too large. */
void *ct_box_area_take(size_t bytes);
/* Returns the memory to the box, which keeps its contents until it is taken again. Returns false if p is not memory of
 * the box. */
bool ct_box_area_return(void *p);

#endif
