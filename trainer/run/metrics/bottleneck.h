/* The bottleneck report: classifies what limited an epoch of training (data, compute, communication, one slow rank, or
 * other programs on the CPUs) and suggests a value for a setting. It is a pure function of the measurements of the
 * ranks. */
#ifndef CT_TRAINER_RUN_METRICS_BOTTLENECK_H
#define CT_TRAINER_RUN_METRICS_BOTTLENECK_H

#include "base/mem.h"

/* Measurements of one rank over the epoch, with times in seconds. All members are doubles, because ranks exchange them
 * as an array. */
struct ct_rank_times {
	double step_s;        /* duration of all steps */
	double data_s;        /* part of step_s: waiting for batches, or loading them if there are no loader threads */
	double compute_s;     /* forward, backward, optimizer */
	double exposed_s;     /* waiting for other ranks and for gradients */
	double loader_s;      /* total busy time of the loader threads; 0 if unknown */
	double loader_images; /* images loaded in loader_s */
	double images;        /* images used for training */
	double damaged;       /* number of loader_images that were decoded although the codec reported damage */
	/* From trainer/run/metrics/cpu_use.h; all are 0 if unknown. */
	double wall_s;   /* wall-clock time since the last report */
	double queued_s; /* part of wall_s in which the main thread was ready to run, but had no CPU */
	double own_s;    /* CPU time of this rank */
	double host_s;   /* CPU time used by all processes on its host */
};
#define CT_RANK_TIMES_N (sizeof(struct ct_rank_times) / sizeof(double))

struct ct_bottleneck_facts {
	const struct ct_rank_times *ranks;
	int world;
	uint64_t steps;
	uint32_t per_rank;    /* samples per step and rank */
	int loader_threads;   /* per rank; 0 if the main thread loads batches between steps */
	int compute_threads;  /* per rank */
	int cpus;             /* CPUs that a rank may use */
	int local_world;      /* ranks per host, from which the CPU time of other programs is computed; 0 if unknown */
	int host_cpus;        /* CPUs of a host */
	double flops;         /* per image, forward */
	bool encoded;         /* images are decoded */
	double reduced_bytes; /* gradients that are summed over all ranks in each step; 0: unknown */
	int n_buckets;        /* in which they are summed */
	bool one_host;        /* all ranks share memory */
};

enum ct_bottleneck {
	CT_BOTTLENECK_COMPUTE,
	CT_BOTTLENECK_DATA,
	CT_BOTTLENECK_COMM,
	CT_BOTTLENECK_RANK,
	CT_BOTTLENECK_OTHERS,
	CT_BOTTLENECK_WAITING /* ranks wait for each other for longer than the gradients can take */
};

/* Returns "data", "compute", "communication", "rank", "other programs" or "waiting": the value of `bound_by` in
 * metrics.jsonl. */
const char *ct_bottleneck_name(enum ct_bottleneck b);
/* Appends one sentence to out, such as "bound by data: 31 % of the time ...", or nothing if there were no steps.
 * Returns the bottleneck. */
enum ct_bottleneck ct_bottleneck_report(const struct ct_bottleneck_facts *f, struct ct_str *out);

#endif
