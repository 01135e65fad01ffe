/* Finds the rank for which the others wait, and the phase in which it loses the time. A pure function of the times of
 * all ranks. */
#ifndef CT_TRAINER_RUN_METRICS_STRAGGLER_H
#define CT_TRAINER_RUN_METRICS_STRAGGLER_H

#include <stdbool.h>

/* The values of a rank: seconds per step. */
enum ct_pace {
	CT_PACE_DATA,
	CT_PACE_FORWARD,
	CT_PACE_BACKWARD,
	CT_PACE_OPTIM,
	CT_PACE_OTHER,   /* saving, logging */
	CT_PACE_BUSY,    /* from the meeting of all ranks until the last bucket is reached, without waits */
	CT_PACE_STEP,    /* the complete step, which is about the same on all ranks */
	CT_PACE_BUCKETS, /* the first of n_buckets values: until the bucket is reached */
	CT_PACE_PHASES = CT_PACE_BUSY
};

struct ct_straggler {
	int rank, bucket;         /* bucket: the first one that the rank reaches late */
	double late_s;            /* later than the median of the others */
	double ratio;             /* of its busy time to that of the others */
	enum ct_pace phase;       /* in which it loses most of the time */
	double phase_s, others_s; /* its time in this phase, and the median of the others */
};

const char *ct_pace_name(enum ct_pace p); /* "data", ... */
/* all: [n_ranks, CT_PACE_BUCKETS + n_buckets], n_ranks of at least 2. scratch: [n_ranks]. Returns false if no rank is
 * busy for `factor` times as long as the median of the others. */
bool ct_straggler_find(const double *all, int n_ranks, int n_buckets, double factor, double *scratch,
		       struct ct_straggler *out);

#endif
