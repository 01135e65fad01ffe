/* Decides whether a job whose ranks have failed is started again (launch.restarts). This is a pure function of the
 * failures so far, so that it can be tested without processes.
 *
 * An attempt is the life of all ranks of the job between two starts. A failure is not followed by another attempt if it
 * would occur again (a wrong configuration, a loss that is not finite), if all restarts of the budget are used, or if
 * it is a crash loop: the same rank has failed in the same step in CT_LOOP_TRAINING successive attempts, or before the
 * first step in CT_LOOP_START successive attempts. More attempts are made before the first step because what a lost
 * process has occupied may take some time to become free again. */
#ifndef CT_TRAINER_LAUNCH_RESTART_H
#define CT_TRAINER_LAUNCH_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum { CT_LOOP_TRAINING = 2, CT_LOOP_START = 3 };

/* How an attempt has ended. */
struct ct_attempt_end {
	enum ct_status status;
	int rank;      /* the rank that failed; -1: unknown */
	int64_t step;  /* the step that it was computing, counted from 1; 0: before the first step; -1: unknown */
	bool stopped;  /* a signal has requested the job to stop, or node 0 has ended it: there must not be another
			  attempt */
	bool regroups; /* no failure: the ranks have stopped at a checkpoint, because more nodes can take part */
};

/* The restarts of a job so far. Zeroed, except for budget, at the start. */
struct ct_restarts {
	int budget, used;
	struct ct_attempt_end last; /* of the previous failure */
	int n_same;                 /* successive failures of last.rank in last.step */
	struct ct_backoff backoff;
	int64_t delay_ns; /* how long to wait before the next attempt */
};

enum ct_restart_choice {
	CT_RESTART_AGAIN,   /* wait for delay_ns and start another attempt */
	CT_RESTART_USELESS, /* the failure would occur again */
	CT_RESTART_LOOP,    /* crash loop: n_same, last.rank and last.step describe it */
	CT_RESTART_USED     /* no restart is left */
};

/* Records the failure and returns what to do. After CT_RESTART_AGAIN, `used` includes the next attempt. The delay is
 * one second; it doubles, up to one minute, with each failure that is not at a later step than the previous one. */
enum ct_restart_choice ct_restarts_next(struct ct_restarts *r, const struct ct_attempt_end *end);

#endif
