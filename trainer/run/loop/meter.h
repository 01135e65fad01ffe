/* Measures the time of a training run. All rates use a training clock, which does not advance while the run evaluates,
 * saves or compiles. The meter covers three intervals: since the last metrics line, since the start of the epoch, and
 * since the start of the process. */
#ifndef CT_TRAINER_RUN_LOOP_METER_H
#define CT_TRAINER_RUN_LOOP_METER_H

#include "trainer/run/step/step.h"

struct ct_interval {
	int64_t from_ns;             /* on the training clock */
	uint64_t steps, images, own; /* images: those of all ranks; own: images of this rank */
	struct ct_step_times times;
};

struct ct_meter {
	int64_t start_ns;    /* start of the job, on the ct_now_ns clock */
	int64_t excluded_ns; /* total time that was excluded from the training clock */
	int64_t added_ns;    /* time on the training clock when the last step was added */
	/* The time of steps that end together is divided evenly among them. ahead_ns is the share of those that have
	 * not been added yet. */
	int64_t share_ns, ahead_ns;
	int64_t accounted_ns; /* time of the last call of ct_meter_take_seconds */
	double startup_s;     /* from the start of the job to the end of its first step; 0 before that */
	struct ct_interval window, epoch, run;
};

void ct_meter_init(struct ct_meter *m, int64_t start_ns);
void ct_meter_add(struct ct_meter *m, const struct ct_step_result *r);
/* Excludes the time from since_ns to now from the training clock. */
void ct_meter_exclude_since(struct ct_meter *m, int64_t since_ns);
double ct_meter_seconds(const struct ct_meter *m, const struct ct_interval *i);
/* Starts the interval at the current time. */
void ct_meter_restart(const struct ct_meter *m, struct ct_interval *i);
/* Returns the wall-clock seconds since the last call or, in the first call, since ct_meter_init. */
double ct_meter_take_seconds(struct ct_meter *m);

#endif
