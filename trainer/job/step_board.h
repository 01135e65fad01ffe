/* Memory that a launcher shares with its ranks, in which each rank stores how many steps it has done. The launcher
 * thereby knows the exact step of a rank that was killed; heartbeats are up to a second old. */
#ifndef CT_TRAINER_JOB_STEP_BOARD_H
#define CT_TRAINER_JOB_STEP_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* begun is 0: training has not begun; otherwise 1 + the number of steps done. Aligned so that ranks do not share cache
 * lines. */
struct ct_step_count {
	_Alignas(64) _Atomic uint64_t begun;
	_Atomic bool regroup;   /* set by the launcher, for its first rank: stop at the next checkpoint, because more
				   nodes can take part */
	_Atomic bool regrouped; /* set by the rank: it has stopped for this reason */
};

/* Creates zeroed memory for n ranks, and a file descriptor for it (close-on-exec). */
enum ct_status ct_step_board_create(int n, struct ct_step_count **out, int *fd) CT_MUST_CHECK;
/* Maps the memory in a rank. The rank closes its copy of the descriptor afterwards. */
enum ct_status ct_step_board_join(int fd, int n, struct ct_step_count **out) CT_MUST_CHECK;
/* May be called with NULL. */
void ct_step_board_release(struct ct_step_count *b, int n);
/* Sets the counts of all n ranks to 0. */
void ct_step_board_clear(struct ct_step_count *b, int n);

#endif
